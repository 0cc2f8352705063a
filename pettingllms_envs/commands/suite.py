"""`pettingllms bench` of several environments, models and teams: each pair of them is a cell, a run of its own.

A cell that cannot be played says why, and the others go on. The same command goes on where it was stopped: cells that
are complete are not opened again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

import pettingllms_envs
from pettingllms_envs.agents.options import DEFAULTS, MINIMA
from pettingllms_envs.commands import INTERRUPTED, Refused, counted, refuse, say, user_errors
from pettingllms_envs.commands.leaderboard import read_board, show
from pettingllms_envs.commands.runs import about_problems, asked, check_at_least, default_output, watched
from pettingllms_envs.episodes import files
from pettingllms_envs.episodes.index import run_folders
from pettingllms_envs.evaluation import suites, tables
from pettingllms_envs.evaluation.bench import label_of
from pettingllms_envs.evaluation.data_label import problem_set
from pettingllms_envs.evaluation.suites import is_suite as is_suite  # `bench` asks
from pettingllms_envs.suggestions import did_you_mean


NOT_OPTIONS = ("set", "option", "workflow", "level", "split")
"""Options of a suite that become settings and reset options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """An environment and its player.

    Args:
        args: The arguments of `pettingllms bench` for this run alone.
    """

    env: str
    player: str
    args: argparse.Namespace


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A cell that can be played."""

    cell: Cell
    bench: Any
    path: Path


def check_name(name: str) -> None:
    """Raise `Refused` if a name is neither an environment's nor a suite's, but nearly a suite's."""
    try:
        pettingllms_envs.find(name)
    except ValueError as error:
        if not is_suite(name) and (hint := did_you_mean(name, suites.shipped())):
            refuse(f"no suite {name!r}.{hint} And {error}")


def run(args: argparse.Namespace, console: Console) -> int:
    """Play the missing episodes of all cells, and show the leaderboard. Returns the highest status of a cell."""
    with user_errors():
        suite = asked_suite(args)
        cells = list(cells_of(args, suite))
        root = _root(args, suite)
    planned, faults = _planned(console, cells, root)
    if not planned:
        reasons = {reason: name for name, reason in reversed(faults)}  # of each the first cell
        said = " ".join(f"{name}: {reason}" for reason, name in reversed(reasons.items()))
        refuse(f"none of {counted(len(cells), 'cell')} can be played. {said}" if faults else "there is no cell.")
    for name, reason in faults:
        say(console, f"error: {name}: {reason}")
    say(console, f"{counted(len(planned), 'run')} in {root}")
    new = suite.name and not (root / suites.RECORD).exists()
    if suite.name:
        players = suites.read_record(root).get("players", {}) | {each.path.name: each.cell.player for each in planned}
        with user_errors():
            root.mkdir(parents=True, exist_ok=True)
            files.write_json(root / suites.RECORD, {"name": suite.name, "source": suite.source, "players": players})
    status, ends = 2 if faults else 0, dict.fromkeys((each.path for each in planned), "not begun")
    is_left, failed = False, set[Path]()
    for number, each in enumerate(planned, 1):
        try:
            of_cell, words = _played(each, console)
        except Refused as refused:  # such as for a run of another version
            of_cell, words = 2, f"error: {refused}"
            failed.add(each.path)
        on = problem_set(each.bench.config)
        say(console, f"[{number}/{len(planned)}] {each.cell.env}, {each.cell.player}, {on}: {words}")
        status, ends[each.path], is_left = max(status, of_cell), words, is_left or of_cell == INTERRUPTED
        is_left = is_left or (of_cell != 0 and each.path.exists())
        if of_cell == INTERRUPTED:
            break
    kept = [each.path for each in planned if each.path.exists()]
    if not kept and new:
        (root / suites.RECORD).unlink()
        if not any(root.iterdir()):  # else it holds what is no run
            root.rmdir()
    if kept:
        names = {each.path: f"{each.cell.env}, {each.cell.player}" for each in planned}
        ranked = [path for path in kept if path not in failed]
        unplayed = [*faults, *((names[path], ends[path]) for path in ends if path not in ranked)]
        with user_errors():
            board = read_board(ranked)
            show(console, replace(board, left_out=[*board.left_out, *unplayed]))
        others = " with the others there" * bool(set(run_folders(root)) - set(kept))
        how = "--output leaderboard.html writes a page"
        say(console, f"\n`pettingllms leaderboard {root}` shows these runs again{others}; {how}.")
    if is_left:
        say(console, "The same command plays what is missing.")
    return status


