"""What a model has read is not read again: the same tokens, and only new positions to compute."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from datasets import Dataset
from peft import PromptTuningConfig, get_peft_model
from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration, Qwen3ForCausalLM

from packed_models import MODELS
from pettingllms_envs import plan_path_v0
from pettingllms_envs.agents.spec import AgentSpec
from pettingllms_envs.observations import Limits
from pettingllms_trl import MultiAgentGRPOTrainer
from pettingllms_trl.cli.transformers_agents import _Model, open_transformers
from pettingllms_trl.engines.prefix_cache import BLOCK, PrefixCache
from pettingllms_trl.engines.transformers import prompts_read_once
from short_runs import adapter, settings


BYTES = 2 * 3 * 2 * BLOCK * 8 * 4
"""Of a block of a tiny Qwen3: keys and values of three layers with two heads of 8 floats."""


def made(name: str = "qwen3") -> Any:
    torch.manual_seed(0)
    return MODELS[name]().eval()


def with_adapter() -> Any:
    lora = adapter(init_lora_weights=False)
    return get_peft_model(made(), lora).eval()


def text(length: int, seed: int) -> list[int]:
    return torch.randint(2, 60, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


@contextmanager
def shapes_of(model: Any) -> Iterator[list[tuple[int, int]]]:
    """The shape of every batch that the model reads."""
    shapes: list[tuple[int, int]] = []
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    handle = inner.register_forward_pre_hook(
        lambda module, args, kwargs: shapes.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    try:
        yield shapes
    finally:
        handle.remove()


def replies(model: Any, prompts: Sequence[Sequence[int]], tokens: int = 6, **settings: Any) -> list[list[int]]:
    """Of prompts padded on the left."""
    width = max(map(len, prompts))
    inputs = {
        "input_ids": torch.tensor([[0] * (width - len(ids)) + list(ids) for ids in prompts]),
        "attention_mask": torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids in prompts]),
    }
    settings = {"do_sample": False, "pad_token_id": 0, "eos_token_id": None, **settings}
    sampled: list[list[int]] = model.generate(**inputs, max_new_tokens=tokens, **settings)[:, width:].tolist()
    return sampled


def conversations(model: Any, turns: int) -> list[list[list[int]]]:
    """Replies of three conversations that begin at 40, 33 and 21 tokens and hear 5, 25 and 14 after each."""
    prompts, said = [text(40, 0), text(33, 1), text(21, 2)], []
    for turn in range(turns):
        said.append(replies(model, prompts))
        heard = [text(length, 10 * turn + length) for length in (5, 25, 14)]
        prompts = [ids + reply + more for ids, reply, more in zip(prompts, said[-1], heard, strict=True)]
    return said


@pytest.mark.parametrize("name", ["qwen3", "llama-mha", "gpt2", "mixtral"])
def test_conversations_of_different_lengths_go_on_as_if_every_prompt_were_read_whole(name: str) -> None:
    model = made(name)
    expected = conversations(model, 3)
    cache = PrefixCache()
    with cache.used_by(model, "solver"):
        assert conversations(model, 3) == expected
    assert "generate" not in vars(model)


def test_a_prompt_that_goes_on_is_read_from_the_last_whole_block_on() -> None:
    model, cache = made(), PrefixCache()
    prompt = text(40, 0)
    with cache.used_by(model, "solver"), shapes_of(model) as shapes:
        (reply,) = replies(model, [prompt])  # 45 of 46 tokens are read: two blocks
        replies(model, [prompt + reply + text(10, 1)])
    assert shapes == [(1, 40), *[(1, 1)] * 5, (1, 56 - 32), *[(1, 1)] * 5]
    assert cache.num_bytes == 3 * BYTES  # 61 tokens


def test_rows_with_as_many_new_tokens_are_read_together_and_all_go_on_together() -> None:
    model, cache = made(), PrefixCache()
    with cache.used_by(model, "solver"):
        (first,) = replies(model, [text(64, 0)])
        with shapes_of(model) as shapes:
            prompts = [text(64, 0) + first + text(3, 1), text(50, 2), text(48, 3)]
            found = replies(model, prompts)
    # 9 are new of the first, 50 and 48 of the others; of the second all but 2 are in blocks then, of the third
    # all but the last block, whose last token is always read.
    assert shapes[:3] == [(1, 9), (2, 50), (3, 16)]
    assert found == replies(model, prompts)


def test_policies_have_keys_and_values_of_their_own() -> None:
    model, cache = with_adapter(), PrefixCache()
    prompt = text(40, 0)
    tuned = replies(model, [prompt])
    with model.disable_adapter():
        bare = replies(model, [prompt])
    assert tuned != bare
    for _ in range(2):
        with cache.used_by(model, "tuned"):
            assert replies(model, [prompt]) == tuned
        with model.disable_adapter(), cache.used_by(model, "bare"):
            assert replies(model, [prompt]) == bare
    assert cache.num_bytes == 2 * 2 * BYTES


def test_beyond_its_bound_the_cache_drops_what_was_used_longest_ago_and_reads_it_again() -> None:
    model, cache = made(), PrefixCache(max_bytes=3 * BYTES)
    expected = [replies(model, [text(40, seed)]) for seed in (0, 1)]
    with cache.used_by(model, "solver"), shapes_of(model) as shapes:
        for seed, new in ((0, 40), (1, 40), (1, 8), (0, 24), (0, 8), (1, 24)):
            del shapes[:]
            # Of the other conversation, the second block was dropped, for which the first is no longer enough.
            assert replies(model, [text(40, seed)]) == expected[seed]
            assert shapes[0] == (1, new)
            assert cache.num_bytes == 3 * BYTES if (seed, new) != (0, 40) else 2 * BYTES
    with cache:
        assert cache.num_bytes == 3 * BYTES
    assert cache.num_bytes == 0


def test_candidates_of_a_prompt_share_its_blocks_and_have_their_own_replies() -> None:
    model, cache = made(), PrefixCache()
    prompt = text(40, 0)
    torch.manual_seed(1)
    expected = replies(model, [prompt] * 4, 16, do_sample=True, top_k=0)
    torch.manual_seed(1)
    with cache.used_by(model, "solver"), prompts_read_once(model), shapes_of(model) as shapes:
        found = replies(model, [prompt] * 4, 16, do_sample=True, top_k=0)
        replies(model, [prompt + found[2] + text(5, 1)])
    assert found == expected
    assert len({tuple(reply) for reply in found}) == 4
    assert shapes[:2] == [(1, 40), (4, 1)]
    assert (1, 61 - 48) in shapes  # the third candidate's: a block of the reply is there
    assert cache.num_bytes == (2 + 4 + 1) * BYTES  # the prompt, four replies, and what was said after one


def test_a_reply_that_ends_early_leaves_no_padding() -> None:
    model, cache = made(), PrefixCache()
    prompt = text(40, 0)
    ((end, *_),) = replies(model, [prompt])
    with cache.used_by(model, "solver"):
        replies(model, [prompt, text(40, 1)], 30, eos_token_id=end)
    ends = {ids[-1] for _, ids in cache._blocks}
    assert 0 not in ends
    assert sum(ids[:40] == tuple(prompt)[: len(ids)] for _, ids in cache._blocks) == 2


def vision() -> Any:
    """Counts positions by images."""
    config = Qwen2VLConfig(
        text_config={"vocab_size": 60, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1,
                     "num_attention_heads": 2, "num_key_value_heads": 1,
                     "rope_parameters": {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 1e4}},
        vision_config={"depth": 1, "embed_dim": 16, "hidden_size": 32, "num_heads": 2},
    )  # fmt: skip
    return Qwen2VLForConditionalGeneration(config)


def with_virtual_tokens() -> Any:
    return get_peft_model(made(), PromptTuningConfig(num_virtual_tokens=3, task_type="CAUSAL_LM")).eval()


@pytest.mark.parametrize(
    "make", [partial(made, "qwen3-window"), partial(made, "gemma3-windows"), vision, with_virtual_tokens]
)
def test_models_that_keep_something_else_generate_as_ever(make: Any) -> None:
    model, cache = make(), PrefixCache()
    with cache.used_by(model, "solver"):
        assert "generate" not in vars(model)


class Centring(Qwen3ForCausalLM):
    """Takes the mean off the tokens that it is given: it keeps keys and values of all tokens, and they do not do."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        layer: Any = self.model.layers[0]
        layer.mlp.register_forward_pre_hook(lambda _, inputs: (inputs[0] - inputs[0].mean(dim=1, keepdim=True),))


