"""A model loaded with `attn_implementation="flex_attention"`: its packed rows have the gradients of rows one by one.

Flex attention is then what generates and what reads rows one by one; a packed row has its own attention, as it has
with any other implementation.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from datasets import Dataset
from torch import nn
from transformers import Qwen3Config, Qwen3ForCausalLM
from transformers.integrations import flex_attention as transformers_flex
from trl.trainer.utils import add_fused_lm_head

import flex_on_cpu
import packed_models
import twins
from pettingllms_trl import MultiAgentGRPOConfig, MultiAgentGRPOTrainer
from pettingllms_trl.update.packed_attention import attending
from pettingllms_trl.update.packing.cost import Way
from pettingllms_trl.update.packing.pack import pack
from third_party import OneShot


SHAPE = {**packed_models.SHAPE, "num_hidden_layers": 2, "head_dim": 16}  # flex attention's least


def made(attention: str, *, window: int | None = None) -> Qwen3ForCausalLM:
    torch.manual_seed(0)
    of_window = (
        {} if window is None else {"use_sliding_window": True, "sliding_window": window, "max_window_layers": 1}
    )
    model = Qwen3ForCausalLM(Qwen3Config(**SHAPE, **of_window, attn_implementation=attention))
    add_fused_lm_head(model, temperature=0.7, outputs=("log_probs", "entropy"))
    model.config.use_cache = False
    return model.train()


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Two prompts of 9 and 6 tokens, with three and two completions of up to 7."""
    generator = torch.Generator().manual_seed(1)
    group, lengths = torch.tensor([0, 1, 0, 0, 1]), torch.tensor([7, 3, 5, 2, 6])
    prompts = torch.randint(2, 97, (2, 9), generator=generator)
    ids = torch.cat([prompts[group], torch.randint(2, 97, (5, 7), generator=generator)], dim=1)
    mask = torch.ones_like(ids)
    mask[group == 1, :3] = 0
    mask[:, 9:] = (torch.arange(7) < lengths[:, None]).long()
    return ids, mask


def of_rows(model: nn.Module) -> dict[str, torch.Tensor]:
    log_probs, _ = packed_models.one_by_one(model, *batch(), 7)
    return gradients(model, log_probs)


def of_packed(model: nn.Module, *, way: Way) -> dict[str, torch.Tensor]:
    packed = pack(*batch(), 7, way=way)
    with attending(model):
        found = model(**packed.inputs)
        return gradients(model, packed.of_completions(found.log_probs))


def gradients(model: nn.Module, scores: torch.Tensor) -> dict[str, torch.Tensor]:
    """Of a sum in which every token has a weight of its own."""
    model.zero_grad()
    (scores * torch.randn(scores.shape, generator=torch.Generator().manual_seed(2))).sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def assert_alike(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    assert {n for n, g in expected.items() if (found[n] - g).norm() > 1e-5 * g.norm()} == set()


@pytest.mark.parametrize("way", ["rows", "prompts"])
@pytest.mark.parametrize("window", [None, 5], ids=["causal", "window"])
def test_a_packed_row_has_the_gradients_of_rows_one_by_one_and_calls_no_flex_attention(
    window: int | None, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = of_rows(made("sdpa", window=window))
    monkeypatch.setattr(transformers_flex, "compile_friendly_flex_attention", None)
    model = made("flex_attention", window=window)
    assert_alike(of_packed(model, way=way), expected)
    assert model.config._attn_implementation == "flex_attention"


@pytest.mark.parametrize("window", [None, 5], ids=["causal", "window"])
def test_rows_one_by_one_under_flex_attention_have_the_same_gradients(
    window: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = flex_on_cpu.allow(monkeypatch)
    model = made("flex_attention", window=window)
    found = of_rows(model)
    assert calls == [16, 16]
    assert_alike(of_packed(model, way="prompts"), found)


def test_a_run_with_flex_attention_shares_prompts_and_trains_as_one_with_sdpa(
    model_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = flex_on_cpu.allow(monkeypatch)
    runs = {}
    for attention in ("sdpa", "flex_attention"):
        more = {"model_init_kwargs": {"attn_implementation": attention}, "optim": "sgd", "bf16": False, "max_steps": 2}
        trainer = MultiAgentGRPOTrainer(
            model_path,
            OneShot,
            MultiAgentGRPOConfig(**twins.arguments(tmp_path, **more)),
            Dataset.from_dict({"seed": twins.SEEDS}),
        )
        assert trainer.scorer.packable == {"base": True}
        assert trainer.model.config._attn_implementation == attention
        assert bool(calls) == (attention == "flex_attention")
        runs[attention] = twins.run(trainer)
    assert len(runs["sdpa"].gradients) == 2
    for one, other in zip(runs["flex_attention"].gradients, runs["sdpa"].gradients, strict=True):
        assert one.keys() == other.keys()
        whole = torch.stack([g.norm() for g in other.values()]).norm()
        assert max(float((one[n] - g).norm()) for n, g in other.items()) <= 1e-4 * whole
