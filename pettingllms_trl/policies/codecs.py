"""How a policy's model writes messages as token ids, reads token ids as text, and continues a conversation in tokens.

`TurnBridge` appends what the chat template puts between a reply and the next turn. The template renders a short
conversation with a marker as the reply, and what follows the marker is encoded. So it does not matter how the template
changes earlier turns (Qwen3's drops their thinking, others add a system message): these stay as they were sampled. The
reply's own tokens never change: if it ended with the template's end of turn, that is not added again; if it was
truncated, the end of turn is appended.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import Any

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerFast

from pettingllms_envs.observations import Image, Part
from pettingllms_envs.replies.fences import without_thoughts
from pettingllms_trl.pixels import ImageInputs, as_parts
from pettingllms_trl.policies.escaping import PromptEscape
from pettingllms_trl.policies.profiles import PolicyProfile
from pettingllms_trl.records import Message, Prompt, Tools


CANNOT_SEE = (
    "its policy reads texts only (it has a tokenizer and no processor). Expected a model with vision and its "
    "processor. Give them (Policy(model=..., tokenizer=processor), or the trainer's model and processing_class), or "
    "have observe() describe it in words."
)
Content = str | Sequence[Part]
Ids = Sequence[int]
Tokenize = Callable[[PolicyProfile, Sequence[Sequence[Message]], Tools, Mapping[str, Any]], Sequence[Ids]]
"""Messages of prompts with the same tools to their ids, by a policy's chat template with these arguments, as TRL
applies it."""


class PolicyCodec:
    """Prompts to token ids and sampled ids to text: TRL's own, but that texts never become control tokens.

    Args:
        chat_template: The user's, in the place of the tokenizer's; `None`: the tokenizer's.
        images: Makes the model's inputs of pictures; `None`: it is shown texts only.
    """

    def __init__(
        self,
        profile: PolicyProfile,
        *,
        tokenize: Tokenize,
        chat_template: str | None,
        chat_template_kwargs: Mapping[str, Any],
        images: ImageInputs | None = None,
    ) -> None:
        self._profile, self._tokenize = profile, tokenize
        self.tokenizer, self.images = profile.tokenizer, images
        self._chat_template, self._chat_template_kwargs = chat_template, dict(chat_template_kwargs)
        self._thinking: dict[bool, PolicyCodec] = {}
        if images is None:
            self._escape = PromptEscape(profile.tokenizer, chat_template)
        else:
            written_by = chat_template or profile.processing_class.chat_template
            self._escape = PromptEscape(profile.tokenizer, written_by, images.place_tokens)
        self.stop_token_ids = list(profile.eos_token_ids)
        """The ids that end a completion."""
        self.end_token_ids = frozenset({*self.stop_token_ids, profile.tokenizer.pad_token_id})
        """Those, and the one that pads what has ended."""
        self.decode = decoder(profile.processing_class)
        """Ids of several completions to their texts, without special tokens."""

    def encode(self, prompts: Sequence[Prompt]) -> Sequence[Ids]:
        """Token ids of each prompt; equal ones, as at the beginning of one instance's episodes, are encoded once."""
        keys = [prompt.key for prompt in prompts]
        distinct = dict(zip(keys, prompts, strict=True))
        by_tools: dict[str, list[Hashable]] = {}
        for key, prompt in distinct.items():
            by_tools.setdefault(repr([*prompt.tools]), []).append(key)
        ids: dict[Hashable, Ids] = {}
        for own in by_tools.values():
            tools = distinct[own[0]].tools
            if tools:
                self.check_tools("an agent")
            escaped, tools = self._escape([self._merged(distinct[key].messages) for key in own], tools)
            if images := [image for key in own for image in distinct[key].images]:
                if self.images is None:
                    raise ValueError(f"a prompt shows {images[0]!r}, and {CANNOT_SEE}")
                escaped = [as_parts(messages) for messages in escaped]
            with self.images.writing(images) if self.images and images else nullcontext():
                written = self._tokenize(self._profile, escaped, tools, self._chat_template_kwargs)
            ids |= zip(own, written, strict=True)
        return [ids[key] for key in keys]

    def inputs_of(self, ids: Sequence[Ids], images: Sequence[Sequence[Image]]) -> dict[str, Any]:
        """The model's inputs beside the ids of prompts, see `ImageInputs.of_rows`, and the `images` themselves."""
        assert self.images is not None, "prompts with images have been encoded"
        return {"images": images, **self.images.of_rows(ids, images)}

    def image_tokens(self, images: Sequence[Image]) -> list[int]:
        """The number of places that each image has in a prompt."""
        return [] if self.images is None else self.images.num_tokens(images)

    def thinking(self, enabled: bool | None) -> PolicyCodec:
        """The codec whose template is given `enable_thinking`; None: this one."""
        if enabled is None:
            return self
        if enabled not in self._thinking:
            self._thinking[enabled] = PolicyCodec(
                self._profile,
                tokenize=self._tokenize,
                chat_template=self._chat_template,
                chat_template_kwargs={**self._chat_template_kwargs, "enable_thinking": enabled},
                images=self.images,
            )
        return self._thinking[enabled]

    def check_tools(self, who: str, *, reads_calls: bool = False) -> None:
        """Validate that the chat template writes tools, their calls and their results; the error says what is missing.

        `reads_calls`: whether an environment of this package reads the calls.
        """
        why = self._why_without_tools or (self._why_unreadable if reads_calls else "")
        if why:
            raise ValueError(
                f"{who} observes tools, and its chat template {why}. Expected a template with tools, such as Qwen's. "
                "Give another one (processing_class.chat_template), or make the environment with tool_calls='text'."
            )

    def _merged(self, messages: Sequence[Message]) -> Sequence[Message]:
        """The messages with two users' in a row as one, where the chat template does not take two."""
        two = [a["role"] == b["role"] == "user" for a, b in itertools.pairwise(messages)]
        if not any(two) or not self._refuses_two_users:
            return messages
        merged = [messages[0]]
        for is_second, message in zip(two, messages[1:], strict=True):
            if is_second:
                merged[-1] = {**merged[-1], "content": _one_after_another(merged[-1]["content"], message["content"])}
            else:
                merged.append(message)
        return merged

    @cached_property
    def _refuses_two_users(self) -> bool:
        from pettingllms_trl.policies.tool_templates import ASKED

        try:
            self._render([ASKED, ASKED])
        except TemplateError:
            return True
        return False

    @cached_property
    def _why_without_tools(self) -> str:
        from pettingllms_trl.policies.tool_templates import why_unsupported

        return why_unsupported(self._render)

    @cached_property
    def _why_unreadable(self) -> str:
        from pettingllms_trl.policies.tool_templates import why_unreadable

        def read(text: str) -> str:
            return self.decode([self._profile.tokenizer(text, add_special_tokens=False)["input_ids"]])[0]

        return why_unreadable(self._render, read)

    def bridge(self, policy: str, *, longest: int | None) -> TurnBridge:
        """What continues a conversation from one turn's tokens to the next; above `longest` tokens it begins again."""
        tokenizer = self._profile.tokenizer
        bridge = TurnBridge(
            render=self._render,
            encode=lambda text: tokenizer(text, add_special_tokens=False)["input_ids"],
            special={*self._profile.eos_token_ids, *tokenizer.all_special_ids, *tokenizer.added_tokens_decoder},
            longest=longest,
        )
        bridge.check(policy)
        return bridge

    def _render(self, messages: Sequence[Message], tools: Tools = ()) -> str:
        """The text that the chat template makes of messages and tools."""
        plain = list(self._escape.plain(messages))
        text: str = self._profile.processing_class.apply_chat_template(
            plain if self.images is None else as_parts(plain),
            tools=list(tools) or None,
            tokenize=False,
            add_generation_prompt=True,
            chat_template=self._chat_template,
            **self._chat_template_kwargs,
        )
        return text