def test_a_model_that_goes_on_otherwise_is_found_on_a_miniature_and_reads_whole_prompts() -> None:
    model, cache = Centring(made().config).eval(), PrefixCache()
    with cache.used_by(model, "solver"):
        with pytest.warns(UserWarning, match="'solver' has read is not kept"):
            replies(model, [text(40, 0)])
        replies(model, [text(40, 0)])  # one warning, of which another would be an error
    assert cache.num_bytes == 0


def test_beyond_the_switch_of_its_rope_a_model_reads_whole_prompts() -> None:
    config = made().config
    config.max_position_embeddings, rope = 48, {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}
    config.rope_parameters = rope
    model, cache = Qwen3ForCausalLM(config).eval(), PrefixCache()
    with cache.used_by(model, "solver"):
        replies(model, [text(43, 0)])
        assert cache.num_bytes == 0
        replies(model, [text(42, 0)])
        assert cache.num_bytes == 2 * BYTES


def test_beams_several_replies_and_padding_inside_are_left_alone() -> None:
    model, cache = made(), PrefixCache()
    ids = torch.tensor([text(40, 0)])
    mask = torch.ones_like(ids)
    hole = mask.clone()
    hole[0, 5] = 0
    with cache.used_by(model, "solver"):
        model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=2, num_beams=2, pad_token_id=0)
        model.generate(
            input_ids=ids,
            attention_mask=mask,
            max_new_tokens=2,
            num_return_sequences=2,
            do_sample=True,
            pad_token_id=0,
        )
        model.generate(input_ids=ids, attention_mask=hole, max_new_tokens=2, pad_token_id=0)
    assert cache.num_bytes == 0


