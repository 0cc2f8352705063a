"""Replies with the number of their tokens, for environments that take them: those of programs."""

from __future__ import annotations

from typing import Protocol, Self, runtime_checkable


class CountedReply(str):
    """A reply with what is known of its tokens: the action of an environment that is a `TakesReply`.

    Args:
        num_prompt_tokens: Tokens of its prompt; 0 if unknown.
        num_tokens: Tokens of the reply; 0 if unknown.
        was_cut: Whether the reply was cut off at the most tokens that it may have.
    """

    __slots__ = ("num_prompt_tokens", "num_tokens", "was_cut")

    num_prompt_tokens: int
    num_tokens: int
    was_cut: bool

    def __new__(cls, text: str, num_prompt_tokens: int = 0, num_tokens: int = 0, was_cut: bool = False) -> Self:
        made = super().__new__(cls, text)
        made.num_prompt_tokens, made.num_tokens, made.was_cut = num_prompt_tokens, num_tokens, was_cut
        return made


@runtime_checkable
class TakesReply(Protocol):
    """An optional feature of an environment: its actions are `CountedReply`; those of others are plain texts."""

    @property
    def takes_reply(self) -> bool:
        """True."""
