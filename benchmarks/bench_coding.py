"""What a turn of the coding environments costs apart from the programs that agents write, with scripted agents.

    PYTHONPATH=. python benchmarks/bench_coding.py --strict

Two threads play episodes one after the other, each in an environment of its own, as the rollout does: prompt, reply,
step. A turn is a step of each role. Half of the coder's programs are golden and half print nothing, each with a
comment that no other has, so that the grader remembers none of them; the tester's cases are the oracle's. Every
program is graded on all golden tests of its problem, a process for each test.

Three figures, in CPU milliseconds a turn by the kernel's account, which depends little on what else the machine does:

* ours: of this process, which parses, prompts, compares and pays;
* all: of this process and of all that it started, less what the kernel says that the programs took. What is left of
  the sandbox is forking and locking in, for each test;
* a test: the same, divided by the tests and cases that were run.

The goal is less than 5 ms of ours, on the median round.
"""

from __future__ import annotations

import statistics
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from children import below
from figures import Figure, parser_of, write

import pettingllms_envs
from pettingllms_envs.graders import code
from pettingllms_envs.sandbox import Report, default


GOAL_MS = 5.0
ROWS = (
    ("apps", {"workflow": "coder_tester"}),
    ("code_contests", {"workflow": "coder_tester"}),
    ("live_code_bench", {"workflow": "coder_tester"}),
    ("apps", {"workflow": "single", "tools": True}),
    ("apps", {"workflow": "self_refine"}),
)


class Metered:
    """The process's sandbox, which adds up what the programs took themselves, and how many tests were run."""

    def __init__(self) -> None:
        self.cpu = 0.0
        self.tests = 0
        self._lock = threading.Lock()

    def run_tests(self, program: str, tests: Sequence[Any], **settings: Any) -> Report:
        report = default().run_tests(program, tests, **settings)
        with self._lock:
            self.cpu += sum(result.cpu for result in report.results)
            self.tests += len(report.results)
        return report


def play(name: str, settings: dict[str, Any], mark: str, seeds: Sequence[int]) -> int:
    """Turns played."""
    env, turns, steps = pettingllms_envs.make(name, num_turns=2, **settings), 0, 0
    for seed in seeds:
        env.reset(seed=seed)
        while not env.standing():
            env.last()
            steps += 1
            reply, head = env.oracle(), f"```python\n# {mark} {seed} {steps}\n"
            if reply.startswith("```python"):
                reply = reply.replace("```python\n", f"{head}raise SystemExit\n" if is_wrong(seed, steps) else head, 1)
            env.step(reply)
        turns += env.infos[env.agents[0]]["turn"]
    return turns


def is_wrong(seed: int, steps: int) -> bool:
    """Whether the program is to print nothing."""
    return bool((seed // 2 + steps // 2) % 2)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each row; 1 if a goal was missed and `--strict` was given."""
    parser = parser_of(__doc__, is_strict=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--episodes", type=int, default=40, help="in a round")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args(arguments)
    metered, began = Metered(), time.time_ns()
    code.default = lambda: metered  # type: ignore[assignment]
    print("| environment, workflow | ours, CPU ms a turn (least-most) | all | tests a turn | a test | wall |")
    print("|---|---|---|---|---|---|")
    met, figures = True, []
    for name, settings in ROWS:
        rounds = []
        for number in range(args.rounds + 1):
            before = time.process_time(), below(), metered.cpu, metered.tests, time.perf_counter()
            with ThreadPoolExecutor(args.threads) as pool:
                shares = [range(thread, args.episodes, args.threads) for thread in range(args.threads)]
                mark = f"{began} {name} {settings} {number}"
                turns = sum(pool.map(partial(play, name, settings, mark), shares))
            after = time.process_time(), below(), metered.cpu, metered.tests, time.perf_counter()
            ours, started, programs, tests, wall = (b - a for a, b in zip(before, after, strict=True))
            rounds.append(
                (1000 * ours / turns, 1000 * (ours + started - programs) / turns, tests / turns, wall / turns)
            )
        ours_ms, all_ms, tests_a_turn, wall_s = zip(*rounds[1:], strict=True)  # the first one starts the servers
        middle = statistics.median
        fast = middle(ours_ms) < GOAL_MS
        met = met and fast
        title, goal = f"a turn, {name} {' '.join(map(str, settings.values()))}", f"< {GOAL_MS:g} ms"
        figures.append(Figure(name=title, unit="CPU ms", ours=ours_ms, goal=goal, met=fast))
        print(
            f"| {name} {' '.join(map(str, settings.values()))} | {middle(ours_ms):.2f} ({min(ours_ms):.2f}-"
            f"{max(ours_ms):.2f}) | {middle(all_ms):.1f} | {middle(tests_a_turn):.1f} |"
            f" {middle(all_ms) / middle(tests_a_turn):.2f} | {1000 * middle(wall_s):.1f} |",
            flush=True,
        )
    write(args.json, figures)
    return int(args.strict and not met)


if __name__ == "__main__":
    sys.exit(main())