def _one_after_another(first: Content, second: Content) -> Content:
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    return [
        *([first] if isinstance(first, str) else first),
        "\n\n",
        *([second] if isinstance(second, str) else second),
    ]


def decoder(processing_class: Any) -> Callable[[Sequence[Ids]], list[str]]:
    """`batch_decode(..., skip_special_tokens=True)` of a tokenizer, but that the marks of thoughts stay in the text.

    Environments and rewards read them. Of a fast tokenizer by one call of its backend: transformers looks at every id.
    """
    tokenizer = getattr(processing_class, "tokenizer", processing_class)
    added = tokenizer.added_tokens_decoder
    special = {*tokenizer.all_special_ids, *(i for i, token in added.items() if token.special)}
    texts = {i: f"{added[i].content}thought" for i in special if i in added}  # after `<|channel|>` comes its kind
    skipped = {i for i in special if i not in texts or without_thoughts(texts[i]) == texts[i]}
    if skipped != special:
        return lambda completions: list(
            processing_class.batch_decode([[i for i in ids if i not in skipped] for ids in completions])
        )
    is_fast = _is_plain(processing_class) and not processing_class.clean_up_tokenization_spaces

    def decode(completions: Sequence[Ids]) -> list[str]:
        if not is_fast or "batch_decode" in vars(processing_class):  # replaced since
            return list(processing_class.batch_decode(list(completions), skip_special_tokens=True))
        texts: list[str] = processing_class.backend_tokenizer.decode_batch(list(completions), skip_special_tokens=True)
        return texts

    return decode