def asked_suite(args: argparse.Namespace) -> Any:
    """The suite that the arguments name or describe, with the players of the command if it names some."""
    named = [name for name in args.envs if is_suite(name)]
    if named and len(args.envs) > 1:
        others = ", ".join(name for name in args.envs if name != named[0])
        raise ValueError(f"the suite {named[0]} was given with {others}; expected it alone. Give a command to each.")
    if named:
        suite = suites.read_suite(named[0])
    else:
        suite = suites.Suite(name="", source="the command", environments=[{"env": name} for name in args.envs])
    if args.models:
        players = [suites.Player(name=model, model=model, agents=args.agents) for model in args.models]
    elif args.agents or args.team:
        players = [suites.Player(name=" ".join([*args.agents, args.team or ""]).strip(), agents=args.agents)]
    else:
        players = list(suite.players)
    if not players:
        raise ValueError(f"{suite.source} names no models and no teams; expected some. Add --model MODEL, or several.")
    return replace(suite, players=players)


def cells_of(args: argparse.Namespace, suite: Any) -> Iterator[Cell]:
    """Every environment of a suite with every player.

    Options of the command come before those of an environment, and these before the suite's. Settings and reset
    options of the command and the suite hold for the environments that have them.
    """
    given = {name: vars(args)[name] for name in suites.ENVIRONMENT_KEYS if vars(args).get(name) is not None}
    given |= {"set": dict(args.settings), "option": dict(args.reset_options)}
    wide_set = [_settings(suite.options), _settings(given)]
    wide_options = [_reset_options(suite.options), _reset_options(given)]
    found: set[str] = set()
    cells = []
    for entry in suite.environments:
        has = _Has(entry["env"], _settings(entry))
        settings, options = [
            {
                **{name: wide[0][name] for name in wide[0] if knows(name, wide[0][name])},
                **own,
                **{name: wide[1][name] for name in wide[1] if knows(name, wide[1][name])},
            }
            for wide, own, knows in (
                (wide_set, _settings(entry), has.setting),
                (wide_options, _reset_options(entry), has.option),
            )
        ]
        found |= {*settings, *options}
        plain = {
            name: value
            for name, value in {**DEFAULTS, **suite.options, **entry, **given}.items()
            if name not in NOT_OPTIONS
        }
        for player in suite.players:
            own = {**vars(args), **plain, **player.options, "agents": player.agents, "model": player.model}
            own |= {"settings": list(settings.items()), "reset_options": list(options.items())}
            own |= {"workflow": None, "level": None, "split": None}
            cells.append(Cell(env=_shown(entry), player=player.name, args=argparse.Namespace(**own)))
    envs = ", ".join(dict.fromkeys(entry["env"] for entry in suite.environments))
    for name in (name for wide in (*wide_set, *wide_options) for name in wide if name not in found):
        refuse(f"{name!r} was given, but none of {envs} has it; expected a setting or option of one of them at least.")
    yield from cells


def _shown(entry: Mapping[str, Any]) -> str:
    """`"sokoban size=6 level=2"`."""
    own = {**_settings(entry), **_reset_options(entry)}
    return " ".join([entry["env"], *(f"{name}={value}" for name, value in own.items())])


def _settings(options: Mapping[str, Any]) -> dict[str, Any]:
    """Settings among options of an environment, a suite or the command."""
    return {**options.get("set", {}), **{name: options[name] for name in ("workflow",) if name in options}}


