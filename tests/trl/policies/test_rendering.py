"""What chat templates put between turns: in tokens, after replies that are kept as they were sampled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trl
from transformers import PreTrainedTokenizerFast

from chat_tokenizers import tokenizer_for
from pettingllms_trl.policies.codecs import TurnBridge


TEMPLATES = Path(trl.__file__).parent / "chat_templates"
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
TOKENS = CHAT_TEMPLATE + "<|user|><|system|><|end|>"  # those that it puts together
HELLO = {"role": "user", "content": "Where is the box?"}
MORE = {"role": "user", "content": " And now?\n"}


def between(tokenizer: PreTrainedTokenizerFast, longest: int | None = None, **kwargs: Any) -> TurnBridge:
    return TurnBridge(
        render=lambda messages: tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True, **kwargs
        ),
        encode=lambda text: encode(tokenizer, text),
        special={*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder},
        longest=longest,
    )


def encode(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def written(tokenizer: PreTrainedTokenizerFast, *messages: dict[str, str], **kwargs: Any) -> list[int]:
    """The template's own tokens for messages."""
    text = tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True, **kwargs)
    return encode(tokenizer, text)


# ---- With the templates of models that are in use -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("qwen2_5", "<|im_end|>"),
        ("qwen3_instruct_2507", "<|im_end|>"),
        ("llama3", "<|eot_id|>"),
        ("phi3_5", "<|end|>"),
        ("gemma3", "<end_of_turn>"),
        ("lfm2", "<|im_end|>"),
    ],
)
@pytest.mark.parametrize("cut_off", [False, True])
def test_where_a_template_leaves_earlier_turns_alone_two_turns_are_what_it_writes_itself(
    name: str, end: str, cut_off: bool
) -> None:
    tokenizer = tokenizer_for((TEMPLATES / f"{name}.jinja").read_text())
    follow = between(tokenizer)
    follow.check("planner")
    ids = (*written(tokenizer, HELLO), *encode(tokenizer, "Left." if cut_off else f"Left.{end}"))
    ids = follow(ids, MORE)
    assert list(ids) == written(tokenizer, HELLO, {"role": "assistant", "content": "Left."}, MORE)
    ids = follow((*ids, *encode(tokenizer, f"Right.{end}")), HELLO)
    replies = [{"role": "assistant", "content": reply} for reply in ("Left.", "Right.")]
    assert list(ids) == written(tokenizer, HELLO, replies[0], MORE, replies[1], HELLO)


def test_thinking_that_a_template_drops_from_earlier_turns_stays_as_it_was_sampled() -> None:
    tokenizer = tokenizer_for((TEMPLATES / "qwen3.jinja").read_text())
    follow = between(tokenizer)
    follow.check("planner")
    reply = "<think>\nIt was left.\n</think>\n\nLeft."
    spoken = (*written(tokenizer, HELLO), *encode(tokenizer, f"{reply}<|im_end|>"))
    found = follow(spoken, MORE)
    assert found[: len(spoken)] == spoken
    after = "\n<|im_start|>user\n And now?\n<|im_end|>\n<|im_start|>assistant\n"
    assert list(found[len(spoken) :]) == encode(tokenizer, after)
    by_template = written(tokenizer, HELLO, {"role": "assistant", "content": reply}, MORE)
    assert "It was left" not in tokenizer.decode(by_template)  # or the test shows nothing


def test_arguments_of_the_template_are_heeded_in_every_turn() -> None:
    tokenizer = tokenizer_for((TEMPLATES / "qwen3.jinja").read_text())
    spoken = (*written(tokenizer, HELLO, enable_thinking=False), *encode(tokenizer, "Left.<|im_end|>"))
    found = between(tokenizer, enable_thinking=False)(spoken, HELLO)
    assert tokenizer.decode(found).endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")


