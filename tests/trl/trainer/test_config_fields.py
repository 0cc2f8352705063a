"""Every field of GRPOConfig and of TrainingArguments, and what is behind it here: none is ignored in silence."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
import test_equals_trl
import test_equals_trl_sampler
from trl import GRPOConfig
from trl.trainer.base_config import _BaseConfig

from pettingllms_trl.structure.properties import OPTIONS


# Fields whose change is made in test_equals_trl.py or test_equals_trl_sampler.py, where the update equals TRL's.
EQUAL = {
    *("num_generations", "max_completion_length", "shuffle_dataset", "pad_to_multiple_of", "generation_batch_size"),
    *("steps_per_generation", "temperature", "top_p", "top_k", "min_p", "generation_kwargs", "repetition_penalty"),
    *("use_vllm", "beta", "num_iterations", "epsilon", "delta", "epsilon_high", "sapo_temperature_neg"),
    *("sapo_temperature_pos", "vespo_k_pos", "vespo_lambda_pos", "vespo_k_neg", "vespo_lambda_neg"),
    *("importance_sampling_level", "scale_rewards", "loss_type", "mask_truncated_completions", "sync_ref_model"),
    *("ref_model_mixup_alpha", "ref_model_sync_steps", "top_entropy_quantile", "entropy_coef"),
    *("use_adaptive_entropy", "entropy_coef_min", "entropy_coef_max", "entropy_coef_delta", "entropy_target"),
    *("vllm_importance_sampling_correction", "vllm_importance_sampling_mode", "vllm_importance_sampling_clip_max"),
    *(
        "vllm_importance_sampling_clip_min",
        "model_init_kwargs",
        "off_policy_mask_threshold",
        "use_bias_correction_kl",
        "learning_rate",
    ),
}
REFUSED = {
    "multi_objective_aggregation": "trainer/test_bad_input.py",
    "max_tool_calling_iterations": "trainer/test_bad_input.py",
    "vllm_structured_outputs_regex": "engines/vllm/test_vllm_params.py",
}
DIFFERENT = {
    "num_generations_eval": "1 by default: an evaluation plays, it does not compare",
    "reward_weights": "of the reward functions, which are added to the environment's reward",
    "log_completions": "the table has a row for every candidate, and columns of our own",
    "remove_unused_columns": "a row's fields are reset options: none is removed",
}
# Read by TRL's own code, which is inherited, or by the engine; see the test named.
TAKEN = {
    "trust_remote_code": "trainer/test_as_trl_tests_it.py",
    "router_aux_loss_coef": "trainer/test_as_trl_tests_it.py",
    "disable_dropout": "trainer/test_equals_trl.py",
    "cast_lm_head_to_fp32": "trainer/test_as_trl_tests_it.py",
    "chat_template_kwargs": "trainer/test_as_trl_tests_it.py",
    "vllm_max_model_length": "engines/vllm/test_vllm_colocated.py",
}
# Taken by inherited code or the engines alone: of no consequence for the update, or of machines that no test has.
UNTESTED = {
    *("ds3_gather_for_generation", "cache_implementation", "log_multimodal", "num_completions_to_print"),
    *("log_unique_prompts", "log_completions_hub_repo", "use_transformers_continuous_batching"),
    *("transformers_continuous_batching_config", "use_transformers_paged", "vllm_importance_sampling_cap"),
    *("vllm_model_impl", "vllm_enable_sleep_mode", "vllm_server_host", "vllm_server_port", "vllm_server_timeout"),
    *(
        "vllm_mode",
        "vllm_server_base_url",
        "vllm_group_port",
        "vllm_gpu_memory_utilization",
        "vllm_tensor_parallel_size",
    ),
}

# The effect depends on the row or the batch that a token is in. `OPTIONS` rule packing out; a router's loss does, too.
BY_ROW = {*OPTIONS, "router_aux_loss_coef"}
# TRL computes these of (B, C) tensors, packed or not; test_packed_logprobs.py compares both in each of these cases.
COMPLETION_FIELDS = {
    *("loss_type", "importance_sampling_level", "top_entropy_quantile", "off_policy_mask_threshold", "entropy_coef"),
    *("mask_truncated_completions", "use_bias_correction_kl", "scale_rewards", "pad_to_multiple_of", "num_iterations"),
}
# Fields of TrainingArguments that act on parameters, steps, files, processes, or on every token alike.
NOT_BY_ROW = {
    *("output_dir", "per_device_train_batch_size", "num_train_epochs", "max_steps", "learning_rate", "local_rank"),
    *("lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps", "optim", "optim_args", "weight_decay", "adam_beta1"),
    *("adam_beta2", "adam_epsilon", "optim_target_modules", "gradient_accumulation_steps", "max_grad_norm", "bf16"),
    *("average_tokens_across_devices", "label_smoothing_factor", "fp16", "bf16_full_eval", "fp16_full_eval", "tf32"),
    *("activation_checkpointing", "activation_checkpointing_kwargs", "gradient_checkpointing", "liger_kernel_config"),
    *("gradient_checkpointing_kwargs", "torch_compile_backend", "torch_compile_mode", "use_liger_kernel", "use_cache"),
    *("torch_empty_cache_steps", "auto_find_batch_size", "logging_strategy", "logging_steps", "logging_first_step"),
    *("log_on_each_node", "logging_nan_inf_filter", "include_num_input_tokens_seen", "log_level", "log_level_replica"),
    *("disable_tqdm", "report_to", "run_name", "project", "trackio_space_id", "trackio_bucket_id", "eval_strategy"),
    *("trackio_static_space_id", "eval_steps", "eval_delay", "per_device_eval_batch_size", "prediction_loss_only"),
    *("eval_on_start", "eval_do_concat_batches", "eval_use_gather_object", "eval_accumulation_steps", "save_steps"),
    *("include_for_metrics", "batch_eval_metrics", "save_only_model", "save_strategy", "save_on_each_node", "do_eval"),
    *("save_total_limit", "enable_jit_checkpoint", "push_to_hub", "hub_token", "hub_private_repo", "hub_model_id"),
    *("hub_strategy", "hub_always_push", "hub_revision", "load_best_model_at_end", "metric_for_best_model", "debug"),
    *("greater_is_better", "ignore_data_skip", "restore_callback_states_from_checkpoint", "full_determinism", "seed"),
    *("data_seed", "use_cpu", "accelerator_config", "parallelism_config", "dataloader_drop_last", "label_names"),
    *("dataloader_num_workers", "dataloader_pin_memory", "dataloader_persistent_workers", "dataloader_in_order"),
    *("dataloader_prefetch_factor", "dataloader_multiprocessing_context", "remove_unused_columns", "do_train"),
    *("train_sampling_strategy", "length_column_name", "ddp_find_unused_parameters", "ddp_bucket_cap_mb", "fsdp"),
    *("ddp_broadcast_buffers", "ddp_static_graph", "ddp_backend", "ddp_timeout", "fsdp_config", "deepspeed"),
    *("skip_memory_metrics", "do_predict", "resume_from_checkpoint"),
}


def test_every_field_of_trls_configuration_is_in_one_list() -> None:
    own = {field.name for field in fields(GRPOConfig)} - {field.name for field in fields(_BaseConfig)}
    changed = {"learning_rate", "remove_unused_columns"}  # TrainingArguments has them; GRPOConfig's default is another
    lists = [EQUAL, set(REFUSED), set(DIFFERENT), set(TAKEN), UNTESTED]
    assert sum(map(len, lists)) == len(set().union(*lists))
    assert set().union(*lists) == own | changed


def test_every_field_of_transformers_is_classified_by_whether_the_row_matters() -> None:
    found = {field.name for field in fields(_BaseConfig)}
    assert found - NOT_BY_ROW - BY_ROW == set(), "classify it: by row (then it is an option of properties.py), or not"
    assert NOT_BY_ROW - found == set(), "gone from transformers"
    assert not NOT_BY_ROW & (BY_ROW | COMPLETION_FIELDS)


def test_what_is_measured_by_row_is_a_field_and_packed_rows_are_compared_with_it() -> None:
    assert {field.name for field in fields(GRPOConfig)} >= BY_ROW | COMPLETION_FIELDS
    assert {name for case in test_equals_trl.CASES.values() for name in case} >= COMPLETION_FIELDS


def test_what_is_said_to_equal_trl_is_changed_in_a_test_of_equality() -> None:
    cases = [*test_equals_trl.CASES.values(), *test_equals_trl_sampler.CASES.values()]
    changed = {name for options in cases for name in options}
    always = {"learning_rate", "generation_kwargs", "use_vllm"}
    assert set() == EQUAL - changed - always


@pytest.mark.parametrize("name", [*REFUSED.values(), *TAKEN.values()])
def test_the_test_that_is_named_is_there(name: str) -> None:
    assert (Path(__file__).parents[1] / name).is_file()


@pytest.mark.parametrize("name", sorted({**REFUSED, **TAKEN}))
def test_the_test_that_is_named_has_the_field(name: str) -> None:
    file = {**REFUSED, **TAKEN}[name]
    folder = Path(__file__).parents[1]
    text = (folder / file).read_text(encoding="utf-8") + (folder / "trl_tests.py").read_text(encoding="utf-8")
    assert name in text or name == "router_aux_loss_coef"  # there as aux_loss in the log
