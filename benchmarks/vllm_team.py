"""A team of two adapters on real vLLM, and a rollout of it in which how long each candidate is follows from its place.

What `bench_rollouts_vllm.py` and `rollout_processes.py` measure with.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from simulation import Game, SimulatedClock, Workload

from pettingllms_trl.engines.kinds import PromptCodec
from pettingllms_trl.engines.vllm.params import VllmParams, VllmRequest
from pettingllms_trl.records import Episode, Request, Sampled
from pettingllms_trl.rollout import RolloutOptions, play


if TYPE_CHECKING:
    import torch
    from peft import PeftModel

VOCABULARY, PROMPT, LONGEST = 4096, 200, 1024
"""Tokens that there are, of a prompt, and of prompt and completion together at most."""


class Inner(Protocol):
    """What is asked of the engine that samples: `pettingllms_trl.engines.vllm.colocated.ColocatedVllm`."""

    def rollout(self, name: str) -> AbstractContextManager[None]:
        """Requests are sampled between its ends."""
        ...

    def submit(self, ticket: int, request: Request) -> None: ...

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
                answered.append((ticket, Sampled(sampled.prompt, completions)))
        return answered


class Drawn(VllmParams):
    """Completions are as long as the workload says for the place that the prompt names."""

    workload: Workload

    def ask(self, ticket: int, request: Request, max_model_len: int) -> VllmRequest:
        asked = super().ask(ticket, request, max_model_len)
        length = self.workload.num_tokens(request.prompt.messages[0]["content"], ticket % self.workload.candidates)
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
            engine,
            RolloutOptions(sampling="tree", num_candidates=workload.candidates),
            only=own,
            make_env=partial(Game, workload, SimulatedClock()),
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


class Team:
    """Two adapters with random weights on a random base model, and the engine that serves both."""

    def __init__(self, folder: Path) -> None:
        from pettingllms_trl import MultiAgentGRPOConfig
        from pettingllms_trl.engines.vllm.colocated import ColocatedVllm, engine_arguments

        self._adapted = _make_model(folder / "model")
        agents = Game.possible_agents
        args = MultiAgentGRPOConfig(
            str(folder), use_cpu=True, bf16=False, report_to="none", vllm_max_model_length=LONGEST
        )
        tongue = PromptCodec(tokenize=lambda prompt: _prompt_ids(prompt.messages[0]["content"]), decode=lambda ids: "")
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
