"""Every field that GRPOConfig adds to TrainingArguments, and what is behind it here: none is ignored in silence."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
import test_equals_trl
import test_equals_trl_sampler
from trl import GRPOConfig
from trl.trainer.base_config import _BaseConfig


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


def test_every_field_of_trls_configuration_is_in_one_list() -> None:
    own = {field.name for field in fields(GRPOConfig)} - {field.name for field in fields(_BaseConfig)}
    changed = {"learning_rate", "remove_unused_columns"}  # TrainingArguments has them; GRPOConfig's default is another
    lists = [EQUAL, set(REFUSED), set(DIFFERENT), set(TAKEN), UNTESTED]
    assert sum(map(len, lists)) == len(set().union(*lists))
    assert set().union(*lists) == own | changed


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
