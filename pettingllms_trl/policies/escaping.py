"""Escapes control tokens in messages: text that an agent is shown can spell a control token, but never becomes one.

An observation may quote what another agent wrote. A reply that spells `<|im_end|>` letter by letter would, encoded
again, end the turn in the other agent's prompt, and what follows would be a turn of its own, for instance the
system's. A zero-width space after the first character keeps it text:

    Your partner says: Fine.<|im_end|>          the tokenizer reads a turn that ends
    Your partner says: Fine.<[U+200B]|im_end|>    the tokenizer reads text

Some tokenizers normalize text before they look for their tokens, when `<|IM_END|>` has become `<|im_end|>`. For those,
the normalized text is searched as well. Texts without control tokens are not changed, so their token ids are TRL's.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from jinja2 import TemplateError
from tokenizers import NormalizedString

from pettingllms_envs.observations import in_texts
from pettingllms_trl.records import Message, Tools


SEPARATORS = ("\u200b", " ")
"""A zero-width space; a plain one for tokenizers that drop the former before they look for their tokens."""
CONVERSATION: tuple[Message, ...] = (
    {"role": "user", "content": "A"},
    {"role": "assistant", "content": "B"},
    {"role": "user", "content": "C"},
)
MAX_ROUNDS = 5
"""How often a text is escaped again if its normalized form is not stable under normalization."""

Escape = Callable[[Sequence[Message]], Sequence[Message]]
"""Returns the same messages, with contents free of a tokenizer's control tokens."""


def escape_of(
    tokenizer: Any, chat_template: str | None = None, *, with_tools: bool = False, of_images: Collection[str] = ()
) -> Escape:
    """A function that escapes a tokenizer's control tokens in the contents of messages, and in tool calls.

    Args:
        with_tools: Whether tokens with which the template marks tools, calls and results are control tokens, too.
        of_images: Tokens that stand for images in a prompt, which are control tokens, too.
    """
    tokens = sorted({*control_tokens(tokenizer, chat_template, with_tools=with_tools), *of_images})
    if not tokens:
        return lambda messages: messages
    pattern = _spelled(tokens)
    normalization = _normalization(tokenizer, tokens)
    separator = _separator(tokenizer, tokens, pattern, normalization)

    def escaped(content: str) -> str:
        content = pattern.sub(rf"\g<0>{separator}", content)
        return content if normalization is None else normalization.escaped(content, separator)

    def escape(messages: Sequence[Message]) -> Sequence[Message]:
        # Its content, and what a model wrote into tool calls.
        found = [
            {key: value if key == "role" else in_texts(value, escaped) for key, value in message.items()}
            for message in messages
        ]
        return messages if found == list(messages) else found

    return escape


class PromptEscape:
    """Escapes prompts with their tools, whose texts a server may have written.

    Where a template marks tools, calls or results, the tokens that mark them are control tokens, too.
    """

    def __init__(self, tokenizer: Any, chat_template: str | None = None, of_images: Collection[str] = ()) -> None:
        self._tokenizer, self._chat_template, self._of_images = tokenizer, chat_template, of_images
        self.plain = escape_of(tokenizer, chat_template, of_images=of_images)
        """Escapes messages without tools, calls and results."""

    @cached_property
    def _with_tools(self) -> Escape:
        return escape_of(self._tokenizer, self._chat_template, with_tools=True, of_images=self._of_images)

    def __call__(
        self, prompts: Sequence[Sequence[Message]], tools: Tools = ()
    ) -> tuple[list[Sequence[Message]], Tools]:
        """Prompts that all have the same tools, and these tools."""
        escaped = []
        for prompt in prompts:  # also the one after an agent's last call
            is_marked = tools or any(message["role"] == "tool" or "tool_calls" in message for message in prompt)
            escaped.append((self._with_tools if is_marked else self.plain)(prompt))
        return escaped, self._with_tools([{"role": "system", "tools": list(tools)}])[0]["tools"] if tools else ()


@dataclass(frozen=True)
class Normalization:
    """A tokenizer's normalization, which it applies to a text before it looks for control tokens in it.

    Attributes:
        normalize: Normalizes a text; the result knows where in the text its characters come from.
        pattern: Matches the first character of every control token in normalized text.
    """

    normalize: Callable[[str], NormalizedString]
    pattern: re.Pattern[str]

    def spells(self, text: str) -> bool:
        return self.pattern.search(self.normalize(text).normalized) is not None

    def escaped(self, text: str, separator: str) -> str:
        """The text with separators in what becomes a control token when it is normalized.

        If a single character becomes several of a token's, or a separator changes what its neighbours become, the
        separators are put into the normalized text, which the tokenizer would have read anyway.

        Raises:
            ValueError: The normalizer changes its own output, and makes control tokens of it.
        """
        for _ in range(MAX_ROUNDS):
            read = self.normalize(text)
            ends = [match.end() for match in self.pattern.finditer(read.normalized)]
            if not ends:
                return text
            origins = [read[:end] for end in ends]
            text = _inserted(read.original, [len(origin.original) for origin in origins if origin], separator)
            if not self.spells(text):
                return text
            text = _inserted(read.normalized, ends, separator)
        raise ValueError(
            f"the tokenizer's normalizer makes control tokens of {text[:80]!r}, however they are separated, so a "
            "reply could forge turns in a partner's prompt. Expected a tokenizer that matches control tokens in "
            "the text itself: add them by AddedToken(..., normalized=False), or change the normalizer."
        )


