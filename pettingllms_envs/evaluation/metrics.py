"""Computes the numbers of a run from its rows: the content of `report.json`. Pure.

Rows with an error are excluded from all rates and means, and from success those that were cut before their outcome.
`least` and `most` bound their effect: the success rate if all of them had failed, and if all had succeeded.

What would differ in a second run is under the key `timing`: so a run that was killed and resumed has the same report,
byte for byte, but for that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from pettingllms_envs.episodes.figures import AGENT_FIGURES, mean_by_problem, of_outcome, of_row
from pettingllms_envs.episodes.files import FORMAT, JsonObject, ending_of, is_empty, place, problem
from pettingllms_envs.evaluation.statistics import Interval, majority, mean_interval, pass_at, studentized_bootstrap
from pettingllms_envs.replies.reading_counts import counts_of


ORDINARY = (None, "stop", "length")
"""Why replies end; other words are a server's own, for a refusal or unknown."""
MOST_GROUPS = 12
"""Most values of an option for which success is reported by value."""

Figures = dict[str, Any]


def report(header: Mapping[str, Any], rows: Sequence[JsonObject], *, num_planned: int | None = None) -> Figures:
    """All numbers of a run; without a number of planned episodes, that of the rows is taken for it."""
    ended = [row for row in rows if row["error"] is None]
    errors = Counter(row["error"]["kind"] for row in rows if row["error"] is not None)
    num = len(rows) if num_planned is None else num_planned
    told = [row for row in ended if row["success"] is not None]
    num_cut = sum(row["success"] is None and row["end"] in ("cut", "budget") for row in ended)
    names = dict.fromkeys(agent for row in rows for agent in row["returns"])
    return {
        "format": FORMAT,
        "env": header["config"].get("env"),
        "data": header.get("data"),
        "episodes": {"planned": num, "ended": len(ended), "errors": dict(errors), "missing": num - len(rows)},
        "success": success(told, num_errors=num - len(ended) + num_cut) if told else None,
        "samples": samples(told),
        "outcome": {name: _mean(ended, _outcome(name), is_share=_is_share(ended, name)) for name in _numeric(ended)},
        "turns": _mean(ended, lambda row: row["turns"]),
        "ends": dict(Counter(row["end"] for row in ended)),
        "tokens": _mean(ended, tokens),
        "agents": {name: _agent(name, rows) for name in names},
        "parts": parts(ended),
        "by": by_options(told),
        "timing": timing(rows),
    }


def success(rows: Sequence[JsonObject], *, num_errors: int = 0) -> Figures:
    """The success rate with its interval; each problem has the same weight, whatever its number of samples.

    `method` is `wilson`, or `bootstrap` over problems if they have several samples.
    """
    shares = by_problem(rows, lambda row: float(row["success"]))
    figures: Figures = {"mean": sum(shares) / len(shares), "problems": len(shares), "episodes": len(rows)}
    low, high = mean_interval(shares)
    method = "wilson" if set(shares) <= {0.0, 1.0} or len(set(shares)) == 1 else "bootstrap"
    figures |= {"low": low, "high": high, "confidence": 0.95, "method": method}
    if num_errors:
        num_right = sum(bool(row["success"]) for row in rows)
        whole = len(rows) + num_errors
        figures |= {"least": num_right / whole, "most": (num_right + num_errors) / whole}
    return figures


def samples(rows: Sequence[JsonObject]) -> Figures | None:
    """avg@k, pass@j for j up to k, and majority@k if there are answers; None with one sample per problem.

    k is the least number of samples of a problem; avg@k uses all samples.
    """
    problems = _groups(rows)
    k = min(map(len, problems.values()), default=1)
    if k < 2:
        return None
    counts = [(len(group), sum(bool(row["success"]) for row in group)) for group in problems.values()]
    powers = [2**i for i in range(k.bit_length()) if 2**i < k]
    figures: Figures = {
        "k": k,
        "avg": _figure([right / num for num, right in counts]),
        "pass": {str(j): _figure([pass_at(j, num, right) for num, right in counts]) for j in [*powers, k]},
    }
    if any(row.get("answer") is not None for row in rows):
        votes = [
            majority([row.get("answer") for row in group], [bool(row["success"]) for row in group])
            for group in problems.values()
        ]
        figures["majority"] = _figure(votes)
    return figures


def retries(rows: Iterable[JsonObject]) -> dict[str, int]:
    """Number of retries of each agent. They are in no report, since they would differ in a second run."""
    found: Counter[str] = Counter()
    for row in rows:
        for step in row["steps"]:
            found[step["agent"]] += step.get("timing", {}).get("tries", 1) - 1
    return dict(found)


def timing(rows: Iterable[JsonObject]) -> Figures | None:
    """When the first episode began, in seconds since 1970, and the wall time: seconds in which any was being played.

    Pauses between a kill and the command that went on are not counted. None if no row has its times.
    """
    times = [row["timing"] for row in rows if row.get("timing")]
    spans = sorted((each["began"], each["began"] + each["seconds"]) for each in times if "began" in each)
    if not spans:
        return None
    seconds, until = 0.0, spans[0][0]
    for began, ended in spans:
        seconds += max(0.0, ended - max(began, until))
        until = max(until, ended)
    return {"began": spans[0][0], "seconds": round(seconds, 3)}


def sum_of_tokens(report: Mapping[str, Any]) -> tuple[int, int] | None:
    """Prompt tokens and completion tokens of all agents together; None if no agent's are known."""
    agents = report["agents"].values()
    sums = [_sum(own[kind] for own in agents) for kind in ("prompt_tokens", "completion_tokens")]
    return None if sums == [None, None] else (sums[0] or 0, sums[1] or 0)