def test_an_end_of_several_tokens_is_not_written_twice() -> None:
    tokenizer = tokenizer_for((TEMPLATES / "cohere2.jinja").read_text())
    follow = between(tokenizer)
    start = written(tokenizer, HELLO)
    ends = ["Left.", "Left.<|END_RESPONSE|>", "Left.<|END_RESPONSE|><|END_OF_TURN_TOKEN|>"]
    (found,) = {follow((*start, *encode(tokenizer, said)), HELLO) for said in ends}
    after = "<|END_RESPONSE|><|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|USER_TOKEN|>Where is the box?"
    assert tokenizer.decode(found[len(start) :]).startswith(f"Left.{after}")


def test_a_reply_that_ended_in_another_way_is_kept_and_closed() -> None:
    tokenizer = tokenizer_for((TEMPLATES / "qwen2_5.jinja").read_text())
    spoken = (*written(tokenizer, HELLO), *encode(tokenizer, "Left.<eos>"))
    found = between(tokenizer)(spoken, HELLO)
    assert "Left.<eos><|im_end|>\n<|im_start|>user\n" in tokenizer.decode(found)


# ---- Tokens, not text -----------------------------------------------------------------------------------------------


def test_sampled_ids_are_kept_where_encoding_their_text_anew_would_give_others() -> None:
    tokenizer = tokenizer_for(CHAT_TEMPLATE, TOKENS, merges=(("L", "e"), ("Le", "f"), ("Lef", "t")))
    letters = tuple(tokenizer.convert_tokens_to_ids(list("Left")))
    spoken = (*written(tokenizer, HELLO), *letters, tokenizer.convert_tokens_to_ids("<|end|>"))
    found = between(tokenizer)(spoken, HELLO)
    assert found[: len(spoken)] == spoken
    anew = written(tokenizer, HELLO, {"role": "assistant", "content": "Left"}, HELLO)
    assert len(anew) == len(found) - 3  # one token for four
    assert tokenizer.decode(anew) == tokenizer.decode(found)


@pytest.mark.parametrize(("longest", "fits"), [(None, True), (0, False), ("as it is", True), ("one less", False)])
def test_more_tokens_than_the_context_has_are_refused(longest: Any, fits: bool) -> None:
    tokenizer = tokenizer_for(CHAT_TEMPLATE, TOKENS)
    spoken = tuple(written(tokenizer, HELLO))
    number = len(between(tokenizer)(spoken, MORE))
    longest = {"as it is": number, "one less": number - 1}.get(longest, longest)
    assert (between(tokenizer, longest)(spoken, MORE) is not None) == fits


# ---- What is refused ------------------------------------------------------------------------------------------------


TURN = "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{{ raise_exception('One turn only.') }}", r"refuses a conversation \(One turn only.\)"),
        ("{% for message in messages[-1:] %}" + TURN + "{% endfor %}", "writes a reply 0 times"),
        ("{% for message in messages + messages %}" + TURN + "{% endfor %}", "writes a reply 2 times"),
        ("{% for message in messages[:2] %}" + TURN + "{% endfor %}", "does not write a message after the reply"),
        (
            "{% for message in messages %}{{ loop.index }}" + TURN + "{% endfor %}",
            "writes something else after a reply when more was said before",
        ),
        (
            "{% for message in messages if message['role'] != 'system' %}"
            "{% if loop.last %}{{ messages[0]['content'] if messages[0]['role'] == 'system' }}{% endif %}"
            + TURN
            + "{% endfor %}",
            "writes something else after a reply when more was said before",
        ),
        (
            "{% for message in messages %}{{ '\n' + message['role'] + ': ' + message['content'] }}{% endfor %}",
            "ends a reply with ordinary text",
        ),
    ],
)
def test_a_template_that_cannot_be_gone_on_with_is_refused_with_the_reason(template: str, why: str) -> None:
    tokenizer = tokenizer_for(CHAT_TEMPLATE, TOKENS)
    tokenizer.chat_template = template
    message = rf"history='conversation' for policy 'planner', whose chat template {why}.*Expected one.*Give another"
    with pytest.raises(ValueError, match=message):
        between(tokenizer).check("planner")


def test_a_template_without_system_messages_is_as_good_as_another() -> None:
    tokenizer = tokenizer_for(CHAT_TEMPLATE, TOKENS)
    tokenizer.chat_template = (
        "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}" + CHAT_TEMPLATE
    )
    between(tokenizer).check("planner")