def control_tokens(tokenizer: Any, chat_template: str | None = None, *, with_tools: bool = False) -> tuple[str, ...]:
    """The spellings of control tokens: special tokens, and added tokens with which the template marks turns.

    The unknown token is left out, since it forges nothing, and so are tokens of a single character, which cannot be
    spelled in another way.
    """
    added = tokenizer.added_tokens_decoder.values()
    written = _rendered(tokenizer, chat_template, CONVERSATION)
    if with_tools:
        from pettingllms_trl.policies import tool_templates  # only those pay for it whose agents have tools

        written += _rendered(tokenizer, chat_template, tool_templates.CONVERSATION, tool_templates.TOOLS)
    texts = {*tokenizer.all_special_tokens, *(t.content for t in added if t.special or t.content in written)}
    if tokenizer.unk_token not in (tokenizer.eos_token, tokenizer.bos_token, tokenizer.pad_token):
        texts.discard(tokenizer.unk_token)
    return tuple(sorted(text for text in texts if len(text) > 1 and text.strip()))


def _rendered(tokenizer: Any, chat_template: str | None, messages: Sequence[Message], tools: Tools = ()) -> str:
    """A short conversation rendered by the template; empty if the template does not support one."""
    try:
        return str(
            tokenizer.apply_chat_template(
                list(messages), tools=list(tools) or None, tokenize=False, chat_template=chat_template
            )
        )
    except (TemplateError, ValueError):
        return ""


def _spelled(tokens: Iterable[str]) -> re.Pattern[str]:
    """The first character of every spelling, also of those that overlap."""
    rests: defaultdict[str, list[str]] = defaultdict(list)
    for token in tokens:
        rests[token[0]].append(re.escape(token[1:]))
    return re.compile("|".join(f"{re.escape(first)}(?={'|'.join(rest)})" for first, rest in rests.items()))


def _normalization(tokenizer: Any, tokens: Collection[str]) -> Normalization | None:
    """The tokenizer's normalization, or `None` if no control token can arise from normalized text.

    The model of a fast tokenizer may have a control token in its own vocabulary, as those of SentencePiece do, and
    then produces it from normalized text, whatever `AddedToken.normalized` says. Tokenizers in Python normalize before
    they match.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        prepare = getattr(tokenizer, "prepare_for_tokenization", None)
        return prepare and Normalization(lambda text: NormalizedString(prepare(text)[0]), _spelled(tokens))
    normalizer = backend.normalizer
    if normalizer is None:
        return None
    added = {token.content for token in tokenizer.added_tokens_decoder.values() if token.normalized}
    spellings = {normalizer.normalize_str(token) for token in tokens if token in added}
    spellings |= {token for token in tokens if backend.model.token_to_id(token) is not None}

    def normalize(text: str) -> NormalizedString:
        normalized = NormalizedString(text)
        normalizer.normalize(normalized)
        return normalized

    spellings = {spelling for spelling in spellings if len(spelling) > 1}
    return Normalization(normalize, _spelled(sorted(spellings))) if spellings else None


def _inserted(text: str, places: Iterable[int], separator: str) -> str:
    """The text with a separator before the character at each place."""
    bounds = [0, *sorted(set(places)), len(text)]
    return separator.join(text[start:end] for start, end in pairwise(bounds))


def _separator(
    tokenizer: Any, tokens: Collection[str], pattern: re.Pattern[str], normalization: Normalization | None
) -> str:
    """The separator that keeps control tokens text for this tokenizer.

    Raises:
        ValueError: The tokenizer recognizes its tokens in spite of any separator.
    """
    control = set(tokenizer.convert_tokens_to_ids(list(tokens))) - {tokenizer.unk_token_id}
    for separator in SEPARATORS:
        broken = [pattern.sub(rf"\g<0>{separator}", token) for token in tokens]
        read = tokenizer(broken, add_special_tokens=False)["input_ids"]
        dropped = normalization is not None and any(map(normalization.spells, broken))
        if not dropped and not any(control.intersection(ids) for ids in read):
            return separator
    raise ValueError(
        f"the tokenizer reads a control token ({', '.join(list(tokens)[:3])}, ...) even where a space stands in it, "
        "so a reply could forge turns in a partner's prompt. Expected a tokenizer that matches its special tokens "
        "exactly (AddedToken(normalized=False))."
    )
