"""Compares several runs on the same problems, with tests and intervals.

Each pair of runs is compared problem by problem, on those for which every run has a result. With one sample per
problem the test is McNemar's exact test and the interval Newcombe's for paired shares; with several samples, the exact
sign-flip test on the problems' differences, and a bootstrap over problems. Where an environment reports no success, a
team's mean returns are compared likewise, by a studentized bootstrap. P-values are corrected by Holm's method and
intervals by Bonferroni's for the number of pairs. A run is called better only if test and interval agree.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from fractions import Fraction
from typing import Any

import pettingllms_envs
from pettingllms_envs.episodes.files import ANY_INSTANCE, JsonObject, check_starts_nothing, problem
from pettingllms_envs.episodes.observing import workflow_of
from pettingllms_envs.evaluation import data_label, statistics
from pettingllms_envs.evaluation.bench import without_defaults
from pettingllms_envs.evaluation.metrics import tokens
from pettingllms_envs.evaluation.scores import RunRows as RunRows
from pettingllms_envs.evaluation.scores import check_cooperative, returns_by_problem
from pettingllms_envs.settings import STRICT_FORMAT


ALPHA = 0.05

Scores = Mapping[str, Sequence[Any]]
"""By a run's name its score on each problem, in one order: shares of success as `Fraction`s, or returns as floats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """How much better the second of two runs does.

    Args:
        difference: Mean over problems of the second's success (or return) minus the first's; of success in [-1, 1].
        low, high: Its interval; those of all pairs, also of other groups, hold simultaneously with 95% confidence.
        only_first, only_second: Number of problems on which that run does better.
        p: Two-sided exact p-value.
        adjusted: The p-value corrected for the number of pairs (Holm), also of other groups.
        test: `"McNemar"` or `"sign flips"`.
        needed: Number of problems of this kind that would show a difference of this size with a power of 80%
            (`statistics.num_to_show`); None if there is no difference.
    """

    first: str
    second: str
    difference: float
    low: float
    high: float
    only_first: int
    only_second: int
    p: float
    adjusted: float
    test: str
    needed: int | None

    @property
    def worse(self) -> str | None:
        """The run that does worse; None unless test and interval agree."""
        if self.adjusted < ALPHA and self.low > 0:
            return self.first
        return self.second if self.adjusted < ALPHA and self.high < 0 else None

    @property
    def verdict(self) -> str:
        if self.worse is None:
            return "cannot tell"
        return f"{self.second if self.worse == self.first else self.first} is better"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Runs on the same problems.

    Args:
        num_problems: Number of problems for which every run has a result.
        left_out: Number of further problems of each run, by name.
        without: Problems that all other runs have in common, by the name of the run, if these are more.
        num_uneven: Problems of which two runs have different numbers of samples. With equal success rates the mean
            of such a difference is 0, but its distribution is not symmetric, so the tests are exact only if these are
            few.
        success: Mean, low and high of each run on the common problems; empty where they are compared by returns.
        returns: The same of the runs' returns, where the environment reports no success; else empty.
        pairs: Every two runs, in the order given.
        budgets: Success of each run within a number of tokens per episode, by it; empty if tokens are unknown.
    """

    num_problems: int
    left_out: Mapping[str, int]
    without: Mapping[str, int]
    num_uneven: int
    success: Mapping[str, tuple[float, float, float]]
    returns: Mapping[str, tuple[float, float, float]]
    pairs: Sequence[Pair]
    budgets: Mapping[int, Mapping[str, float]]

    @property
    def plain(self) -> dict[str, Any]:
        return asdict(self) | {"pairs": [asdict(pair) | {"verdict": pair.verdict} for pair in self.pairs]}


def compare(runs: Sequence[RunRows], *, against_first: bool = False) -> Comparison:
    """Compare all pairs of runs on the problems for which all have a result.

    Args:
        against_first: Compare only with the first run: fewer comparisons need less correction.
    """
    return compare_each({"": runs}, against_first=against_first)[""]


