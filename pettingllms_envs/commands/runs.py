"""What commands share that play runs: options of agents, the progress bar, and what is said of missing episodes."""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

import pettingllms_envs
from pettingllms_envs.agents.options import DEFAULTS, MODEL_OPTIONS, SERVER, add_flags, in_group
from pettingllms_envs.agents.servers import with_server
from pettingllms_envs.agents.spec import AgentSpec, assign, option
from pettingllms_envs.commands import INTERRUPTED, made, refuse, say, setting, settings, user_errors
from pettingllms_envs.episodes.episode import RunLimits
from pettingllms_envs.episodes.files import RUN, read_header
from pettingllms_envs.episodes.observing import roles_of
from pettingllms_envs.episodes.players import player_of
from pettingllms_envs.evaluation import bench as benches
from pettingllms_envs.evaluation import data_label, teams
from pettingllms_envs.evaluation.agent_pools import WITHOUT_MODEL
from pettingllms_envs.evaluation.statistics import wilson
from pettingllms_envs.prompts import read_observation
from pettingllms_envs.settings import STRICT_FORMAT, to_json


MOST_OF_NAME = 60
"""Characters of a folder's name that name the player; a file system takes 255 bytes in all."""

_NO_NAME = re.compile(r"[^\w.+=]+")


def add_agents(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose the agents, and those of agents that are models."""
    who = parser.add_argument_group("agents")
    who.add_argument("--agents", nargs="+", default=[], metavar="AGENT", help="one for every role, or ROLE=AGENT ...")
    who.add_argument("--team", metavar="FOLDER", help="a saved team; --agents ROLE=AGENT replaces a role of it")
    who.add_argument("--model", dest="models", action="append", default=[], metavar="M",
                     help="model on the server; without --agents it plays all roles; bench takes several")  # fmt: skip
    add_flags(who, in_group("agents"))
    sampled = parser.add_argument_group("sampling of models (an agent's own options come first)")
    add_flags(sampled, in_group("sampled"))


def add_problems(parser: argparse.ArgumentParser) -> Any:
    """Add the options for problems and episodes. Returns their group."""
    what = parser.add_argument_group("problems and episodes")
    options = in_group("problems")
    after = [each.name for each in options].index("level") + 1
    add_flags(what, options[:after])
    what.add_argument("--option", dest="reset_options", action="append", default=[], type=setting, metavar="KEY=VALUE",
                      help="a reset option")  # fmt: skip
    add_flags(what, options[after:])
    return what


def add_running(parser: argparse.ArgumentParser) -> None:
    """Add the options for concurrency, timeouts and the output folder."""
    how = parser.add_argument_group("running")
    add_flags(how, in_group("running"))
    how.add_argument("--output", type=Path, metavar="DIR", help="folder for the records (one below outputs)")


def one_cell(args: argparse.Namespace, env: str) -> argparse.Namespace:
    """The arguments of a run of one environment, with defaults for what was not given."""
    own = {"env": env, "model": next(iter(args.models), None)}
    given = {name: value for name, value in vars(args).items() if value is not None or name not in DEFAULTS}
    return argparse.Namespace(**{**DEFAULTS, **given, **own})


def asked(args: argparse.Namespace) -> tuple[Any, Any]:
    """The benchmark that the arguments describe, and an environment of it."""
    chosen_settings = {
        **_of_team(args),
        **_of_run(args),
        **settings(args),
        **({} if args.workflow is None else {"workflow": args.workflow}),
    }
    env = made(args, **chosen_settings)
    name = pettingllms_envs.find(args.env).full_name
    options = {**dict(args.reset_options), **({} if args.level is None else {"level": args.level})}
    with user_errors():
        chosen_settings = benches.without_defaults(chosen_settings, env)
        if args.row is None:
            chosen = benches.choose(env, name, chosen_settings, split=args.split, options=options, limit=args.limit)
        else:
            chosen = benches.choose_row(env, name, args.row)
        env.reset(seed=chosen.instances[0].seed, options=dict(chosen.instances[0].options) or None)
        for agent in env.agents:
            read_observation(env.observe(agent), agent=agent)  # raises for what no agent can be shown
        env.close()  # the run of a program
        bench = benches.Bench(
            env=name,
            settings=chosen_settings,
            agents=specs(args, roles_of(env)),
            chosen=chosen,
            samples=args.samples,
            rules=RunLimits.of(vars(args)),
        )
    return bench, env


def _of_team(args: argparse.Namespace) -> dict[str, Any]:
    """The settings of a saved team's training that are the team's own, such as who speaks when in a conversation."""
    if args.team is None or ":" in args.env:
        return {}
    with user_errors():
        entry = pettingllms_envs.find(args.env)
        own = vars(importlib.import_module(entry.module)).get("TEAM_SETTINGS", ())
        trained = teams.read_team(Path(args.team.partition(",")[0])).settings.get(entry.full_name, [])
    found = {name: value for name, value in trained[0].items() if name in own} if len(trained) == 1 else {}
    said = [_reading(args, each) for each in trained]
    return found | (said[0] if said and said.count(said[0]) == len(said) else {})


def _of_run(args: argparse.Namespace) -> dict[str, Any]:
    """How replies are read in a run that is resumed."""
    output = vars(args).get("output")  # cells of a suite have none yet
    if output is None or not (output / RUN).is_file():
        return {}
    with user_errors():
        was = read_header(output)["config"].get("settings") or {}
    return _reading(args, was)


def _reading(args: argparse.Namespace, recorded: Mapping[str, Any]) -> dict[str, Any]:
    """How replies are read in a record with these settings, as a setting; nothing where that is none."""
    said = pettingllms_envs.recorded_settings(args.env, recorded, trusted=True)
    return {STRICT_FORMAT: said[STRICT_FORMAT]} if STRICT_FORMAT in said else {}


def specs(args: argparse.Namespace, roles: Mapping[str, str], texts: list[str] | None = None) -> dict[str, Any]:
    """The spec of each agent; models get the options that hold for all of them."""
    are_all, texts = texts is None, list(args.agents) if texts is None else texts
    if getattr(args, "team", None) is not None:
        texts = [*texts, f"{teams.KIND}:{args.team}"]
    given = sampling(args)
    if not texts:
        if args.model is None:
            raise ValueError(
                "no agent was given; expected a model, --model MODEL --base-url http://localhost:8000/v1, a trained "
                "team, --team FOLDER, or agents such as --agents oracle."
            )
        texts = ["api"]
    teams.check_roles(texts, roles)
    found, played, model = {}, assign(texts, roles), getattr(args, "model", None)
    models = {spec.target or model for spec in played.values() if spec.kind == "api"}
    if are_all and not getattr(args, "substitute", None) and model not in {None, *models}:  # a substitute may be it
        raise ValueError(
            f"--model is {model}, and no agent is played by it; expected one at least, such as --agents "
            f"{next(iter(roles.values()))}=api. Leave --model out, or --agents and --team."
        )
    for agent, spec in played.items():
        if spec.kind in WITHOUT_MODEL:
            found[agent] = spec
            continue
        own = given if spec.kind == "api" else {name: given[name] for name in given if name not in SERVER}
        if spec.kind == teams.KIND:
            found[agent] = teams.spec_of(spec, agent, roles[agent], own)
            continue
        target = spec.target or (model if spec.kind == "api" else None)
        found[agent] = with_server(AgentSpec(spec.kind, target, {**own, **spec.options}))
    return found


def sampling(args: argparse.Namespace) -> dict[str, Any]:
    """The sampling options of models, parsed; `ValueError` if one that must be a number is none."""
    given = {each.name: getattr(args, each.name, None) for each in MODEL_OPTIONS}
    return {
        name: option(name, str(value)) if isinstance(value, str | int | float) else value
        for name, value in given.items()
        if value is not None
    }


def concurrency_of(args: argparse.Namespace, agents: Mapping[str, Any]) -> int:
    """Number of concurrent episodes: as given, or 1 without a model."""
    if args.concurrency is not None:
        return int(args.concurrency)
    return 1 if all(spec.kind in WITHOUT_MODEL for spec in agents.values()) else 32


def default_output(
    config: Mapping[str, Any],
    label: Mapping[str, str] | None = None,
    *,
    root: Path = Path("outputs") / "bench",
    suffix: str = "",
) -> Path:
    """The folder of a run: the one that was begun with this configuration, else a new one that is named after it.

    Args:
        label: The label of its data, see `evaluation.data_label`; the folder's name says if rows are this package's.
    """
    digest = digest_of(config)
    begun = sorted(root.glob(f"*-{digest}{suffix}"))
    if begun:
        return begun[0]
    names = data_label.run_name(config["env"], label["note"] if label else ""), player_of(config, brief=True)
    env, player = (_NO_NAME.sub("-", each).strip("-.")[:MOST_OF_NAME] for each in names)
    return root / f"{env}-{player}-{date.today().isoformat()}-{digest}{suffix}"


def digest_of(config: Mapping[str, Any]) -> str:
    """The last part of the name of a run's folder, 8 hex digits of its configuration."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:8]


def say_problems(args: argparse.Namespace, console: Console, bench: Any, env: Any) -> None:
    """Print the notes of `about_problems`."""
    for line in about_problems(args, bench, env):
        say(console, line)


def about_problems(args: argparse.Namespace, bench: Any, env: Any) -> list[str]:
    """Notes on the problems and the agents of a run, a line each, such as which data and how many problems."""
    num = len(bench.chosen.instances)
    given, defaults = (to_json(env.metadata.get(name, {})) for name in ("settings", "defaults"))
    name = env.metadata.get("name", bench.env)  # of one from a file, as teams have it that were trained on it
    lines = list(teams.notes(bench.agents.values(), name, given, defaults))
    if bench.chosen.source == "row":
        return lines
    lines.insert(0, data_label.first_line(env, num))
    if bench.chosen.source == "seeds" and benches.has_published(bench.env):
        on = data_label.problem_set({"instances": {"source": "seeds", "num": num}})
        lines.append(
            f"{bench.env}: {on}, not the published test set, which is of the default settings and no options."
        )
    splits = env.metadata.get("reset_options", {}).get("split", ())
    if bench.chosen.source == "data set" and len(splits) > 1 and args.split is None:
        played = bench.chosen.instances[0].options.get("split", splits[0])
        lines.append(f"{num} of the split {played!r} {'is' if num == 1 else 'are'} played.")
    if env.metadata.get("judged") and not given.get("grader"):
        lines.append("No grader, so success is not known: --set grader=exact or grader=math reads the column answer.")
    if args.limit is not None and num < args.limit:
        more = " --samples K plays each K times." if args.samples == 1 else ""
        found = "is 1 problem" if num == 1 else f"are {num} problems"
        lines.append(f"There {found} ({bench.chosen.source}); --limit asked for {args.limit:,}.{more}")
    return [line for line in lines if line]


def watched(
    bench: Any, path: Path, args: argparse.Namespace, console: Console, name: str, again: Any | None = None
) -> Any:
    """Play the benchmark, with a progress bar that shows the success rate and its interval so far."""
    num = len(bench.chosen.instances) * bench.samples if again is None else len(again.places)
    how = {"concurrency": concurrency_of(args, bench.agents), "env_workers": args.env_workers}
    with user_errors(), bar(console, name, num) as on_row:
        return benches.play(bench, path, **how, on_row=on_row, again=again)


@contextmanager
def bar(console: Console, name: str, num: int) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """A progress bar; yields the function to call with each row."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    so_far = {"right": 0, "told": 0, "errors": 0, "tokens": 0}
    with Progress(
        *columns, TimeRemainingColumn(), console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task(name, total=num)

        def on_row(row: Mapping[str, Any]) -> None:
            so_far["errors"] += row["error"] is not None
            so_far["told"] += row["success"] is not None
            so_far["right"] += bool(row["success"])
            so_far["tokens"] += sum(n or 0 for step in row["steps"] for n in step["tokens"].values())
            words = name
            if so_far["told"]:
                low, high = wilson(so_far["right"], so_far["told"])
                words += f" {so_far['right'] / so_far['told']:.1%} [{100 * low:.1f}, {100 * high:.1f}]"
            words += f" {so_far['tokens']:,} tokens" if so_far["tokens"] else ""
            words += f" {so_far['errors']} errors" if so_far["errors"] else ""
            progress.update(task, advance=1, description=words)

        yield on_row


def missing(console: Console, played: Any) -> int:
    """Show which episodes have no result and why. Returns the exit status."""
    ended, episodes = played.ended, played.report["episodes"]
    errors = sum(episodes["errors"].values())
    if errors:
        kinds = ", ".join(f"{num} {kind}" for kind, num in episodes["errors"].items())
        first = next(row["error"] for row in ended.rows if row["error"] is not None)
        say(console, f"{errors} episodes are errors ({kinds}) and in no rate. The first: {first['message']}")
    if ended.num_missing:
        say(console, f"{ended.num_missing} of {episodes['planned']} episodes were not played: {ended.why}")
    if errors or ended.num_missing:
        say(console, "The same command plays them again.")
    if ended.interrupted or ended.refused:
        return INTERRUPTED if ended.interrupted else 2
    return int(bool(errors or ended.num_missing))


def check_at_least(args: argparse.Namespace, **least: int) -> None:
    """Raise `Refused` for numbers that are too small."""
    for name, smallest in least.items():
        value = getattr(args, name)
        if value is not None and value < smallest:
            refuse(f"--{name.replace('_', '-')} is {value}; expected at least {smallest}.")
