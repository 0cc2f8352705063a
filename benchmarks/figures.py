"""A figure: what was measured, round by round, beside whom, for which goal. What every benchmark here saves. Pure.

Standard library alone, as it also runs in the peers' environments.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal


FLOOR = 0.03
ONE_ROUND = 0.10
"""Relative noise that is assumed at least, and where there are fewer than three rounds to tell it from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """What a benchmark measured.

    Args:
        name: What was measured. Of two runs, the figures of one name are compared.
        unit: Of `ours` and `peer`: `"us"`, `"tokens/s"`, ...
        ours: A value for each round; empty if it could not be measured.
        peer_name: Who did the same, or "" if nobody does.
        peer: Its value in each of the rounds; as many as of ours, or none.
        better: Whether less of the unit is better, or more; `"neither"` where a figure only describes.
        goal: In words, or "".
        met: Whether the goal is met; `None` without a goal.
        absent: Why ours or the peer was not measured, or "".
        computed: It follows from a model of a machine, not from one that ran.

    Example:
        `Figure(name="step", unit="us", ours=(2.0, 2.5), peer_name="TextArena", peer=(60.0, 50.0))` has the ratios
        (30.0, 20.0), with a median of 25.0.
    """

    name: str
    unit: str
    ours: tuple[float, ...] = ()
    peer_name: str = ""
    peer: tuple[float, ...] = ()
    better: Literal["less", "more", "neither"] = "less"
    goal: str = ""
    met: bool | None = None
    absent: str = ""
    computed: bool = False

    def __post_init__(self) -> None:
        if self.peer and len(self.peer) != len(self.ours):
            raise ValueError(
                f"{self.name}: {len(self.ours)} rounds of ours and {len(self.peer)} of {self.peer_name}; expected as "
                "many of both, as they are compared round by round."
            )

    @property
    def ratios(self) -> tuple[float, ...]:
        """How many times as good as the peer, round by round: above 1 is better than it."""
        pairs = zip(self.ours, self.peer, strict=False)
        return tuple(ours / peer if self.better == "more" else peer / ours for ours, peer in pairs)

    @property
    def gains(self) -> tuple[float, ...]:
        """What two runs are compared by, more being better: the ratios, which depend little on what else a machine
        does, or where there is no peer the values themselves, turned over where less is better."""
        if self.better == "neither" or not all(value > 0 for value in (*self.ours, *self.peer)):
            return ()
        if self.peer:
            return self.ratios
        return self.ours if self.better == "more" else tuple(1 / value for value in self.ours)

    def cells(self, before: Figure | None = None) -> tuple[str, ...]:
        ours = shown(statistics.median(self.ours), self.unit) if self.ours else "-"
        peer = shown(statistics.median(self.peer), self.unit) if self.peer else "-" if self.peer_name else ""
        ratios = self.ratios
        times = f"{statistics.median(ratios):.2f}x ({min(ratios):.2f}-{max(ratios):.2f})" if ratios else ""
        verdict = "" if self.met is None else "met" if self.met else "NOT MEASURED" if self.absent else "MISSED"
        goal = " ".join(filter(None, (self.goal, verdict)))
        name = self.name + (" [computed]" if self.computed else "")
        return name, ours, self.peer_name, peer, times, goal, self.absent or (change(before, self) if before else "")


def noise(values: Sequence[float]) -> float:
    """Relative deviation of one round, from the median absolute deviation of the rounds' logarithms (robust, so that
    one disturbed round of nine does not count), and never below `FLOOR`.

    Example:
        Of 100, 110 and 121 the logarithms lie 0.0953 apart: 1.4826 * 0.0953 = 0.141.
    """
    if len(values) < 3:
        return ONE_ROUND
    logs = [math.log(value) for value in values]
    middle = statistics.median(logs)
    return max(FLOOR, 1.4826 * statistics.median(abs(log - middle) for log in logs))


