"""What a turn of the environments on data sets costs apart from the programs that agents write, with scripted agents.

    PYTHONPATH=. python benchmarks/bench_tasks.py --strict

Each thread plays episodes one after the other in an environment of its own, as the rollout does: prompt, reply, step.
A turn is a step of each role. In half of the replies the answer is the golden one, in the others that of some problem
with other digits, so that numbers and expressions are as frequent as in the data, and the grader's memory of earlier
verdicts is of little help. Every tool's reply is a program that prints the answer, and is run in the sandbox.

The figure is CPU milliseconds a turn: by the kernel's account, of this process and of all that it started (sandbox
and grader), less those of the programs themselves. It depends little on what else the machine does; seconds by the
clock on the wall, with `--threads` threads, do, and are printed beside it. The goal is less than 5 ms, on the median
round.
"""

from __future__ import annotations

import random
import re
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from children import below
from figures import Figure, parser_of, write

import pettingllms_envs
from pettingllms_envs.core import ToolResult
from pettingllms_envs.sandbox import run
from pettingllms_envs.sandbox.executor import ToolExecutor


GOAL_MS = 5.0


@dataclass(slots=True)
class Metered:
    """An executor that adds up what the programs took themselves."""

    inner: ToolExecutor = field(default_factory=ToolExecutor)
    cpu: float = 0.0
    runs: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, program: str) -> ToolResult:
        result = run(program, limits=self.inner.limits)
        with self._lock:
            self.cpu += result.cpu
            self.runs += 1
        return ToolResult(result.stdout.decode(), "" if result.exit_code == 0 else "it failed")


@dataclass(frozen=True, slots=True)
class Row:
    """An environment in one workflow, and how its replies are scripted."""

    name: str
    env: str
    settings: dict[str, Any]
    reply: Callable[[Any, random.Random], str]


@dataclass(frozen=True, slots=True)
class Measured:
    """What a row took, round by round: milliseconds a turn, of CPU without the programs' own, and by the clock."""

    row: Row
    turn_ms: tuple[float, ...]
    wall_ms: tuple[float, ...]
    program_ms: float
    turns: int
    success: float

    @property
    def met(self) -> bool:
        """Whether the median round reaches the goal."""
        return statistics.median(self.turn_ms) < GOAL_MS

    def figure(self) -> Figure:
        goal = f"< {GOAL_MS:g} ms"
        return Figure(name=f"a turn, {self.row.name}", unit="CPU ms", ours=self.turn_ms, goal=goal, met=self.met)


def answered(env: Any, rng: random.Random) -> str:
    """The golden answer or another of its kind, by a program where a program is asked for."""
    task, play = env.workflow.task, env.snapshot().play
    answer = task.oracle(play.task)
    if rng.random() < 0.5:
        other = task.oracle(task.generate(rng.randrange(10**6), split="test"))
        answer = re.sub(r"\d", lambda digit: str(rng.randint(1, 9)), other)
    answer = task.write(answer)
    asked = env.workflow.actor(play) == "tool" or (len(env.possible_agents) == 1 and play.turn == 1)
    return f"```python\nprint({answer!r})\n```" if asked else answer


ROWS = tuple(
    Row(f"{env} {words}", env, settings, answered)
    for env in ("aime", "olympiad_bench", "math")
    for words, settings in (
        ("tool_reasoner", {"workflow": "tool_reasoner"}),
        ("single with tools", {"workflow": "single", "tools": True}),
    )
)


def measure(row: Row, *, rounds: int, episodes: int, threads: int) -> Measured:
    """Play rounds of so many episodes; one round before them is not counted."""
    executor = Metered()
    turn_ms, wall_ms, success, turns_in_all = [], [], [], 0
    for number in range(rounds + 1):
        share = [range(thread, episodes, threads) for thread in range(threads)]
        before, began = _cpu() - executor.cpu, time.perf_counter()
        with ThreadPoolExecutor(threads) as pool:
            done = list(pool.map(lambda seeds, number=number: _play(row, executor, seeds, number), share))
        seconds = time.perf_counter() - began
        turns = sum(count for count, _ in done)
        if number:
            turn_ms.append(1000 * (_cpu() - executor.cpu - before) / turns)
            wall_ms.append(1000 * seconds / turns)
            success += [each for _, successes in done for each in successes]
            turns_in_all += turns
    program_ms = 1000 * executor.cpu / max(1, executor.runs)
    return Measured(row, tuple(turn_ms), tuple(wall_ms), program_ms, turns_in_all, statistics.fmean(success))


def _cpu() -> float:
    """CPU seconds of this process and of all below it."""
    return time.process_time() + below()


def _play(row: Row, executor: Metered, seeds: Sequence[int], number: int) -> tuple[int, list[bool]]:
    """Turns played, and which episodes succeeded."""
    env = pettingllms_envs.make(row.env, executor=executor, **row.settings)
    turns, success = 0, []
    for seed in seeds:
        rng = random.Random(f"{row.name} {number} {seed}")
        env.reset(seed=seed, options={"split": "test"})
        while not env.standing():
            env.last()
            env.step(row.reply(env, rng))
        turns += env.infos[env.agents[0]]["turn"]
        success.append(bool(env.infos[env.agents[0]]["outcome"]["success"]))
    return turns, success


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each row; 1 if a goal was missed and `--strict` was given."""
    parser = parser_of(__doc__, is_strict=True)
    parser.add_argument("--only", default="", help="rows with this text in their names")
    parser.add_argument(
        "--data", help="problems for all rows, instead of the package's own: a file, or an id of the Hub"
    )
    parser.add_argument("--layout", help="of --data")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--episodes", type=int, default=100, help="in a round")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args(arguments)
    data = {name: value for name in ("data", "layout") if (value := getattr(args, name)) is not None}
    rows = [replace(row, settings={**row.settings, **data}) for row in ROWS if args.only in row.name]
    if not rows or min(args.rounds, args.episodes, args.threads) < 1:
        parser.error(f"--only {args.only!r} names no row, or a number is below 1; rows: {[row.name for row in ROWS]}")
    found = []
    print(
        f"| {'environment, workflow':32} | CPU ms a turn, median (least-most) | wall ms | program | turns | success |"
    )
    print(f"|{'-' * 34}|{'-' * 36}|{'-' * 9}|{'-' * 9}|{'-' * 7}|{'-' * 9}|")
    for row in rows:
        each = measure(row, rounds=args.rounds, episodes=args.episodes, threads=args.threads)
        found.append(each)
        spread = f"{statistics.median(each.turn_ms):.2f} ({min(each.turn_ms):.2f}-{max(each.turn_ms):.2f})"
        line = (
            f"{statistics.median(each.wall_ms):7.2f} | {each.program_ms:7.2f} | {each.turns:5} | {each.success:7.2f}"
        )
        print(f"| {row.name:32} | {spread:34} | {line} |{'' if each.met else ' MISSED'}", flush=True)
    write(args.json, [each.figure() for each in found])
    return int(args.strict and not all(each.met for each in found))


if __name__ == "__main__":
    sys.exit(main())
