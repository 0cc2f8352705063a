"""TRL's own tests of GRPOTrainer, one line each: what our trainer does in its place, with one agent and one turn.

The list is tests/test_grpo_trainer.py of huggingface/trl at f2cd57710 (2026-07-24, 1.10.0.dev0), the newest that could
be had: the source archive of 1.16.0 has no tests. test_as_trl_tests_it.py runs it, and a page is made from it:

    PYTHONPATH=.:tests/trl python tests/trl/trl_tests.py > benchmarks/results/trl_tests.md
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal


Verdict = Literal["passes", "differs", "refused", "elsewhere"]
MEANING: dict[Verdict, str] = {
    "passes": "what the test asks for holds",
    "differs": "something else happens, on purpose, for the reason given",
    "refused": "an error says why, before a model is loaded",
    "elsewhere": "not about this trainer, or of a way to take turns that `env=` stands in for",
}


@dataclass(frozen=True, kw_only=True)
class Train:
    """A run of two steps that must end with a loss and with every trained weight moved.

    Args:
        options: Of the configuration, beside small ones.
        model: One of the tiny models made in the test.
        rewards: Names of reward functions made in the test.
        given: Other arguments of the trainer, by the name of what is made in the test.
        logs: Keys that are in the log.
        check: Name of a further check.
        moves: Whether the weights do.
    """

    options: dict[str, Any] = field(default_factory=dict)
    model: str = "qwen2"
    rewards: Sequence[str] = ("length",)
    given: dict[str, str] = field(default_factory=dict)
    logs: Sequence[str] = ()
    check: str = ""
    moves: bool = True


@dataclass(frozen=True, kw_only=True)
class Refused:
    """Arguments for which the constructor raises."""

    error: type[Exception]
    message: str
    options: dict[str, Any] = field(default_factory=dict)
    rewards: Sequence[str] = ("length",)
    given: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Inherits:
    """The very method of GRPOTrainer, so that its test says as much of ours."""

    method: str


@dataclass(frozen=True, kw_only=True)
class Checks:
    """A function of test_as_trl_tests_it.py."""

    name: str


How = Train | Refused | Inherits | Checks


@dataclass(frozen=True)
class Case:
    """A test of TRL, by its name, and ours."""

    name: str
    verdict: Verdict
    why: str = ""
    hows: tuple[How, ...] = ()


def passes(name: str, *hows: How, why: str = "") -> Case:
    return Case(name, "passes", why, hows)


def differs(name: str, why: str, *hows: How) -> Case:
    return Case(name, "differs", why, hows)


def refused(name: str, why: str, *hows: How) -> Case:
    return Case(name, "refused", why, hows)


def elsewhere(name: str, why: str, *hows: How) -> Case:
    return Case(name, "elsewhere", why, hows)


MASK = Inherits(method="get_high_entropy_mask")
GENERATE = Inherits(method="_generate")
OFF_POLICY = Inherits(method="get_off_policy_mask")
SEQUENCE = {"importance_sampling_level": "sequence"}
STREAM = {"train_dataset": "stream"}
TOOLS = "`tools=` is not taken: a tool is an agent, or a part of the environment"
TOOLS_REFUSED = Refused(error=TypeError, message="no argument 'tools'", given={"tools": "tools"})
FACTORY = "`environment_factory=` is not taken: `env=` makes a PettingZoo environment, and rewards are its own"
FACTORY_REFUSED = Refused(
    error=TypeError, message="no argument 'environment_factory'", given={"environment_factory": "env"}
)
LIGER = "Liger's loss is gone from TRL 1.16"
IMAGES = "test_vision_examples.py"
SEEING_VLLM = "engines/vllm/test_vllm_pictures.py, `-m vllm`, with a real engine"
NO_EVAL_LOSS = "`eval_reward` and outcomes are logged, no `eval_loss`: a group-relative loss says nothing there"
VLLM = "skipped in TRL; ours with a real engine: test_training_with_vllm.py and test_equals_trl_vllm.py, `-m vllm`"

CASES: tuple[Case, ...] = (
    # ---- TestGetHighEntropyMask ----
    passes("test_compute_entropy_mask_0", MASK),
    passes("test_compute_entropy_mask_1", MASK),
    passes("test_compute_entropy_mask_lower_threshold", MASK),
    passes("test_compute_entropy_threshold_0", MASK),
    passes("test_compute_entropy_threshold_1", MASK),
    passes("test_compute_entropy_all_masked", MASK),
    # ---- TestGRPORolloutDispatch ----
    passes("test_generate_prefers_rollout_func", GENERATE, why="the rollout is ours; `rollout_func=` is not taken"),
    passes("test_generate_rollout_func_syncs_vllm_weights_when_needed", GENERATE),
    passes("test_generate_rollout_func_raises_when_required_keys_are_missing", GENERATE),
    # ---- TestTransformersContinuousBatchingContract ----
    elsewhere("test_generation_output_has_logprobs_field", "of transformers"),
    elsewhere("test_generation_output_logprobs_accepts_floats", "of transformers"),
    elsewhere("test_continuous_batching_config_has_return_logprobs", "of transformers"),
    elsewhere("test_generate_batch_accepts_continuous_batching_config", "of transformers"),
    # ---- TestGRPOTrainer ----
    passes("test_init_minimal", Checks(name="init_minimal")),
    passes(
        "test_train",
        *(Train(model=name) for name in ("qwen2", "cohere2", "gemma2")),
        *(Train(model=name, logs=["aux_loss"]) for name in ("qwen3_moe", "gpt_oss")),
        why="NemotronH and GLM-4-MoE were not tried",
    ),
    differs("test_train_dataset_format", "a prompt that is a string is asked as a user's message", Train()),
    passes("test_trust_remote_code", Checks(name="trust_remote_code")),
    passes(
        "test_train_loss_types",
        *(
            Train(
                options={
                    **(SEQUENCE if loss == "luspo" else {}),
                    "loss_type": loss,
                    "gradient_accumulation_steps": 2,
                },
            )
            for loss in ("bnpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo", "vespo")
        ),
    ),
    differs(
        "test_train_with_eval",
        NO_EVAL_LOSS,
        Train(
            options={"eval_strategy": "steps", "eval_steps": 2},
            given={"eval_dataset": "rows"},
            logs=["eval_reward"],
        ),
    ),
    differs(
        "test_train_with_num_generations_eval",
        "1 is the default; an evaluation plays, it does not compare",
        Train(
            options={
                "eval_strategy": "steps",
                "eval_steps": 2,
                "num_generations_eval": 3,
                "per_device_eval_batch_size": 3,
            },
            given={"eval_dataset": "rows"},
            logs=["eval_reward"],
        ),
    ),
    passes("test_train_with_iterable_dataset", Train(given=STREAM, check="no_dispatch")),
    passes("test_init_with_eval_dataset", Checks(name="init_with_eval_dataset")),
    passes(
        "test_iterable_dataset_requires_dispatch_batches_false",
        Refused(
            error=ValueError,
            message="Iterable datasets require `dispatch_batches=False`",
            options={"accelerator_config": {"dispatch_batches": True}},
            given=STREAM,
        ),
    ),
    passes("test_iterable_dataset_forces_num_workers_zero", Checks(name="iterable_dataset_forces_num_workers_zero")),
    passes("test_iterable_eval_keeps_map_style_train_workers", Checks(name="iterable_eval_keeps_workers")),
    differs("test_evaluate_with_eval_dataset", NO_EVAL_LOSS, Checks(name="evaluate_with_eval_dataset")),
    passes(
        "test_train_eval_on_start",
        Train(
            options={"eval_strategy": "steps", "eval_steps": 2, "eval_on_start": True, "loss_type": "grpo"},
            given={"eval_dataset": "rows"},
        ),
    ),
    passes("test_train_multiple_iterations", Train(options={"num_iterations": 2})),
    passes("test_train_peft_config", Train(given={"peft_config": "adapter"}, check="base_stays")),
    passes(
        "test_liger_kernel_with_peft_lm_head_raises",
        Refused(error=ValueError, message="lm_head", given={"peft_config": "adapter_on_head"}),
        why="without Liger, too",
    ),
    elsewhere("test_liger_kernel_with_peft_non_lm_head_target_allowed", LIGER),
    elsewhere("test_liger_kernel_with_peft_modules_to_save_lm_head_allowed", LIGER),
    elsewhere("test_liger_kernel_with_peft_prompt_learning_raises", LIGER),
    passes("test_train_peft_model", Train(model="qwen2 with an adapter", check="base_stays")),
    passes(
        "test_train_moe_peft_model",
        Train(model="qwen3_moe with an adapter on experts", options={"beta": 0.1}, check="base_stays"),
        why="with PEFT 0.20 and newer the reference is a copy of the adapter",
    ),
    passes(
        "test_train_peft_with_gradient_checkpointing",
        Train(given={"peft_config": "adapter"}, options={"gradient_checkpointing": True}),
    ),
    passes(
        "test_train_different_reward_model",
        Train(rewards=["classifier"], given={"reward_processing_classes": "other_tokenizer"}),
    ),
    passes("test_train_reward_func_standard", Train(rewards=["is_standard"])),
    passes("test_train_reward_func_conversational", Train(rewards=["is_conversational"], given={"env": "chat"})),
    passes("test_train_multiple_reward_funcs", Train(rewards=["length", "variety"])),
    passes("test_train_sync_and_async_reward_funcs", Train(rewards=["length", "constant_1", "later"])),
    passes("test_train_multiple_reward_funcs_with_None_output", Train(rewards=["length", "none"])),
    passes(
        "test_train_multiple_reward_funcs_with_weights",
        Train(
            rewards=["length", "variety"],
            options={"reward_weights": [0.7, 0.3]},
            logs=[f"rewards/{name}/{what}" for name in ("length", "variety") for what in ("mean", "std")],
        ),
    ),
    passes(
        "test_reward_metric_reflects_reward_weights",
        Train(
            rewards=["constant_1", "constant_0"],
            options={"reward_weights": [0.7, 0.3]},
            check="reward_is_0.7",
            moves=False,
        ),
        Refused(
            error=ValueError,
            message="multi_objective_aggregation='normalize_then_sum', expected 'sum_then_normalize'",
            options={"multi_objective_aggregation": "normalize_then_sum"},
        ),
        why="`normalize_then_sum` is refused",
    ),
    passes("test_train_multiple_mixed_reward_funcs", Train(rewards=["length", "classifier"])),
    passes(
        "test_train_reward_func_additional_column", Train(rewards=["near_value"], given={"train_dataset": "values"})
    ),
    passes(
        "test_train_with_sync_ref_model",
        Train(options={"beta": 0.1, "sync_ref_model": True, "ref_model_sync_steps": 2}, check="reference_moved"),
    ),
    passes("test_train_beta_non_zero", Train(options={"beta": 0.1})),
    passes("test_train_with_pad_to_multiple_of", Train(options={"pad_to_multiple_of": 8})),
    passes("test_get_off_policy_mask", OFF_POLICY),
    passes("test_get_off_policy_mask_padding", OFF_POLICY),
    passes("test_train_with_off_policy_mask", Train(options={"off_policy_mask_threshold": 0.5})),
    elsewhere("test_train_with_off_policy_mask_with_liger", LIGER),
    elsewhere("test_compute_liger_loss_passes_vllm_is_ratio", LIGER),
    passes("test_train_with_bias_correction_kl", Train(options={"beta": 0.1, "use_bias_correction_kl": True})),
    passes(
        "test_train_with_cast_lm_head_to_fp32",
        Train(model="qwen2", options={"cast_lm_head_to_fp32": True}, check="head_is_float32"),
        Train(model="gemma2", options={"cast_lm_head_to_fp32": True}, check="head_is_float32"),
    ),
    passes(
        "test_train_with_static_entropy", Train(options={"entropy_coef": 0.1}, logs=["policy_loss", "entropy_coef"])
    ),
    passes(
        "test_train_with_adaptive_entropy",
        Train(
            options={"entropy_coef": 0.01, "use_adaptive_entropy": True, "entropy_target": 15.0},
            logs=["policy_loss", "entropy_coef"],
            check="entropy_coef_rose_once_a_step",
        ),
    ),
    passes(
        "test_entropy_bonus_scale",
        *(
            Train(
                options={
                    "loss_type": loss,
                    "entropy_coef": 0.5,
                    "logging_steps": 1,
                    **(SEQUENCE if loss == "luspo" else {}),
                },
                check="entropy_bonus_is_the_mean",
            )
            for loss in ("grpo", "dr_grpo", "dapo", "luspo")
        ),
    ),
    passes(
        "test_train_with_adaptive_entropy_gradient_accumulation",
        Train(
            options={
                "entropy_coef": 0.01,
                "use_adaptive_entropy": True,
                "entropy_target": 15.0,
                "gradient_accumulation_steps": 2,
            },
            check="entropy_coef_rose_once_a_step",
        ),
    ),
    passes("test_entropy_bonus_flows_gradients", why="test_packed_logprobs.py, with prompts shared and without"),
    passes("test_train_with_entropy_filter", Train(options={"top_entropy_quantile": 0.2})),
    differs("test_train_vllm_and_peft", VLLM + "; `modules_to_save` is refused there"),
    refused("test_train_vllm_structured_outputs", "a reply is read by its environment: engines/vllm/params.py"),
    passes("test_train_vllm_importance_sampling_correction", why="test_equals_trl_sampler.py, equal to TRL"),
    passes("test_train_with_additional_generation_kwargs", Train(options={"top_p": 0.9, "top_k": 10, "min_p": 0.01})),
    passes("test_train_vllm_with_additional_generation_kwargs", why="engines/vllm/test_vllm_params.py"),
    refused(
        "test_train_normalize_then_sum_aggregation",
        "the sum of a candidate's rewards decides which goes on, and a credit scheme makes the advantages",
        Refused(
            error=ValueError,
            message="multi_objective_aggregation='normalize_then_sum', expected 'sum_then_normalize'",
            options={"multi_objective_aggregation": "normalize_then_sum"},
        ),
    ),
    passes(
        "test_train_scale_rewards",
        *(Train(options={"scale_rewards": scale}) for scale in (False, "group", "batch", True, "none")),
    ),
    passes(
        "test_train_with_mask_truncated_completions",
        Train(
            options={
                "mask_truncated_completions": True,
                "loss_type": "dapo",
                "generation_kwargs": {"sequence_bias": [[[1], 3.0]]},
            }
        ),
    ),
    passes(
        "test_train_with_mask_truncated_completions_all_masked",
        Train(
            options={"mask_truncated_completions": True, "generation_kwargs": {"suppress_tokens": [1]}},
            check="train_loss_is_0",
            moves=False,
        ),
    ),
    differs(
        "test_warning_raised_all_rewards_none",
        "`None` adds nothing to what the environment gave, which is a reward all the same",
        Train(rewards=["none"], moves=False),
    ),
    passes("test_warning_raised_sequence_level_with_token_summed_loss", Checks(name="warns_of_sequence_level")),
    passes(
        "test_train_num_generations_larger_than_batch_size",
        Train(options={"num_generations": 6, "gradient_accumulation_steps": 2}),
    ),
    passes("test_train_delta_clipping", Train(options={"delta": 2.0})),
    passes("test_train_multiple_dataloader_workers", Train(options={"dataloader_num_workers": 2})),
    passes(
        "test_train_with_generation_kwargs",
        Train(options={"generation_kwargs": {"do_sample": True, "top_k": 50, "num_beams": 2, "length_penalty": -0.1}}),
    ),
    passes("test_train_with_reward_func_accessing_trainer_state", Train(rewards=["looks_at_state"])),
    passes(
        "test_train_reward_func_with_log_extra",
        Train(rewards=["logs_extra"], options={"log_completions": True}, check="extra_column"),
    ),
    passes("test_train_reward_func_with_log_metric", Train(rewards=["logs_metric"], logs=["custom_accuracy"])),
    differs(
        "test_prepare_input_called_with_correct_data",
        "each row comes once, not K times: its K candidates are made by the rollout",
        Checks(name="training_step_is_given_each_row_once"),
    ),
    passes(
        "test_train_sequence_importance_sampling", Train(options={**SEQUENCE, "num_iterations": 2, "max_steps": 4})
    ),
    passes(
        "test_train_with_chat_template_kwargs",
        Train(options={"chat_template_kwargs": {"shout": True}}, check="template_was_told"),
    ),
    elsewhere("test_train_with_tools", TOOLS, TOOLS_REFUSED),
    elsewhere("test_train_with_multiple_environments", FACTORY, FACTORY_REFUSED),
    elsewhere("test_train_with_unknown_environment_raises", FACTORY),
    elsewhere("test_train_with_environment_factory", FACTORY),
    elsewhere("test_train_with_environment_owned_reward", FACTORY),
    elsewhere("test_environment_owned_reward_coexists_with_reward_funcs", FACTORY),
    elsewhere("test_environment_owned_reward_mixed_environments", FACTORY),
    differs("test_no_reward_source_raises", "the environment gives rewards", Train(rewards=(), moves=False)),
    differs(
        "test_dataset_required_without_environment",
        "may be left out where the trainer only plays; `train()` then says so",
        Checks(name="training_without_rows"),
    ),
    elsewhere("test_environment_owned_data_requires_max_steps", FACTORY),
    elsewhere("test_multiple_environments_without_dataset_raises", FACTORY),
    elsewhere("test_train_with_environment_owned_data", FACTORY),
    elsewhere("test_train_with_malformed_tool_calls", TOOLS),
    passes(
        "test_mismatched_reward_processing_classes_length",
        Refused(
            error=ValueError,
            message="reward_processing_classes has 1 tokenizers for 2 reward functions",
            rewards=["classifier", "classifier"],
            given={"reward_processing_classes": "other_tokenizer"},
        ),
    ),
    passes("test_correct_reward_processing_classes_list", Checks(name="reward_processing_classes")),
    passes("test_single_reward_model_with_single_processing_class", Checks(name="reward_processing_classes")),
    # ---- TestGRPOTrainerVLM ----
    passes("test_train_vlm", why=f"{IMAGES}; test_equals_trl_pictures.py, equal to TRL"),
    passes("test_train_vlm_with_pad_to_multiple_of", why=IMAGES),
    passes("test_train_vlm_beta_non_zero", why=f"{IMAGES}; test_equals_trl_pictures.py, equal to TRL"),
    passes("test_train_vlm_peft", why=IMAGES),
    passes("test_train_vlm_and_importance_sampling", why=IMAGES),
    elsewhere("test_train_vlm_and_liger", LIGER),
    passes("test_train_vlm_and_vllm", why=SEEING_VLLM),
    passes("test_train_vlm_multi_image", why=f"{IMAGES}; test_equals_trl_pictures.py, equal to TRL"),
    passes("test_train_vlm_log_multimodal_false", why=f"{IMAGES}; the table has descriptions, never images"),
    elsewhere("test_train_with_tools_multimodal_response", TOOLS),
    # ---- TestGRPOTrainerSlow ----
    elsewhere("test_train_with_liger_grpo_kernel", LIGER),
    elsewhere("test_train_with_liger_grpo_kernel_and_peft", LIGER),
    elsewhere("test_liger_grpo_kernel_importance_sampling", LIGER),
    differs(
        "test_train_with_transformers_continuous_batching",
        "inherited with `_generate_single_turn`; it needs a GPU, and has not been run on one",
        Inherits(method="_tokenize_prompts"),
    ),
    differs(
        "test_vlm_training", "of adapters on a large model, on a GPU; ours with tiny ones: test_picture_policies.py"
    ),
    passes("test_vlm_processor_vllm_colocate_mode", why=SEEING_VLLM),
    passes("test_train_vllm", why=VLLM),
)


def render() -> str:
    """benchmarks/results/trl_tests.md."""
    numbers = {verdict: sum(case.verdict == verdict for case in CASES) for verdict in MEANING}
    groups: dict[tuple[Verdict, str], list[str]] = {}
    for case in CASES:
        groups.setdefault((case.verdict, case.why), []).append(f"`{case.name}`")
    lines = [
        "# TRL's own tests of GRPOTrainer, run on ours",
        "",
        "Made from `tests/trl/trl_tests.py`, which `tests/trl/trainer/test_as_trl_tests_it.py` runs; do not edit.",
        "",
        "One agent, one turn, an environment whose prompt is the row's prompt; tiny random models of the same",
        "families, made in the test. The list is `tests/test_grpo_trainer.py` of huggingface/trl at f2cd57710,",
        "2026-07-24, the newest that could be had: the source archive of 1.16.0 has no tests. It runs against TRL",
        "1.16.",
        "",
        "| | number | |",
        "|---|---|---|",
        *(f"| {verdict} | {numbers[verdict]} | {meaning} |" for verdict, meaning in MEANING.items()),
        "",
        "| tests of TRL | ours | |",
        "|---|---|---|",
        *(f"| {', '.join(names)} | {verdict} | {why} |" for (verdict, why), names in groups.items()),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(render(), end="")
