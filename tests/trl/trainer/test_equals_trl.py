"""With one agent, one turn and K siblings the trainer *is* TRL's GRPOTrainer: same losses, gradients and weights.

Every field of `GRPOConfig` that changes the update is in `CHANGES` (with a check that it does change it) or refused;
test_config_fields.py holds the list of all fields.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import GPT2Config, GPT2LMHeadModel

import twins
from twins import SEEDS, Run, asked, assert_equal, our_trainer, reward, run, their_trainer


LAYOUTS: dict[str, dict[str, Any]] = {
    "shared": {},
    "shared-peft": {"peft": True},
    "shared-peft-reward_funcs": {"peft": True, "reward_funcs": reward},
    "lora": {"peft": True, "policies": "lora"},
    "full": {"policies": "full"},
}
SEQUENCE = {"importance_sampling_level": "sequence"}
LOSSES: dict[str, dict[str, Any]] = {
    loss: {"loss_type": loss, **(SEQUENCE if loss == "luspo" else {})}
    for loss in ("grpo", "dapo", "dr_grpo", "bnpo", "cispo", "sapo", "luspo", "vespo")
}
# A generation serves four optimizer steps, so that the policy moves away from the one that sampled: ratios are not 1.
STALE = {"num_iterations": 2, "steps_per_generation": 4}
WIDE = {**STALE, "epsilon": 10.0}  # nothing is clipped at the lower end
KL = {"beta": 0.1}

# Name: what is the same in both, and the change that is to make a difference.
CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "stale": ({}, STALE),
    "num_iterations": ({}, {"num_iterations": 2}),
    # The rows of two and of three optimizer steps, sampled before the first of them.
    "steps_per_generation=4": ({}, {"steps_per_generation": 4}),
    "steps_per_generation=6": ({}, {"steps_per_generation": 6}),
    **{f"{loss}-stale": ({**STALE, **KL}, options) for loss, options in LOSSES.items() if loss != "dapo"},
    **{
        f"{loss}-sequence": ({**STALE, **LOSSES[loss]}, SEQUENCE)
        for loss in ("grpo", "dapo", "dr_grpo", "bnpo", "sapo")
    },
    "cispo-sequence": ({**STALE, "loss_type": "cispo", "epsilon_high": 5.0}, SEQUENCE),
    "luspo-token": ({**STALE, **LOSSES["luspo"]}, {"importance_sampling_level": "token"}),
    "epsilon": (STALE, {"epsilon": 0.01}),
    "epsilon_high": (STALE, {"epsilon_high": 0.02}),
    "epsilon_high-cispo": ({**STALE, "loss_type": "cispo", "epsilon_high": 5.0}, {"epsilon_high": 0.9}),
    "delta": (WIDE, {"delta": 1.05}),
    "off_policy_mask_threshold": (STALE, {"off_policy_mask_threshold": 0.001}),
    "sapo_temperature_neg": ({**STALE, "loss_type": "sapo"}, {"sapo_temperature_neg": 3.0}),
    "sapo_temperature_pos": ({**STALE, "loss_type": "sapo"}, {"sapo_temperature_pos": 3.0}),
    **{
        f"vespo_{name}": ({**STALE, "loss_type": "vespo"}, {f"vespo_{name}": value})
        for name, value in {"k_pos": 1.0, "lambda_pos": 1.0, "k_neg": 1.0, "lambda_neg": 1.0}.items()
    },
    "beta": ({}, KL),
    "use_bias_correction_kl": (KL, {"use_bias_correction_kl": False}),
    "use_bias_correction_kl-sequence": (
        {**STALE, **KL, **SEQUENCE, "loss_type": "grpo"},
        {"use_bias_correction_kl": False},
    ),
    "sync_ref_model": (KL, {"sync_ref_model": True, "ref_model_sync_steps": 2}),
    "ref_model_mixup_alpha": (
        {**KL, "sync_ref_model": True, "ref_model_sync_steps": 1},
        {"ref_model_mixup_alpha": 0.1},
    ),
    "scale_rewards-batch": ({}, {"scale_rewards": "batch"}),
    "scale_rewards-none": ({}, {"scale_rewards": "none"}),
    "mask_truncated_completions": ({}, {"mask_truncated_completions": True}),
    "mask_truncated_completions-grpo": ({"loss_type": "grpo"}, {"mask_truncated_completions": True}),
    "top_entropy_quantile": ({}, {"top_entropy_quantile": 0.2}),
    "top_entropy_quantile-entropy_coef": ({"entropy_coef": 0.1}, {"top_entropy_quantile": 0.2}),
    "entropy_coef": ({}, {"entropy_coef": 0.01}),
    "use_adaptive_entropy-below": (
        {"entropy_coef": 0.1},
        {"use_adaptive_entropy": True, "entropy_target": 15.0, "entropy_coef_delta": 0.05, "entropy_coef_max": 0.2},
    ),
    "use_adaptive_entropy-above": (
        {"entropy_coef": 0.1},
        {"use_adaptive_entropy": True, "entropy_target": 1.0, "entropy_coef_delta": 0.05, "entropy_coef_min": 0.02},
    ),
    "use_adaptive_entropy-crossing": (
        {**STALE, "top_entropy_quantile": 0.5},
        {"use_adaptive_entropy": True, "entropy_target": 5.558, "entropy_coef_delta": 0.3},
    ),
    "pad_to_multiple_of": ({}, {"pad_to_multiple_of": 16}),
    "temperature": ({}, {"temperature": 0.7}),
    "top_p": ({}, {"top_p": 0.5}),
    "top_k": ({}, {"top_k": 5}),
    "min_p": ({}, {"min_p": 0.05}),
    "repetition_penalty": ({}, {"repetition_penalty": 1.5}),
    "max_completion_length": ({"loss_type": "dr_grpo"}, {"max_completion_length": 12}),
    "shuffle_dataset": ({}, {"shuffle_dataset": False}),
    "model_init_kwargs": ({}, {"model_init_kwargs": {"attention_dropout": 0.5, "attn_implementation": "eager"}}),
    "num_generations": ({}, {"num_generations": 16}),
    "generation_batch_size": ({}, {"generation_batch_size": 32}),
}
CASES: dict[str, dict[str, Any]] = {
    **{f"{loss}-beta={beta}": {**options, "beta": beta} for loss, options in LOSSES.items() for beta in (0.0, 0.1)},
    **{name: {**common, **change} for name, (common, change) in CHANGES.items()},
    "checkpointing": {**STALE, **KL, "gradient_checkpointing": True},
}
WITH_RATIOS_OF_1 = (("grpo", 0.1), ("dapo", 0.1))
# In the slow tests: losses where ratios are 1, for each has a stale case with a KL term; all but one of the values of
# a setting; and each loss in each layout, for TRL computes the loss in all of them.
SLOW = {
    *(f"{loss}-beta={beta}" for loss in LOSSES for beta in (0.0, 0.1) if (loss, beta) not in WITH_RATIOS_OF_1),
    *(f"{loss}-sequence" for loss in ("dapo", "dr_grpo", "bnpo", "sapo", "cispo")),
    *(f"vespo_{name}" for name in ("k_pos", "lambda_pos", "k_neg")),
    *("steps_per_generation=6", "sapo_temperature_neg", "epsilon", "use_adaptive_entropy-above"),
    *("use_adaptive_entropy-crossing", "top_entropy_quantile", "mask_truncated_completions-grpo", "top_k", "min_p"),
    *("steps_per_generation=4", "scale_rewards-none", "sapo_temperature_pos", "vespo_lambda_neg", "temperature"),
    *("use_adaptive_entropy-below", "max_completion_length", "model_init_kwargs", "num_generations", "luspo-token"),
    *("epsilon_high-cispo", "mask_truncated_completions", "sync_ref_model", "sapo-stale", "luspo-stale", "bnpo-stale"),
    *("repetition_penalty", "top_p", "shuffle_dataset", "pad_to_multiple_of", "generation_batch_size"),
    *("ref_model_mixup_alpha", "use_bias_correction_kl-sequence", "num_iterations", "beta", "entropy_coef"),
}
WITH_ADAPTERS = ("stale", "checkpointing")
FAST = {
    *((case, "shared") for case in CASES if case not in {*SLOW, *WITH_ADAPTERS}),
    *(("grpo-beta=0.1", layout) for layout in ("shared", "shared-peft-reward_funcs", "full")),
    *((case, "lora") for case in WITH_ADAPTERS),
    ("sync_ref_model", "full"),
}


@pytest.fixture(scope="module")
def theirs(model_path: str, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Run]:
    """TRL's run, made once for all layouts that are to equal it."""
    runs: dict[str, Run] = {}

    def theirs(options: dict[str, Any], *, peft: bool = False) -> Run:
        key = json.dumps([peft, options], sort_keys=True)
        if key not in runs:
            runs[key] = run(their_trainer(model_path, tmp_path_factory.mktemp("theirs"), options, peft=peft))
        return runs[key]

    return theirs


