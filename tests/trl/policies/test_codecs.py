"""Prompts have the token ids that TRL gives them, once each; texts are those of transformers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from datasets import Dataset
from transformers import PreTrainedTokenizerFast

from chat_tokenizers import tokenizer_for
from pettingllms_envs.replies.fences import without_thoughts
from pettingllms_trl import MultiAgentGRPOTrainer, Prompt
from pettingllms_trl.policies.codecs import PolicyCodec, decoder
from pettingllms_trl.testing import tokenizer_of_bytes
from short_runs import settings
from third_party import Relay


CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def said(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


@pytest.mark.parametrize("marked", ["by_the_backend", "by_name", "behind_a_processor", "one_of_two", "none"])
def test_marks_of_thoughts_stay_in_the_text_where_they_are_special_tokens(marked: str) -> None:
    special = ["<pad>", "<eos>", "<tool>", "<think>", "</think>"]
    special = {"one_of_two": special[:4], "none": special[:3]}.get(marked, special)
    tokenizer: Any = tokenizer_of_bytes(special, "", pad_token="<pad>", eos_token="<eos>")
    if marked == "by_name":
        tokenizer.add_special_tokens({"additional_special_tokens": special[2:]})
    ids = tokenizer("<think>two  and two</think> Four é<tool><eos><pad>", add_special_tokens=False)["input_ids"]
    given = SimpleNamespace(tokenizer=tokenizer, batch_decode=tokenizer.batch_decode)
    decode = decoder(given if marked == "behind_a_processor" else tokenizer)
    assert decode([ids, []]) == ["<think>two  and two</think> Four é", ""]


@pytest.mark.parametrize(
    ("special", "sampled"),
    [
        (["[THINK]", "[/THINK]"], "[THINK]two and two[/THINK]Four"),
        (["<seed:think>", "</seed:think>"], "<seed:think>two and two</seed:think>Four"),
        (["◁think▷", "◁/think▷"], "◁think▷two and two◁/think▷Four"),
        (["<longcat_think>", "</longcat_think>"], "<longcat_think>two and two</longcat_think>Four"),
        (["<|START_THINKING|>", "<|END_THINKING|>"], "<|START_THINKING|>two and two<|END_THINKING|>Four"),  # Command A
        (["<|inner_prefix|>", "<|inner_suffix|>"], "<|inner_prefix|>two and two<|inner_suffix|>Four"),  # Apertus
        (["<|channel>", "<channel|>"], "<|channel>thought\ntwo and two<channel|>Four"),
        (["<|channel|>", "<|message|>"], "<|channel|>analysis<|message|>two<|channel|>final<|message|>Four"),
        (["<|channel|>", "<|message|>"], "<|channel|>final<|message|>Four"),
    ],
)
def test_thoughts_of_every_family_are_taken_off_where_their_marks_are_special_tokens(
    special: list[str], sampled: str
) -> None:
    tokenizer = tokenizer_of_bytes(["<pad>", "<eos>", *special], "", pad_token="<pad>", eos_token="<eos>")
    ids = tokenizer(f"{sampled}<eos>", add_special_tokens=False)["input_ids"]
    (text,) = decoder(tokenizer)([ids])
    assert without_thoughts(text) == "Four"
    if "two" in sampled:
        cut = tokenizer(sampled.partition("wo")[0], add_special_tokens=False)["input_ids"]
        assert without_thoughts(decoder(tokenizer)([cut])[0]) == ""


def test_prompts_come_back_in_their_order_and_equal_ones_are_encoded_once() -> None:
    tokenizer, asked = tokenizer_for(CHATML), []

    def tokenize(profile: Any, prompts: Sequence[Any], tools: Any, template_kwargs: Any) -> Any:
        asked.append([prompt[0]["content"] for prompt in prompts])
        return profile.tokenizer.apply_chat_template(
            [list(prompt) for prompt in prompts], add_generation_prompt=True, return_dict=True
        )["input_ids"]

    profile: Any = SimpleNamespace(tokenizer=tokenizer, processing_class=tokenizer, eos_token_ids=[7])
    codec = PolicyCodec(profile, tokenize=tokenize, chat_template=None, chat_template_kwargs={})
    ids = codec.encode([Prompt(said(name)) for name in "bab"])
    assert asked == [["b", "a"]]
    expected = [f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n" for text in "bab"]
    assert tokenizer.batch_decode(ids) == expected
    assert codec.stop_token_ids == [7]


def test_a_codec_that_thinks_gives_the_template_its_argument_beside_the_others() -> None:
    tokenizer, given = tokenizer_for(CHATML), []

    def tokenize(profile: Any, prompts: Sequence[Any], tools: Any, template_kwargs: Any) -> Any:
        given.append(template_kwargs)
        return [[1] for _ in prompts]

    profile: Any = SimpleNamespace(tokenizer=tokenizer, processing_class=tokenizer, eos_token_ids=[7])
    codec = PolicyCodec(profile, tokenize=tokenize, chat_template=None, chat_template_kwargs={"date": "today"})
    for thinks in (None, True, False):
        codec.thinking(thinks).encode([Prompt(said("a"))])
    assert given == [{"date": "today"}, *({"date": "today", "enable_thinking": thinks} for thinks in (True, False))]


def test_a_trainers_prompts_are_those_of_trl(model_path: str, tmp_path: Path) -> None:
    args = settings(tmp_path, num_generations=2, max_completion_length=32)
    trainer = MultiAgentGRPOTrainer(model_path, Relay, args, Dataset.from_dict({"seed": range(8)}))
    decisions = [d for episode in trainer.play([{"seed": i} for i in range(4)]) for d in episode.decisions]
    assert len(decisions) > 4
    for decision in decisions:
        assert list(decision.prompt.ids) == list(trainer._tokenize_prompts([list(decision.prompt.messages)])[0][0])


class Loud(PreTrainedTokenizerFast):
    def _decode(self, *args: Any, **kwargs: Any) -> str:
        return super()._decode(*args, **kwargs).upper()


def test_completions_are_read_as_transformers_reads_them() -> None:
    tokenizer = tokenizer_for(CHATML, merges=(("a", "b"), ("ab", "c")))
    texts = ["abc ab", "Łódź <|im_end|> 😀", "", " two  spaces , and ' s ", "\n"]
    completions: list[Sequence[int]] = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    completions += [tuple(completions[0]), completions[1][:3]]  # the latter ends in the middle of a letter
    assert decoder(tokenizer)(completions) == tokenizer.batch_decode(completions, skip_special_tokens=True)
    assert decoder(tokenizer)([]) == []


@pytest.mark.parametrize("kind", ["subclass", "spaces cleaned up", "replaced"])
def test_a_tokenizer_with_a_way_of_its_own_is_asked(kind: str) -> None:
    tokenizer = tokenizer_for(CHATML)
    if kind == "subclass":
        tokenizer = Loud(tokenizer_object=tokenizer.backend_tokenizer)
    elif kind == "spaces cleaned up":
        tokenizer.clean_up_tokenization_spaces = True
        tokenizer.clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output = True
    ids = tokenizer("so it 's", add_special_tokens=False)["input_ids"]
    decode = decoder(tokenizer)
    if kind == "replaced":
        tokenizer.batch_decode = lambda rows, **_: ["other" for _ in rows]
    assert decode([ids]) == [{"subclass": "SO IT 'S", "spaces cleaned up": "so it's", "replaced": "other"}[kind]]
