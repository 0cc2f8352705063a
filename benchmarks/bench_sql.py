"""What judging a query costs, and what many episodes in flight leave behind.

    PYTHONPATH=. python benchmarks/bench_sql.py [--rounds 200] [--episodes 500]

* A grade: of the golden query of each form, right in all hidden databases, beside an empty program in the sandbox, and
  beside the same query run once in each of them, in this process and without a sandbox. Times are medians.
* Episodes in flight: file descriptors, processes and memory after many episodes that are played at once by
  16 threads, each a step at a time, and after as many more.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from figures import table
from machine import process_memory

import pettingllms_envs
from pettingllms_envs.environments.sql.families import FAMILIES, NUM_HIDDEN, databases, schema_of, suite_of
from pettingllms_envs.environments.sql.questions import every
from pettingllms_envs.graders.inside.queries import FIRST_STEPS, open_database, run
from pettingllms_envs.graders.queries import _POOLS, golden_of, grade


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200, help="of each time (200)")
    parser.add_argument("--episodes", type=int, default=500, help="in flight (500)")
    options = parser.parse_args(arguments)
    print(f"A grade\n\n{table(grades(options.rounds))}\n")
    print(f"{options.episodes} episodes in flight\n\n{table(in_flight(options.episodes))}")
    return 0


def grades(rounds: int) -> Iterator[tuple[str, ...]]:
    """Rows: a family, the times of a grade and of what it is compared with, and their ratios."""
    yield "family", "grade", "empty program", "once in each database", "grade / empty", "grade / once"
    for family in FAMILIES[:2]:
        suite, questions = suite_of(family), every(family)
        with _POOLS.lend(suite) as sandbox:
            sandbox.run("pass")
        opened = [open_database(schema_of(family), each)[0] for each in databases(family, "hidden", NUM_HIDDEN)]
        asked = itertools.islice(itertools.cycle(questions), rounds)
        times: dict[str, list[float]] = {"grade": [], "empty": [], "once": []}
        for number, question in enumerate(asked):
            golden_of(suite, question.query, question.ordered)
            other = f"{question.query} -- {number}"  # not remembered
            times["grade"].append(seconds(grade, suite, question.query, question.ordered, other))
            times["empty"].append(seconds(sandbox.run, "pass"))
            times["once"].append(seconds(once, opened, question.query))
        grade_s, empty_s, once_s = (statistics.median(each) for each in times.values())
        ratios = f"{grade_s / empty_s:.2f}", f"{grade_s / once_s:.2f}"
        yield family.name, *(f"{1000 * each:.2f} ms" for each in (grade_s, empty_s, once_s)), *ratios


def once(opened: Sequence[sqlite3.Connection], query: str) -> None:
    """Run a query in each database."""
    for each in opened:
        run(each, query, FIRST_STEPS)


def seconds(call: Callable[..., object], *arguments: object) -> float:
    """How long a call takes."""
    begin = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - begin


def in_flight(episodes: int) -> Iterator[tuple[str, ...]]:
    """Rows: what the process holds after many episodes at once, and after as many more."""
    yield "", "file descriptors", "processes", "memory"
    for name, settings in (("sql", {"workflow": "linker_writer"}), ("silos", {})):
        for more in ("", " more"):
            play(name, settings, episodes)
            yield f"{name}, {episodes}{more}", *held()


def play(name: str, settings: dict[str, object], episodes: int) -> None:
    """Play episodes at once to their ends, a step of each in turn."""
    envs = [pettingllms_envs.make(name, **settings) for _ in range(episodes)]
    for seed, env in enumerate(envs):
        env.reset(seed=seed)
    with ThreadPoolExecutor(16) as threads:
        while any([*threads.map(step, envs)]):
            pass
    assert all(env.infos[env.possible_agents[0]]["outcome"]["success"] for env in envs)


def step(env: pettingllms_envs.aec.TextEnv) -> bool:
    """Play the oracle's reply; whether the episode goes on."""
    agent = env.possible_agents[0]
    if env.terminations.get(agent, True) or env.truncations.get(agent, True):
        return False
    env.step(env.oracle())
    return True


def held() -> tuple[str, str, str]:
    """Descriptors, processes below this one, and resident memory."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = dict(map(int, line.split()) for line in listed.splitlines())
    below = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
    memory = process_memory("VmRSS") // 2**20
    return str(len(os.listdir("/proc/self/fd"))), str(len(below) - 2), f"{memory} MB"


if __name__ == "__main__":
    sys.exit(main())