def compare_each(groups: Mapping[str, Sequence[RunRows]], *, against_first: bool = False) -> dict[str, Comparison]:
    """Compare the runs of each group, such as those of an environment, with each other; see `compare`.

    The p-values and the intervals are corrected for the number of pairs of all groups together.
    """
    shares = {name: _scores(runs) for name, runs in groups.items()}
    names = {
        name: [pair for pair in itertools.combinations(own, 2) if not against_first or pair[0] == next(iter(own))]
        for name, own in shares.items()
    }
    num_pairs = sum(map(len, names.values()))
    drafts = {
        name: [_pair(first, second, shares[name], 1 - ALPHA / num_pairs) for first, second in own]
        for name, own in names.items()
    }
    adjusted = iter(statistics.holm([draft["p"] for own in drafts.values() for draft in own]))
    return {
        name: _comparison(runs, shares[name], [Pair(**draft, adjusted=next(adjusted)) for draft in drafts[name]])
        for name, runs in groups.items()
    }


def _scores(runs: Sequence[RunRows]) -> Scores:
    """For each run its score on each problem that every run has a result for, in one order.

    The share of successful samples, a `Fraction`; of a team whose environment reports no success, its mean return.
    """
    _check(runs)
    scores: dict[str, dict[str, Any]]
    if any(row["success"] is not None for run in runs for row in run.rows):
        scores = {run.name: success_by_problem(run.rows) for run in runs}
    else:
        check_cooperative(runs[0].header["config"], [run.folder or run.name for run in runs])
        scores = {run.name: returns_by_problem(run.rows) for run in runs}
    for run in runs:
        if not scores[run.name] and any(row["error"] is None for row in run.rows):
            raise ValueError(
                f"{run.name} has {len(run.rows)} episodes whose environment does not say whether they succeeded; "
                "expected 'success' in their outcomes, as the others have. Play it again."
            )
        if not scores[run.name]:
            raise ValueError(
                f"{run.name} has no result to compare ({len(run.rows)} episodes, all errors); "
                "expected some. Play it again."
            )
    common = [key for key in scores[runs[0].name] if all(key in own for own in scores.values())]
    if not common:
        raise ValueError(
            f"{' and '.join(map(_played_on, runs))} have no problem in common; expected runs of the same "
            "environment, split and seeds. Play them on the same problems."
        )
    return {name: [own[key] for key in common] for name, own in scores.items()}


def _comparison(runs: Sequence[RunRows], scores: Scores, pairs: Sequence[Pair]) -> Comparison:
    has_success = all(isinstance(each, Fraction) for own in scores.values() for each in own)
    has_result = operator.itemgetter("success" if has_success else "returns")
    counts = [
        Counter(problem(row) for row in run.rows if row["error"] is None and has_result(row) is not None)
        for run in runs
    ]
    common = set.intersection(*(set(own) for own in counts))
    others = [set.intersection(*map(set, counts[:i] + counts[i + 1 :])) for i in range(len(runs) * (len(runs) > 2))]
    return Comparison(
        num_problems=len(common),
        without={run.name: len(own) for run, own in zip(runs, others, strict=False) if len(own) > len(common)},
        left_out={run.name: len(own) - len(common) for run, own in zip(runs, counts, strict=True)},
        num_uneven=sum(len({own[key] for own in counts}) > 1 for key in common),
        success={name: figure_of(own) for name, own in scores.items() if has_success},
        returns={name: figure_of(own) for name, own in scores.items() if not has_success},
        pairs=pairs,
        budgets=_budgets(runs, common) if has_success else {},
    )


def figure_of(scores: Sequence[Fraction | float]) -> tuple[float, float, float]:
    """The mean of scores, one for each problem, and the ends of its 95% interval: of shares, or of returns."""
    values = [float(each) for each in scores]
    is_share = all(isinstance(each, Fraction) for each in scores)
    return sum(values) / len(values), *(
        statistics.mean_interval(values) if is_share else statistics.studentized_bootstrap(values)
    )


