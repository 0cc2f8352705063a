"""Shows reports as tables in a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pettingllms_envs.agents.answers import ending
from pettingllms_envs.episodes.figures import AGENT_FIGURES, words
from pettingllms_envs.evaluation.metrics import sum_of_tokens
from pettingllms_envs.printable import printable
from pettingllms_envs.replies.reading_counts import warning_of


Figures = Mapping[str, Any]

FEW = 10
"""Number of problems below which no interval of a mean has the right coverage, see docs/benchmarking.md."""

MOST_NOT_UNDERSTOOD = 0.05
"""The share of messages that a scripted player did not understand above which a report warns."""


def percent(figure: Figures) -> str:
    """A share with its interval, such as `"41.5% [34.9, 48.4]"`."""
    return f"{100 * figure['mean']:.1f}% [{100 * figure['low']:.1f}, {100 * figure['high']:.1f}]"


def rate(success: Figures | None) -> str:
    """A success rate with its interval; where episodes have no result, what it is if all of them fail, or succeed."""
    if success is None:
        return "no success rate"
    if "least" in success:
        return f"{success['least']:.1%} to {success['most']:.1%} (partial)"
    return percent(success)


def number(figure: Figures | None) -> str:
    """A mean with its interval, or a dash if there is none."""
    return "-" if figure is None else f"{figure['mean']:.3g} [{figure['low']:.3g}, {figure['high']:.3g}]"


def count(value: int | None) -> str:
    """A whole number, or a dash if it is unknown."""
    return "-" if value is None else f"{value:,}"


def duration(seconds: float | None) -> str:
    """`"12.3 s"`, `"3 min 20 s"`, `"2 h 05 min"`, or a dash if it is unknown."""
    if seconds is None:
        return "-"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


def costs(report: Figures) -> str:
    """`"wall time 12.3 s, 286,805 tokens in, 12,320 out"`; reports of earlier versions have no time."""
    tokens = sum_of_tokens(report)
    said = [f"wall time {duration((report.get('timing') or {}).get('seconds'))}"]
    return ", ".join([*said, *([] if tokens is None else [f"{tokens[0]:,} tokens in", f"{tokens[1]:,} out"])])


def brief(report: Figures) -> str:
    """Success, errors and costs of a run in a line."""
    episodes, success = report["episodes"], report["success"]
    num = episodes["ended"]
    errors = ", ".join(f"{num} {kind}" for kind, num in episodes["errors"].items())
    of = f" of {episodes['planned']:,}" if episodes["planned"] > num else ""
    said = [rate(success), f"{num:,}{of} episode{'' if num == 1 and not of else 's'}"]
    return ", ".join([*said, *([f"errors: {errors}"] if errors else []), costs(report)])


def show(console: Console, report: Figures, retries: Mapping[str, int]) -> None:
    """Show a run's numbers: success, then each agent's costs, then the parts of the rewards."""
    table(console, ("", "mean [95% interval]"), main_figures(report))
    agents = report["agents"]
    rows = [
        (name, count(own["calls"]), count(retries.get(name, 0)), count(own["prompt_tokens"]),
         count(own["completion_tokens"]),
         *("-" if (figure := own.get(each)) is None else f"{figure['mean']:.3g}" for each in AGENT_FIGURES))
        for name, own in agents.items()
    ]  # fmt: skip
    heads = ("agent", "calls", "retries", "tokens in", "tokens out", *map(words, AGENT_FIGURES))
    table(console, heads, rows)
    told = *readings(agents), *empty_replies(agents), *server_words(agents), *script_words(report)
    for line in (f"\n{costs(report)}", *told):
        console.print(Text(printable(line)), soft_wrap=True)
    parts = [
        (scope, name, f"{figure['mean']:+.3g}", str(figure["episodes"]))
        for scope, named in report["parts"].items()
        for name, figure in named.items()
    ]
    if parts:
        table(console, ("scope", "part of the reward", "sum in an episode", "episodes"), parts)


def readings(agents: Mapping[str, Figures]) -> list[str]:
    """How the replies of each agent were read, and a warning where too many could not be."""
    lines = []
    for name, own in agents.items():
        strictly, leniently, not_read = (
            own.get(each, 0) for each in ("read_strictly", "only_leniently", "unreadable")
        )
        total = strictly + leniently + not_read
        if strictly < total:
            lines.append(
                f"{name}: {strictly:,} replies read strictly, {leniently:,} only leniently, {not_read:,} unreadable"
            )
        if (warning := warning_of(name, own, "or raise --max-tokens")) is not None:
            lines.append(f"warning: {warning}")
    return lines


def empty_replies(agents: Mapping[str, Figures]) -> list[str]:
    """A line for each agent whose replies had no text: how many, how many of them called tools, and what to do."""
    lines = []
    for name, own in agents.items():
        num, called = own.get("empty", 0), own.get("tool_calls", 0)
        if called:
            lines.append(
                f"warning: {called:,} of {own['calls']:,} replies of {name} called tools, which are not run here; only"
                f" their text is played, and {num:,} replies had none. Turn off tool calling on the server, or say in"
                " the prompt that the answer is text."
            )
        elif num and own["completion_tokens"] is not None:  # a model's: an agent without one may mean to say nothing
            lines.append(
                f"warning: {num:,} of {own['calls']:,} replies of {name} were empty. Where a model thinks first, raise"
                " --max-tokens or turn thinking off."
            )
    return lines


def server_words(agents: Mapping[str, Figures]) -> list[str]:
    """Lines for what servers said of replies that is not known, or cannot be true."""
    lines = []
    for name, own in agents.items():
        for word, num in own.get("finish_words", {}).items():
            what = "a refusal; their text was played" if ending(word) == "refused" else "which is read as finished"
            lines.append(f"warning: {num:,} of {own['calls']:,} replies of {name} ended with {word!r}, {what}.")
        for note, num in own.get("unknown_tokens", {}).items():
            lines.append(
                f"warning: the numbers of tokens of {num:,} of {own['calls']:,} replies of {name} are in doubt"
                f" ({note}). Tokens, costs and limits of tokens leave out what is not known."
            )
    return lines


def script_words(report: Figures) -> list[str]:
    """A line where a scripted player did not understand more than a twentieth of what was said to it."""
    lost = (report["outcome"].get("not_understood") or {"mean": 0.0})["mean"]
    words = f"did not understand {lost:.1%} of the messages: above {MOST_NOT_UNDERSTOOD:.0%}"
    is_much = lost > MOST_NOT_UNDERSTOOD
    return [f"warning: the scripted player {words} it is measured, and not the model."] if is_much else []


def main_figures(report: Figures) -> list[tuple[str, str]]:
    """Success and related numbers, one line each; means of fewer than ten problems, without their interval."""
    success, samples = report["success"], report["samples"]
    num = report["episodes"]["ended"] if success is None else success["problems"]
    rows: list[tuple[str, str]] = []
    if success is None:
        rows.append(("success", "the environment does not say" if report["episodes"]["ended"] else "no episode ended"))
    else:
        partial = "partial " * ("least" in success)
        rows.append((f"{partial}success, {success['problems']} problems", f"{percent(success)} {success['method']}"))
        if "least" in success:
            rows.append(("  had the missing failed, or succeeded", f"{success['least']:.1%} to {success['most']:.1%}"))
    if samples is not None:
        rows.append((f"avg@{samples['k']}", percent(samples["avg"])))
        rows += [(f"pass@{k}", percent(figure)) for k, figure in samples["pass"].items()]
        if "majority" in samples:
            rows.append((f"majority@{samples['k']}", percent(samples["majority"])))
    for option, values in report["by"].items():
        rows += [(f"  {option} {value}, {figure['problems']}", percent(figure)) for value, figure in values.items()]
    means = {**report["outcome"], "turns": report["turns"]}
    if report["tokens"] is not None:
        means["tokens of an episode"] = report["tokens"]
    return rows + [(name, f"{of['mean']:.3g}" if of and num < FEW else number(of)) for name, of in means.items()]


def width(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """Width of a `table` in characters, without wrapping."""
    columns = zip(*(heads, *rows), strict=True)
    return sum(max(map(len, column)) for column in columns) + 2 * (len(heads) - 1)


def table(console: Console, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table without borders, after an empty line; the first column is left-aligned, the others right."""
    made = Table(box=None, pad_edge=False)
    for i, head in enumerate(heads):
        made.add_column(
            Text(printable(head)), justify="right" if i else "left", no_wrap=0 < i < len(heads) - 1, overflow="fold"
        )
    for row in rows:
        made.add_row(*(Text(printable(cell)) for cell in row))
    console.print()
    console.print(made)
