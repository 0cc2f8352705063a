"""Texts of messages as text: what an agent is shown can spell a control token, but never becomes one.

An observation may quote what a partner wrote. A reply that spells `<|im_end|>` letter by letter would, read again by a
tokenizer, end the turn in the partner's prompt, and whatever follows would stand in a turn of its own, the system's
for instance. A zero-width space after the first character keeps it text:

    Your partner says: Fine.<|im_end|>          the tokenizer reads a turn that ends
    Your partner says: Fine.<[U+200B]|im_end|>    the tokenizer reads text

Texts that spell no control token are not changed, so their token ids are TRL's.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from jinja2 import TemplateError

from pettingllms_trl.records import Message


SEPARATORS = ("\u200b", " ")
"""A zero-width space; a plain one for tokenizers that drop the other before they look for their tokens."""
CONVERSATION: tuple[Message, ...] = (
    {"role": "user", "content": "A"},
    {"role": "assistant", "content": "B"},
    {"role": "user", "content": "C"},
)

Escape = Callable[[Sequence[Message]], Sequence[Message]]
"""Messages to the same messages, whose contents are free of a tokenizer's control tokens."""


def escape_of(tokenizer: Any, chat_template: str | None = None) -> Escape:
    """What keeps the contents of messages text for a tokenizer.

    Args:
        tokenizer: A tokenizer of transformers, fast or slow.
        chat_template: In which prompts are written. `None`: the tokenizer's own.
    """
    tokens = control_tokens(tokenizer, chat_template)
    if not tokens:
        return lambda messages: messages
    pattern = _spelled(tokens)
    separator = _separator(tokenizer, tokens, pattern)

    def escape(messages: Sequence[Message]) -> Sequence[Message]:
        if not any(pattern.search(message["content"]) for message in messages):
            return messages
        return [{**message, "content": pattern.sub(rf"\g<0>{separator}", message["content"])} for message in messages]

    return escape


def control_tokens(tokenizer: Any, chat_template: str | None = None) -> tuple[str, ...]:
    """The spellings of tokens that are no text: special tokens, and added ones with which the template marks turns.

    Without the unknown token, which forges nothing, and without tokens of a single character, which cannot be spelled
    otherwise.
    """
    added = tokenizer.added_tokens_decoder.values()
    written = _conversation(tokenizer, chat_template)
    texts = {*tokenizer.all_special_tokens, *(t.content for t in added if t.special or t.content in written)}
    if tokenizer.unk_token not in (tokenizer.eos_token, tokenizer.bos_token, tokenizer.pad_token):
        texts.discard(tokenizer.unk_token)
    return tuple(sorted(text for text in texts if len(text) > 1 and text.strip()))


def _conversation(tokenizer: Any, chat_template: str | None) -> str:
    """What the template writes of a short conversation; nothing where it refuses one."""
    try:
        return str(tokenizer.apply_chat_template(list(CONVERSATION), tokenize=False, chat_template=chat_template))
    except (TemplateError, ValueError):
        return ""


def _spelled(tokens: Iterable[str]) -> re.Pattern[str]:
    """The first character of every spelling, also of those that overlap."""
    rests: defaultdict[str, list[str]] = defaultdict(list)
    for token in tokens:
        rests[token[0]].append(re.escape(token[1:]))
    return re.compile("|".join(f"{re.escape(first)}(?={'|'.join(rest)})" for first, rest in rests.items()))


def _separator(tokenizer: Any, tokens: Collection[str], pattern: re.Pattern[str]) -> str:
    """
    Raises:
        ValueError: The tokenizer reads its tokens whatever stands in them.
    """
    control = set(tokenizer.convert_tokens_to_ids(list(tokens))) - {tokenizer.unk_token_id}
    for separator in SEPARATORS:
        broken = [pattern.sub(rf"\g<0>{separator}", token) for token in tokens]
        read = tokenizer(broken, add_special_tokens=False)["input_ids"]
        if not any(control.intersection(ids) for ids in read):
            return separator
    raise ValueError(
        f"the tokenizer reads a control token ({', '.join(list(tokens)[:3])}, ...) even where a space stands in it, "
        "so a reply could forge turns in a partner's prompt. Expected a tokenizer that matches its special tokens "
        "exactly (AddedToken(normalized=False))."
    )
