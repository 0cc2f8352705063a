"""Step, reset and snapshot times of the shipped games in this checkout and in another one, in one interleaved run.

    git worktree add /tmp/before COMMIT
    python benchmarks/bench_versions.py /tmp/before [--rounds 200] [--only ": step"] [--json versions.json]

Each checkout runs in a process of its own, which measures a batch whenever it is told to; the two take turns, so that
a busy or slow machine meets both alike. A batch is timed in CPU seconds. The table gives, of this checkout over the
other one, the median ratio of the rounds with an interval of 95% from resampled rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np


ROOT = Path(__file__).parents[1]
GAMES: Mapping[str, Mapping[str, Any]] = {
    "plan_path": {"workflow": "single"},
    "plan_path, team": {},
    "sokoban": {"workflow": "single"},
    "sokoban, team": {},
    "sudoku": {"workflow": "single"},
    "sudoku, team": {},
}
REPLIES = ("Moves: U", "nothing")  # which solve no instance
TURNS = 50
DRAWS = 10_000


def measures(name: str, settings: Mapping[str, Any]) -> dict[str, Callable[[], float]]:
    """By name, functions that give the CPU microseconds of one step, reset, snapshot with restore, and look."""
    import pettingllms_envs

    env: Any = pettingllms_envs.make(name.partition(",")[0], num_turns=TURNS, **settings).unwrapped

    def timed(count: int, call: Callable[[int], Any]) -> float:
        start = time.process_time()
        for i in range(count):
            call(i)
        return (time.process_time() - start) / count * 1e6

    def step() -> float:
        env.reset(seed=1)
        return timed(TURNS - 1, lambda i: env.step(REPLIES[i % len(REPLIES)]))

    def reset() -> float:
        return timed(5, lambda i: env.reset(seed=i))

    def snapshot() -> float:
        env.reset(seed=1)
        return timed(200, lambda i: env.restore(env.snapshot()))

    def look() -> float:
        env.reset(seed=1)
        return timed(20, lambda i: (env.last(), env.state_hash()))

    return {"step": step, "reset": reset, "snapshot": snapshot, "last and hash": look}


def serve() -> None:
    """Measure what each line of input names, a game and a call, and write the microseconds."""
    if hasattr(os, "sched_setaffinity"):  # both processes on one core: two cores may differ by more than two versions
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    known = {f"{game}: {name}": call for game, kw in GAMES.items() for name, call in measures(game, kw).items()}
    for line in sys.stdin:
        print(known[line.strip()](), flush=True)


def interval(ratios: np.ndarray[Any, Any]) -> tuple[float, float]:
    """An interval of 95% of the median, from resampled rounds."""
    rng = np.random.default_rng(0)
    medians = np.median(rng.choice(ratios, (DRAWS, len(ratios))), axis=1)
    low, high = np.quantile(medians, (0.025, 0.975))
    return float(low), float(high)


def main(argv: list[str] | None = None) -> int:
    """Print the table; 1 if a ratio is surely above the limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, help="another checkout of this repository")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--limit", type=float, default=1.02, help="greatest ratio")
    parser.add_argument("--only", default="", help="measure what has this in its name, such as `: step`")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(argv)
    workers = [
        subprocess.Popen(
            [sys.executable, "-P", str(Path(__file__).resolve()), "--serve"],
            env={"PYTHONPATH": str(root), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=root,
        )
        for root in (args.other.resolve(), ROOT)
    ]

    def ask(worker: subprocess.Popen[str], what: str) -> float:
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(f"{what}\n")
        worker.stdin.flush()
        return float(worker.stdout.readline())

    rows, status = [], 0
    calls = [f"{game}: {name}" for game in GAMES for name in ("step", "reset", "snapshot", "last and hash")]
    for what in filter(lambda call: args.only in call, calls):
        times = []
        for i in range(args.rounds + 5):
            first, second = (0, 1) if i % 2 else (1, 0)
            pair = {first: ask(workers[first], what), second: ask(workers[second], what)}
            times.append((pair[0], pair[1]))
        measured = np.array(times[5:])  # the first rounds warm up
        ratios = measured[:, 1] / measured[:, 0]
        low, high = interval(ratios)
        before, now = np.median(measured, axis=0)
        status |= int(low > args.limit)
        rows.append(
            {"what": what, "before": before, "now": now, "ratio": float(np.median(ratios)), "low": low, "high": high}
        )
        print(
            f"{what:32} {before:9.2f} {now:9.2f} us  ratio {rows[-1]['ratio']:.3f} [{low:.3f}, {high:.3f}]", flush=True
        )
    for worker in workers:
        worker.terminate()
    if args.json is not None:
        args.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(serve() if "--serve" in sys.argv else main())
