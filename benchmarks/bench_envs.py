"""What our environments cost beside their peers: pairs timed in turn in one process, ratios per round, goals.

    PYTHONPATH=. /path/to/peers/bin/python benchmarks/bench_envs.py --reference /path/to/PettingLLMs --json bench.json

README.md in this folder says what is measured and how the peers are installed. Every row is printed, one that could
not be measured too; with --strict a missed goal or a missing peer ends with exit status 1.
"""

from __future__ import annotations

import gc
import math
import os
import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from figures import Figure, parser_of, write
from machine import machine
from pairs import Pair, Slice, all_pairs

import pettingllms_envs


HERE = Path(__file__).parent
REFERENCE = "https://github.com/pettingllms-ai/PettingLLMs"
COMMIT = "a054fb18b83f4dc7c1d49aba3b71669d1f93ca71"
SEEDS_PER_ROUND = 10_000
SEEDS_PER_PAIR = 1_000_000


@dataclass(frozen=True, slots=True)
class Compared:
    """What the rounds of a pair measured, in microseconds; `absent` says why there are none."""

    pair: Pair
    peer_us: tuple[float, ...] = ()
    ours_us: tuple[float, ...] = ()
    absent: str = ""

    @property
    def ratios(self) -> tuple[float, ...]:
        """Peer / ours, round by round."""
        return tuple(peer / ours for peer, ours in zip(self.peer_us, self.ours_us, strict=True))

    @property
    def met(self) -> bool:
        """Whether the median ratio, and the median of ours where that is limited, reach their goals."""
        if self.absent:
            return False
        limit = math.inf if self.pair.limit_us is None else self.pair.limit_us
        return statistics.median(self.ratios) >= self.pair.ratio and statistics.median(self.ours_us) <= limit

    def cells(self) -> tuple[str, ...]:
        goal = f">= {self.pair.ratio:g}x" + (f", <= {self.pair.limit_us:g} us" if self.pair.limit_us else "")
        if self.absent:
            return self.pair.name, "-", "-", self.absent, goal, "NOT MEASURED"
        peer, ours, ratio = map(statistics.median, (self.peer_us, self.ours_us, self.ratios))
        goal += f" ({_us(peer / self.pair.ratio)})"
        spread = f"{ratio:.1f}x ({min(self.ratios):.1f}-{max(self.ratios):.1f})"
        return self.pair.name, _us(peer), _us(ours), spread, goal, _verdict(self.met)

    def figure(self) -> Figure:
        goal = f">= {self.pair.ratio:g}x" + (f", <= {self.pair.limit_us:g} us" if self.pair.limit_us else "")
        return Figure(
            name=self.pair.name,
            unit="us",
            ours=self.ours_us,
            peer_name=self.pair.peer.label,
            peer=self.peer_us,
            goal=goal,
            met=self.met,
            absent=self.absent,
        )


@dataclass(frozen=True, slots=True)
class Tail:
    """How long the resets of an environment take in milliseconds of CPU, one by one, garbage collection included."""

    name: str
    resets: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    limit_ms: float = 5.0
    absent: str = ""

    @property
    def met(self) -> bool:
        """Whether the 99th percentile is within its limit."""
        return not self.absent and self.p99_ms <= self.limit_ms

    def cells(self) -> tuple[str, ...]:
        goal = f"p99 <= {self.limit_ms:g} ms"
        if self.absent:
            return self.name, "-", "-", self.absent, goal, "NOT MEASURED"
        spread = f"p50 {self.p50_ms:.3f} ms, max {self.max_ms:.2f} ms, {self.resets} seeds"
        return self.name, "-", f"p99 {_us(1000 * self.p99_ms)}", spread, goal, _verdict(self.met)

    def figure(self) -> Figure:
        goal = f"<= {self.limit_ms:g} ms"
        ours = () if self.absent else (self.p99_ms,)
        return Figure(name=f"{self.name}, p99", unit="ms", ours=ours, goal=goal, met=self.met, absent=self.absent)


def compare(pair: Pair, rounds: int, first_seed: int) -> Compared:
    """Rounds of one slice of each side, the order alternating; both play the round's own seeds, never used again.

    One round more is played first and not counted, so that caches, tables and branch predictors are warm for both.
    """
    try:
        peer = pair.peer.open()
    except ImportError as error:
        if pair.peer.needs:
            return Compared(pair, absent=f"not installed ({error}): {how_to_install(pair.peer.needs)}")
        if not is_an_extra(error):
            raise
        return Compared(pair, absent=str(error))
    ours = pair.ours.open()
    peer_us: list[float] = []
    ours_us: list[float] = []
    for number in range(rounds + 1):
        order = [(peer, peer_us), (ours, ours_us)]
        for slice_, took in order if number % 2 else reversed(order):
            took.append(1e6 * _undisturbed(slice_, first_seed + number * SEEDS_PER_ROUND))
    return Compared(pair, tuple(peer_us[1:]), tuple(ours_us[1:]))


