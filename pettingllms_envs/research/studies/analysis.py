"""From the results of a study to comparisons of its methods. Pure but for reading the folder.

Methods are compared on the seeds that both have, with intervals that hold together for all comparisons that the study
has *planned* in all of its environments: those of a study in progress are not narrower than they will be. If it names
primary comparisons, the intervals of these hold together, those of secondary ones among themselves, and any other is
exploratory, at 95% by itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pettingllms_envs.evaluation.statistics import num_to_show
from pettingllms_envs.research.studies.paired import Comparison, compare
from pettingllms_envs.research.studies.results import (
    CellResult,
    Fidelity,
    Outline,
    changed,
    label,
    read_all,
    read_outline,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyResults:
    """What a folder of results has.

    Args:
        evaluation: The finished runs of each environment and method, in the order of the seeds.
        tuning: The finished runs of each environment, method and setting (its label).
        unplanned: Names of the finished runs of an evaluation that the outline does not plan.
    """

    outline: Outline
    evaluation: Mapping[tuple[str, str], Sequence[CellResult]]
    tuning: Mapping[tuple[str, str, str], Sequence[CellResult]] = field(default_factory=dict)
    fidelity: Mapping[tuple[str, str], Fidelity] = field(default_factory=dict)
    unplanned: Sequence[str] = ()

    def missing(self) -> list[str]:
        """Names of the evaluation's runs that are not finished."""
        there = {result.cell.name for results in self.evaluation.values() for result in results}
        return [cell.name for cell in self.outline.cells() if cell.name not in there]


