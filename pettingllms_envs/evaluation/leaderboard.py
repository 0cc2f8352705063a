"""A leaderboard: who does how well on which environments, from the runs of a folder. Pure.

A column is an environment with its settings and problems, and only runs that have all of its episodes are in it. A run
on other problems, with other settings, another number of samples or another version of this package is in no column
that others are in: it stands below with the reason. Pairs in a column are compared problem by problem, and corrected
for the number of all pairs of the leaderboard. The mean gives each environment the same weight, however many columns
it has; its interval follows from those of the environments, which are independent (G. Zou, G. Huang, X. Zhang 2009, "A
note on confidence interval estimation for a linear function of binomial proportions").
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os.path import dirname
from types import MappingProxyType
from typing import Any

from pettingllms_envs.episodes.players import is_same_player, labels, options_of
from pettingllms_envs.evaluation import data_label, metrics
from pettingllms_envs.evaluation.compare import Comparison, RunRows, compare_each, fault_of, figure_of, read_so
from pettingllms_envs.evaluation.scores import RETURN, SUCCESS, check_cooperative, returns_by_problem
from pettingllms_envs.settings import STRICT_FORMAT


Figure = tuple[float, float, float]
"""A mean, and the ends of its 95% interval."""

SAME = ("settings", "env_config", "instances", "samples", "max_steps", "episode_tokens", "generated_tokens")
"""Fields of a run's configuration in which the runs of a column agree."""

