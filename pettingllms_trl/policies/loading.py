"""Models and tokenizers of the Hub, or of a folder, loaded as TRL's constructor loads its own."""

from __future__ import annotations

from typing import Any

from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from trl.trainer.utils import create_model_from_path, get_config_model_id

from pettingllms_trl.config import MultiAgentGRPOConfig


def load_model(
    args: MultiAgentGRPOConfig, own: Any, quantization_config: Any, source: str, is_base: bool, *, several: bool
) -> PreTrainedModel:
    """A model of the Hub or a folder, as TRL loads one; `own` is the trainer's, whose revision is no other model's."""
    kwargs = {"trust_remote_code": args.trust_remote_code, **(args.model_init_kwargs or {})}
    if source != own:
        kwargs.pop("revision", None)
    if is_base and quantization_config is not None:
        kwargs["quantization_config"] = quantization_config
    if several:  # or the first would be spread over all devices
        kwargs.setdefault("device_map", None)
    if args.distributed_state.distributed_type in ("MULTI_GPU", "DEEPSPEED"):  # as TRL; "auto" fails there
        kwargs["device_map"] = None
    return create_model_from_path(source, **kwargs)


def source_of(model: Any) -> str:
    """The id or path that a model is, or was loaded from."""
    return model if isinstance(model, str) else get_config_model_id(model.config)


def load_tokenizer(args: MultiAgentGRPOConfig, own: Any, source: str) -> PreTrainedTokenizerBase:
    """A tokenizer of the Hub or a folder, as TRL loads one; `own` is the trainer's model, as for `load_model`."""
    revision = (args.model_init_kwargs or {}).get("revision") if source == own else None
    return AutoTokenizer.from_pretrained(
        source,
        truncation_side="left",
        padding_side="left",
        trust_remote_code=args.trust_remote_code,
        **({"revision": revision} if revision else {}),
    )
