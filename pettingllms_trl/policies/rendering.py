"""What a chat template puts between a reply and the next one: the end of the turn, the new message, the next prompt.

The template is asked to write a short conversation in which the reply is a mark, and what follows the mark is encoded.
So it does not matter what the template does to earlier turns (Qwen3's drops their thinking, others add a system
message): these stay as they were sampled. The reply's own tokens are never touched: if it ended as the template ends a
turn, that is not written a second time; if it was cut off, it is closed so.
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
    """Goes on with a conversation in tokens; see `pettingllms_trl.rollout.prompts.Follow`.

    Args:
        render: Messages to the text of a prompt, by the chat template.
        encode: Text to token ids, adding none.
        special: Token ids that stand for no text: with one of them a turn can end.
        longest: Most tokens of a prompt.
    """

    render: Callable[[list[Message]], str]
    encode: Callable[[str], Sequence[int]]
    special: Collection[int]
    longest: int | None = None

    def __call__(self, spoken: Sequence[int], message: Message) -> tuple[int, ...] | None:
        """The ids so far, the reply included, and a message: to the prompt's. `None`: more than `longest`."""
        between = self.encode(self._after_the_mark([FIRST, REPLY, message]))
        ids = (*spoken, *between[self._num_said(spoken, between) :])
        return None if self.longest is not None and len(ids) > self.longest else ids

    def _num_said(self, spoken: Sequence[int], between: Sequence[int]) -> int:
        """With how many of the tokens that end a turn the reply has ended itself: mostly 1, or 0 if it was cut off."""
        end = list(takewhile(self.special.__contains__, between))
        said = range(min(len(end), len(spoken)), 0, -1)
        return next((n for n in said if list(spoken[-n:]) == end[:n]), 0)

    def _after_the_mark(self, messages: list[Message]) -> str:
        return self.render(messages).partition(MARK)[2]

    def check(self, policy: str) -> None:
        """
        Raises:
            ValueError: The template is not one whose conversations can be gone on with; it says why.
        """
        why = self._objection()
        if why:
            raise ValueError(
                f"history='conversation' for policy {policy!r}, whose chat template {why}. Expected one that writes "
                "turn after turn, so that a prompt can go on from the tokens that were sampled. Give another "
                "template (processing_class.chat_template), or leave history='none'."
            )

    def _objection(self) -> str:
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
