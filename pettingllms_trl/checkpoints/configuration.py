"""`RunConfiguration`: what decides a run. A checkpoint keeps it, and a run that is resumed is compared with it.

| what differs                                                   | the resumed run                           |
|----------------------------------------------------------------|-------------------------------------------|
| routing, base models, adapters, what is trained, the optimizer | is refused, before anything is loaded     |
| a field in `ARGUMENTS`, data, rewards, credit, environment     | goes on, with one warning that names each |
| its length, folders, logging, saving, processes                | goes on                                   |
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pettingllms_envs.settings import STRICT_FORMAT


BATCH = ("per_device_train_batch_size", "generation_batch_size", "steps_per_generation", "gradient_accumulation_steps")
"""Fields that are other numbers for the same training among another number of processes."""
OPTIMIZER = ("learning_rate", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon")
"""Fields that the optimizer's state has: a resumed run goes on with those of its checkpoint."""
ARGUMENTS = (
    *BATCH,
    *OPTIMIZER,
    # What is played.
    *("seed", "data_seed", "shuffle_dataset", "sampling", "num_generations", "max_turns", "choose", "history"),
    *("num_continuations", "train_continuations", "continuation_group", "branch_at", "max_resamples", "crash_reward"),
    *("max_envs", "ignore_data_skip", "imitate", "keep_fraction", "num_rounds", "replay"),
    # How it is sampled.
    *("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_completion_length", "role_sampling"),
    *("generation_kwargs", "chat_template_kwargs", "use_transformers_continuous_batching", "cache_implementation"),
    *("vllm_structured_outputs_regex", "vllm_max_model_length"),
    # How it is paid, and what the loss makes of it.
    *("alpha", "reward_parts", "reward_weights", "scale_rewards", "loss_type", "beta", "epsilon", "epsilon_high"),
    *("delta", "importance_sampling_level", "mask_truncated_completions", "top_entropy_quantile"),
    *("entropy_coef", "use_adaptive_entropy", "entropy_coef_min", "entropy_coef_max", "entropy_coef_delta"),
    *("entropy_target", "off_policy_mask_threshold", "use_bias_correction_kl", "router_aux_loss_coef"),
    *("sapo_temperature_neg", "sapo_temperature_pos", "vespo_k_pos", "vespo_lambda_pos", "vespo_k_neg"),
    *("vespo_lambda_neg", "vllm_importance_sampling_correction", "vllm_importance_sampling_mode"),
    *("vllm_importance_sampling_clip_max", "vllm_importance_sampling_clip_min"),
    *("sync_ref_model", "ref_model_mixup_alpha", "ref_model_sync_steps"),
    # How weights are moved.
    *("lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps", "max_grad_norm", "num_iterations"),
    *("optim_args", "optim_target_modules", "disable_dropout", "neftune_noise_alpha", "bf16", "fp16", "tf32"),
    *("cast_lm_head_to_fp32", "use_liger_kernel", "shared_prefix", "max_tokens_per_microbatch", "pad_to_multiple_of"),
)
"""Fields of the configuration that decide a run, beside those that a kind of engine has."""
MODEL = "model"
"""The option of a team whose values are those of `described_model`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfiguration:
    """What decides a run, as JSON values: `team`, what the weights and the optimizer's state of a checkpoint belong
    to, by the option that sets it, and `settings`, the rest, by name."""

    team: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    def described(self) -> dict[str, Any]:
        """As a checkpoint's manifest has it."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain


@dataclass(frozen=True, slots=True)
class Difference:
    """What a checkpoint has otherwise than the run that resumes from it, which may go on if it has no `option`."""

    what: str
    saved: Any
    given: Any
    option: str | None = None


def differences(saved: Mapping[str, Any], given: RunConfiguration) -> list[Difference]:
    """What a checkpoint's configuration has otherwise. What one of the two lacks is not compared: versions differ."""
    now = given.described()
    found = [
        Difference(what, before, now["team"][option][what], option)
        for option, own in saved["team"].items()
        for what, before in own.items()
        if what in now["team"].get(option, {})
        and not (_is_same_model if option == MODEL else _equal)(before, now["team"][option][what])
    ]
    settings = now["settings"]
    # Replies were read strictly before that was a setting.
    of_old = dict.fromkeys((name for name in settings if name.startswith(f"{STRICT_FORMAT} of env")), True)
    uncompared = BATCH if saved["settings"].get("num_processes") != settings.get("num_processes") else ()
    return found + [
        Difference(what, before, settings[what])
        for what, before in {**of_old, **saved["settings"]}.items()
        if what in settings and what not in ("num_processes", *uncompared) and not _equal(before, settings[what])
    ]


def refusal(checkpoint: Path, found: Sequence[Difference]) -> str | None:
    """Why a run cannot be resumed from a checkpoint; `None`: it can."""
    refused = [difference for difference in found if difference.option is not None]
    if not refused:
        return None
    named = "; ".join(
        f"{each.what} is {_shown(each.saved, each.option)} there, but {_shown(each.given, each.option)} is given"
        for each in refused
    )
    options = " and ".join(f"{option}=" for option in dict.fromkeys(each.option for each in refused))
    return (
        f"this trainer cannot go on from {checkpoint}: {named}. Set {options} as in the run that saved it, or start a "
        "new run, without resume_from_checkpoint."
    )


def warning(checkpoint: Path, found: Sequence[Difference]) -> str | None:
    """What a run has otherwise than the checkpoint from which it goes on; `None`: nothing."""
    if not found:
        return None
    named = "; ".join(f"{each.what} {_shown(each.saved)} -> {_shown(each.given)}" for each in found)
    kept = [each.what for each in found if each.what.partition(" of ")[0] in OPTIMIZER]
    unless = f", except {', '.join(kept)}, restored with the optimizer's state" if kept else ""
    strict = any(each.what.startswith(STRICT_FORMAT) and each.saved is True for each in found)
    values = f"{STRICT_FORMAT}=True to the environment, as replies were read there, and " if strict else ""
    return (
        f"{checkpoint} was saved by a run with another configuration: {named}. From here on the new values hold"
        f"{unless}. To continue that run, pass {values}the old values."
    )


def _equal(saved: Any, given: Any) -> bool:
    # As text, where NaN equals itself.
    return json.dumps(saved, sort_keys=True) == json.dumps(given, sort_keys=True)


def _is_same_model(saved: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    """Whether two models are the same: a folder may have been moved, or other weights written into it."""
    if saved["weights"] and given["weights"] and (saved["weights"] == given["weights"] or not given["is_saved"]):
        return bool(saved["weights"] == given["weights"])
    key = "name" if saved["name"] and given["name"] else "architecture"
    return bool(saved[key] == given[key])


def is_loaded_from(checkpoint: Path, model: Mapping[str, Any]) -> bool:
    """Whether a model that is trained as a whole was loaded from the checkpoint, as `described_model` describes it."""
    return bool(model["is_saved"] and Path(model["name"]).resolve().is_relative_to(checkpoint.resolve()))


def _shown(value: Any, option: str | None = None) -> str:
    if option == MODEL:
        about = [value["architecture"], *([f"weights {value['weights']}"] if value["weights"] else [])]
        return f"{value['name'] or 'a model'} ({', '.join(about)})"
    return value if isinstance(value, str) and value else repr(value)
