"""A checkpoint keeps what decides its run: what a resumed run has otherwise is refused, or named in one warning."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from datasets import Dataset, IterableDataset
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from torch import distributed
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer
from transformers.trainer import TRAINER_STATE_NAME

import pettingllms_envs
from mortal import forget_configuration
from pettingllms_envs import conversation, plan_path_v0
from pettingllms_envs.programs import program
from pettingllms_trl import MultiAgentGRPOTrainer, Policy
from pettingllms_trl.checkpoints import atomic
from pettingllms_trl.checkpoints.checkpointer import Checkpointer
from pettingllms_trl.checkpoints.configuration import RunConfiguration, differences, warning
from pettingllms_trl.checkpoints.descriptions import (
    described,
    described_environment,
    described_model,
    described_rows,
    plain,
)
from pettingllms_trl.credit import RunningBaseline, at_grpo, loo
from pettingllms_trl.rollout.curriculum import Curricula, Curriculum
from pettingllms_trl.update.schedule import Alternate
from short_runs import adapter, settings
from third_party import Relay
from two_processes import FORKS, in_two_processes


TRAINER_PARTS = ("policies", "credit", "filters", "reward_funcs", "peft_config", "train_dataset", "processing_class")


def of_length(completions: list[Any], scale: float = 1.0, **_: Any) -> list[float]:
    return [scale * len(completion[0]["content"]) for completion in completions]


class Brief(Relay):
    """A relay of one turn that declares a setting."""

    def __init__(self, pace: str = "slow") -> None:
        super().__init__(num_turns=1)
        self.metadata = {**Relay.metadata, "settings": {"pace": pace}}


def team(model: Any, folder: Path, *, env: Any = Brief, **options: Any) -> MultiAgentGRPOTrainer:
    """An opener and a closer with an adapter each, of one step that is saved; `options` go where they belong."""
    own = {name: options.pop(name) for name in TRAINER_PARTS if name in options}
    own = {"policies": "lora", "peft_config": adapter(), "train_dataset": rows(range(12)), **own}
    args = settings(folder, **{"save_strategy": "steps", "save_steps": 1, "seed": 7, **options})
    return MultiAgentGRPOTrainer(model, env, args, **own)


def rows(seeds: Any) -> Dataset:
    return Dataset.from_dict({"seed": seeds})


@pytest.fixture(scope="module")
def saved(model_path: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of such a team."""
    folder = tmp_path_factory.mktemp("saved")
    team(model_path, folder).train()
    return folder / "checkpoint-1"


