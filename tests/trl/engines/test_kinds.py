"""A new kind of engine is one row of the table: the trainer, its checkpoints and the estimate ask the row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate.utils import DistributedType
from datasets import Dataset

from pettingllms_trl import MultiAgentGRPOConfig, MultiAgentGRPOTrainer
from pettingllms_trl.checkpoints import atomic
from pettingllms_trl.engines import factory
from pettingllms_trl.engines.factory import check_served, processes_of_engine
from pettingllms_trl.engines.kinds import EngineKind, EngineOptions, Group, GroupOfTrainer, PromptCodec
from pettingllms_trl.policies.routing import route
from pettingllms_trl.records import Completion, Request, Sampled
from shadow import Shadow
from short_runs import SHORT, adapter
from third_party import Relay


@dataclass
class NewConfig(MultiAgentGRPOConfig):
    """The configuration with the options of the new engine."""

    use_new: bool = False
    new_context: int | None = None
    new_processes: int = 1
    new_share: float = 0.4


class NewEngine(Shadow):
    """Samples two tokens for each candidate, other ones for each."""

    codecs: Mapping[str, PromptCodec]

    def submit(self, ticket: int, request: Request) -> None:
        self._waiting.append((ticket, request))

    def step(self, timeout: float = 0.0) -> list[tuple[int, Sampled]]:
        ticket, request = self._waiting.pop()
        codec = self.codecs[request.agent]
        prompt = replace(request.prompt, ids=tuple(codec.tokenize(request.prompt)))
        found = [
            (5 + (31 * ticket + 47 * k) % 190, 6 + (17 * ticket + k) % 190) for k in range(request.num_candidates)
        ]
        completions = (Completion(ids=ids, text=codec.decode(ids), logprobs=(-5.0, -5.0)) for ids in found)
        return [(ticket, Sampled(prompt, tuple(completions)))]


def check(groups: Sequence[Group], args: Any) -> None:
    if args.new_context == 0:
        raise ValueError("new_context=0, expected 1 or more.")


def make(
    groups: Sequence[GroupOfTrainer], args: Any, codecs: Mapping[str, PromptCodec], split: Any
) -> list[NewEngine]:
    engines = []
    for each in groups:
        configs = {name: each.weights.peft_config[own] for name, own in each.adapters.items()}
        engines.append(NewEngine(each.weights.config._name_or_path, each.weights, configs, None, torch.float32))
        engines[-1].codecs = codecs
    return engines


NEW = EngineKind(
    is_chosen=lambda args: getattr(args, "use_new", False),
    place_of=lambda group, args: "colocate",
    check=check,
    make=make,
    options=EngineOptions(
        name="New", max_length="new_context", processes="new_processes", memory_share="new_share", overhead=0.0
    ),
    recorded=("use_new",),
    is_seeded=True,
    package="new_engine",
    instead="or leave use_new out",
)


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> list[NewEngine]:
    """Adds the row to the table. The engines that are made of it."""
    engines: list[NewEngine] = []

    def kept(*of: Any) -> list[NewEngine]:
        engines.extend(make(*of))
        return engines

    monkeypatch.setattr(factory, "KINDS", (NEW._replace(make=kept), *factory.KINDS))
    return engines


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factory, "find_spec", lambda name: True)


def config(path: Path, **options: Any) -> NewConfig:
    return NewConfig(str(path), **{**SHORT, "use_new": True, **options})


@pytest.mark.usefixtures("installed")
def test_a_new_engine_is_given_the_weights_of_each_step_compared_corrected_for_and_recorded(
    made: list[NewEngine], model_path: str, tmp_path: Path
) -> None:
    args = config(tmp_path, max_steps=2, save_strategy="steps", save_steps=2)
    rows = Dataset.from_dict({"seed": range(8)})
    trainer = MultiAgentGRPOTrainer(model_path, Relay, args, rows, policies="lora", peft_config=adapter())
    (engine,) = made
    trainer.train()
    trainer.play([{"seed": 1}])
    # Before each of the two generations, and before what is played.
    assert engine.given == 3 * ["opener", "closer"]
    assert set(engine.stale.values()) == {0.0}
    first, second, _ = trainer.state.log_history
    assert {"canary/opener/difference", "sampling/importance_sampling_ratio/mean"} <= first.keys()
    assert min(first["grad_norm"], second["grad_norm"]) > 0
    settings = atomic.manifest(tmp_path / "checkpoint-2")["configuration"]["settings"]
    assert settings.items() >= {"use_new": True, "use_vllm": False}.items()


def test_its_checks_and_its_package_are_asked_before_any_model_is_loaded(tmp_path: Path) -> None:
    routing = route("lora", ("opener_0", "closer_0"), model="m")
    with pytest.raises(ValueError, match="new_context=0, expected 1 or more"):
        check_served(routing, config(tmp_path, new_context=0))
    with pytest.raises(ImportError, match=r"new_engine is to sample in this process.*, or leave use_new out\."):
        check_served(routing, config(tmp_path))
    check_served(routing, config(tmp_path, use_new=False))


@pytest.mark.parametrize(
    ("options", "size"),
    [
        ({"use_new": True, "new_processes": 2}, 2),
        ({"use_new": True, "new_processes": 1}, 1),
        ({"use_vllm": True, "vllm_mode": "colocate", "vllm_tensor_parallel_size": 2}, 2),
        ({"use_vllm": True, "vllm_mode": "server", "vllm_tensor_parallel_size": 3}, 1),
        ({"vllm_tensor_parallel_size": 3}, 1),
        ({"use_new": True, "new_processes": 3}, "new_processes=3 with 2 processes; expected a divisor"),
        (
            {"use_vllm": True, "vllm_mode": "colocate", "vllm_tensor_parallel_size": 3},
            "vllm_tensor_parallel_size=3 with 2 processes; expected a divisor",
        ),
    ],
)
def test_an_engine_is_split_over_a_divisor_of_the_processes_where_it_is_in_them(
    options: dict[str, Any], size: int | str
) -> None:
    about = {"use_vllm": False, "vllm_server_urls": None, "vllm_server_base_url": "http://a:8000"}
    args: Any = SimpleNamespace(world_size=2, distributed_type=DistributedType.MULTI_GPU, **{**about, **options})
    routing = route("lora", ("opener_0", "closer_0"))
    if isinstance(size, int):
        assert processes_of_engine(routing, args) == size
        return
    with pytest.raises(ValueError, match=size):
        processes_of_engine(routing, args)
