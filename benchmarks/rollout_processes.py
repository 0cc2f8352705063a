"""Rollouts on several processes, each with an engine and a thread of its own, beside the same on one.

A round is three rollouts: a number of instances on one process, as many on each process (a batch that grows with the
machine), and as many as one had, shared out (a batch that stays as it is). Nobody waits for another before the end;
the clock is that of the process that starts them all.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from figures import Figure
from simulation import Workload
from vllm_team import Played, Team, rollout

from pettingllms_trl.processes.row_sharing import share_of


GOAL = 1.7
"""Times the rollouts a second of one process that two shall play, each with a core for itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A process's part of a rollout.

    Args:
        workload: Of all processes.
        own: The instances that it plays.
    """

    workload: Workload
    own: range


@dataclass(frozen=True, slots=True, kw_only=True)
class Took:
    """A rollout of all processes.

    Args:
        seconds: Until the last of them is done.
        instances: That they played.
        tokens: That they sampled.
    """

    seconds: float
    instances: int
    tokens: int

    @property
    def rate(self) -> float:
        return self.instances / self.seconds


@dataclass(frozen=True, slots=True)
class ProcessRound:
    """The same number of instances on one process, on each process, and shared out."""

    one: Took
    each: Took
    shared: Took

    def line(self) -> str:
        sides = ((self.one, "one"), (self.each, "as many on each"), (self.shared, "the same shared out"))
        parts = (f"{name} {took.seconds:.1f} s, {took.rate:.2f} a second" for took, name in sides)
        ratios = self.each.rate / self.one.rate, self.shared.rate / self.one.rate
        return f"{'; '.join(parts)}; {ratios[0]:.2f}x and {ratios[1]:.2f}x"


class Processes:
    """Processes that wait for jobs. A context: they end with it.

    Args:
        number: How many.
        make: Makes what a process plays with: its argument is the process's folder, and `play` of what it returns
            takes a job.
        folder: For a folder for each.
    """

    def __init__(self, number: int, make: Callable[[Path], Any], folder: Path) -> None:
        context = get_context("spawn")  # engines have threads, which a fork would not copy
        os.environ["OMP_NUM_THREADS"] = "1"
        # vLLM would give every process the same first core.
        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
        pairs = [context.Pipe() for _ in range(number)]
        self._connections = [ours for ours, _ in pairs]
        self._processes = [
            context.Process(target=_serve, args=(theirs, make, folder / str(process)), daemon=True)
            for process, (_, theirs) in enumerate(pairs)
        ]

    def __enter__(self) -> Processes:
        for process in self._processes:
            process.start()
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._connections:
            connection.close()
        for process in self._processes:
            process.join(30)

    def play(self, workload: Workload, number: int) -> Took:
        """The workload, shared out among the first `number` processes."""
        jobs = [Job(workload=workload, own=share_of(workload.instances, number, p)) for p in range(number)]
        began = time.perf_counter()
        for connection, job in zip(self._connections, jobs, strict=False):
            connection.send(job)
        tokens = sum(connection.recv() for connection in self._connections[:number])
        return Took(seconds=time.perf_counter() - began, instances=workload.instances, tokens=tokens)


def _serve(connection: Connection, make: Callable[[Path], Any], folder: Path) -> None:
    """A process: does jobs until nobody is there to ask."""
    folder.mkdir()
    team = make(folder)
    while True:
        try:
            job = connection.recv()
        except EOFError:
            return
        connection.send(team.play(job).tokens)


class VllmTeam:
    """What a process plays with: an engine of its own."""

    def __init__(self, folder: Path) -> None:
        self._team = Team(folder)

    def play(self, job: Job) -> Played:
        return rollout(self._team.engine(job.workload), job.workload, is_batched=False, own=job.own)


def compare(processes: Any, workload: Workload, number: int, *, one_first: bool) -> ProcessRound:
    """A round: `play` of so many processes.

    Raises:
        RuntimeError: One process and all together sampled different numbers of tokens for the same instances.
    """
    grown = replace(workload, instances=number * workload.instances)
    found: dict[str, Took] = {}
    for name in ("one", "each", "shared") if one_first else ("shared", "each", "one"):
        what, by = {"one": (workload, 1), "each": (grown, number), "shared": (workload, number)}[name]
        found[name] = processes.play(what, by)
    if found["one"].tokens != found["shared"].tokens:
        raise RuntimeError(
            f"{found['one'].tokens} tokens on one process, {found['shared'].tokens} on {number}; expected as many."
        )
    return ProcessRound(found["one"], found["each"], found["shared"])


def figures_of(rounds: Sequence[ProcessRound], number: int) -> list[Figure]:
    """What is saved; the goal is for as many instances on each process."""
    one = tuple(each.one.rate for each in rounds)
    sides = {"as many on each": [r.each.rate for r in rounds], "the same shared out": [r.shared.rate for r in rounds]}
    figures = []
    for name, rates in sides.items():
        has_goal = name == "as many on each" and number == 2
        met = statistics.median(ours / peer for ours, peer in zip(rates, one, strict=True)) >= GOAL
        figures.append(
            Figure(
                name=f"rollouts on {number} processes, {name}",
                unit="instances/s",
                ours=tuple(rates),
                peer_name="one process",
                peer=one,
                better="more",
                goal=f">= {GOAL}x" if has_goal else "",
                met=met if has_goal else None,
            )
        )
    return figures


def measure(number: int, workload: Workload, num_rounds: int, folder: Path) -> list[Figure]:
    """Measure and print, on so many processes."""
    rounds = []
    with Processes(number, VllmTeam, folder) as processes:
        compare(processes, replace(workload, instances=2, turns=1, seed=-1), number, one_first=True)  # warms up
        for seed in range(num_rounds):
            rounds.append(compare(processes, replace(workload, seed=seed), number, one_first=seed % 2 == 0))
            print(f"{rounds[-1].line()}; load {os.getloadavg()[0]:.1f}", flush=True)
    found = figures_of(rounds, number)
    for figure in found:
        middle, low, high = statistics.median(figure.ratios), min(figure.ratios), max(figure.ratios)
        goal = f", {figure.goal}: {'met' if figure.met else 'MISSED'}" if figure.goal else ""
        print(f"{figure.name}: {middle:.2f}x one process's rate ({low:.2f}-{high:.2f}){goal}")
    return found
