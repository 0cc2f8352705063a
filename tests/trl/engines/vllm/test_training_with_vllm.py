"""Training with real vLLM beside the trainer: the tokens sampled are the tokens trained on, with weights of now."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoConfig, Qwen3ForCausalLM

from pettingllms_trl.config import MultiAgentGRPOConfig
from pettingllms_trl.engines.factory import check_served
from pettingllms_trl.engines.vllm.kind import _shares
from pettingllms_trl.policies.routing import Policy, route
from third_party import Relay


def team(path: Any, tmp_path: Path, **options: Any) -> Any:
    from pettingllms_trl.trainer.trainer import (
        MultiAgentGRPOTrainer,  # where vLLM is installed, importing TRL warns of much
    )

    own = {name: options.pop(name) for name in ("policies", "peft_config") if name in options}
    settings = {
        "num_generations": 4,
        "per_device_train_batch_size": 8,
        "max_completion_length": 8,
        "learning_rate": 1e-2,
        "max_steps": 4,
        "vllm_max_model_length": 256,
        "logging_steps": 1,
        **options,
    }
    settings = {"use_vllm": True, "bf16": False, **settings}
    args = MultiAgentGRPOConfig(str(tmp_path), use_cpu=True, report_to="none", save_strategy="no", **settings)
    return MultiAgentGRPOTrainer(path, Relay, args, Dataset.from_dict({"seed": range(64)}), **own)


@pytest.mark.parametrize(
    ("policies", "options", "message"),
    [
        ("full", {"vllm_enable_sleep_mode": True}, r"sleep_mode=True with an engine each for 'opener', 'closer'.*one"),
        (
            {"opener": "open", "closer": Policy(model="b", trainable=False)},
            {"vllm_enable_sleep_mode": True},
            r"an engine each for 'open', 'closer'",
        ),
        ("full", {"vllm_mode": "server"}, r"'opener' and 'closer' would be on one server, http://0.0.0.0:8000, but"),
        ("full", {"vllm_server_urls": {"opener": "http://a", "closer": "http://a"}}, r"would be on one server, http"),
        ("lora", {"vllm_server_urls": {"opener": "http://a", "closer": "http://b"}}, r"stand on one model, which one"),
        ("lora", {"vllm_server_urls": {"planner": "http://a"}}, r"names 'planner', expected .*: opener, closer\."),
        ("lora", {"vllm_server_urls": "http://a"}, r"vllm_server_urls is 'http://a', expected a mapping"),
        ("shared", {"vllm_weight_transfer": "disk"}, r"vllm_weight_transfer='disk', expected 'files' or 'nccl'"),
        ("shared", {"vllm_weight_transfer": "nccl"}, r"'nccl' with all engines in the trainer's processes, which are"),
        (
            "shared",
            {"vllm_mode": "server", "vllm_weight_transfer": "nccl"},
            r"'nccl' with the trainer on cpu, expected a CUDA device. Leave it out: with 'files' the servers",
        ),
        (
            {"opener": "open", "closer": Policy(api=lambda messages: "A")},
            {"vllm_server_urls": {"closer": "http://a"}},
            r"names 'closer', expected policies with weights here: open\.",
        ),
    ],
)
def test_engines_that_cannot_be_had_are_refused_before_any_model_is_loaded(
    tmp_path: Path, policies: Any, options: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pettingllms_trl.engines.factory.find_spec", lambda name: name)
    with pytest.raises(ValueError, match=message):
        team(str(tmp_path / "no model"), tmp_path, policies=policies, **options)


@pytest.mark.parametrize(
    ("urls", "warned"),
    [(None, True), ({"opener": "http://a", "closer": "http://a"}, True), ({"opener": "http://a"}, False)],
)
def test_a_tensor_parallel_size_that_no_engine_of_the_trainers_has_is_warned_of(
    urls: dict[str, str] | None, warned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With full models of which one is on a server, the other has an engine here."""
    monkeypatch.setattr("pettingllms_trl.engines.factory.find_spec", lambda name: name)
    args = MultiAgentGRPOConfig(
        use_cpu=True,
        bf16=False,
        use_vllm=True,
        vllm_mode="colocate" if urls else "server",
        vllm_server_urls=urls,
        vllm_tensor_parallel_size=2,
    )
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        check_served(route("lora" if warned else "full", ("opener_0", "closer_0"), model="m"), args)
    texts = [str(each.message) for each in seen]
    assert any("vllm serve --tensor-parallel-size 2" in text for text in texts) == warned


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bf16": True}, r"continuous_batching=True with bf16 or fp16.*weights themselves"),
        ({"transformers_continuous_batching_config": {"seed": 1}}, r"has a seed, .*same random numbers"),
    ],
)
def test_continuous_batching_that_would_go_wrong_without_a_word_is_refused(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        team(
            str(tmp_path / "no model"), tmp_path, use_vllm=False, use_transformers_continuous_batching=True, **options
        )


def test_engines_share_memory_by_the_size_of_their_models() -> None:
    assert [*_shares([torch.nn.Linear(3, 4, bias=False), torch.nn.Linear(4, 9, bias=False)])] == [0.25, 0.75]


def test_a_length_that_the_model_does_not_take_is_refused_before_vllm_starts(
    base_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pettingllms_trl.engines.factory.find_spec", lambda name: name)
    monkeypatch.setitem(sys.modules, "vllm", None)  # importing it is an error
    context = AutoConfig.from_pretrained(base_path).max_position_embeddings
    said = rf"vllm_max_model_length is 100,000, but {base_path} takes {context:,} tokens at most; .* Set {context} or"
    with pytest.raises(ValueError, match=said):
        team(base_path, tmp_path, vllm_max_model_length=100_000)
    with pytest.raises(ImportError, match="vllm"):
        team(base_path, tmp_path, vllm_max_model_length=context)


def test_a_loss_that_cannot_be_corrected_for_the_sampler_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"loss_type='vespo' with vllm_importance_sampling_mode=.*expected one of"):
        team(str(tmp_path / "no model"), tmp_path, loss_type="vespo")


def test_without_vllm_the_door_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pettingllms_trl.engines.factory.find_spec", lambda name: None)
    with pytest.raises(
        ImportError,
        match=r"but is not installed. Run pip install -e '\.\[vllm\]' in a checkout",
    ):
        team(str(tmp_path / "no model"), tmp_path)


def lora() -> LoraConfig:
    return LoraConfig(r=8, target_modules="all-linear", task_type="CAUSAL_LM")


LAYOUTS: dict[str, Callable[[str], dict[str, Any]]] = {
    "lora": lambda path: {"policies": "lora", "peft_config": lora()},
    "shared": lambda path: {"policies": "shared"},
    "shared with an adapter": lambda path: {"policies": "shared", "peft_config": lora()},
    "full": lambda path: {"policies": "full"},
    "mixture": lambda path: {
        "policies": {"opener": "open", "closer": Policy(model=path, name="close")},
        "peft_config": lora(),
    },
    "beside the frozen base": lambda path: {
        "policies": {"opener": "open", "closer": Policy(trainable=False)},
        "peft_config": lora(),
    },
    "beside a frozen model": lambda path: {
        "policies": {"opener": "open", "closer": Policy(model=path, name="close", trainable=False)},
        "peft_config": lora(),
    },
    "beside an api": lambda path: {
        "policies": {"opener": "open", "closer": Policy(api=lambda messages: "AP")},
        "peft_config": lora(),
        "num_threads": 2,
    },
    "at two temperatures": lambda path: {
        "policies": "lora",
        "peft_config": lora(),
        "role_sampling": {"opener": {"temperature": 0.7, "stop": ["A"]}, "closer": {"temperature": 1.5}},
    },
}


@pytest.mark.vllm
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_log_probabilities_of_sampler_and_trainer_agree_at_every_step(
    layout: str, base_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    trainer = team(base_path, tmp_path, max_steps=3, **LAYOUTS[layout](base_path))
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters() if p.requires_grad}
    trainer.train()
    largest = [
        value
        for log in trainer.state.log_history[:-1]
        for name, value in log.items()
        if name.endswith("sampling/sampling_logp_difference/max")
    ]
    print(f"{layout}: largest difference in each step {[f'{value:.1e}' for value in largest]}")
    assert len(largest) >= 3
    assert max(largest) < 1e-4  # a stale engine is off by 1e-2 and more at this learning rate
    after = {name: p for name, p in trainer.model.named_parameters() if p.requires_grad}
    for policy in trainer.routing.trained:
        own = {id(p) for p in trainer.team.parameters_of(policy)}
        assert any(not torch.equal(p, before[name]) for name, p in after.items() if id(p) in own), policy.name


@pytest.mark.vllm
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")
def test_expert_iteration_samples_with_the_weights_of_the_round_before(
    base_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    rounds = {"imitate": "best", "num_rounds": 3, "num_train_epochs": 1, "max_steps": -1, "max_completion_length": 64}
    rounds["vllm_max_model_length"] = 1024  # prompts have three replies of up to 64 tokens, three for a stray byte
    trainer = team(base_path, tmp_path, policies="lora", peft_config=lora(), generation_batch_size=64, **rounds)
    trainer.train()  # the canary compares weights of engine and trainer
    assert trainer.rounds.number == 3
    assert trainer.rounds.decisions
    assert not any("importance_sampling" in name for log in trainer.state.log_history for name in log)


@pytest.mark.vllm
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")
def test_a_model_that_is_not_as_it_was_loaded_is_sampled_as_it_is(
    base_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Warmed up in memory, say, before adapters are put on it; vLLM loads what is on the disk."""
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    model = Qwen3ForCausalLM.from_pretrained(base_path)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.02 * torch.randn_like(parameter)
    trainer = team(model, tmp_path, max_steps=1, policies="lora", peft_config=lora())
    trainer.train()
    assert trainer.state.log_history[0]["sampling/sampling_logp_difference/max"] < 1e-4


@pytest.mark.vllm
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")
def test_an_adapter_that_stays_behind_is_found_by_the_canary(
    base_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made on purpose: when it is given the next version of an adapter, the engine loads the one before again."""
    from pettingllms_trl.engines.weight_store import StaleWeights

    monkeypatch.setattr("pettingllms_trl.engines.synced_engines.CANARY_STEPS", 1)
    trainer = team(base_path, tmp_path, max_steps=6, policies="lora", peft_config=lora())
    trainer.train()  # up to date: nothing is found, the differences are rounding
    differences = [log[name] for log in trainer.state.log_history for name in log if name.startswith("canary/")]
    assert len(differences) == 12
    assert max(differences) < 1e-5
    (served,) = trainer.engines.engine_set._served
    load, kept = served.engine.load, {}

    def late(policy: str, state: Any, version: int) -> None:
        given = {name: tensor.clone() for name, tensor in state}
        kept.setdefault(policy, given)
        load(policy, (kept[policy] if policy == "closer" else given).items(), version)

    served.engine.load = late
    with pytest.raises(
        StaleWeights, match=r"step 1: .* policy 'closer'. The trainer holds version 9; .* given version 9 and says"
    ):
        trainer.train()