def by_problem(rows: Iterable[JsonObject], value: Callable[[JsonObject], float]) -> list[float]:
    """The mean of a value over the samples of each problem, in the order of problems."""
    return mean_by_problem((problem(row), value(row)) for row in sorted(rows, key=place))


def tokens(row: JsonObject) -> int | None:
    """Prompt and completion tokens of all agents in an episode; None if those of an agent are unknown."""
    counts = (count for step in row["steps"] for count in step["tokens"].values())
    return None if any(step.get("usage_note") for step in row["steps"]) else _sum(counts)


def parts(rows: Sequence[JsonObject]) -> dict[str, dict[str, Figures]]:
    """For each named part of the rewards, by scope: its mean sum over an episode, and how many episodes had it."""
    sums: dict[tuple[str, str], dict[int, float]] = {}
    for i, row in enumerate(rows):
        for step in row["steps"]:
            for scope, named in (step["parts"] or {}).items():
                for name, value in named.items():
                    of_row = sums.setdefault((scope, name), {})
                    of_row[i] = of_row.get(i, 0.0) + value
    found: dict[str, dict[str, Figures]] = {}
    for (scope, name), of_rows in sorted(sums.items()):
        mean = sum(of_rows.values()) / len(rows)
        found.setdefault(scope, {})[name] = {"mean": mean, "episodes": len(of_rows)}
    return found


def by_options(rows: Sequence[JsonObject]) -> dict[str, dict[str, Figures]]:
    """Success for each value of the options with few values, such as `level`."""
    found: dict[str, dict[str, Figures]] = {}
    for name in dict.fromkeys(name for row in rows for name in row["instance"]["options"]):
        groups: dict[str, list[JsonObject]] = {}
        for row in rows:
            groups.setdefault(str(row["instance"]["options"].get(name)), []).append(row)
        if 1 < len(groups) <= MOST_GROUPS:
            found[name] = {value: success(groups[value]) for value in sorted(groups)}
    return found


def _agent(name: str, rows: Sequence[JsonObject]) -> Figures:
    """An agent's costs, over all rows, and its returns, over rows without an error."""
    steps = [step for row in rows for step in row["steps"] if step["agent"] == name]
    ended = [row for row in rows if row["error"] is None and name in row["returns"]]
    own: Figures = {
        "calls": len(steps),
        "prompt_tokens": _sum(step["tokens"]["prompt"] for step in steps),
        "completion_tokens": _sum(step["tokens"]["completion"] for step in steps),
        "unknown_tokens": dict(Counter(step["usage_note"] for step in steps if step.get("usage_note"))),
        "cut_off": sum(step["finish"] == "length" for step in steps),
        "finish_words": dict(Counter(step["finish"] for step in steps if step["finish"] not in ORDINARY)),
        "empty": sum(map(is_empty, steps)),
        **counts_of([(step["reading"], ending_of(step)) for step in steps if step.get("reading")]),
        "tool_calls": sum(step.get("tool_calls", 0) > 0 for step in steps),
        "models": sorted({step["model"] for step in steps if step["model"] is not None}),
    }
    figures = {place(row): of_row(row)[name] for row in ended}
    shown = {each: _mean(ended, partial(_of_figures, figures, each), may_count=False) for each in AGENT_FIGURES}
    return own | shown


def _of_figures(figures: Mapping[tuple[int, int], Mapping[str, float]], name: str, row: JsonObject) -> float | None:
    return figures[place(row)].get(name)


def _sum(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _numeric(rows: Sequence[JsonObject]) -> list[str]:
    """Names of the outcome's values that are numbers or booleans, except `success`."""
    return list(dict.fromkeys(name for row in rows for name in of_outcome(row["outcome"] or {}) if name != "success"))


def _outcome(name: str) -> Callable[[JsonObject], float | None]:
    return lambda row: of_outcome(row["outcome"] or {}).get(name)


def _is_share(rows: Sequence[JsonObject], name: str) -> bool:
    """Whether a value of the outcome is a boolean."""
    found = ((row["outcome"] or {}).get(name) for row in rows)
    return all(isinstance(value, bool) for value in found if value is not None)


def _mean(
    rows: Sequence[JsonObject],
    value: Callable[[JsonObject], float | None],
    *,
    is_share: bool = False,
    may_count: bool = True,
) -> Figures | None:
    """The mean over problems of a value, with its interval; rows without it are left out.

    For booleans the interval is computed as for success, for other values by a studentized bootstrap, which also holds
    for heavy tails. That of a count, such as turns, is cut at 0: by its values it is one, and none is negative.
    """
    known = [row for row in rows if value(row) is not None]
    if not known:
        return None
    values = {place(row): value(row) or 0 for row in known}
    means = by_problem(known, lambda row: float(values[place(row)]))
    figure = _figure(means, mean_interval if is_share else studentized_bootstrap)
    if may_count and all(each >= 0 and float(each).is_integer() for each in values.values()):
        figure["low"] = max(0.0, figure["low"])
    return figure


def _figure(values: Sequence[float], interval: Callable[[Sequence[float]], Interval] = mean_interval) -> Figures:
    low, high = interval(values)
    return {"mean": sum(values) / len(values), "low": low, "high": high}


def _groups(rows: Iterable[JsonObject]) -> dict[str, list[JsonObject]]:
    """Rows by problem, in the order of problems; two seeds of a data set may be the same problem."""
    groups: dict[str, list[JsonObject]] = {}
    for row in sorted(rows, key=place):
        groups.setdefault(problem(row), []).append(row)
    return groups