def read_results(folder: Path) -> StudyResults:
    """Read a folder of results; runs that the outline does not plan are left out."""
    outline = read_outline(folder)
    evaluation: dict[tuple[str, str], list[CellResult]] = {}
    planned = [cell.name for cell in outline.cells()]
    found = {result.cell.name: result for result in read_all(folder, "evaluation", CellResult)}
    for result in (found.pop(name) for name in planned if name in found):
        if (number := len(result.success)) != outline.num_instances:
            raise ValueError(
                f"{result.cell.name} has {number} instances; expected {outline.num_instances}. Run it again."
            )
        evaluation.setdefault((result.cell.environment, result.cell.method), []).append(result)
    tuning: dict[tuple[str, str, str], list[CellResult]] = {}
    for result in read_all(folder, "tuning", CellResult):
        cell = result.cell
        if outline.tuning is None or cell.seed not in outline.tuning_seeds(cell.environment, cell.method):
            continue
        key = (result.cell.environment, result.cell.method, label(result.cell.setting))
        tuning.setdefault(key, []).append(result)
    fidelity = {(f.cell.environment, f.cell.method): f for f in read_all(folder, "fidelity", Fidelity)}
    return StudyResults(outline=outline, evaluation=evaluation, tuning=tuning, fidelity=fidelity, unplanned=[*found])


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A method compared with another one.

    Args:
        first: The reference, or the first method of a comparison that was named.
        comparison: The first's successes less the other's.
        needed: Seeds that would show a real difference of this size four times in five; `None` if there is none.
    """

    environment: str
    first: str
    method: str
    seeds: tuple[int, ...]
    comparison: Comparison
    needed: int | None


def named_differences(results: StudyResults, named: Sequence[Mapping[str, Any]]) -> list[Difference]:
    """The primary or the secondary comparisons of which both methods have two seeds or more."""
    pairs = [(each["environment"], *each["methods"]) for each in named]
    number = len(pairs)
    return [found for pair in pairs if (found := _difference(results, *pair, num_comparisons=number)) is not None]


def differences(results: StudyResults, environment: str) -> list[Difference]:
    """The reference less each method that it is compared with, where both have two seeds or more; none that is
    primary or secondary."""
    outline = results.outline
    number = 1 if outline.primary else outline.num_comparisons
    return [
        found
        for method in outline.compared[environment]
        if not outline.is_named(environment, outline.reference, method)
        and (found := _difference(results, environment, outline.reference, method, num_comparisons=number)) is not None
    ]


def _difference(
    results: StudyResults, environment: str, first: str, second: str, *, num_comparisons: int
) -> Difference | None:
    ours = {result.cell.seed: result for result in results.evaluation.get((environment, first), ())}
    theirs = {result.cell.seed: result for result in results.evaluation.get((environment, second), ())}
    seeds = tuple(seed for seed in ours if seed in theirs)
    if len(seeds) < 2:
        return None
    comparison = compare(
        _successes([ours[seed] for seed in seeds]),
        _successes([theirs[seed] for seed in seeds]),
        num_comparisons=num_comparisons,
    )
    spread = float(np.std(comparison.by_seed, ddof=1))
    needed = num_to_show(comparison.mean, spread, alpha=1 - comparison.confidence)
    return Difference(
        environment=environment, first=first, method=second, seeds=seeds, comparison=comparison, needed=needed
    )


def _successes(results: Sequence[CellResult]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """A row for each seed. (S, N)"""
    return np.array([[float(digit) for digit in result.success] for result in results])


def best_setting(rates: Sequence[Sequence[float]]) -> int:
    """Which setting, of which each seed's success is given, has the highest mean; of equal ones the first.

    Example:
        Means 0.5, 0.7, 0.7: setting 1.
    """
    means = [sum(own) / len(own) for own in rates]
    return means.index(max(means))


def tuned(results: StudyResults, environment: str, method: str) -> int | None:
    """The chosen setting of a method, by its place among its own; `None` while its tuning is not finished."""
    tuning = results.outline.tuning
    if tuning is None:
        return None
    own = [results.tuning.get((environment, method, setting), ()) for setting in results.outline.settings_of(method)]
    if any(len(each) < len(results.outline.tuning_seeds(environment, method)) for each in own):
        return None
    return best_setting([[result.rate for result in each] for each in own])


def inconsistencies(results: StudyResults) -> list[str]:
    """Where runs that are compared differ in what must be alike, as sentences.

    The seeds of a method must have one configuration, the methods of an environment must be evaluated on the same
    instances, a model's name must stand for the same files, and all runs must be made with the same code and versions
    of packages, and with the primary and secondary comparisons of the outline.
    """
    found = []
    named = _named(results.outline)
    firsts: dict[str, CellResult] = {}
    for (environment, method), own in results.evaluation.items():
        first = firsts.setdefault(environment, own[0])
        if differing := changed(_evaluated(first.config), _evaluated(own[0].config)):
            found.append(
                f"{method} in {environment} was evaluated on other instances than {first.cell.method} "
                f"({'; '.join(differing)}), so they are not paired."
            )
        kinds = [{**r.config, "train": {k: v for k, v in r.config["train"].items() if k != "seed"}} for r in own]
        for kind, result in zip(kinds[1:], own[1:], strict=True):
            if kind != kinds[0]:
                what = "; ".join(changed(kinds[0], kind))
                found.append(
                    f"{method} in {environment}: seed {result.cell.seed} has another configuration than seed "
                    f"{own[0].cell.seed} ({what})."
                )
    every = [result for own in results.evaluation.values() for result in own]
    for which, fixed in named.items():
        if others := [result.cell.name for result in every if result.config.get(which) != fixed]:
            found.append(
                f"{len(others)} runs, {others[0]} among them, were made with other {which} comparisons than those of "
                "the outline, which were not fixed beforehand."
            )
    budget = results.outline.tokens
    if others := [result.cell.name for result in every if result.config.get("tokens") not in (None, 0, budget)]:
        found.append(f"{len(others)} runs, {others[0]} among them, had another budget than {budget:,} tokens.")
    if gone := results.unplanned:
        found.append(f"{len(gone)} finished runs, {gone[0]} among them, are left out: they are no longer planned.")
    models: dict[object, CellResult] = {}
    for result in every:
        name = result.config["train"].get("model_name_or_path")
        if result.model and "{" not in str(name) and models.setdefault(name, result).model != result.model:
            found.append(
                f"{result.cell.name} started from other files of {name} than {models[name].cell.name} "
                f"({result.model[:8]}, {models[name].model[:8]})."
            )
            break
    for result in every[1:]:
        if differing := changed(_software(every[0], result.code), _software(result, every[0].code)):
            found.append(
                f"{result.cell.name} was made with other packages than {every[0].cell.name} ({'; '.join(differing)})."
            )
            break
    return found


def _named(outline: Outline) -> dict[str, object]:
    """The primary and the secondary comparisons as configurations of evaluations have them."""
    primary = {"comparisons": outline.primary, "seeds": outline.primary_seeds} if outline.primary else None
    given = {"primary": primary, "secondary": outline.secondary or None}
    return {kind: json.loads(json.dumps(fixed)) for kind, fixed in given.items()}


def _evaluated(config: Mapping[str, Any]) -> dict[str, object]:
    """What says on which instances a run was evaluated."""
    return {name: config["train"][name] for name in ("eval_split", "eval_seeds") if name in config["train"]}


def _software(result: CellResult, other_code: str) -> dict[str, str]:
    """Its packages and, where that of both is known, the code."""
    return {**result.packages, **({"code": result.code} if result.code and other_code else {})}
