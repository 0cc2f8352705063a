"""Compares a finished run with its rerun: which figures repeat exactly, and how far apart the others are.

With the same code, packages, threads and processor a run repeats to the bit. Otherwise sums may be rounded or prompts
written differently; a token is then sampled differently sooner or later, and the rest of the training is another one.
So a log agrees in its first rows, and success as well as that of two trainings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pettingllms_envs.evaluation.statistics import Interval, paired_interval
from pettingllms_envs.research.studies.results import CellResult, changed


EXACT, BEYOND_NOISE, WITHIN_NOISE = 0, 1, 3
"""Statuses with which `pettingllms study --verify` ends; 2 is a mistake of the user's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Two runs of one configuration.

    Args:
        status: `EXACT` if everything does, else whether the difference in success is within noise.
    """

    lines: Sequence[str]
    status: int


def agreement(there: CellResult, here: CellResult) -> Agreement:
    """Compare a finished run, `there`, with its rerun of the same configuration."""
    interval = difference_of(there.success, here.success)
    exact = _outcome(there) == _outcome(here)
    is_near = interval[0] <= 0 <= interval[1]
    status = EXACT if exact else WITHIN_NOISE if is_near else BEYOND_NOISE
    return Agreement(
        lines=(
            *_log_lines(there, here),
            _both("tokens", f"{there.tokens:,}", f"{here.tokens:,}"),
            _both("steps", f"{there.steps:,}", f"{here.steps:,}"),
            *_curve_line(there, here),
            _success_line(there, here, interval),
            *_conditions(there, here),
            _verdict(status),
        ),
        status=status,
    )


def _outcome(result: CellResult) -> tuple[object, ...]:
    return result.success, result.tokens, result.steps, result.curve, result.training, result.guesser


def difference_of(there: str, here: str) -> Interval:
    """The 95% interval of the rerun's rate less the other's, paired by instances."""
    pairs = list(zip(here, there, strict=True))
    return paired_interval(*(pairs.count(each) for each in (("1", "1"), ("1", "0"), ("0", "1"), ("0", "0"))))


def num_equal(there: Sequence[object], here: Sequence[object]) -> int:
    """How many values are equal from the first on.

    Example:
        1, 2, 3, 4 and 1, 2, 0, 4: 2.
    """
    return next(
        (i for i, (one, other) in enumerate(zip(there, here, strict=False)) if one != other),
        min(len(there), len(here)),
    )


def _log_lines(there: CellResult, here: CellResult) -> list[str]:
    counts = {
        name: (num_equal(values, here.training.get(name, ())), len(values)) for name, values in there.training.items()
    }
    if not counts:
        return ["log: none was kept"]
    rows = max(number for _, number in counts.values())
    but = [f"{name} from row {equal + 1} on" for name, (equal, number) in counts.items() if equal < number]
    if len(but) < len(counts):
        return [f"log: {rows} of {rows} rows are equal{' but for ' if but else ''}{', '.join(but)}"]
    each = ", ".join(f"{name} {equal}" for name, (equal, _) in counts.items())
    return [f"log: the first {min(equal for equal, _ in counts.values())} of {rows} rows are equal ({each})"]


def _curve_line(there: CellResult, here: CellResult) -> list[str]:
    if not there.curve:
        return []
    points, others = (list(zip(*each.curve.values(), strict=True)) for each in (there, here))
    return [f"curve: the first {num_equal(points, others)} of {len(points)} points are equal"]


def _success_line(there: CellResult, here: CellResult, interval: Interval) -> str:
    same = sum(one == other for one, other in zip(there.success, here.success, strict=True))
    return (
        f"success: {same} of {len(there.success)} instances end alike; {100 * there.rate:.1f}% there, "
        f"{100 * here.rate:.1f}% here, {100 * (here.rate - there.rate):+.1f} points "
        f"[{100 * interval[0]:+.1f}, {100 * interval[1]:+.1f}]"
    )


def _conditions(there: CellResult, here: CellResult) -> list[str]:
    code = [{"digest": each.code} if each.code else {} for each in (there, here)]
    model = [{"digest": each.model} if each.model else {} for each in (there, here)]
    pairs = {
        "packages": (there.packages, here.packages),
        "code": code,
        "model": model,
        "machine": (there.machine, here.machine),
    }
    return [
        f"{name}: {'; '.join(changed(one, other)) or 'the same'}" if one else f"{name}: not recorded there"
        for name, (one, other) in pairs.items()
    ]


def _both(name: str, there: str, here: str) -> str:
    return f"{name}: {there} in both" if there == here else f"{name}: {there} there, {here} here"


def _verdict(status: int) -> str:
    return {
        EXACT: "It repeats exactly.",
        WITHIN_NOISE: "It does not repeat exactly, and agrees within noise: the 95% interval of the difference in "
        "success, paired by instances, contains 0.",
        BEYOND_NOISE: "It does not agree: the 95% interval of the difference in success, paired by instances, "
        "excludes 0.",
    }[status]