def _check(runs: Sequence[RunRows]) -> None:
    names = [run.name for run in runs]
    if len(runs) < 2 or len(set(names)) < len(names):
        raise ValueError(f"the runs are {', '.join(names)}; expected two or more, of different names. Name them.")
    strict = [run.name for run in runs if read_so(run.header["config"])[STRICT_FORMAT]]
    if 0 < len(strict) < len(runs):
        lenient = ", ".join(name for name in names if name not in strict)
        raise ValueError(
            f"{', '.join(strict)} read replies strictly, and {lenient} did not; expected one way, or the form"
            f" of replies is compared. Play one with --set {STRICT_FORMAT}=true, or without it."
        )
    first = _problem_settings(runs[0])
    for run in runs[1:]:
        if _problem_settings(run) != first:
            raise ValueError(
                f"{runs[0].name} was played with {first}, {run.name} with {_problem_settings(run)}; expected the "
                "same, for their seeds are other problems. Play them alike."
            )
    _check_starts(runs)


def fault_of(runs: Sequence[RunRows]) -> str:
    """Why runs cannot be compared, or a single one, which begins a problem in different states; or an empty text."""
    try:
        if len(runs) > 1:
            _scores(runs)
        _check_starts(runs)
    except ValueError as error:  # such as another version of the environment, which begins otherwise
        return str(error)
    return ""


def _check_starts(runs: Sequence[RunRows]) -> None:
    starts: dict[tuple[Any, str], tuple[str, str]] = {}
    contents: dict[Any, tuple[str, str]] = {}
    for run in runs:
        chosen = run.header["config"].get("instances") or {}
        if (content := chosen.get("content")) is not None:
            name, other = contents.setdefault(chosen.get("digest"), (run.name, content))
            if other != content:
                raise ValueError(
                    f"{name} and {run.name} were played on rows of different content; expected the same problems. "
                    "The data set was changed in between: play one of them again."
                )
        for row in run.rows:
            if row["steps"] and row["steps"][0]["state"] is not None:
                key = (run.header["config"].get("env_config"), problem(row))
                state = row["steps"][0]["state"]
                name, other = starts.setdefault(key, (run.name, state))
                if other != state:
                    raise ValueError(
                        f"{name} and {run.name} begin {problem(row)} in different states; expected the same problem. "
                        "One was played by another version of the environment: play it again."
                    )


def _played_on(run: RunRows) -> str:
    problems = data_label.problem_set(run.header["config"])
    return f"{run.name} ({problems})" if problems else run.name


def _problem_settings(run: RunRows) -> dict[str, Any]:
    config = run.header["config"]
    settings = config.get("settings") or {}
    told = telling_settings(config.get("env"), settings) if settings.keys() - ANY_INSTANCE else settings
    env = str(config.get("env"))
    own = {"file": config.get("env_config")} if ":" in env else {}
    return {"env": env, **own, **{name: told[name] for name in told if name not in ANY_INSTANCE}}


