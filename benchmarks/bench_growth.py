r"""How time and memory grow with what a run has more of: instances, candidates, turns, roles, prompts, policies.

    OMP_NUM_THREADS=1 PYTHONPATH=. python benchmarks/bench_growth.py [--only step] [--plot growth.png] [--json FILE]

Two things are measured, each along one axis at a time from a small base (`BASE`, `STEP_BASE`):

* rollout: `play` with an engine that answers at once and a game that does nothing: the loop, trees, records. CPU
  seconds, and the peak of what Python allocates (`tracemalloc`, in a run of its own, which is slower by it).
* step: a whole step of `MultiAgentGRPOTrainer` on a CPU, with a model of some thousand weights and candidates made up:
  rollout, credit, padding and packing, forward, backward, optimizer. CPU seconds, and the peak of the process's memory
  above what it had before, each size in a process of its own.

An exponent is the slope of a line through the logarithms, with Student's interval; what is fixed makes it smaller than
it would be for larger sizes, so the slope between the two largest sizes is printed, too. Everything should be linear
or better. Attention is quadratic in a prompt, and nothing else may be.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import random
import sys
import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from figures import Figure, parser_of, write
from growth import Fit, Load, fit
from gymnasium import spaces
from loop_cost import Instant
from machine import process_memory
from pettingzoo import AECEnv

from pettingllms_trl.records import Completion, Request
from pettingllms_trl.rollout import RolloutOptions, play


BASE = Load()
STEP_BASE = Load(instances=8, candidates=4, turns=1, prompt=64)
COMPLETION = 8
"""Tokens of a candidate in a step."""
ROLLOUT_GRID: Mapping[str, tuple[int, ...]] = {
    "instances": (8, 16, 32, 64, 128, 256, 512),
    "candidates": (2, 4, 8, 16, 32),
    "turns": (1, 2, 4, 8, 16),
    "roles": (1, 2, 4, 8),
    "prompt": (128, 256, 512, 1024, 2048, 4096, 8192),
}
STEP_GRID: Mapping[str, tuple[int, ...]] = {**ROLLOUT_GRID, "policies": (1, 2, 4, 8)}
LIMITS: Mapping[str, float] = {"prompt": 2.0}
"""The exponent that an axis may have in a step; of all others, and of a rollout, 1."""
TOLERANCE = 0.15
"""What a slope may be above its limit: clocks and allocators are noisy."""


class Team(AECEnv):
    """Roles in turn, each with a prompt of so many words; an action says itself what it is worth."""

    metadata: ClassVar = {"name": "team", "render_modes": []}

    def __init__(self, load: Load) -> None:
        self.possible_agents = [f"role{number}_0" for number in range(load.roles)]
        self._decisions = load.roles * load.turns
        self._words = " word" * load.prompt
        self.infos: dict[str, dict[str, Any]] = {agent: {} for agent in self.possible_agents}

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Text(100)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Text(100)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """The seed is the instance."""
        self._seed = seed
        self._take(0, 0.0)

    def observe(self, agent: str) -> str:
        return f"{self._seed} {self._taken}{self._words}"

    def step(self, action: str | None) -> None:
        if action is None:
            self.agents = []
        else:
            self._take(self._taken + 1, _number(action))

    def snapshot(self) -> tuple[int, float]:
        """How many decisions were taken, and what the last one was worth."""
        return self._taken, self._reward

    def restore(self, snapshot: tuple[int, float]) -> None:
        self._take(*snapshot)

    def _take(self, taken: int, reward: float) -> None:
        self._taken, self._reward = taken, reward
        self.agents = list(self.possible_agents)
        self.agent_selection = self.agents[taken % len(self.agents)]
        self.rewards = dict.fromkeys(self.agents, reward)
        self.terminations = dict.fromkeys(self.agents, taken == self._decisions)
        self.truncations = dict.fromkeys(self.agents, False)


def _number(reply: str) -> float:
    try:
        return float(reply)
    except ValueError:
        return 0.0


@dataclass(frozen=True, slots=True)
class Cost:
    """What one size took: CPU seconds of each round, and bytes at the peak."""

    seconds: tuple[float, ...]
    peak: float


def rollout_cost(load: Load, rounds: int) -> Cost:
    """Of a rollout, environments made before."""
    pool = [Team(load) for _ in range(load.instances)]

    def run() -> None:
        rng = random.Random(0)

        def answer(request: Request) -> list[Completion]:
            return [Completion(ids=(1, 2, 3), text=f"{rng.random():.6f}") for _ in range(request.num_candidates)]

        play(
            [{"seed": seed} for seed in range(load.instances)],
            Instant(answer),
            RolloutOptions(sampling="tree", num_candidates=load.candidates),
            make_env=partial(Team, load),
            pool=pool,
            seed="s",
        )

    run()
    seconds = tuple(_cpu_seconds(run) for _ in range(rounds))
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    run()
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    return Cost(seconds, peak)


def step_cost(load: Load, rounds: int) -> Cost:
    """Of optimizer steps, the first of which is not counted.

    In a process forked for it, as what an earlier training left would blur its peak. What is allocated once, a tiny
    training has had before.
    """
    import torch
    from growing_team import train

    def measured() -> Cost:
        torch.set_num_threads(1)  # a fork copies none of OpenMP's other threads, and would wait for them
        train(Load(instances=2, candidates=2, turns=1, prompt=8), Team, completion=COMPLETION, num_steps=1)
        before = _memory_given_back()
        seconds = train(load, Team, completion=COMPLETION, num_steps=rounds + 1)[1:]
        return Cost(tuple(seconds), process_memory("VmHWM") - before)

    return _forked(measured)


MEASURES: Mapping[str, tuple[Callable[[Load, int], Cost], Load, Mapping[str, tuple[int, ...]]]] = {
    "rollout": (rollout_cost, BASE, ROLLOUT_GRID),
    "step": (step_cost, STEP_BASE, STEP_GRID),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """What was measured along an axis, and the laws through it."""

    what: str
    axis: str
    sizes: tuple[int, ...]
    costs: tuple[Cost, ...]

    @property
    def limit(self) -> float:
        """The exponent that time may have."""
        return (LIMITS.get(self.axis, 1.0) if self.what == "step" else 1.0) + TOLERANCE

    @property
    def time(self) -> Fit:
        """Of the least seconds of the rounds, as what disturbs only adds."""
        return fit(self.sizes, [min(cost.seconds) for cost in self.costs])

    @property
    def memory(self) -> Fit:
        return fit(self.sizes, [cost.peak for cost in self.costs])

    @property
    def met(self) -> bool:
        """Whether time and memory stay within their limits, by the fit."""
        return self.time.exponent <= self.limit and self.memory.exponent <= 1 + TOLERANCE

    def line(self) -> str:
        span = f"{self.sizes[0]}-{self.sizes[-1]}"
        seconds = f"{min(self.costs[0].seconds):.3f}-{min(self.costs[-1].seconds):.3f} s"
        peak = f"{self.costs[0].peak / 1e6:.1f}-{self.costs[-1].peak / 1e6:.1f} MB"
        laws = f"{seconds:16} {self.time!s:32} {peak:16} {self.memory!s:32}"
        return f"{self.what:8} {self.axis:11} {span:>9}  {laws} {self.limit:.2f} {'met' if self.met else 'MISSED'}"

    def figures(self) -> list[Figure]:
        """What is saved: both exponents, and the seconds of the largest size, round by round."""
        name, largest = f"{self.what}, {self.axis} {self.sizes[0]} to {self.sizes[-1]}", self.costs[-1]
        return [
            Figure(
                name=f"exponent of time, {name}",
                unit="",
                ours=(self.time.exponent,),
                better="neither",
                goal=f"<= {self.limit:.2f}, memory <= {1 + TOLERANCE:.2f}",
                met=self.met,
            ),
            Figure(name=f"exponent of memory, {name}", unit="", ours=(self.memory.exponent,), better="neither"),
            Figure(name=f"{self.what}, {self.axis} = {self.sizes[-1]}", unit="CPU s", ours=largest.seconds),
        ]


def measure(what: str, axis: str, sizes: Sequence[int], rounds: int) -> Growth:
    """An axis of a rollout or a step, from the smallest size to the largest."""
    cost, base, _ = MEASURES[what]
    if axis == "policies":
        base = replace(base, roles=max(sizes))  # a policy for each role, at the most
    return Growth(
        what=what,
        axis=axis,
        sizes=tuple(sizes),
        costs=tuple(cost(replace(base, **{axis: size}), rounds) for size in sorted(sizes)),
    )


def plot(found: Sequence[Growth], path: Path) -> None:
    """Seconds and peaks against sizes, both logarithmic, with a dotted line of what is linear."""
    from matplotlib.figure import Figure as Page

    whats = list(dict.fromkeys(growth.what for growth in found))
    page = Page(figsize=(10, 4 * len(whats)), layout="constrained")
    panels = page.subplots(len(whats), 2, squeeze=False)
    for row, what in zip(panels, whats, strict=True):
        for panel, unit in zip(row, ("CPU seconds", "peak, MB"), strict=True):
            for growth in (each for each in found if each.what == what):
                seconds = unit.startswith("CPU")
                costs = [min(cost.seconds) if seconds else cost.peak / 1e6 for cost in growth.costs]
                law = growth.time if seconds else growth.memory
                panel.plot(growth.sizes, costs, marker="o", label=f"{growth.axis}: {law.exponent:.2f}")
            low, high = panel.get_xlim()[0], panel.get_xlim()[1]
            least = min(line.get_ydata()[0] for line in panel.lines)
            sizes = [max(low, 1), high]
            panel.plot(sizes, [least, least * sizes[1] / sizes[0]], ":", color="grey", label="linear")
            panel.set(xscale="log", yscale="log", xlabel="size", ylabel=unit, title=f"{what}: exponents of {unit}")
            panel.legend(fontsize="small")
    page.savefig(path, dpi=100)


def _cpu_seconds(run: Callable[[], None]) -> float:
    """Without garbage collection in it, which would grow with all that the process holds."""
    gc.collect()
    gc.disable()
    began = time.process_time()
    try:
        run()
        return time.process_time() - began
    finally:
        gc.enable()


def _forked(function: Callable[[], Cost]) -> Cost:
    """What a function returns in a child that begins as a copy of this process (Linux, nothing on a GPU)."""
    here, there = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=lambda: there.send(function()))
    child.start()
    there.close()
    try:
        return here.recv()  # type: ignore[no-any-return]
    except EOFError:
        raise RuntimeError("the training of a size failed; its own error is above") from None
    finally:
        child.join()


def _memory_given_back() -> int:
    """Bytes of this process, after it gave back what it has freed; its peak begins anew (Linux with glibc)."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return process_memory("VmRSS")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, save; the exit status."""
    parser = parser_of(__doc__, is_strict=True)
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="rows with this in their names: step, rollout turns"
    )
    parser.add_argument("--rounds", type=int, default=3, help="of each size (3)")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw it")
    given = parser.parse_args(arguments)
    names = [(what, axis) for what, (_, _, grid) in MEASURES.items() for axis in grid]
    chosen = [(what, axis) for what, axis in names if given.only in f"{what} {axis}"]
    if not chosen or given.rounds < 1:
        parser.error(f"--only {given.only!r} names no row, or --rounds is below 1; rows: {names}")
    base = {field.name: (getattr(BASE, field.name), getattr(STEP_BASE, field.name)) for field in fields(Load)}
    print("base of a rollout and of a step:", ", ".join(f"{name} {a}, {b}" for name, (a, b) in base.items()))
    print(f"{'':20} {'sizes':>9}  {'CPU time':16} {'exponent':32} {'peak':16} {'exponent':32} limit")
    found = []
    for what, axis in chosen:
        found.append(measure(what, axis, MEASURES[what][2][axis], given.rounds))
        print(found[-1].line(), flush=True)
    write(given.json, [figure for growth in found for figure in growth.figures()])
    if given.plot:
        plot(found, given.plot)
    return int(given.strict and not all(growth.met for growth in found))


if __name__ == "__main__":
    sys.exit(main())