DERIVED = ("digest of the problems", "defaults")
"""Conditions of a run that other ones mostly explain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A run in a column.

    Args:
        run: It; its name is that of its folder.
        note: What its problems are, if they are not what the environment is called after.
        is_best: Whether no other of its column is better, by a verdict of `Pair`.
    """

    column: str
    player: str
    run: RunRows
    report: Mapping[str, Any]
    note: str
    is_best: bool = False

    @property
    def measure(self) -> str:
        """What it is compared by, `"success"` or `"return"`."""
        return RETURN if self.report["success"] is None else SUCCESS

    @property
    def figure(self) -> Figure:
        """Its success rate; its mean return where the environment reports no success."""
        if self.measure == RETURN:
            return figure_of(list(returns_by_problem(self.run.rows).values()))
        figures = self.report["success"]
        return figures["mean"], figures["low"], figures["high"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaderboard:
    """The table and what stands below it.

    Args:
        players: Those who have a cell, the best first: by their mean, then those who lack a column, by name.
        means: The mean over the environments of the columns, but for those of `not_in_mean`, of each player that has
            them all; empty with one column.
        not_in_mean: The columns whose problems are not what the environment is called after, or that have returns.
        comparisons: The pairs of each column that has two players.
        left_out: Name and reason of each run that is in no column.
    """

    columns: Sequence[str]
    players: Sequence[str]
    cells: Mapping[tuple[str, str], Cell]
    means: Mapping[str, Figure]
    comparisons: Mapping[str, Comparison]
    left_out: Sequence[tuple[str, str]]
    not_in_mean: Sequence[str] = ()


def leaderboard(runs: Sequence[RunRows], names: Mapping[str, str] = MappingProxyType({})) -> Leaderboard:
    """The leaderboard of runs; of two of one configuration, the one that began last counts.

    Args:
        runs: Their names are their folders'.
        names: What a suite calls their players, by folder; others are called after their models.
    """
    left_out: list[tuple[str, str]] = []
    reports: dict[str, Mapping[str, Any]] = {}
    by_env: dict[str, list[RunRows]] = {}
    for run in runs:
        config = run.header["config"]
        report = metrics.report(run.header, run.rows, num_planned=_num_planned(config) or len(run.rows))
        if reason := _unfit(run, report):
            left_out.append((run.name, reason))
            continue
        reports[run.name] = report
        by_env.setdefault(str(config["env"]), []).append(run)
    columns: dict[str, list[RunRows]] = {}
    for env, of_env in by_env.items():
        groups: dict[str, list[RunRows]] = {}
        for run in _of_one_version(of_env, reports, left_out):
            groups.setdefault(_same(run), []).append(run)
        groups = {key: _alike(_newest(own, reports, left_out), left_out) for key, own in groups.items()}
        groups = {key: own for key, own in groups.items() if own}
        if not groups:
            continue
        most = max(map(len, groups.values()))
        kept = {key: own for key, own in groups.items() if len(own) > 1 or most == 1}
        table = next(own[0] for own in kept.values() if len(own) == most)
        for key, own in groups.items():
            if key not in kept:
                left_out.append((own[0].name, f"no other plays {env} so: {_differences(own[0], table)}"))
        columns |= dict(zip(_names(env, list(kept.values())), kept.values(), strict=True))
    return _joined(columns, reports, left_out, names)


def _joined(
    columns: Mapping[str, Sequence[RunRows]],
    reports: Mapping[str, Mapping[str, Any]],
    left_out: list[tuple[str, str]],
    names: Mapping[str, str],
) -> Leaderboard:
    players = labels([[run.header["config"] for run in own] for own in columns.values()])
    for own, of_column in zip(columns.values(), players, strict=True):
        called = [names.get(run.name, label) for run, label in zip(own, of_column, strict=True)]
        of_column[:] = [
            name if called.count(name) == 1 else label for name, label in zip(called, of_column, strict=True)
        ]
    _tell_apart(list(columns.values()), players, names)
    named = {
        column: [replace(run, name=player) for run, player in zip(own, of_column, strict=True)]
        for (column, own), of_column in zip(columns.items(), players, strict=True)
    }
    cells = {
        (player, column): Cell(
            column=column,
            player=player,
            run=run,
            report=reports[run.name],
            note=data_label.note_of(data_label.labelled(run.header)),
        )
        for (column, own), of_column in zip(columns.items(), players, strict=True)
        for run, player in zip(own, of_column, strict=True)
    }
    compared = {column: own for column, own in named.items() if len(own) > 1}
    comparisons = compare_each(compared) if compared else {}
    cells = {key: replace(cell, is_best=_is_best(cell, comparisons)) for key, cell in cells.items()}
    shown = list(columns)
    noted = {cell.column for cell in cells.values() if cell.note or cell.measure == RETURN}
    ranked = [column for column in shown if column not in noted] or shown
    by_env: dict[str, list[str]] = {}
    for column in ranked:
        by_env.setdefault(str(columns[column][0].header["config"]["env"]), []).append(column)
    means = {
        player: _mean([_of_env([cells[player, column].figure for column in own]) for own in by_env.values()])
        for player in dict.fromkeys(player for player, _ in cells)
        if len(ranked) > 1 and all((player, column) in cells for column in ranked)
    }
    single = {player: cell.figure for (player, column), cell in cells.items() if [column] == ranked} or means
    order = sorted(
        dict.fromkeys(player for player, _ in cells),
        key=lambda player: (player not in single, -single[player][0] if player in single else 0.0, player),
    )
    return Leaderboard(
        columns=shown,
        players=order,
        cells=cells,
        means=means,
        comparisons=comparisons,
        left_out=sorted(left_out),
        not_in_mean=[column for column in shown if column not in ranked],
    )


def _tell_apart(columns: Sequence[Sequence[RunRows]], players: Sequence[list[str]], names: Mapping[str, str]) -> None:
    """Where one name covers different players, add to each the options in which they differ."""
    named: dict[str, list[list[tuple[int, int]]]] = {}
    for i, own in enumerate(columns):
        for j, run in enumerate(own):
            groups = named.setdefault(players[i][j], [])
            others = (group for group in groups if all(k != i for k, _ in group))
            fits = (group for group in others if any(_are_same(run, columns[k][at], names) for k, at in group))
            if (group := next(fits, None)) is None:
                groups.append(group := [])
            group.append((i, j))
    taken = set(named)
    for name, groups in named.items():
        flats = [options_of(columns[i][j].header["config"]) for (i, j), *_ in groups]
        keys = [
            key for key in dict.fromkeys(k for flat in flats for k in flat) if len({f.get(key) for f in flats}) > 1
        ]
        for number, (group, flat) in enumerate(zip(groups, flats, strict=True), 1):
            said = ", ".join(f"{key}={flat[key]}" for key in keys if key in flat)
            new = f"{name} ({said})" if said else name
            if len(groups) > 1 and new in taken:
                new = f"{new} #{number}"
            taken.add(new)
            for i, j in group:
                players[i][j] = new


def _are_same(one: RunRows, other: RunRows, names: Mapping[str, str]) -> bool:
    """Whether two runs are of one player. Runs of a suite are in one folder, and may differ in options by column."""
    is_of_suite = one.name in names and other.name in names and dirname(one.name) == dirname(other.name)
    return is_same_player(one.header["config"], other.header["config"], may_differ_in_options=is_of_suite)


def _of_one_version(
    runs: Sequence[RunRows], reports: Mapping[str, Mapping[str, Any]], left_out: list[tuple[str, str]]
) -> list[RunRows]:
    """An environment's runs of the version of this package that most are of; of two such, the one that began last."""
    versions: dict[str, list[RunRows]] = {}
    for run in runs:
        versions.setdefault(str(run.header["versions"].get("pettingllms")), []).append(run)
    kept = max(versions, key=lambda each: (len(versions[each]), max(_began(run, reports) for run in versions[each])))
    for version in versions.keys() - {kept}:
        reason = f"it was played by pettingllms {version}, those in the table by {kept}; expected one version."
        left_out += [(run.name, f"{reason} Play it again.") for run in versions[version]]
    return versions[kept]


def _same(run: RunRows) -> str:
    """In what the runs of a column agree; the problems' content, which earlier versions did not write, is compared."""
    config = run.header["config"]
    instances = {key: value for key, value in config["instances"].items() if key != "content"}
    same = {name: config.get(name) for name in SAME} | {"settings": read_so(config), "instances": instances}
    return json.dumps(same, sort_keys=True)


def _alike(runs: Sequence[RunRows], left_out: list[tuple[str, str]]) -> list[RunRows]:
    """The largest group of runs whose problems are the same; of two as large, it is unknown which is right: none."""
    groups: list[list[RunRows]] = []
    for run in runs:
        if fault := fault_of([run]):
            left_out.append((run.name, fault))
            continue
        group = next((group for group in groups if not fault_of([*group, run])), None)
        if group is None:
            groups.append(group := [])
        group.append(run)
    if not groups:
        return []
    *others, largest = sorted(groups, key=len)
    is_tie = bool(others) and len(others[-1]) == len(largest)
    left_out += [(run.name, fault_of([*largest, run])) for group in others for run in group]
    left_out += [(run.name, fault_of([*others[-1], run])) for run in largest if is_tie]
    return [] if is_tie else largest


def _unfit(run: RunRows, report: Mapping[str, Any]) -> str:
    """Why a run is in no column; an empty string if it may be in one."""
    if run.header["kind"] != "bench":
        return f"it is of the kind {run.header['kind']!r}, and no benchmark"
    planned = _num_planned(run.header["config"])
    if planned is None:
        return "it does not say how many episodes it has"
    num = report["episodes"]["ended"]
    if num < planned:
        errors = sum(report["episodes"]["errors"].values())
        left = [f"{errors:,} are errors"] * bool(errors) + [f"{planned - num - errors:,} are missing"] * (
            planned - num > errors
        )
        return f"of {planned:,} episodes {' and '.join(left)}; the same command plays them"
    if report["success"] is None:
        try:
            check_cooperative(run.header["config"], [run.name, "ANOTHER"])
        except ValueError as error:
            return str(error)
        return ""
    if (known := report["success"]["episodes"]) < num:
        return f"{num - known:,} of {num:,} episodes do not say whether they were a success"
    return ""


def _num_planned(config: Mapping[str, Any]) -> int | None:
    try:
        return int(config["instances"]["num"]) * int(config["samples"])
    except (KeyError, TypeError, ValueError):
        return None


def _newest(
    runs: Sequence[RunRows], reports: Mapping[str, Mapping[str, Any]], left_out: list[tuple[str, str]]
) -> list[RunRows]:
    kept: dict[str, RunRows] = {}
    for run in sorted(runs, key=lambda run: (_began(run, reports), run.name)):
        key = json.dumps(run.header["config"], sort_keys=True)
        if (earlier := kept.pop(key, None)) is not None:
            left_out.append((earlier.name, f"{run.name} is the same run, and counts"))
        kept[key] = run
    return sorted(kept.values(), key=lambda run: run.name)


def _began(run: RunRows, reports: Mapping[str, Mapping[str, Any]]) -> float:
    return float((reports[run.name]["timing"] or {}).get("began", 0.0))


def _differences(run: RunRows, other: RunRows) -> str:
    """`"samples 1 (in the table 4), size 6 (in the table 10)"`."""
    own, theirs = _conditions(run), _conditions(other)
    keys = _telling([key for key in dict.fromkeys([*own, *theirs]) if own.get(key) != theirs.get(key)])
    return ", ".join(f"{key} {own.get(key, 'default')} (in the table {theirs.get(key, 'default')})" for key in keys)


def _telling(keys: Sequence[str]) -> list[str]:
    """The keys without those that follow from others, if there are others."""
    return [key for key in keys if key not in DERIVED] or list(keys)


def _conditions(run: RunRows) -> dict[str, str]:
    """What the runs of a column have in common, in words."""
    config = run.header["config"]
    chosen = [row["instance"]["options"] for row in run.rows]
    options = {name: value for name, value in chosen[0].items() if all(each.get(name) == value for each in chosen)}
    plain = {
        **read_so(config),
        **options,
        "problems": data_label.problem_set(config),
        "samples": config["samples"],
        **{name: config.get(name) for name in ("max_steps", "episode_tokens", "generated_tokens")},
        DERIVED[0]: str(config["instances"].get("digest"))[:8],
        DERIVED[1]: config.get("env_config"),
    }
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in plain.items()}