def _reset_options(options: Mapping[str, Any]) -> dict[str, Any]:
    return {**options.get("option", {}), **{name: options[name] for name in ("level", "split") if name in options}}


class _Has:
    """Which settings and reset options an environment has; one that cannot be made has all, and its cells say why."""

    def __init__(self, env: str, settings: Mapping[str, Any]) -> None:
        self._env, self._settings = env, settings
        try:
            self._options = pettingllms_envs.make(env, **settings).metadata.get("reset_options", {})
        except (ValueError, TypeError, ImportError):
            self._options = None

    def setting(self, name: str, value: Any) -> bool:
        try:
            pettingllms_envs.make(self._env, **{**self._settings, name: value})
        except TypeError:
            return self._options is None
        except (ValueError, ImportError):
            return True
        return True

    def option(self, name: str, value: Any) -> bool:
        return self._options is None or name in self._options


def _root(args: argparse.Namespace, suite: Any) -> Path:
    """The folder of all runs; `ValueError` if it has those of another suite."""
    root = Path(args.output or Path("outputs") / "bench" / str(suite.name))
    if suite.name and (root / suites.RECORD).is_file():
        source = suites.read_record(root).get("source", f"a {suites.RECORD} that cannot be read")
        if source != suite.source:
            raise ValueError(
                f"{root} has the runs of the suite of {source}, and this one is of {suite.source}; expected a folder "
                "for each. Give it another name, or name another folder: --output DIR."
            )
    return root


def _planned(console: Console, cells: Sequence[Cell], root: Path) -> tuple[list[Planned], list[tuple[str, str]]]:
    """The cells that can be played, each once, and name and reason of each of the others."""
    planned: dict[Path, Planned] = {}
    faults: list[tuple[str, str]] = []
    said: set[str] = set()
    for cell in cells:
        args = cell.args
        try:
            check_at_least(args, **MINIMA)
            bench, env = asked(args)
            with user_errors():
                path = default_output(bench.config, label_of(bench, env), root=root)
        except Refused as refused:
            faults.append((f"{cell.env}, {cell.player}", str(refused)))
            continue
        if path in planned:
            other = planned[path].cell
            say(console, f"{cell.env}, {cell.player} is the same run as {other.env}, {other.player}: played once.")
            continue
        for line in about_problems(args, bench, env):
            if line not in said:
                say(console, line)
            said.add(line)
        planned[path] = Planned(cell=cell, bench=bench, path=path)
    return list(planned.values()), faults


def _played(planned: Planned, console: Console) -> tuple[int, str]:
    """Play a cell; its exit status, and what came of it in a line. `Refused` if it cannot be played."""
    try:
        with user_errors():
            report = _complete(planned)
        if report is not None:
            return 0, f"{tables.brief(report)} (complete)"
        name = f"{planned.cell.env}, {planned.cell.player}"
        played = watched(planned.bench, planned.path, planned.cell.args, console, name)
    except Refused:
        raise
    except Exception as error:  # an environment or a plug-in may raise anything; other cells go on
        raise Refused(f"{type(error).__name__}: {error}") from error
    words = tables.brief(played.report)
    if played.ended.num_earlier:
        words += f"; {played.ended.num_earlier:,} of them were there"
    if played.ended.num_missing:
        words += f"; {played.ended.num_missing} episodes were not played: {played.ended.why}"
    if played.ended.interrupted:
        return INTERRUPTED, words
    if played.ended.refused:
        return 2, words
    return int(bool(played.ended.num_missing or played.report["episodes"]["errors"])), words


def _complete(planned: Planned) -> Mapping[str, Any] | None:
    """The report of a run that has all of its episodes, played by this version; else None."""
    if not (planned.path / files.REPORT).is_file():
        return None
    header, report = files.read_header(planned.path), files.read_report(planned.path)
    assert report is not None
    wanted = json.loads(json.dumps(planned.bench.config))  # where a tuple is a list
    same = header["config"] == wanted and header["versions"].get("pettingllms") == files.version()
    episodes = report["episodes"]
    return report if same and episodes["ended"] == episodes.get("planned") else None
