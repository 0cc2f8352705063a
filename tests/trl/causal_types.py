"""Every causal type of the installed transformers, as a tiny model: what is decided of it, and what it computes."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from datasets import Dataset
from torch import nn
from transformers import CONFIG_MAPPING, GenerationConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from trl.trainer.utils import add_fused_lm_head

from pettingllms_trl import MultiAgentGRPOConfig, MultiAgentGRPOTrainer
from pettingllms_trl.engines.prefix_cache import PrefixCache
from pettingllms_trl.structure.miniature import FAILURES, NoMiniature, miniature
from pettingllms_trl.testing import byte_tokenizer, save_tiny_model
from pettingllms_trl.update.packed_logprobs import PackedScorer
from short_runs import SHORT
from third_party import OneShot


KINDS = tuple(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
MAMBA = {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_expand": 1, "hidden_size": 64}
FIELDS: dict[str, dict[str, Any]] = {
    "bamba": {"layer_types": ["linear_attention", "full_attention"] * 2, "num_hidden_layers": 4, **MAMBA},
    "falcon_h1": {"num_hidden_layers": 2, "mamba_d_ssm": 64, **MAMBA},
    "granitemoehybrid": {"layer_types": ["linear_attention", "full_attention"], "num_hidden_layers": 2, **MAMBA},
    "lfm2": {"layer_types": ["conv", "full_attention"] * 2, "num_hidden_layers": 4},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2, "num_hidden_layers": 4, "num_dense_layers": 1},
    "mamba2": {"hidden_size": 64, "num_heads": 4, "head_dim": 16, "expand": 1, "n_groups": 1},
    "deepseek_v2": {"topk_group": 1, "n_group": 1, "num_experts_per_tok": 2},
    "gemma4_assistant": {},
    "ministral": {"head_dim": 16},
    "nemotron": {"head_dim": 16, "num_key_value_heads": 4},
    "hunyuan_v1_dense": {"head_dim": 16},
    "hunyuan_v1_moe": {"head_dim": 16},
    **{
        kind: {"is_decoder": True}
        for kind in ("bert", "big_bird", "camembert", "data2vec-text", "electra", "ernie", "megatron-bert", "rembert")
    },
    **{kind: {"is_decoder": True} for kind in ("roberta", "roberta-prelayernorm", "roc_bert", "roformer", "xmod")},
    **{kind: {"is_decoder": True} for kind in ("xlm-roberta", "xlm-roberta-xl", "reformer", "bert-generation")},
}
"""What a type's default configuration leaves out, or has only one kind of layer of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What is made of a type in a precision.

    Args:
        error: It cannot be made, generate, or be trained: why. The rest is empty then.
        packed: Whether its rows are packed.
        why: The warning, if they are not.
        off: The largest difference of a token's log-probability from its row alone, in nats.
        noise: The largest difference between a row alone and in TRL's batch.
        kept: Whether the prefix cache keeps its keys.
        cache_off: The largest difference of sampled tokens' log-probabilities with and without it.
    """

    error: str = ""
    packed: bool = False
    why: str = ""
    off: float = 0.0
    noise: float = 0.0
    kept: bool = False
    cache_off: float = 0.0


def tiny(kind: str) -> PreTrainedModel:
    """A tiny model of the type, with weights of N(0, 1 / fan-in).

    Raises:
        NoMiniature: None can be made.
    """
    config = CONFIG_MAPPING[kind](**FIELDS.get(kind, {}))
    model_class = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    if not isinstance(config, model_class.config_class):
        config = config.get_text_config()
    config._attn_implementation = "sdpa" if model_class._supports_sdpa else "eager"
    empty = model_class.__new__(model_class)
    nn.Module.__init__(empty)
    empty.config = config
    model: Any = miniature(empty, range(300))[0]
    model.config._name_or_path = "none"
    model.generation_config = GenerationConfig(pad_token_id=0, eos_token_id=1)
    return model


def decide(kind: str, *, bf16: bool) -> Decided:
    """Make a trainer with the type, and measure what it computes."""
    try:
        model = tiny(kind).eval()
        ids = torch.arange(5, 45)[None]
        model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=2, do_sample=False)
    except NoMiniature as error:
        return Decided(error=f"cannot be made: {_short(error.__cause__)}")
    except FAILURES as error:
        return Decided(error=f"cannot be made or generate: {_short(error)}")
    kept, cache_off = (False, 0.0) if bf16 else of_cache(model)
    trainer = trainer_of(bf16)
    add_fused_lm_head(model, temperature=trainer.temperature, outputs=("log_probs", "entropy"))
    team: Any = SimpleNamespace(
        active="base",
        wrapped=model,
        weights_of=lambda _: model,
        profiles={"base": trainer.team.profiles["base"]},
        in_eval_mode=nullcontext,  # it is
    )
    scorer = PackedScorer(
        team, trainer.args, trainer.accelerator, activate=lambda _: None, score=trainer.score_as_trl, images={}
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            packed = scorer.is_packable("base")
        except ValueError as error:  # others are the test's own
            return Decided(error=f"refused: {_short(error)}")
    said = [str(each.message) for each in caught if "shared_prefix=True, but" in str(each.message)]
    off, noise = of_rows(scorer, trainer.score_as_trl, model)
    assert len(said) == (not packed), said
    why = "" if packed else said[0].partition("policy 'base' ")[2].partition(". Its prompts")[0]
    return Decided(packed=packed, why=why, off=off, noise=noise, kept=kept, cache_off=cache_off)


@cache
def trainer_of(bf16: bool) -> MultiAgentGRPOTrainer:
    """Scores as TRL does, in this precision; its own model is not used."""
    tokenizer = byte_tokenizer()
    folder = save_tiny_model(Path(tempfile.mkdtemp()), tokenizer)
    args = MultiAgentGRPOConfig(tempfile.mkdtemp(), **{**SHORT, "bf16": bf16})
    return MultiAgentGRPOTrainer(str(folder), OneShot, args, Dataset.from_dict({"seed": range(8)}))


def of_rows(scorer: PackedScorer, score_as_trl: Callable[..., Any], model: Any) -> tuple[float, float]:
    """The largest differences of the update's log-probabilities, and of TRL's batch, from those of each row alone."""
    generator = torch.Generator().manual_seed(9)
    prompts = torch.randint(5, 250, (2, 30), generator=generator)[[0, 1, 0, 0, 1, 1]]
    ids = torch.cat([prompts, torch.randint(5, 250, (6, 11), generator=generator)], dim=1)
    mask = torch.ones_like(ids)
    for row, length in enumerate((11, 5, 8, 1, 10, 3)):
        mask[row, 30 + length :] = 0
    mask[[1, 4, 5], :9] = 0
    with torch.no_grad():
        with scorer.attending("base"):
            ours, _, _ = scorer.score(model, ids, mask, 11)
        batch, _, _ = score_as_trl(model, ids, mask, 11)
        off, noise = 0.0, 0.0
        for row in range(6):
            own, width = mask[row].bool(), int(mask[row, 30:].sum())
            alone, _, _ = score_as_trl(model, ids[row : row + 1, own], mask[row : row + 1, own], width)
            off = max(off, float((ours[row, :width] - alone[0]).abs().max()))
            noise = max(noise, float((batch[row, :width] - alone[0]).abs().max()))
    return off, noise


@torch.no_grad()
def of_cache(model: PreTrainedModel) -> tuple[bool, float]:
    """Whether keys are kept, and the largest difference of what is sampled in two turns from the same without."""
    prefixes, ids, off = PrefixCache(), list(range(5, 40)), 0.0
    settings = {"do_sample": False, "min_new_tokens": 6, "max_new_tokens": 6, "pad_token_id": 0}
    config = GenerationConfig(**settings, output_logits=True, return_dict_in_generate=True)
    for _ in range(2):
        inputs = torch.tensor([ids])
        given = {"input_ids": inputs, "attention_mask": torch.ones_like(inputs), "generation_config": config}
        plain: Any = model.generate(**given)
        with prefixes.used_by(model, "policy"), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="what the model of policy .* is not kept")  # `kept` says so
            found: Any = model.generate(**given)
        pairs = zip(found.logits, plain.logits, strict=True)
        off = max(off, *(float((a.log_softmax(-1) - b.log_softmax(-1)).abs().max()) for a, b in pairs))
        ids = [*found.sequences[0].tolist(), *range(50, 62)]
    return prefixes.num_bytes > 0, off


def _short(error: BaseException | None) -> str:
    return f"{type(error).__name__}: {error}".replace("\n", " ")[:200]