def _names(env: str, groups: Sequence[Sequence[RunRows]]) -> list[str]:
    """The names of an environment's columns: its settings, and whatever else tells them apart."""
    found = [_conditions(own[0]) for own in groups]
    settings = [(own[0].header["config"].get("settings") or {}).keys() - {STRICT_FORMAT} for own in groups]
    differing = [
        key for key in dict.fromkeys(k for each in found for k in each) if len({e.get(key) for e in found}) > 1
    ]
    names = [
        " ".join(
            [env, *(f"{key}={own[key]}" for key in _telling([key for key in own if key in {*given, *differing}]))]
        )
        for own, given in zip(found, settings, strict=True)
    ]
    if len(set(names)) < len(names):
        names = [f"{name} ({own[DERIVED[0]]})" for name, own in zip(names, found, strict=True)]
    return [name if names.count(name) == 1 else f"{name} #{place}" for place, name in enumerate(names, 1)]


def _is_best(cell: Cell, comparisons: Mapping[str, Comparison]) -> bool:
    """Whether nobody in the column is better than this one, by a verdict."""
    pairs = comparisons[cell.column].pairs if cell.column in comparisons else ()
    return not any(pair.worse == cell.player for pair in pairs)


def _of_env(figures: Sequence[Figure]) -> Figure:
    """The mean of an environment's columns. Their problems may be the same, so its interval is as wide as theirs."""
    mean, low, high = (sum(own) / len(figures) for own in zip(*figures, strict=True))
    return mean, low, high


def _mean(figures: Sequence[Figure]) -> Figure:
    """The mean of independent figures, with the interval that theirs give."""
    num = len(figures)
    mean = sum(each[0] for each in figures) / num
    below = math.sqrt(sum((each[0] - each[1]) ** 2 for each in figures)) / num
    above = math.sqrt(sum((each[2] - each[0]) ** 2 for each in figures)) / num
    return mean, mean - below, mean + above
