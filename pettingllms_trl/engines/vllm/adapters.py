"""Which adapters vLLM serves. It would ignore the others in part, or reject them when they are loaded."""

from __future__ import annotations

from collections.abc import Mapping

from peft import LoraConfig, PeftConfig

from pettingllms_trl.policies.adapters import PLAIN_INITIALISATIONS


# What `--max-lora-rank` may be (vllm/config/lora.py: MaxLoRARanks).
RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
# Fields of LoraConfig that are more than lora_B·lora_A, where they are set.
NOT_SERVED = (
    *("modules_to_save", "use_dora", "bias", "lora_bias", "target_parameters", "trainable_token_indices"),
    *("layer_replication", "use_qalora", "use_bdlora", "alora_invocation_tokens", "arrow_config", "kasa_config"),
    *("velora_config", "monteclora_config"),
)


def check_adapters(configs: Mapping[str, PeftConfig]) -> int:
    """The maximum rank that vLLM needs for these adapters: the least of `RANKS` that none exceeds.

    Raises:
        ValueError: An adapter has a feature that vLLM does not support, and would silently ignore or reject later.
    """
    largest = 1
    for policy, config in configs.items():
        if not isinstance(config, LoraConfig):
            raise ValueError(
                f"policy {policy!r} is trained by a {type(config).__name__}, but vLLM serves LoRA adapters only. Use "
                "a LoraConfig, or use_vllm=False."
            )
        for what in _unservable(config):
            raise ValueError(
                f"the adapter of policy {policy!r} has {what}, which vLLM does not serve: it samples from the model "
                "on disk plus lora_B·lora_A of its linear layers. Leave it out of peft_config, or use_vllm=False."
            )
        largest = max([largest, config.r, *config.rank_pattern.values()])
    if largest > RANKS[-1]:
        raise ValueError(f"an adapter has rank {largest}, but vLLM serves {RANKS[-1]} at most. Choose a smaller r.")
    return next(rank for rank in RANKS if rank >= largest)


def _unservable(config: LoraConfig) -> list[str]:
    """The settings of a configuration that vLLM does not support."""
    found = [f"{name}={value!r}" for name in NOT_SERVED if (value := getattr(config, name)) and value != "none"]
    if config.init_lora_weights not in PLAIN_INITIALISATIONS:  # vLLM reads a base of its own from disk
        found.append(f"init_lora_weights={config.init_lora_weights!r}")
    targets = config.target_modules or []
    targets = [targets] if isinstance(targets, str) else sorted(targets)
    if any("lm_head" in name or "embed_tokens" in name for name in targets):
        found.append(f"target_modules={targets!r}")
    return found