def differs(trainer: MultiAgentGRPOTrainer, checkpoint: Path) -> list[str]:
    """What a resumed run warns of; it has no step left to train."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer.train(resume_from_checkpoint=str(checkpoint))
    return [str(warning.message) for warning in caught if "checkpoint-1" in str(warning.message)]


# ---- A run that goes on, with a warning -----------------------------------------------------------------------------


def own_policy(**options: Any) -> Policy:
    return Policy(adapter="opener", **options)


SCHEMES = "pettingllms_trl.credit.schemes"
AT_GRPO = rf"{SCHEMES}.at_grpo\(scale='group'\)"


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"num_generations": 2}, ["num_generations 4 -> 2"]),
        ({"credit": "loo"}, [rf"credit {AT_GRPO} -> {SCHEMES}.loo"]),
        (
            {"sampling": "parallel", "credit": "grpo"},
            ["sampling tree -> parallel", rf"credit {AT_GRPO} -> {SCHEMES}.grpo\(scale='group'\)"],
        ),
        ({"seed": 8}, ["seed 7 -> 8"]),
        ({"learning_rate": 1.0}, ["learning_rate 0.01 -> 1.0"]),
        ({"train_dataset": rows(range(50, 62))}, [r"train_dataset 12 rows, digest \w{8} -> 12 rows, digest \w{8}"]),
        ({"temperature": 0.5, "max_completion_length": 6}, ["temperature 1.0 -> 0.5", "max_completion_length 8 -> 6"]),
        ({"reward_funcs": partial(of_length, scale=2.0)}, [r"reward_funcs {} -> .*of_length\(scale=2.0\).*"]),
        ({"filters": "nonzero_variance"}, [r"filters \[\] -> .*filters.nonzero_variance\(.*value=.*'reward.*'\).*"]),
        ({"loss_type": "grpo", "epsilon": 0.1}, ["loss_type dapo -> grpo", "epsilon 0.2 -> 0.1"]),
        ({"env": partial(Brief, "fast")}, ["pace of env slow -> fast"]),
        (
            {"max_envs": 1, "ignore_data_skip": True, "shared_prefix": False, "neftune_noise_alpha": 5.0},
            [
                *("max_envs None -> 1", "ignore_data_skip False -> True"),
                *("neftune_noise_alpha None -> 5.0", "shared_prefix True -> False"),
            ],
        ),
        (
            {
                "model_init_kwargs": {
                    "dtype": "bfloat16", "attn_implementation": "eager",
                    "attention_dropout": 0.5, "low_cpu_mem_usage": True,
                }
            },
            [
                f"{what} of {role} {change}"
                for role in ("opener", "closer")
                for what, change in (
                    ("dtype", "float32 -> bfloat16"),
                    ("attn_implementation", "sdpa -> eager"),
                    ("model_init_kwargs", "{} -> {'attention_dropout': 0.5}"),
                )
            ],
        ),
        ({"policies": {"opener": own_policy(beta=0.1), "closer": "closer"}}, ["beta of opener None -> 0.1"]),
        (
            {"peft_config": adapter(lora_dropout=0.5)},
            [f"lora_dropout of {role} 0.0 -> 0.5" for role in ("opener", "closer")],
        ),
        ({"steps_per_generation": 2}, ["generation_batch_size 8 -> 16", "steps_per_generation 1 -> 2"]),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)  # fmt: skip
def test_one_warning_names_what_a_resumed_run_has_otherwise(
    changed: dict[str, Any], named: list[str], saved: Path, model_path: str, tmp_path: Path
) -> None:
    (said,) = differs(team(model_path, tmp_path, **changed), saved)
    assert said.startswith(f"{saved} was saved by a run with another configuration: ")
    listed = said.partition("configuration: ")[2].partition(". From here on the new values hold")[0].split("; ")
    assert len(listed) == len(named)
    for found, expected in zip(listed, named, strict=True):
        assert re.fullmatch(expected, found)


def relays(number: int) -> Callable[[], Any]:
    return lambda: Relay(num_turns=number)


@pytest.mark.parametrize(
    ("before", "after", "is_same"),
    [
        (lambda: Relay(num_turns=1), lambda: Relay(num_turns=1), True),
        (lambda: Relay(num_turns=1), lambda: Relay(num_turns=2), False),  # another object
        (lambda: Relay(), lambda: [Relay(), len("")][0], False),  # another function
        (relays(1), relays(2), False),  # another closure
        (lambda one=1: [Relay(), one][0], lambda one=2: [Relay(), one][0], False),  # another default
        (partial(Relay, num_turns=1), partial(Relay, num_turns=2), False),
        (lambda: conversation(roles=["a", "b"])(), lambda: conversation(roles=["a", "c"])(), False),
        (lambda: plan_path_v0.env(size=5, num_turns=2), lambda: plan_path_v0.env(size=5, num_turns=3), False),
        (lambda: plan_path_v0.env(size=5), lambda: plan_path_v0.env(size=6), False),  # no setting that it declares
        (lambda: plan_path_v0.env(alpha=0.5), lambda: plan_path_v0.env(alpha=0.5), True),
    ],
)
def test_an_environment_is_known_by_what_it_says_and_by_what_makes_it(before: Any, after: Any, is_same: bool) -> None:
    first, second = (plain(described_environment(make, make())) for make in (before, after))
    assert (first == second) == is_same


def test_an_environment_of_a_file_is_another_once_the_file_has_changed(model_path: str, tmp_path: Path) -> None:
    file = tmp_path / "relay.py"
    warned = []
    for end in ("", "", "# changed"):
        file.write_text(f"from third_party import Relay\n\ndef make():\n    return Relay(num_turns=1)\n{end}")
        pettingllms_envs.programs.load.cache_clear()  # as in another process
        trainer = team(model_path, tmp_path, env=f"{file}:make")
        if (checkpoint := tmp_path / "checkpoint-1").exists():
            warned += differs(trainer, checkpoint)
        else:
            trainer.train()
    (only,) = warned
    assert re.search(r"configuration: identity of env program:\S+relay\.py:make \w{64} -> program:", only)


def test_a_learning_rate_is_that_of_the_optimizers_state_as_the_warning_says(
    saved: Path, model_path: str, tmp_path: Path
) -> None:
    trainer = team(model_path, tmp_path, learning_rate=1.0, max_steps=2)
    with pytest.warns(UserWarning, match=r"hold, except learning_rate, restored with the optimizer's state\."):
        trainer.train(resume_from_checkpoint=str(saved))
    assert [log["learning_rate"] for log in trainer.state.log_history if "loss" in log][-1] <= 0.01


def test_a_curriculum_with_fewer_levels_goes_on_with_its_last() -> None:
    shorter = Curricula({"": Curriculum(levels=(1, 2))})
    shorter.load_state_dict({"": [3, [True]]})
    assert shorter.assign([{"seed": 0}], seed="0")[0]["level"] in (1, 2)


# ---- A run that is refused ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"policies": {"opener": "closer", "closer": "opener"}},
            "the policy of opener_0 is opener there, but closer is given; the policy of closer_0 is closer there, but "
            "opener is given; .* Set policies= as",
        ),
        ({"policies": "shared", "peft_config": None}, "opener_0 is opener there, but base is .* Set policies= as"),
        (
            {"policies": "full", "peft_config": None},
            "policy opener is an adapter, trained there, but a model, trained is given.* Set policies= as",
        ),
        (
            {"policies": {"opener": "opener", "closer": Policy(trainable=False)}},
            "the policy of closer_0 is closer there, but base is given.* Set policies= as",
        ),
        (
            {"policies": {"opener": own_policy(learning_rate=1e-3), "closer": "closer"}},
            "a learning rate for each policy is False there, but True is given. Set policies= as",
        ),
        (
            {"peft_config": adapter(lora_alpha=64)},
            "lora_alpha of the adapter opener is 8 there, but 64 is given; lora_alpha of the adapter closer is 8 "
            "there, but 64 is given. Set peft_config= as",
        ),
        ({"optim": "sgd"}, "the optimizer is adamw_torch there, but sgd is given. Set optim= as"),
    ],
    ids=["swapped", "shared", "full", "frozen", "own rates", "alpha", "optimizer"],
)  # fmt: skip
def test_a_team_that_a_checkpoint_is_not_of_is_refused_before_anything_is_loaded(
    changed: dict[str, Any], said: str, saved: Path, model_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loads(*_: Any, **__: Any) -> None:
        raise AssertionError("something was loaded")

    trainer = team(model_path, tmp_path, **changed)
    monkeypatch.setattr(Trainer, "train", loads)
    monkeypatch.setattr(torch, "load", loads)
    with pytest.raises(
        ValueError, match=rf"^this trainer cannot go on from \S+checkpoint-1: .*{said} in the run that"
    ):
        trainer.train(resume_from_checkpoint=str(saved))


def test_adapters_may_be_loaded_from_the_checkpoint_but_not_frozen_now_nor_of_another_rank(
    saved: Path, model_path: str, tmp_path: Path
) -> None:
    def with_loaded(closer: Policy) -> MultiAgentGRPOTrainer:
        base = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32)
        model = PeftModel.from_pretrained(base, saved / "opener", adapter_name="opener", is_trainable=True)
        model.load_adapter(saved / "closer", adapter_name="closer", is_trainable=closer.trainable)
        own = {"processing_class": AutoTokenizer.from_pretrained(model_path), "peft_config": None}
        return team(model, tmp_path, policies={"opener": "opener", "closer": closer}, **own)

    assert differs(with_loaded(Policy(adapter="closer")), saved) == []
    frozen = with_loaded(Policy(adapter="closer", trainable=False))
    with pytest.raises(
        ValueError, match="policy closer is an adapter, trained there, but an adapter, frozen is given"
    ):
        frozen.train(resume_from_checkpoint=str(saved))
    small = adapter()
    small.r = 2
    with pytest.raises(ValueError, match="r of the adapter opener is 4 there, but 2 is given"):
        team(model_path, tmp_path, peft_config=small).train(resume_from_checkpoint=str(saved))


@pytest.mark.parametrize(
    "kind",
    [pytest.param("whole", marks=pytest.mark.slow), "adapters", pytest.param("one adapter", marks=pytest.mark.slow)],
)
def test_a_kl_reference_is_not_taken_from_the_checkpoint(kind: str, model_path: str, tmp_path: Path) -> None:
    whole = {} if kind == "adapters" else {"policies": "shared"}
    whole |= {"peft_config": None} if kind == "whole" else {}
    team(model_path, tmp_path, beta=0.1, **whole).train()
    checkpoint = tmp_path / "checkpoint-1"
    model: Any = str(checkpoint)
    if kind != "whole":
        own = {"adapter_name": "opener"} if kind == "adapters" else {}
        base, place = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32), checkpoint / "opener"
        model = PeftModel.from_pretrained(base, place if own else checkpoint, is_trainable=True, **own)
        whole |= {"processing_class": AutoTokenizer.from_pretrained(model_path), "peft_config": None}
    if kind == "adapters":
        model.load_adapter(checkpoint / "closer", adapter_name="closer", is_trainable=True)
    what = "the model of base is" if kind == "whole" else "the KL reference of .* is the base .* there"
    with pytest.raises(ValueError, match=rf"{what}.* Set model= as"):
        team(model, tmp_path / "run", beta=0.1, **whole).train(resume_from_checkpoint=str(checkpoint))


def test_the_adapter_that_is_a_kl_reference_is_known_by_its_weights(model_path: str, tmp_path: Path) -> None:
    def given(scale: float) -> MultiAgentGRPOTrainer:
        base, config = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32), adapter()
        model = get_peft_model(base, config, adapter_name="opener")
        model.add_adapter("closer", config)
        for name, parameter in model.named_parameters():
            parameter.data.fill_(scale) if "lora" in name else None
        own = {"processing_class": AutoTokenizer.from_pretrained(model_path), "peft_config": None}
        return team(model, tmp_path, beta=0.1, **own)

    given(0.01).train()
    assert differs(given(0.01), tmp_path / "checkpoint-1") == []
    with pytest.raises(ValueError, match=r"KL reference of opener is the adapter that was given .* is given"):
        given(0.02).train(resume_from_checkpoint=True)


def test_the_reference_of_a_checkpoint_is_found_under_the_name_that_trl_gives_it(
    model_path: str, tmp_path: Path
) -> None:
    def given() -> MultiAgentGRPOTrainer:
        model = get_peft_model(AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32), adapter())
        own = {"processing_class": AutoTokenizer.from_pretrained(model_path), "peft_config": None}
        return team(model, tmp_path, policies="shared", beta=0.1, **own)

    first = given()
    first.train()
    checkpoint = tmp_path / "checkpoint-1"
    (checkpoint / "ref-default").rename(checkpoint / "ref")
    tensors = load_file(checkpoint / "ref" / "adapter_model.safetensors")
    save_file({name: tensor + 1 for name, tensor in tensors.items()}, checkpoint / "ref" / "adapter_model.safetensors")
    again = given()
    again._load_from_checkpoint(str(checkpoint))
    assert [*again.model.peft_config] == ["default", "ref-default"]
    held = {name: p for name, p in again.model.named_parameters() if "lora_A.ref-default" in name}
    before = dict(first.model.named_parameters())
    assert held
    for name, parameter in held.items():
        assert torch.equal(parameter, before[name] + 1)
        assert not parameter.requires_grad
    assert all(p.requires_grad for name, p in again.model.named_parameters() if "lora_A.default" in name)


def test_the_modules_of_adapters_are_compared_however_they_are_written(
    saved: Path, model_path: str, tmp_path: Path
) -> None:
    def on(*modules: str) -> MultiAgentGRPOTrainer:
        own = LoraConfig(r=4, target_modules=list(modules), task_type="CAUSAL_LM")
        return team(model_path, tmp_path, peft_config=own)

    attention, mlp = ("q_proj", "k_proj", "v_proj", "o_proj"), ("gate_proj", "up_proj", "down_proj")
    assert differs(on(*attention, *mlp), saved) == []  # "all-linear" there
    message = "modules of the adapter opener is 14 of down_proj, .*, v_proj, digest .* but 2 of q_proj, digest"
    with pytest.raises(ValueError, match=message):
        on("q_proj").train(resume_from_checkpoint=str(saved))


def test_another_base_model_is_refused_and_one_that_was_moved_is_not(
    saved: Path, model_path: str, tmp_path: Path
) -> None:
    moved, other = tmp_path / "moved", tmp_path / "other"
    shutil.copytree(model_path, moved)
    (moved / "adapter_model.safetensors").touch()  # as a run saves beside it whose output folder it is
    assert differs(team(str(moved), tmp_path / "run"), saved) == []
    shutil.copytree(model_path, other)
    tensors = load_file(other / "model.safetensors")
    save_file({name: tensor + 1 for name, tensor in tensors.items()}, other / "model.safetensors", {"format": "pt"})
    with pytest.raises(
        ValueError, match=r"the model of opener is .* there, but \S+other \(.* is given.* Set model= as"
    ):
        team(str(other), tmp_path / "run").train(resume_from_checkpoint=str(saved))


def test_a_model_that_is_trained_as_a_whole_may_be_loaded_from_the_checkpoint(model_path: str, tmp_path: Path) -> None:
    whole: dict[str, Any] = {"policies": "shared", "peft_config": None}
    team(model_path, tmp_path, **whole).train()
    checkpoint = tmp_path / "checkpoint-1"
    assert differs(team(str(checkpoint), tmp_path / "run", **whole), checkpoint) == []


@pytest.mark.parametrize("is_saved", [False, True], ids=["a base of adapters", "trained as a whole"])
def test_weights_that_a_checkpoint_replaces_may_have_been_overwritten(
    is_saved: bool, model_path: str, tmp_path: Path
) -> None:
    shutil.copytree(model_path, tmp_path / "own")
    config = AutoModelForCausalLM.from_pretrained(tmp_path / "own").config

    def configuration() -> RunConfiguration:
        return RunConfiguration(team={"model": {"the model": described_model(config, is_saved=is_saved)}})

    before = configuration()
    assert differences(before.described(), configuration()) == []
    with open(tmp_path / "own" / "model.safetensors", "r+b") as file:
        file.seek(-8, 2)
        file.write(b"otherwis")
    assert bool(differences(before.described(), configuration())) is not is_saved


def test_the_state_of_a_credit_is_not_given_to_another(model_path: str, tmp_path: Path) -> None:
    class Mine(RunningBaseline):
        pass

    team(model_path, tmp_path, credit="rae").train()
    with pytest.raises(ValueError, match=r"RunningBaseline there, but \S+Mine is given. Set credit= as"):
        team(model_path, tmp_path, credit=Mine()).train(resume_from_checkpoint=True)


# ---- A run that goes on without a word ------------------------------------------------------------------------------


def make_credit(name: str) -> Any:
    if name == "closure":
        strength = 2.0
        return lambda decisions: [[strength * a for a in row] for row in at_grpo(decisions)]
    return {"partial": partial(loo, value="outcome"), "object": RunningBaseline(decay=0.9), "name": "at_grpo"}[name]


@pytest.mark.parametrize(
    "credit", ["name", "closure", *(pytest.param(each, marks=pytest.mark.slow) for each in ("partial", "object"))]
)
def test_an_equal_configuration_of_new_objects_is_silent_and_so_is_what_decides_nothing(
    credit: str, model_path: str, tmp_path: Path
) -> None:
    team(model_path, tmp_path / "one", credit=make_credit(credit)).train()
    resumed = team(
        model_path,
        tmp_path / "other",
        credit=make_credit(credit),
        max_steps=2,
        logging_steps=5,
        save_steps=7,
        save_total_limit=3,
        log_rollouts=True,
        run_name="again",
        optim="adamw_torch_fused" if credit == "name" else "adamw_torch",
    )
    resumed.train(resume_from_checkpoint=str(tmp_path / "one" / "checkpoint-1"))  # a warning fails a test
    assert resumed.state.global_step == 2


def test_among_another_number_of_processes_sizes_of_batches_are_not_compared() -> None:
    def on(num_processes: int, **more: Any) -> RunConfiguration:
        batch = {"generation_batch_size": 8 * num_processes, "gradient_accumulation_steps": 3 - num_processes}
        return RunConfiguration(settings={"num_processes": num_processes, **batch, **more})

    assert differences(on(1).described(), on(2)) == []
    (found,) = differences(on(1, seed=1).described(), on(2, seed=2))
    assert (found.what, found.saved, found.given) == ("seed", 1, 2)


def test_what_only_one_version_of_the_package_knows_is_not_compared() -> None:
    older = RunConfiguration(team={"peft_config": {"r": 4}}, settings={"seed": 1, "gone": 2})
    newer = RunConfiguration(
        team={"peft_config": {"r": 4, "use_new": 1}, "new": {"x": 1}}, settings={"seed": 1, "n": 2}
    )
    assert differences(older.described(), newer) == []


@pytest.mark.parametrize("name", ["", "grid"])
def test_a_checkpoint_that_does_not_say_how_replies_were_read_was_strict(name: str) -> None:
    def of(**said: bool) -> RunConfiguration:
        named = {f"strict_format of env {name}".strip(): value for value in said.values()}
        return RunConfiguration(settings={"seed": 1, **named})

    older = of().described()
    assert differences(older, of(strict=True)) == []
    assert differences(of(strict=False).described(), of(strict=False)) == []
    found = differences(older, of(strict=False))
    said = warning(Path("checkpoint-1"), found)
    assert said is not None
    assert f"strict_format of env {name}".strip() + " True -> False" in said
    assert "pass strict_format=True to the environment, as replies were read there" in said


def test_a_checkpoint_of_an_older_version_is_resumed_with_one_sentence(
    saved: Path, model_path: str, tmp_path: Path
) -> None:
    older = tmp_path / "checkpoint-1"
    shutil.copytree(saved, older)
    forget_configuration(older)
    atomic.verify(older)
    (said,) = differs(team(model_path, tmp_path, seed=8), older)
    assert said == (
        f"{older} was saved by an older version of pettingllms, which did not keep the run's configuration; whether "
        "it is that of this run cannot be checked."
    )


# ---- Names and digests ----------------------------------------------------------------------------------------------


def closure(strength: float, key: str) -> Callable[..., Any]:
    def credit(decisions: Any) -> Any:
        return strength, key

    return credit


def with_default(number: int, key: str) -> Callable[..., Any]:
    def score(completions: Any, strength: int = number, name: str = key) -> Any:
        return strength, name

    return score


class Judge:
    def __init__(self, weight: float, key: str) -> None:
        self.weight, self.key, self.calls = weight, key, 3

    def __call__(self, *_: Any) -> None: ...


HERE = __name__


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (partial(loo, value="outcome"), "pettingllms_trl.credit.schemes.loo(value='outcome')"),
        (RunningBaseline(decay=0.5), "pettingllms_trl.credit.rae.RunningBaseline(decay=0.5, value='reward')"),
        (Alternate(("a", "b"), 2), "pettingllms_trl.update.schedule.Alternate(every=2, order=['a', 'b'], rest=0.0)"),
        (of_length, f"{HERE}.of_length"),
        (partial(of_length, scale=2), f"{HERE}.of_length(scale=2)"),
        (partial(of_length, scale=of_length), f"{HERE}.of_length(scale={HERE}.of_length)"),
        (closure(0.5, "sk-1"), f"{HERE}.closure.<locals>.credit(strength=0.5)"),
        (Judge(0.5, "sk-1"), f"{HERE}.Judge(weight=0.5)"),
        (Judge(0.5, "sk-1").__call__, f"{HERE}.Judge.__call__(weight=0.5)"),
        (with_default(2, "sk-1"), f"{HERE}.with_default.<locals>.score(strength=2)"),
        (len, "builtins.len"),
    ],
)
def test_a_function_is_named_by_what_is_the_same_in_each_process(given: Any, name: str) -> None:
    assert described(given) == name


def test_what_runs_have_found_out_of_a_program_makes_no_other_program_of_it() -> None:
    made = [program(len, agents=("writer",), parallel=is_parallel) for is_parallel in (True, True, False)]
    made[1].program.state.wait = 0.5
    first, second, third = map(described, made)
    assert first == second != third


def test_a_reward_function_may_use_the_trainer_that_it_is_given_to(model_path: str, tmp_path: Path) -> None:
    def by_step(completions: list[Any], **_: Any) -> list[float]:
        return [float(trainer.state.global_step)] * len(completions)

    trainer = team(model_path, tmp_path, reward_funcs=by_step)


def test_texts_among_a_users_arguments_are_compared_but_not_shown() -> None:
    one, same, other = (described(partial(of_length, scale=key)) for key in ("sk-secret", "sk-secret", "sk-other"))
    assert one == same != other
    assert "secret" not in one


def numbers(number: int, *, changed: int | None = None) -> Dataset:
    return rows([-1 if i == changed else i for i in range(number)])


def test_64_rows_of_a_data_set_and_its_length_are_compared() -> None:
    assert described_rows(numbers(12)).startswith("12 rows, digest ")
    for number in (1, 12, 64):
        alike = {described_rows(numbers(number)) for _ in range(2)}
        assert len(alike | {described_rows(numbers(number, changed=i)) for i in range(number)}) == 1 + number
    # Of 127 rows each second one, the first and the last among them.
    seen = [i for i in range(127) if described_rows(numbers(127, changed=i)) != described_rows(numbers(127))]
    assert seen == list(range(0, 127, 2))


def test_the_digest_of_rows_is_of_their_content_alone_whatever_made_them() -> None:
    # Not the fingerprint of `datasets`, which another process would give otherwise.
    expected = hashlib.sha256(b'[{"seed": 5, "text": "\\u26035"}, {"seed": 1, "text": "\\u26031"}]').hexdigest()[:8]
    each = [{"text": f"\N{SNOWMAN}{seed}", "seed": seed} for seed in (5, 1)]
    for made in (
        Dataset.from_list(each),
        rows([5, 1]).map(lambda row: {"text": f"\N{SNOWMAN}{row['seed']}"}),
        Dataset.from_list([each[1], each[0]]).select([1, 0]),
        Dataset.from_list(each).with_transform(lambda batch: {"seed": [0] * len(batch["seed"])}),
    ):
        assert described_rows(made) == f"2 rows, digest {expected}"


def test_of_a_stream_no_row_is_taken() -> None:
    taken = []

    def each() -> Iterator[dict[str, int]]:
        for seed in range(3):
            taken.append(seed)
            yield {"seed": seed}

    assert described_rows(IterableDataset.from_generator(each)) == "a stream of unknown columns"
    assert described_rows(rows(range(3)).to_iterable_dataset()) == "a stream of seed"
    assert taken == []


# ---- Two processes --------------------------------------------------------------------------------------------------


@FORKS
def test_of_two_processes_one_warns_and_both_refuse(tmp_path: Path) -> None:
    checkpoint = tmp_path / "run" / "checkpoint-1"

    def resume(process: int) -> tuple[list[str], str]:
        args: Any = SimpleNamespace(
            should_save=process == 0,
            process_index=process,
            output_dir=str(tmp_path / "run"),
            enable_jit_checkpoint=False,
        )
        accelerator: Any = SimpleNamespace(wait_for_everyone=distributed.barrier, is_main_process=process == 0)

        def checkpointer(seed: int, policy: str) -> Checkpointer:
            own = RunConfiguration(team={"policies": {"the policy of a": policy}}, settings={"seed": seed})
            return Checkpointer(args, accelerator, {}, own)

        with checkpointer(1, "one").staged(checkpoint, step=1) as folder:
            if process == 0:
                (folder / TRAINER_STATE_NAME).write_text("{}")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            other = checkpointer(2, "one")
            assert other.verified(str(checkpoint)) == str(checkpoint)
            other.warn_of_differences(checkpoint)
        with pytest.raises((ValueError, RuntimeError)) as raised:
            checkpointer(1, "two").verified(True)
        return [str(warning.message) for warning in caught], str(raised.value)

    (said, refused), (silent, told) = in_two_processes(resume, tmp_path)
    assert len(said) == 1
    assert "seed 1 -> 2." in said[0]
    assert silent == []
    assert "the policy of a is one there, but two is given. Set policies= as" in refused
    assert told.startswith("process 0 of 2 failed: ValueError: this trainer cannot go on from")


def test_the_manifest_has_the_configuration_as_json(saved: Path) -> None:
    configuration = json.loads((saved / "manifest.json").read_text())["configuration"]
    assert configuration["team"]["policies"]["the policy of closer_0"] == "closer"
    assert configuration["team"]["peft_config"]["r of the adapter closer"] == 4
    assert configuration["settings"]["num_generations"] == 4