# ---- Teams ----------------------------------------------------------------------------------------------------------


def test_a_team_plays_on_from_its_earlier_turns_and_with_new_weights_from_the_start(
    model_path: str, tmp_path: Path
) -> None:
    played, read = [], []
    for shared_prefix in (False, True):
        trainer = MultiAgentGRPOTrainer(
            model_path,
            partial(plan_path_v0.env, size=4, num_turns=3),
            settings(tmp_path / str(shared_prefix), history="conversation", shared_prefix=shared_prefix),
            Dataset.from_dict({"seed": range(4)}),
            policies="lora",
            peft_config=adapter(),
        )
        for name, parameter in trainer.model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.2, generator=torch.Generator().manual_seed(len(name)))
        for scale in (1.0, -1.0):  # of the adapters
            with torch.no_grad():
                for name, parameter in trainer.model.named_parameters():
                    parameter.mul_(scale if "lora_B" in name else 1.0)
            torch.manual_seed(3)
            with shapes_of(trainer.model) as shapes:
                episodes = trainer.play([{"seed": seed} for seed in range(3)])
            played.append([[c.completion.ids for c in d.candidates] for e in episodes for d in e.decisions])
            read.append(sum(rows * columns for rows, columns in shapes if columns > 1))
    assert played[:2] == played[2:]
    assert played[0] != played[1]
    assert read[2] < 0.6 * read[0]  # of three turns, the first is read whole
    assert read[3] < 0.6 * read[1]


def test_agents_of_a_benchmark_read_a_dialogue_on_unless_they_are_told_not_to(model_path: str) -> None:
    def asked(*texts: str) -> Any:
        roles = ("user", "assistant")
        messages = [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]
        return SimpleNamespace(agent="a_0", messages=messages, tools=(), seed=0, limits=Limits())

    read, answers = [], []
    for shared_prefix in ("true", "false"):
        options = {"max_tokens": 6, "temperature": 0.0, "shared_prefix": shared_prefix}
        models = open_transformers({"a_0": AgentSpec("transformers", model_path, options)}, 1)
        (model,) = (each for each in gc.get_objects() if type(each) is _Model)
        with shapes_of(model._model) as shapes:
            first = models.agents["a_0"].reply(asked("A" * 60))
            second = models.agents["a_0"].reply(asked("A" * 60, first.text, "And now?"))
        models.close()
        read.append([columns for _, columns in shapes if columns > 1])
        answers.append((first, second))
        del model, models
        gc.collect()
    assert answers[0] == answers[1]
    (whole, second), (_, on) = read[1], read[0]
    assert on <= second - whole + BLOCK
    with pytest.raises(ValueError, match="shared_prefix is 'no'; expected true or false"):
        open_transformers({"a_0": AgentSpec("transformers", model_path, {"shared_prefix": "no"})}, 1)