def tail(name: str, split: str, seeds: Iterable[int]) -> Tail:
    """The resets of an environment with its default settings to the seeds of a split, the first text included.

    An environment without the split has the same instances in each.
    """
    row = f"reset, {name}, {split}"
    try:
        env = pettingllms_envs.make(name)
    except ImportError as error:
        if not is_an_extra(error):
            raise
        return Tail(row, 0, math.nan, math.nan, math.nan, absent=str(error))
    options = {"split": split} if split in env.metadata["reset_options"].get("split", ()) else None
    took = []
    for seed in seeds:
        begin = time.process_time()
        env.reset(seed=seed, options=options)
        env.last()
        took.append(1000 * (time.process_time() - begin))
    return Tail(row, len(took), percentile(took, 50), percentile(took, 99), max(took))


def is_an_extra(error: ImportError) -> bool:
    """Whether an environment says so that an extra is not installed, with the command that installs it."""
    return not isinstance(error, ModuleNotFoundError) and "pip install" in str(error)


def percentile(values: Iterable[float], percent: float) -> float:
    """The least value that at least `percent` of 100 values do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[math.ceil(percent / 100 * len(ordered)) - 1]


def _undisturbed(slice_: Slice, first_seed: int) -> float:
    """Run a slice without garbage collection in it, as `timeit` does, so that no side pays for the other's garbage."""
    gc.collect()
    gc.disable()
    try:
        return slice_(first_seed)
    finally:
        gc.enable()


def how_to_install(name: str) -> str:
    """The command that brings a peer, at the version that the goals were set on."""
    if name == "reference":
        return f"git clone {REFERENCE} && git -C PettingLLMs checkout {COMMIT[:8]}, then --reference PettingLLMs"
    pins = [line for line in (HERE / "peers.txt").read_text().splitlines() if line.startswith(f"{name}==")]
    return f"pip install {pins[0]}"


def table(rows: Iterable[Sequence[str]]) -> str:
    """The rows under each other, each cell as wide as its column's widest."""
    lines = [("", "peer", "ours", "peer / ours, median (least-most)", "goal", ""), *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, save; the exit status."""
    parser = parser_of(__doc__, is_strict=True)
    parser.add_argument("--rounds", type=int, default=9, help="rounds per pair (9)")
    parser.add_argument("--resets", type=int, default=2000, help="seeds per environment and split for the p99 (2000)")
    parser.add_argument("--only", default="", metavar="TEXT", help="only rows whose name has this text in it")
    parser.add_argument("--reference", type=Path, metavar="DIR", help="checkout of the reference implementation")
    options = parser.parse_args(arguments)
    if not 1 <= options.rounds < SEEDS_PER_PAIR // SEEDS_PER_ROUND or not 1 <= options.resets <= SEEDS_PER_PAIR:
        parser.error(
            f"got --rounds {options.rounds} and --resets {options.resets}; expected 1 to 99 and 1 to a million"
        )
    here = machine() | {"reference": COMMIT}
    print("\n".join(f"{name}: {value}" for name, value in here.items()), end="\n\n")
    rows: list[Compared | Tail] = []
    pairs = all_pairs(options.reference)
    for number, pair in enumerate(pairs):
        if options.only.lower() in pair.name.lower():
            rows.append(compare(pair, options.rounds, number * SEEDS_PER_PAIR))
            print(*rows[-1].cells(), sep=" | ", flush=True)
    unused = range(len(pairs) * SEEDS_PER_PAIR, len(pairs) * SEEDS_PER_PAIR + options.resets)
    for name in pettingllms_envs.list_environments():
        for split in ("train", "test"):
            if options.only.lower() in f"reset, {name}, {split}":
                rows.append(tail(name, split, unused))
                print(*rows[-1].cells(), sep=" | ", flush=True)
    if not rows:
        parser.error(f"--only {options.only!r} is in no row's name; leave it out to see them all")
    return finish(rows, here, options.json, options.strict)


def finish(rows: Sequence[Compared | Tail], here: dict[str, Any], save: Path | None, strict: bool) -> int:
    """Print the table and the settings, write the file; the exit status."""
    sides = [side for row in rows if isinstance(row, Compared) for side in (row.pair.peer, row.pair.ours)]
    print("", table(row.cells() for row in rows), "", "Settings:", sep="\n")
    print("\n".join(dict.fromkeys(f"  {side.label}: {side.settings}" for side in sides)))
    met = sum(row.met for row in rows)
    print(f"\n{met} of {len(rows)} goals met; load {here['load'][0]:.1f} at the start, {os.getloadavg()[0]:.1f} now.")
    write(save, [row.figure() for row in rows])
    return int(strict and met < len(rows))


def _us(microseconds: float) -> str:
    return f"{microseconds:.1f} us" if microseconds < 1000 else f"{microseconds / 1000:.2f} ms"


def _verdict(met: bool) -> str:
    return "met" if met else "MISSED"


if __name__ == "__main__":
    sys.exit(main())
