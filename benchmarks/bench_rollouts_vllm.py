"""On real vLLM: a rollout in which no instance waits for another, beside the same one in lock-step.

    OMP_NUM_THREADS=1 PYTHONPATH=. python benchmarks/bench_rollouts_vllm.py [--rounds 5] [--strict]

16 instances of six turns, three of each of two agents, each agent a LoRA adapter on one random Qwen3; four candidates
of each decision. The same `play` on the same engine, once as it is and once in waves: all instances' requests are
answered before any of them goes on. How long a candidate is is drawn for its place (instance, agent, turn, k), as in
`simulation.py`, and the prompt and the seed follow from the place too, so that both sample the same number of tokens,
and nearly always the same tokens. The environment takes no time: what is measured is the engine and the loop.

A round is one of each on draws of its own, who begins changing from round to round, prefix cache and adapters anew.
Printed beside the seconds are the engine's forward passes, which no other process on the machine can change.

    OMP_NUM_THREADS=1 PYTHONPATH=. python benchmarks/bench_rollouts_vllm.py --processes 2

Instead, rollouts on two processes, each with an engine and a core of its own, beside one: see `rollout_processes.py`.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from figures import Figure, parser_of, write
from rollout_processes import measure
from simulation import Workload
from vllm_team import Played, Team, rollout

from pettingllms_trl.records import Completion


WORKLOAD = Workload(instances=16, turns=3, candidates=4, tokens=64, longest=512)
GOAL = 1.2


@dataclass(frozen=True, slots=True)
class Round:
    """The same draws without barriers and in lock-step."""

    free: Played
    lockstep: Played

    @property
    def faster(self) -> float:
        """Throughput without barriers over lock-step's, by the clock."""
        return self.lockstep.seconds / self.free.seconds

    @property
    def faster_by_cpu(self) -> float:
        """The same in seconds of the processor."""
        return self.lockstep.cpu_seconds / self.free.cpu_seconds

    @property
    def same(self) -> float:
        """Share of the completions that are the same tokens in both. Where sums are taken in another order, the last
        bit of a logit may tip a draw."""
        pairs = list(zip(_completions(self.free), _completions(self.lockstep), strict=True))
        return sum(a.ids == b.ids for a, b in pairs) / len(pairs)

    def line(self) -> str:
        sides = (
            f"{name} {side.seconds:.1f} s ({side.cpu_seconds:.1f} of the processor), "
            f"{side.passes} passes of {side.tokens / side.passes:.1f} rows"
            for name, side in (("free", self.free), ("lock-step", self.lockstep))
        )
        return f"{self.free.tokens} tokens; {'; '.join(sides)}; {self.faster:.2f}x, the same tokens {self.same:.1%}"


def _completions(played: Played) -> list[Completion]:
    return [
        candidate.completion
        for episode in played.episodes
        for decision in episode.decisions
        for candidate in decision.candidates
    ]


def compare(team: Team, workload: Workload, *, free_first: bool) -> Round:
    """A round.

    Raises:
        RuntimeError: The two sampled different numbers of tokens, and cannot be compared.
    """
    found = {}
    for is_batched in (False, True) if free_first else (True, False):
        found[is_batched] = rollout(team.engine(workload), workload, is_batched=is_batched)
    free, lockstep = found[False], found[True]
    if free.tokens != lockstep.tokens:
        raise RuntimeError(f"{free.tokens} tokens without barriers, {lockstep.tokens} in lock-step; expected as many.")
    return Round(free, lockstep)


def figures(rounds: Sequence[Round]) -> list[Figure]:
    """What is saved. The goal is for seconds of the processor: alone on a core they are the clock's."""
    met = statistics.median(each.faster_by_cpu for each in rounds) >= GOAL
    name, peer = "a rollout on vLLM, 16 instances x 4, 6 turns, 2 adapters", "lock-step"
    free, lockstep = [each.free for each in rounds], [each.lockstep for each in rounds]
    rates = [tuple(p.tokens / p.seconds for p in side) for side in (free, lockstep)]
    cpu = [tuple(p.cpu_seconds for p in side) for side in (free, lockstep)]
    passes = [tuple(float(p.passes) for p in side) for side in (free, lockstep)]
    return [
        Figure(name=name, unit="tokens/s", ours=rates[0], peer_name=peer, peer=rates[1], better="more"),
        Figure(
            name=f"{name}, of the processor",
            unit="CPU s",
            ours=cpu[0],
            peer_name=peer,
            peer=cpu[1],
            goal=f">= {GOAL}x",
            met=met,
        ),
        Figure(name=f"{name}, the engine's", unit="passes", ours=passes[0], peer_name=peer, peer=passes[1]),
    ]


def summary(rounds: Sequence[Round]) -> str:
    """Medians, least and most."""

    def spread(values: Sequence[float]) -> str:
        return f"{statistics.median(values):.2f}x ({min(values):.2f}-{max(values):.2f})"

    passes = [each.lockstep.passes / each.free.passes for each in rounds]
    return (
        f"{spread([each.faster for each in rounds])} lock-step's throughput, "
        f"{spread([each.faster_by_cpu for each in rounds])} in seconds of the processor; "
        f"lock-step takes {spread(passes)} the forward passes"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; the exit status."""
    parser = parser_of(__doc__, is_strict=True)
    parser.add_argument("--rounds", type=int, default=5, help="draws of lengths, each played both ways (5)")
    parser.add_argument("--instances", type=int, default=WORKLOAD.instances)
    parser.add_argument("--turns", type=int, default=WORKLOAD.turns, help="of each of the two agents")
    parser.add_argument("--tokens", type=int, default=WORKLOAD.tokens, help="of a candidate, on average")
    parser.add_argument("--processes", type=int, default=1, help="beside one, instead of lock-step (1: lock-step)")
    given = parser.parse_args(arguments)
    if min(given.rounds, given.instances, given.turns, given.tokens, given.processes) < 1:
        parser.error("expected 1 or more of rounds, instances, turns, tokens and processes")
    workload = replace(WORKLOAD, instances=given.instances, turns=given.turns, tokens=given.tokens)
    if given.processes > 1:
        with tempfile.TemporaryDirectory() as folder:
            found = measure(given.processes, workload, given.rounds, Path(folder))
        write(given.json, found)
        return int(given.strict and not all(figure.met is not False for figure in found))
    rounds = []
    with tempfile.TemporaryDirectory() as folder:
        team = Team(Path(folder))
        compare(team, replace(workload, instances=2, turns=1, seed=-1), free_first=True)  # warms up
        for number in range(given.rounds):
            rounds.append(compare(team, replace(workload, seed=number), free_first=number % 2 == 0))
            print(f"{rounds[-1].line()}; load {os.getloadavg()[0]:.1f}", flush=True)
    print(summary(rounds))
    found = figures(rounds)
    print(f"{GOAL}x lock-step: {'met' if found[1].met else 'MISSED'}")
    write(given.json, found)
    return int(given.strict and not found[1].met)


if __name__ == "__main__":
    sys.exit(main())
