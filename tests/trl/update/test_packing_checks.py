"""What makes packed rows wrong is found on a miniature: whatever mixes tokens, by whatever means, and wrong heads."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from peft import LoraConfig, TrainableTokensConfig, get_peft_model
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import (
    BertConfig,
    BertLMHeadModel,
    ElectraConfig,
    ElectraForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    ModernBertDecoderConfig,
    ModernBertDecoderForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForCausalLM,
)
from transformers.integrations import deepspeed
from trl.trainer.utils import add_fused_lm_head

from packed_models import MODELS, difference, gradients, one_by_one, together
from pettingllms_trl.structure.miniature import NoMiniature, miniature, quiet
from pettingllms_trl.update.packed_attention import attending
from pettingllms_trl.update.packing.cost import Way
from pettingllms_trl.update.packing.pack import pack
from pettingllms_trl.update.packing_checks import Differences, compare, template_rows


PROMPTS = [[2, 9, 9, 14, 40, 41, 42, 43, 44, 3], [2, 9, 9, 14, 15, 3], [2, 9, 9, 14, 40, 41, 42, 43, 44, 3]]
COMPLETIONS = [[20, 21, 22, 23, 24, 25, 26, 27, 28], [30], [21, 33, 34]]
SIZES: dict[str, Any] = {"vocab_size": 60, "num_hidden_layers": 2}


class Hooked(LlamaForCausalLM):
    """Of which a layer's input is changed by `change`, in its class: in a miniature, too."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        layer: Any = self.model.layers[-1]
        layer.mlp.register_forward_pre_hook(lambda _, inputs: (self.change(inputs[0]),))

    def change(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden


class Shifted(Hooked):
    """Each token reads the one before it in the row, as in RWKV."""

    def change(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden + hidden.roll(1, dims=1)


class Centred(Hooked):
    """The row's mean is taken off."""

    def change(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden - hidden.mean(dim=1, keepdim=True)


class ByLength(Hooked):
    """Scaled by the logarithm of the row's length beyond 4 tokens, as attention of Qwen's first models."""

    def change(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden * max(1.0, math.log2(hidden.size(1) / 4))


class WithCapacity(Hooked):
    """Experts with a bound on the tokens of a row: the later ones are dropped."""

    def change(self, hidden: torch.Tensor) -> torch.Tensor:
        taken = (hidden[..., :1] > 0).cumsum(dim=1) <= 5
        return hidden * taken


class Counting(LlamaForCausalLM):
    """Takes positions, and counts for itself."""

    def forward(self, *args: Any, position_ids: Any = None, **kwargs: Any) -> Any:
        return super().forward(*args, **kwargs)

    @property
    def base_model(self) -> Any:
        inner = super().base_model
        return lambda *args, position_ids=None, **kwargs: inner(*args, **kwargs)


class Capped(LlamaForCausalLM):
    """With a cap on its logits, under a name that TRL does not know."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        found = super().forward(*args, **kwargs)
        found.logits = 2 * torch.tanh(found.logits / 2)
        return found


MIXING: dict[str, type[LlamaForCausalLM]] = {
    "token shift": Shifted,
    "mean over the row": Centred,
    "scale by length": ByLength,
    "capacity": WithCapacity,
    "own positions": Counting,
}


@pytest.mark.parametrize("name", MIXING)
def test_a_model_whose_tokens_depend_on_the_row_is_found_on_a_miniature(name: str) -> None:
    model = MIXING[name](LlamaConfig(**SIZES, num_attention_heads=4, hidden_size=32, initializer_range=1e-3))
    found = compare(model, PROMPTS, COMPLETIONS)
    assert found.head is None
    assert "other log-probabilities" in str(found.packed)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_can_be_packed_agrees_on_a_miniature(name: str) -> None:
    found = compare(MODELS[name](), PROMPTS, COMPLETIONS)
    assert found.packed is None
    assert found.head is None


SMALL = {"hidden_size": 32, "head_dim": 8, "num_attention_heads": 4, "num_key_value_heads": 2, "sliding_window": 6}
CAPPED: dict[str, Callable[[], PreTrainedModel]] = {
    "softcap": lambda: Gemma2ForCausalLM(
        Gemma2Config(**SIZES, **SMALL, intermediate_size=32, attn_logit_softcapping=1.0, initializer_range=0.3)
    ),
}


@pytest.mark.parametrize("way", ["rows", "prompts"])
@pytest.mark.parametrize("name", CAPPED)
def test_attention_with_a_cap_has_the_gradients_of_rows_alone(name: str, way: Way) -> None:
    torch.manual_seed(0)
    model = CAPPED[name]()
    assert compare(model, PROMPTS, COMPLETIONS).packed is None
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    pairs, width = list(zip(PROMPTS, COMPLETIONS, strict=True)), 9
    ids = torch.tensor([[0] * (10 - len(p)) + p + c + [0] * (width - len(c)) for p, c in pairs])
    mask = (ids != 0).long()
    with attending(model):
        of_packed = gradients(model, together(model, pack(ids, mask, width, way=way)))
    alone = torch.zeros(2, 3, width)
    for row, (prompt, completion) in enumerate(pairs):
        own, length = torch.tensor([prompt + completion]), len(completion)
        alone[:, row, :length] = torch.cat([*one_by_one(model, own, torch.ones_like(own), length)])
    assert difference(of_packed, gradients(model, (alone[0], alone[1]))) < 1e-5


def test_an_adapter_of_another_depth_is_tried_on_the_miniatures_layers() -> None:
    lora = LoraConfig(r=4, target_modules=["q_proj", "down_proj"], layers_to_transform=[2], task_type="CAUSAL_LM")
    found = compare(get_peft_model(MODELS["qwen3"](), lora), PROMPTS, COMPLETIONS)
    assert found.packed is None


def test_learnt_embeddings_of_tokens_are_tried_on_the_miniatures_own() -> None:
    """Whose vocabulary has those of the rows alone, and not the token 96."""
    config = TrainableTokensConfig(token_indices=[96], target_modules=["embed_tokens"])
    found = compare(get_peft_model(MODELS["qwen3"](), config), PROMPTS, COMPLETIONS)
    assert found.packed is None


HEADS: dict[str, Callable[[], PreTrainedModel]] = {
    "a transform before the head": lambda: ModernBertDecoderForCausalLM(
        ModernBertDecoderConfig(**SIZES, hidden_size=32, intermediate_size=32, num_attention_heads=2, pad_token_id=0)
    ),
    "a cap under another name": lambda: Capped(LlamaConfig(**SIZES, num_attention_heads=4, hidden_size=32)),
    "BERT's transform": lambda: BertLMHeadModel(
        BertConfig(**SIZES, hidden_size=32, num_attention_heads=4, intermediate_size=32, is_decoder=True)
    ),
    "RoBERTa's head": lambda: RobertaForCausalLM(
        RobertaConfig(**SIZES, hidden_size=32, num_attention_heads=4, intermediate_size=32, is_decoder=True)
    ),
    "a projection of embeddings": lambda: ElectraForCausalLM(
        ElectraConfig(**SIZES, hidden_size=32, num_attention_heads=4, intermediate_size=32, is_decoder=True)
    ),
}


@pytest.mark.parametrize("name", HEADS)
def test_a_head_that_trls_fused_one_does_not_compute_is_found(name: str) -> None:
    torch.manual_seed(0)
    found = compare(HEADS[name](), PROMPTS, COMPLETIONS)
    assert found.head is not None


def test_a_miniature_has_every_kind_of_layer_and_draws_no_random_numbers() -> None:
    model = MODELS["gemma3-windows"]()
    state = torch.get_rng_state()
    small, ids = miniature(model, [5, 96, 5, 7])
    assert torch.equal(torch.get_rng_state(), state)
    assert sorted({*small.config.layer_types}) == ["full_attention", "sliding_attention"]  # type: ignore[union-attr]
    assert small.config.sliding_window == 6  # type: ignore[union-attr]
    assert ids[0] == ids[2] != ids[1]
    assert {p.dtype for p in small.parameters()} == {torch.float32}
    weights = small.get_parameter("model.layers.0.self_attn.q_proj.weight")
    assert float(weights.detach().std()) == pytest.approx(weights.shape[1] ** -0.5, rel=0.1)


def test_a_miniature_is_whole_where_zero_3_shards_each_model_as_it_is_made() -> None:
    """For that all processes would have to make it at once, and those that sample do not."""

    class Zero3:
        config: Mapping[str, Any] = {}

        def is_zero3(self) -> bool:
            return True

    model, held = MODELS["gemma3-windows"](), Zero3()
    deepspeed.set_hf_deepspeed_config(held)
    try:
        with quiet():
            small, _ = miniature(model, [5, 96])
        assert deepspeed.is_deepspeed_zero3_enabled()
    finally:
        deepspeed.unset_hf_deepspeed_config()
    assert all(each.numel() for each in small.parameters())


def test_a_class_that_takes_no_smaller_sizes_has_no_miniature() -> None:
    class Fixed(LlamaForCausalLM):
        def __init__(self, config: Any) -> None:
            if config.hidden_size < 128:
                raise ValueError("too small")
            super().__init__(config)

    model = Fixed(LlamaConfig(**SIZES, hidden_size=128, num_attention_heads=2))
    with pytest.raises(NoMiniature) as caught:
        compare(model, PROMPTS, COMPLETIONS)
    assert str(caught.value.__cause__) == "too small"


def test_rows_begin_with_prompts_of_the_policys_own_template(tokenizer: Any) -> None:
    prompts, completions = template_rows(tokenizer)
    assert prompts[0] == prompts[2] == prompts[3] != prompts[1] == prompts[4]
    assert tokenizer.decode(prompts[0]).startswith("<|user|>Say yes.<|end|><|assistant|>")
    assert [len(each) for each in completions] == [12, 4, 11, 1, 5]


def test_prompts_of_one_token_of_a_tokenizer_of_one_word_are_packed() -> None:
    inner = Tokenizer(WordLevel({"<pad>": 0}, unk_token="<pad>"))
    prompts, completions = template_rows(PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<pad>"))
    assert prompts == [[0]] * 5
    assert [len(each) for each in completions] == [12, 4, 11, 1, 5]
    model = LlamaForCausalLM(LlamaConfig(**SIZES, hidden_size=64, num_attention_heads=4))
    assert compare(model, prompts, completions) == Differences(None, None)