def change(before: Figure, now: Figure) -> str:
    """How a figure differs from the saved one: "worse" or "better" where by more than twice the noise of both."""
    if not before.gains or not now.gains:
        return ""
    gained = math.log(statistics.median(now.gains) / statistics.median(before.gains))
    limit = 2 * math.hypot(noise(before.gains), noise(now.gains))
    percent = f"{math.expm1(gained):+.0%}"
    if abs(gained) <= limit:
        return f"{percent}, within noise"
    return f"{'WORSE' if gained < 0 else 'better'} {percent} (noise {math.expm1(limit):.0%})"


def is_worse(before: Figure, now: Figure) -> bool:
    """Whether a figure lost more than the noise."""
    return change(before, now).startswith("WORSE")


def shown(value: float, unit: str) -> str:
    """A value with its unit, three digits or so.

    Example:
        `shown(0.01234, "s")` is `"0.0123 s"`, `shown(12345.6, "tokens/s")` is `"12,346 tokens/s"`.
    """
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f} {unit}".strip()
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{digits}f} {unit}".strip()


def table(rows: Iterable[Sequence[str]]) -> str:
    """The rows under each other, each cell as wide as its column's widest; a column that is empty is left out.

    A row with nothing but its first cell is a title, and makes no column wide.
    """
    lines = [*rows]
    columns = [column for column in zip(*lines, strict=True) if any(column[1:])]
    is_title = [bool(line[0]) and not any(line[1:]) for line in lines]
    widths = [max(len(cell) for cell, title in zip(column, is_title, strict=True) if not title) for column in columns]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in zip(*columns, strict=True))


HEADER = ("", "ours", "peer", "peer's", "times as good, median (least-most)", "goal", "")


def join(runs: Sequence[Sequence[Figure]]) -> list[Figure]:
    """The figures of several runs of one benchmark, by name, with all runs' rounds.

    A goal is met if more than half of the runs met it, which for one value a run is to say that their median does.
    """
    by_name: dict[str, list[Figure]] = {}
    for figure in (figure for run in runs for figure in run):
        by_name.setdefault(figure.name, []).append(figure)
    return [
        dataclasses.replace(
            own[0],
            ours=tuple(value for each in own for value in each.ours),
            peer=tuple(value for each in own for value in each.peer),
            met=None if own[0].met is None else 2 * sum(bool(each.met) for each in own) > len(own),
            absent=next((each.absent for each in own if each.absent), ""),
        )
        for own in by_name.values()
    ]


def parser_of(doc: str | None, *, is_strict: bool = False) -> argparse.ArgumentParser:
    """The command line of a benchmark: `--json` is where to `write` its figures; some can be strict about goals."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures")
    if is_strict:
        parser.add_argument("--strict", action="store_true", help="exit with 1 if a goal is missed")
    return parser


def write(path: Path | None, figures: Iterable[Figure]) -> None:
    """Save figures as JSON; nowhere if there is no path."""
    if path is not None:
        path.write_text(json.dumps({"figures": [record(figure) for figure in figures]}, indent=1) + "\n")


def read(path: Path) -> list[Figure]:
    """Figures that were saved."""
    return [from_record(each) for each in json.loads(path.read_text())["figures"]]


def record(figure: Figure) -> dict[str, Any]:
    """What is not as by default, for a JSON file; with the ratios, so that the file can be read by itself."""
    fields = {f.name: getattr(figure, f.name) for f in dataclasses.fields(figure)}
    defaults = {f.name: f.default for f in dataclasses.fields(figure)}
    kept = {name: value for name, value in fields.items() if value != defaults[name]}
    return kept | ({"ratios": figure.ratios} if figure.ratios else {})


def from_record(fields: Mapping[str, Any]) -> Figure:
    """The figure of a record."""
    given = {name: tuple(v) if isinstance(v, list) else v for name, v in fields.items() if name != "ratios"}
    return Figure(**given)
