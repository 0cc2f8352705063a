"""Bridges a conversation to its next turn: appends what the chat template puts between a reply and the next one.

The template renders a short conversation with a marker as the reply, and what follows the marker is encoded. So it
does not matter how the template changes earlier turns (Qwen3's drops their thinking, others add a system message):
these stay as they were sampled. The reply's own tokens never change: if it ended with the template's end of turn, that
is not added again; if it was truncated, the end of turn is appended.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import takewhile

from jinja2 import TemplateError

from pettingllms_trl.records import Message


MARK = "REPLY-3f9c17"
FIRST: Message = {"role": "user", "content": "What do you see?"}
REPLY: Message = {"role": "assistant", "content": MARK}
SECOND: Message = {"role": "user", "content": "QUESTION-a2b8e4"}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TurnBridge:
    """Extends a conversation by a message, in tokens; see `pettingllms_trl.rollout.prompts.Follow`.

    Args:
        render: Renders messages to the text of a prompt with the chat template.
        encode: Encodes text to token ids, without adding special ones.
        special: Special token ids, with which a turn can end.
        longest: Most tokens of a prompt.
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
        """Validate that conversations can be extended with this template.

        Raises:
            ValueError: They cannot. The message says why.
        """
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