def _is_plain(tokenizer: Any) -> bool:
    """Whether it decodes as transformers' fast tokenizers do: no processor, and no method is replaced."""
    own = ("__call__", "_encode_plus", "apply_chat_template", "batch_decode", "decode", "_decode")
    return isinstance(tokenizer, PreTrainedTokenizerFast) and all(
        getattr(type(tokenizer), name) is getattr(PreTrainedTokenizerFast, name) for name in own
    )


MARK = "REPLY-3f9c17"
FIRST: Message = {"role": "user", "content": "What do you see?"}
REPLY: Message = {"role": "assistant", "content": MARK}
SECOND: Message = {"role": "user", "content": "QUESTION-a2b8e4"}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TurnBridge:
    """Extends a conversation by a message, in tokens; see `pettingllms_trl.rollout.prompts.ExtendPrompt`.

    Args:
        render: Renders messages to the text of a prompt with the chat template.
        encode: Encodes text to token ids, without adding special ones.
        special: Special token ids, with which a turn can end.
    """

    render: Callable[[list[Message]], str]
    encode: Callable[[str], Sequence[int]]
    special: Collection[int]
    longest: int | None = None

    def __call__(self, previous_ids: Sequence[int], message: Message) -> tuple[int, ...] | None:
        """The next prompt's ids, from those so far, reply included, and a message; `None` if over `longest`."""
        bridge = self.encode(self._after_the_mark([FIRST, REPLY, message]))
        ids = (*previous_ids, *bridge[self._num_already_sampled(previous_ids, bridge) :])
        return None if self.longest is not None and len(ids) > self.longest else ids

    def _num_already_sampled(self, previous_ids: Sequence[int], bridge: Sequence[int]) -> int:
        """How many of the tokens that end a turn the reply ends with: usually 1, or 0 if it was truncated."""
        end = list(takewhile(self.special.__contains__, bridge))
        lengths = range(min(len(end), len(previous_ids)), 0, -1)
        return next((n for n in lengths if list(previous_ids[-n:]) == end[:n]), 0)

    def _after_the_mark(self, messages: list[Message]) -> str:
        return self.render(messages).partition(MARK)[2]

    def check(self, policy: str) -> None:
        """Raise `ValueError`, with the reason, if conversations cannot be extended with this template."""
        why = self._reason_unsupported()
        if why:
            raise ValueError(
                f"history='conversation' for policy {policy!r}, whose chat template {why}. Expected one that writes "
                "turn after turn, so that a prompt can go on from the tokens that were sampled. Give another "
                "template (processing_class.chat_template), or leave history='none'."
            )

    def _reason_unsupported(self) -> str:
        try:
            text = self.render([FIRST, REPLY, SECOND])
            longer = self._after_the_mark([FIRST, {**REPLY, "content": "Nothing."}, FIRST, REPLY, SECOND])
        except TemplateError as error:
            return f"refuses a conversation ({error})"
        try:
            led = self._after_the_mark([{"role": "system", "content": "Be brief."}, FIRST, REPLY, SECOND])
        except TemplateError:
            led = None  # it takes no system message, and then an agent has none
        if text.count(MARK) != 1:
            return f"writes a reply {text.count(MARK)} times, not once as it is"
        after = text.partition(MARK)[2]
        if after.count(SECOND["content"]) != 1:
            return "does not write a message after the reply that it answers"
        if longer != after or led not in (after, None):
            return "writes something else after a reply when more was said before"
        if self.encode(after)[0] not in self.special:
            return "ends a reply with ordinary text, which runs into the reply's own, not with a token for it"
        return ""
