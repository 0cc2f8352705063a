"""Encodes prompts and decodes completions as TRL does, but encodes the constant part of a role's prompts only once.

A role's prompts differ in their last message. What the chat template puts around that message is determined by
rendering a marker in its place, and is encoded once:

    <|start|>system: You play a drafter.<|end|><|start|>  user: MARK  <|end|><|start|>assistant:
    `------------------ encoded once ------------------'  `every time'  `---- encoded once -----'

A tokenizer splits a text at its special tokens first, so the ids of the parts are those of the whole. The special
tokens on both sides of the message are encoded with it, so that the message is never at the start or end of a text.
If this is not certain, or if the template may inspect the message, the prompt is encoded as TRL does.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeGuard

from jinja2 import Environment, TemplateSyntaxError, nodes
from transformers import PreTrainedTokenizerFast

from pettingllms_trl.records import Message


MARK = "MESSAGE-7d01be"
OTHER = "- {a} <b>'s\n\n  Łódź 12" * 1000
"""A message with what a template may normalize (quotes, blanks, accents), long enough for any that truncates."""
MOST_KNOWN = 256
"""Prompt beginnings that are cached. If each instance of an environment has its own, only the latest ones are."""
CHECKED_EVERY = 64
_CHANGING = re.compile(r"strftime_now|\bnow\(|\|\s*random|content[^%}]*\|\s*(?:length|count)\b(?!\s*(?:>|==|!=)\s*0)")
_GENERATION = re.compile(r"{%-?\s*(?:end)?generation\s*-?%}")

Ids = Sequence[int]
Prompt = Sequence[Message]
Encode = Callable[[Sequence[Prompt]], Sequence[Ids]]
Decode = Callable[[Sequence[Ids]], list[str]]


@dataclass(frozen=True, slots=True)
class _Surroundings:
    """What the template puts around a prompt's last message.

    Args:
        before: Ids up to and including the special token before the message.
        lead: Text from that token, included, to the message.
        trail: Text from the message to the next special token, included.
        after: Ids from that token on.
    """

    before: tuple[int, ...]
    lead: str
    trail: str
    after: tuple[int, ...]


class PromptEncoder:
    """Encodes the prompts of one policy to the same token ids as `template`.

    Args:
        template: Encodes prompts with the chat template, without any cache.
        render: Renders messages to text with the chat template.
        tokenizer: Encodes the text.
        source: The template's source.
        check_every: One of this many prompts is compared with what `template` makes of it.
    """

    def __init__(
        self,
        template: Encode,
        render: Callable[[Prompt], str],
        tokenizer: Any,
        source: str,
        *,
        check_every: int = CHECKED_EVERY,
    ) -> None:
        self._template, self._render, self._tokenizer = template, render, tokenizer
        self._anchors = _anchors(tokenizer)
        self._known: dict[Prompt | tuple[Any, ...], _Surroundings | None] = {}
        asked = _looks_for(source)
        self._whole, self._inside = asked or (frozenset(), ())
        self._usable = asked is not None and not _CHANGING.search(source)
        self._check_every, self._num_written = check_every, 0

    def __call__(self, prompts: Sequence[Prompt]) -> list[Ids]:
        """Token ids of each prompt."""
        around = [self._around(prompt) if self._usable else None for prompt in prompts]
        by_template = [i for i, each in enumerate(around) if each is None]
        ids: dict[int, Ids] = {}
        if by_template:
            ids.update(zip(by_template, self._template([prompts[i] for i in by_template]), strict=True))
        if len(ids) < len(prompts):
            ids.update(self._written(prompts, around))
        return [ids[i] for i in range(len(prompts))]

    def _written(self, prompts: Sequence[Prompt], around: Sequence[_Surroundings | None]) -> dict[int, Ids]:
        texts = {
            i: each.lead + prompts[i][-1]["content"] + each.trail for i, each in enumerate(around) if each is not None
        }
        once = list(dict.fromkeys(texts.values()))  # episodes of one instance start with the same prompt
        encoded = dict(zip(once, self._encode(once), strict=True))
        ids: dict[int, Ids] = {}
        for i, text in texts.items():
            each = around[i]
            assert each is not None
            ids[i] = [*each.before, *_inner(encoded[text], each), *each.after]
        checked = [i for n, i in enumerate(ids, self._num_written) if n % self._check_every == 0]
        self._num_written += len(ids)
        if checked:
            expected = self._template([prompts[i] for i in checked])
            if any(list(ids[i]) != list(right) for i, right in zip(checked, expected, strict=True)):
                warnings.warn(
                    "the chat template writes a prompt in another way than those before, so from here on it is asked "
                    "for every prompt. What was sampled until now was trained on with the ids that it was sampled "
                    "after.",
                    stacklevel=3,
                )
                self._usable = False
                every = self._template([prompts[i] for i in ids])
                return dict(zip(ids, every, strict=True))
        return ids

    def _around(self, prompt: Prompt) -> _Surroundings | None:
        """What the template puts around the last message; `None` if the template must encode the whole prompt."""
        content = prompt[-1]["content"]
        if prompt[-1]["role"] != "user" or any(m["role"] == "assistant" for m in prompt):
            return None
        if not content or content[0].isspace() or content[-1].isspace() or self._might_be_looked_for(content):
            return None
        key = tuple(chain.from_iterable((m["role"], m["content"]) for m in prompt[:-1]))
        if key not in self._known:
            if len(self._known) >= MOST_KNOWN:
                del self._known[next(iter(self._known))]
            self._known[key] = self._find(prompt[:-1])
        return self._known[key]

    def _might_be_looked_for(self, content: str) -> bool:
        return content in self._whole or any(text in content for text in self._inside)

    def _find(self, beginning: Prompt) -> _Surroundings | None:
        """See `_around`: render a marker in place of the message, and encode the result as a whole."""
        marked = [*beginning, {"role": "user", "content": MARK}]
        before, found, after = self._render(marked).partition(MARK)
        if not found or MARK in after:
            return None
        if self._render([*beginning, {"role": "user", "content": OTHER}]) != before + OTHER + after:
            return None
        cut = max(chain((m.start() for m in self._anchors.finditer(before)), [-1]))
        stop = self._anchors.search(after)
        if cut < 0 or stop is None:
            return None
        lead, trail = before[cut:], after[: stop.end()]
        (whole, inner) = self._encode([before + MARK + after, lead + MARK + trail])
        start = len(self._encode([before[:cut]])[0]) + 1
        end = start + len(inner) - 2
        around = _Surroundings(tuple(whole[:start]), lead, trail, tuple(whole[end:]))
        same = [*around.before, *_inner(inner, around), *around.after] == list(whole)
        return around if same and list(whole) == list(self._template([marked])[0]) else None

    def _encode(self, texts: list[str]) -> list[list[int]]:
        backend = self._tokenizer.backend_tokenizer
        backend.no_padding()
        backend.no_truncation()
        backend.encode_special_tokens = False
        return [encoding.ids for encoding in backend.encode_batch_fast(texts, add_special_tokens=False)]


def _inner(ids: Ids, around: _Surroundings) -> Ids:
    """The ids without the special tokens at both ends, which belong to the surroundings."""
    assert (ids[0], ids[-1]) == (around.before[-1], around.after[0]), "a special token was read as something else"
    return ids[1:-1]


def decoder(processing_class: Any) -> Decode:
    """A function that decodes completions as `batch_decode(..., skip_special_tokens=True)` does.

    A fast tokenizer's backend is called directly, since transformers inspects every single id in Python first.
    """
    plain = is_plain(processing_class) and not processing_class.clean_up_tokenization_spaces

    def read(completions: Sequence[Ids]) -> list[str]:
        if not plain or "batch_decode" in vars(processing_class):  # replaced since
            return list(processing_class.batch_decode(list(completions), skip_special_tokens=True))
        texts: list[str] = processing_class.backend_tokenizer.decode_batch(list(completions), skip_special_tokens=True)
        return texts

    return read


def is_plain(tokenizer: Any) -> bool:
    """Whether it is a fast tokenizer of transformers with none of these methods overridden, and no processor."""
    own = ("__call__", "_encode_plus", "apply_chat_template", "batch_decode", "decode", "_decode")
    return isinstance(tokenizer, PreTrainedTokenizerFast) and all(
        getattr(type(tokenizer), name) is getattr(PreTrainedTokenizerFast, name) for name in own
    )


def _anchors(tokenizer: Any) -> re.Pattern[str]:
    """Special tokens at which every text is split, whatever is next to them: none that another could swallow."""
    nothing = re.compile(r"(?!)")
    if not is_plain(tokenizer) or tokenizer.split_special_tokens:
        return nothing
    added = list(tokenizer.backend_tokenizer.get_added_tokens_decoder().values())
    texts = [token.content for token in added]
    sure = [
        token.content
        for token in added
        if token.special and not (token.normalized or token.lstrip or token.rstrip or token.single_word)
        if not any(_swallows(other, token.content) for other in texts)
    ]
    return re.compile("|".join(map(re.escape, sorted(sure, key=len, reverse=True)))) if sure else nothing


def _swallows(other: str, token: str) -> bool:
    """Whether a text with `token` may be split at `other` instead: `other` contains it, or the two can overlap, as a
    token with itself."""
    overlap = range(1, min(len(other), len(token)))
    within = token in other and token != other
    return within or any(other[-n:] == token[:n] or token[-n:] == other[:n] for n in overlap)


def _looks_for(source: str) -> tuple[frozenset[str], tuple[str, ...]] | None:
    """Texts that a template may compare with a message or look for in it.

    Returns:
        Texts that it may compare with the whole message, and texts that it may look for inside. Texts of spaces are
        left out, since they only concern the message's ends. `None`: this cannot be determined.
    """
    try:
        tree = Environment(extensions=["jinja2.ext.loopcontrols"]).parse(_GENERATION.sub("", source))
    except TemplateSyntaxError:
        return None
    whole = {const.value for compare in tree.find_all(nodes.Compare) for const in compare.find_all(nodes.Const)}
    inside = [text for text in set(_sought(tree)) if isinstance(text, str) and text.strip()]
    least = (one for one in inside if not any(other in one for other in inside if other != one))
    return frozenset(text for text in whole if isinstance(text, str)), tuple(least)


def _sought(tree: nodes.Template) -> Iterator[Any]:
    """Constants that are operands of `in`, arguments of a method, filter or test, or assigned to a name."""
    for compare in tree.find_all(nodes.Compare):
        if any(operand.op in ("in", "notin") for operand in compare.ops):
            yield from (const.value for const in (compare.expr, *compare.expr.find_all(nodes.Const)) if _is(const))
    filters = (each for each in tree.find_all(nodes.Filter) if each.name != "join")
    asking: Iterator[Any] = chain(tree.find_all(nodes.Call), tree.find_all(nodes.Test), filters)
    for each in asking:
        yield from (argument.value for argument in each.args if _is(argument))
    yield from (assign.node.value for assign in tree.find_all(nodes.Assign) if _is(assign.node))


def _is(node: nodes.Node) -> TypeGuard[nodes.Const]:
    return isinstance(node, nodes.Const)
