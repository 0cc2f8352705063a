"""The thoughts of a reply, however a model marks them, and what it says after them."""

from __future__ import annotations

import re


_THOUGHTS = r"think|thinking|thoughts?|reasoning|seed:think"
_OPENING = re.compile(
    rf"<(?:{_THOUGHTS})>|<\|(?:think|begin_of_thought)\|>|\[THINK\]|◁think▷|<\|?channel\|?>(?:analysis|thought)", re.I
)
_ENDING = re.compile(
    rf"</(?:{_THOUGHTS})>|<\|(?:/think|end_of_thought)\|>|\[/THINK\]|◁/think▷|<channel\|>"
    r"|(?:<\|channel\|>|assistant)final(?:<\|message\|>)?",
    re.I,
)
_SIGNS = ("<", "[think", "[/think", "◁", "final")
"""One of them is in each opening and ending, in lower case; texts without any are told sooner than by the patterns."""


def without_thoughts(reply: str) -> str:
    """What a reply says after its thoughts, however they are marked; what stands before those that have no end."""
    return split_thoughts(reply)[1]


def split_thoughts(reply: str) -> tuple[str, str, str]:
    """The thoughts of a reply, what it says after them, and further thoughts that have no end."""
    lower = reply.lower()
    if not any(sign in lower for sign in _SIGNS):
        return "", reply, ""
    start = max((match.end() for match in _ENDING.finditer(reply)), default=0)
    opening = _OPENING.search(reply, start)
    end = len(reply) if opening is None else opening.start()
    return reply[:start], reply[start:end], reply[end:]
