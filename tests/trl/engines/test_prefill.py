"""Equal prompts are read once: the same tokens from the same random numbers, and far fewer positions to compute."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GenerationConfig,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from pettingllms_trl.engines.transformers import draws_noise, prompts_read_once, read_once
from short_runs import adapter


SIZES = {"vocab_size": 60, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "head_dim": 16}
HEADS = {"num_attention_heads": 2, "num_key_value_heads": 1}
GPT2_RATES = ("attn_pdrop", "embd_pdrop", "resid_pdrop")
ENDS = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": None}


def qwen() -> Any:
    return Qwen3ForCausalLM(Qwen3Config(**SIZES, **HEADS, **ENDS, tie_word_embeddings=True))


def qwen_with_an_adapter() -> Any:
    model = get_peft_model(qwen(), adapter())
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    return model


def llama() -> Any:
    return LlamaForCausalLM(LlamaConfig(**SIZES, **HEADS, **ENDS))


def gpt2() -> Any:
    return GPT2LMHeadModel(GPT2Config(vocab_size=60, n_embd=32, n_layer=2, n_head=2, n_positions=128, **ENDS))


def gemma() -> Any:
    """Every second layer looks back 8 tokens only."""
    layers = ["sliding_attention", "full_attention"]
    return Gemma3ForCausalLM(Gemma3TextConfig(**SIZES, **HEADS, **ENDS, sliding_window=8, layer_types=layers))


def batch(num_prompts: int, num_candidates: int, length: int = 40) -> dict[str, torch.Tensor]:
    """Prompts of `length`, `length - 3`, ... tokens, padded on the left, each so many times."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(2, 60, (num_prompts, length), generator=generator)
    mask = torch.ones_like(ids)
    for row in range(num_prompts):
        ids[row, : 3 * row], mask[row, : 3 * row] = 0, 0
    repeated = {"input_ids": ids, "attention_mask": mask}
    return {name: values.repeat_interleave(num_candidates, 0) for name, values in repeated.items()}


def sampled(
    model: Any, inputs: dict[str, torch.Tensor], **settings: Any
) -> tuple[torch.Tensor, list[tuple[int, int]]]:
    """What was generated, and the shape of every batch that the model read on the way."""
    shapes: list[tuple[int, int]] = []

    def note(module: Any, args: Any, kwargs: Any) -> None:
        shapes.append(tuple(kwargs["input_ids"].shape))

    config = GenerationConfig(max_new_tokens=6, do_sample=True, top_k=0, **{"pad_token_id": 0, **settings})
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    handle = inner.register_forward_pre_hook(note, with_kwargs=True)
    torch.manual_seed(7)
    try:
        return model.generate(**inputs, generation_config=config), shapes
    finally:
        handle.remove()


@pytest.mark.parametrize("make", [qwen, qwen_with_an_adapter, llama, gpt2])
def test_the_tokens_are_those_of_every_row_read_alone(make: Any) -> None:
    torch.manual_seed(0)
    model = make().eval()
    expected, shapes = sampled(model, batch(3, 4))
    assert shapes[0] == (12, 40)
    with prompts_read_once(model):
        found, shapes = sampled(model, batch(3, 4))
    assert torch.equal(found, expected)
    assert shapes[:2] == [(3, 40), (12, 1)]
    assert "generate" not in vars(model)


def test_where_no_process_is_to_wait_for_others_neither_call_does() -> None:
    model, asked = qwen().eval(), []
    plain = model.generate
    model.generate = lambda **kwargs: asked.append(kwargs["synced_gpus"]) or plain(**kwargs)
    with prompts_read_once(model):
        config = GenerationConfig(max_new_tokens=2, pad_token_id=0)
        model.generate(**batch(2, 4), generation_config=config, synced_gpus=False)
    assert asked == [False, False]


def test_a_sliding_window_is_read_as_ever() -> None:
    torch.manual_seed(0)
    model = gemma().eval()
    expected, _ = sampled(model, batch(3, 4))
    with prompts_read_once(model):
        found, shapes = sampled(model, batch(3, 4))
    assert torch.equal(found, expected)
    assert shapes[1] == (12, 40)


@pytest.mark.parametrize(("num_prompts", "num_candidates", "length"), [(6, 1, 40), (2, 4, 12)])
def test_prompts_that_stand_alone_or_are_short_are_not_read_before(
    num_prompts: int, num_candidates: int, length: int
) -> None:
    model = qwen().eval()
    with prompts_read_once(model):
        _, shapes = sampled(model, batch(num_prompts, num_candidates, length))
    assert shapes[0] == (num_prompts * num_candidates, length)


def test_equal_prompts_need_not_be_neighbours() -> None:
    model = qwen().eval()
    inputs = {name: values[[0, 4, 1, 5, 2, 6, 3, 7]] for name, values in batch(2, 4).items()}
    expected, _ = sampled(model, inputs)
    with prompts_read_once(model):
        found, shapes = sampled(model, inputs)
    assert torch.equal(found, expected)
    assert shapes[0] == (2, 40)


def test_prompts_that_differ_in_their_padding_alone_are_read_apart() -> None:
    # Token 0 pads, and the first prompt begins with it: their padded ids are equal.
    model = qwen().eval()
    inputs = {name: values.clone() for name, values in batch(1, 8).items()}
    inputs["input_ids"][:, 0] = 0
    inputs["attention_mask"][4:, 0] = 0
    expected, _ = sampled(model, inputs)
    with prompts_read_once(model):
        found, shapes = sampled(model, inputs)
    assert shapes[0] == (2, 40)
    assert torch.equal(found, expected)
    cache = read_once(model.generate, **inputs, generation_config=GenerationConfig(pad_token_id=0))
    assert cache is not None
    first, second = cache.layers[0].keys[0], cache.layers[0].keys[4]
    assert not torch.equal(cache.layers[1].keys[0], cache.layers[1].keys[4])
    assert first.shape == second.shape


def dropping(p: float) -> Any:
    return get_peft_model(qwen(), LoraConfig(r=4, target_modules="all-linear", lora_dropout=p, task_type="CAUSAL_LM"))


@pytest.mark.parametrize(
    ("make", "is_noisy"),
    [
        (qwen, False),
        (gpt2, True),  # 0.1 in three places unless one says otherwise
        (lambda: GPT2LMHeadModel(GPT2Config(n_embd=8, n_layer=1, n_head=1, **dict.fromkeys(GPT2_RATES, 0.0))), False),
        (lambda: dropping(0.0), False),
        (lambda: dropping(0.05), True),
        (lambda: Qwen3ForCausalLM(Qwen3Config(**SIZES, **HEADS, **ENDS, attention_dropout=0.1)), True),
    ],
)
def test_a_model_that_draws_random_numbers_is_known_by_its_modules(make: Any, is_noisy: bool) -> None:
    assert draws_noise(make().train()) == is_noisy
    assert not draws_noise(make().eval())


def test_beams_and_what_is_no_text_are_left_alone() -> None:
    model = qwen().eval()
    with prompts_read_once(model):
        _, shapes = sampled(model, batch(2, 4), num_beams=2)
    assert shapes[0][0] in (8, 16)


def test_the_models_own_generate_is_back_after_an_error() -> None:
    model = qwen().eval()
    own = model.generate = model.generate  # replaced before, as by a role's stop words
    with pytest.raises(ValueError, match="stop"), prompts_read_once(model):
        raise ValueError("stop")
    assert model.generate is own