def read_so(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run, with how replies were read; strictly before that was recorded."""
    return {STRICT_FORMAT: True, **(config.get("settings") or {})}


def telling_settings(env: str | None, settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings without defaults and those of the workflow, which do not change the problems, if it is known."""
    try:
        check_starts_nothing(settings, env or "")
        made = pettingllms_envs.make(env or "", **settings)
    except (ValueError, TypeError, ImportError):
        return settings
    workflow = workflow_of(made)
    own = {field.name for field in fields(workflow)} - {"task"} if is_dataclass(workflow) else set()
    return {name: value for name, value in without_defaults(settings, made).items() if name not in own}


def success_by_problem(rows: Sequence[JsonObject]) -> dict[str, Fraction]:
    """The share of successful samples of each problem that has a result."""
    counts: dict[str, list[bool]] = {}
    for row in rows:
        if row["success"] is not None:
            counts.setdefault(problem(row), []).append(bool(row["success"]))
    return {key: Fraction(sum(found), len(found)) for key, found in counts.items()}


def difference_of_shares(
    one: Sequence[Fraction], other: Sequence[Fraction], confidence: float = 0.95
) -> statistics.Interval:
    """Interval of the mean of `other - one`, the successes of two runs on the same problems.

    Args:
        one, other: The share of successful samples of each problem, in the same order.
        confidence: Of the interval: Newcombe's if each problem has one sample, else a bootstrap over problems.
    """
    differences = [b - a for a, b in zip(one, other, strict=True)]
    if not _are_single(one, other):
        return statistics.difference_interval([float(each) for each in differences], confidence)
    both = sum(a == b == 1 for a, b in zip(one, other, strict=True))
    only_one, only_other = differences.count(Fraction(-1)), differences.count(Fraction(1))
    return statistics.paired_interval(
        both, only_other, only_one, len(differences) - both - only_one - only_other, confidence
    )


def _are_single(one: Sequence[Fraction], other: Sequence[Fraction]) -> bool:
    """Whether every problem of both was solved or not, as with one sample each."""
    return all(share in (0, 1) for share in (*one, *other))


def _pair(first: str, second: str, scores: Scores, confidence: float) -> dict[str, Any]:
    """The fields of a `Pair`, except the adjusted p-value."""
    one, other = scores[first], scores[second]
    is_share = all(isinstance(each, Fraction) for each in (*one, *other))
    differences = [b - a for a, b in zip(one, other, strict=True)]
    num = len(differences)
    only_first, only_second = sum(each < 0 for each in differences), sum(each > 0 for each in differences)
    if not is_share:
        p, test = statistics.sign_flips(differences), "sign flips"
        low, high = statistics.studentized_bootstrap(differences, confidence)
    elif _are_single(one, other):
        p, test = statistics.mcnemar(only_first, only_second), "McNemar"
        low, high = difference_of_shares(one, other, confidence)
    else:
        low, high = difference_of_shares(one, other, confidence)
        whole = math.lcm(*(each.denominator for each in differences))
        p, test = statistics.sign_flips([int(each * whole) for each in differences]), "sign flips"
    mean = float(sum(differences) / num)
    variance = sum((float(each) - mean) ** 2 for each in differences) / max(1, num - 1)
    return {
        "first": first,
        "second": second,
        "difference": mean,
        "low": low,
        "high": high,
        "only_first": only_first,
        "only_second": only_second,
        "p": p,
        "test": test,
        "needed": _num_needed(mean, math.sqrt(variance), sum(each != 0 for each in differences) / num, 1 - confidence),
    }


def _num_needed(mean: float, deviation: float, differing: float, alpha: float) -> int | None:
    """`num_to_show`, but no fewer problems than the exact test needs: n that differ have a p-value of 2 / 2^n or more.

    Mean and deviation are of the problems' differences, of which the share `differing` is not 0.
    """
    needed = statistics.num_to_show(mean, deviation, alpha=alpha)
    return None if needed is None else max(needed, math.ceil(math.ceil(1 - math.log2(alpha)) / differing))


def _budgets(runs: Sequence[RunRows], common: set[str]) -> dict[int, dict[str, float]]:
    """Success within N tokens per episode, for four values of N: the quartiles of what all episodes took.

    An episode that took more tokens counts as a failure, whatever its outcome.
    """
    told = {
        run.name: [(problem(row), tokens(row), bool(row["success"])) for row in run.rows if row["success"] is not None]
        for run in runs
    }
    costs = sorted(cost for own in told.values() for key, cost, _ in own if key in common and cost is not None)
    if not costs or any(cost is None for own in told.values() for _, cost, _ in own):
        return {}
    budgets = [costs[min(len(costs) - 1, len(costs) * quarter // 4)] for quarter in (1, 2, 3, 4)]
    found: dict[int, dict[str, float]] = {}
    for budget in dict.fromkeys(budgets):
        found[budget] = {}
        for name, own in told.items():
            within: dict[str, list[bool]] = {}
            for key, cost, right in own:
                if key in common:
                    within.setdefault(key, []).append(right and (cost or 0) <= budget)
            found[budget][name] = sum(sum(each) / len(each) for each in within.values()) / len(within)
    return found