@pytest.mark.parametrize(
    ("case", "layout"),
    [
        pytest.param(case, layout, marks=() if (case, layout) in FAST else pytest.mark.slow)
        for case in CASES
        for layout in LAYOUTS
        if not (CASES[case].get("sync_ref_model") and LAYOUTS[layout].get("peft"))  # refused, by TRL too
    ],
)
def test_losses_gradients_and_weights_equal_plain_trl(
    case: str, layout: str, theirs: Callable[..., Run], model_path: str, tmp_path: Path
) -> None:
    own = LAYOUTS[layout]
    ours = run(our_trainer(model_path, tmp_path, CASES[case], **own))
    assert_equal(theirs(CASES[case], peft=own.get("peft", False)), ours)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in CHANGES]
)
def test_what_is_compared_makes_a_difference(name: str, theirs: Callable[..., Run]) -> None:
    common, change = CHANGES[name]
    without, having = theirs(common), theirs({**common, **change})
    assert any(not torch.equal(without.weights[key], having.weights[key]) for key in without.weights)


def gpt2(path: Path, tokenizer: Any, **dropout: float) -> GPT2LMHeadModel:
    torch.manual_seed(0)
    ends = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id, "bos_token_id": None}
    sizes = {"vocab_size": len(tokenizer), "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 128}
    model = GPT2LMHeadModel(GPT2Config(**sizes, **ends, **dropout))
    model.config._name_or_path = str(path)
    return model


@pytest.mark.filterwarnings("ignore:.* has learned positions:UserWarning")
def test_dropout_of_a_model_is_trls_where_prompts_are_long_enough_to_be_read_once(
    tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pettingllms_trl.engines.transformers.FEWEST_TOKENS", 2)
    options = {"max_steps": 2}
    dropout = {"embd_pdrop": 0.1, "attn_pdrop": 0.1, "resid_pdrop": 0.1}
    theirs, ours = (
        run(make(gpt2(tmp_path, tokenizer, **dropout), tmp_path, options, processing_class=tokenizer))
        for make in (their_trainer, our_trainer)
    )
    assert_equal(theirs, ours)


@pytest.mark.parametrize("policies", [pytest.param("shared", marks=pytest.mark.slow), "lora"])
def test_dropout_of_adapters_is_trls_and_is_disabled_as_there(
    policies: str, model_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropping = LoraConfig(r=4, lora_dropout=0.5, target_modules="all-linear", task_type="CAUSAL_LM")
    monkeypatch.setattr(twins, "adapter", lambda: dropping)
    monkeypatch.setattr("pettingllms_trl.engines.transformers.FEWEST_TOKENS", 2)  # these prompts have 14
    found = {}
    for disabled in (False, True):
        options = {"disable_dropout": disabled, "max_steps": 2}
        found[disabled] = run(their_trainer(model_path, tmp_path / "theirs", options, peft=True))
        assert_equal(
            found[disabled], run(our_trainer(model_path, tmp_path / "ours", options, peft=True, policies=policies))
        )
    assert any(not torch.equal(found[False].weights[name], weight) for name, weight in found[True].weights.items())


@pytest.mark.parametrize("num_rows", [4, 3])
def test_an_evaluation_in_even_batches_is_trls_and_in_uneven_ones_still_a_mean_over_all_candidates(
    num_rows: int, model_path: str, tmp_path: Path
) -> None:
    given: dict[str, list[float]] = {"theirs": [], "ours": []}

    def judged(whose: str) -> Any:
        def judge(completions: Any, **_: Any) -> list[float]:
            given[whose] += reward(completions)
            return reward(completions)

        return judge

    options = {
        "max_steps": 2,
        "eval_strategy": "steps",
        "eval_steps": 1,
        "num_generations_eval": 1,
        "per_device_eval_batch_size": 2,
    }
    asked_of = {"theirs": {"prompt": [asked(seed) for seed in SEEDS[:num_rows]]}, "ours": {"seed": SEEDS[:num_rows]}}
    runs = {
        whose: run(
            make(
                model_path,
                tmp_path / whose,
                options,
                reward_funcs=judged(whose),
                eval_dataset=Dataset.from_dict(asked_of[whose]),
            )
        )
        for whose, make in (("theirs", their_trainer), ("ours", our_trainer))
    }
    assert given["theirs"] == given["ours"]
    evaluated = {whose: [log for log in each.log if "eval_reward" in log] for whose, each in runs.items()}
    trained = [
        replace(each, log=[log for log in each.log if log not in evaluated[whose]]) for whose, each in runs.items()
    ]
    assert_equal(*trained)
    for step, (theirs, ours) in enumerate(zip(evaluated["theirs"], evaluated["ours"], strict=True)):
        # A step trains on 16 candidates, and the evaluation after it has one of each row.
        first = 16 * (step + 1) + num_rows * step
        rewards = given["ours"][first : first + num_rows]
        means = [fmean(rewards[:2]), fmean(rewards[2:])]
        for name in ("eval_reward", "eval_rewards/judge/mean"):
            assert theirs[name] == pytest.approx(fmean(means))
            assert ours[name] == pytest.approx(fmean(rewards))
            assert (ours[name] == pytest.approx(theirs[name])) == (num_rows == 4)
