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

import argparse
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from figures import Figure, write
from rollout_processes import measure
from simulation import Game, SimulatedClock, Workload

from pettingllms_trl.records import Completion, Episode, Request, Sampled
from pettingllms_trl.rollout.play import play
from pettingllms_trl.vllm_engines.params import PromptCodec, VllmParams, VllmRequest


if TYPE_CHECKING:
    import torch
    from peft import PeftModel

WORKLOAD = Workload(instances=16, turns=3, candidates=4, tokens=64, longest=512)
VOCABULARY, PROMPT, LONGEST = 4096, 200, 1024
"""Tokens that there are, of a prompt, and of prompt and completion together at most."""
GOAL = 1.2


class Inner(Protocol):
    """What is asked of the engine that samples: `pettingllms_trl.vllm_engines.colocated.ColocatedVllm`."""

    def rollout(self, name: str) -> AbstractContextManager[None]:
        """Requests are sampled between its ends."""
        ...

    def submit(self, ticket: int, request: Request) -> None:
        """Take a request."""
        ...

    def step(self) -> Sequence[tuple[int, Sampled]]:
        """A forward pass; what it answered."""
        ...


class Apart:
    """Asks for each candidate of a decision by itself, as each has a length of its own, and answers all together.

    The k-th candidate's request has the ticket `K * ticket + k`, and is answered with `str(k)` as its text, which
    `Game` reads.

    Args:
        inner: Samples.
        num_candidates: K.
        is_batched: Answer nobody before all who were asked for can be answered.
    """

    def __init__(self, inner: Inner, num_candidates: int, *, is_batched: bool) -> None:
        self.is_batched = is_batched
        self.passes = self.tokens = 0
        self._inner, self._num_candidates = inner, num_candidates
        self._open: dict[int, dict[int, Sampled]] = {}

    def submit(self, ticket: int, request: Request) -> None:
        """See `pettingllms_trl.records.Engine`."""
        assert request.num_candidates == self._num_candidates, "a request of another size"
        self._open[ticket] = {}
        for k in range(self._num_candidates):
            self._inner.submit(self._num_candidates * ticket + k, replace(request, num_candidates=1))

    def step(self) -> Sequence[tuple[int, Sampled]]:
        """One forward pass, or, in waves, as many as it takes."""
        answered = self._pass()
        while self.is_batched and self._open:
            answered += self._pass()
        return answered

    def _pass(self) -> list[tuple[int, Sampled]]:
        self.passes += 1
        answered = []
        for number, sampled in self._inner.step():
            ticket, k = divmod(number, self._num_candidates)
            (completion,) = sampled.completions
            self.tokens += len(completion.ids)
            self._open[ticket][k] = replace(sampled, completions=(replace(completion, text=str(k)),))
            if len(self._open[ticket]) == self._num_candidates:
                of_k = self._open.pop(ticket)
                completions = tuple(of_k[k].completions[0] for k in range(self._num_candidates))
                answered.append((ticket, Sampled(sampled.prompt_ids, completions)))
        return answered


class Drawn(VllmParams):
    """Completions are as long as the workload says for the place that the prompt names."""

    workload: Workload

    def ask(self, ticket: int, request: Request, max_model_len: int) -> VllmRequest:
        """See `VllmParams`."""
        asked = super().ask(ticket, request, max_model_len)
        length = self.workload.num_tokens(request.prompt[0]["content"], ticket % self.workload.candidates)
        return replace(asked, parameters={**asked.parameters, "max_tokens": length, "ignore_eos": True})


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What a rollout took: by the clock, of the processor, and in forward passes of the engine."""

    seconds: float
    cpu_seconds: float
    passes: int
    tokens: int
    episodes: Sequence[Episode]


def rollout(inner: Inner, workload: Workload, *, is_batched: bool, own: range | None = None) -> Played:
    """The workload, or its instances that are this process's `own`, played on an engine."""
    engine = Apart(inner, workload.candidates, is_batched=is_batched)
    began, cpu_began = time.perf_counter(), time.process_time()
    with inner.rollout(str(workload.seed)):
        played = play(
            [{"seed": instance} for instance in range(workload.instances)],
            only=own,
            make_env=partial(Game, workload, SimulatedClock()),
            engine=engine,
            sampling="tree",
            num_candidates=workload.candidates,
            seed=str(workload.seed),
        )
    assert played.retried == 0, "the game failed"
    return Played(
        seconds=time.perf_counter() - began,
        cpu_seconds=time.process_time() - cpu_began,
        passes=engine.passes,
        tokens=engine.tokens,
        episodes=played.episodes,
    )


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
        """For the report."""
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


class Team:
    """Two adapters with random weights on a random base model, and the engine that serves both."""

    def __init__(self, folder: Path) -> None:
        from pettingllms_trl import MultiAgentGRPOConfig
        from pettingllms_trl.vllm_engines.colocated import ColocatedVllm, engine_arguments

        self._adapted = _make_model(folder / "model")
        agents = Game.possible_agents
        args = MultiAgentGRPOConfig(
            str(folder), use_cpu=True, bf16=False, report_to="none", vllm_max_model_length=LONGEST
        )
        tongue = PromptCodec(
            tokenize=lambda messages, tools: _prompt_ids(messages[0]["content"]), decode=lambda ids: ""
        )
        self._params = Drawn.of_config(args, dict.fromkeys(agents, tongue))
        self._engine = ColocatedVllm(
            {
                "model": str(folder / "model"),
                "dtype": "float32",
                "skip_tokenizer_init": True,
                **engine_arguments(args),
            },
            of_agent={agent: agent for agent in agents},
            adapters={agent: self._adapted.peft_config[agent] for agent in agents},
            params=self._params,
            folder=folder,
        )

    def engine(self, workload: Workload) -> Any:
        """The engine with adapters as new, so that nothing of them is in its prefix cache."""
        from peft import get_peft_model_state_dict

        self._params.workload = workload
        for agent in Game.possible_agents:
            state: Mapping[str, torch.Tensor] = get_peft_model_state_dict(self._adapted, adapter_name=agent)
            self._engine.load(agent, state.items(), self._engine.versions.get(agent, 0) + 1)
        return self._engine


def _prompt_ids(place: str) -> list[int]:
    return random.Random(f"prompt/{place}").choices(range(2, VOCABULARY), k=PROMPT)


def _make_model(path: Path) -> PeftModel:
    """Of two layers, the base saved at the path."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    base = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=VOCABULARY,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=64,  # the least that vLLM's kernels for CPUs take
            max_position_embeddings=LONGEST,
            tie_word_embeddings=True,
            pad_token_id=0,
            eos_token_id=1,
            bos_token_id=None,
        )
    )
    base.save_pretrained(path)
    first, second = Game.possible_agents
    lora = LoraConfig(r=8, target_modules="all-linear", task_type="CAUSAL_LM", init_lora_weights=False)
    adapted = get_peft_model(base, lora, adapter_name=first)
    adapted.add_adapter(second, lora)
    return adapted


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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="draws of lengths, each played both ways (5)")
    parser.add_argument("--instances", type=int, default=WORKLOAD.instances)
    parser.add_argument("--turns", type=int, default=WORKLOAD.turns, help="of each of the two agents")
    parser.add_argument("--tokens", type=int, default=WORKLOAD.tokens, help="of a candidate, on average")
    parser.add_argument("--processes", type=int, default=1, help="beside one, instead of lock-step (1: lock-step)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures, with every round")
    parser.add_argument("--strict", action="store_true", help="exit status 1 unless the goal is met")
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
