r"""Parses the answer of a reply or a worked solution: the last `\boxed{...}` with balanced braces."""

from __future__ import annotations

import re


_BOX = re.compile(r"\\(?:boxed|fbox)(?![a-zA-Z])[ \t\n]*")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_BARE = re.compile(r"[^\s{}$\\]+")


def boxed(reply: str) -> str | None:
    r"""The content of the last box of a reply; None if it has no closed box.

    `\boxed{...}`, `\fbox{...}` and, without braces, `\boxed 7`. A brace after a backslash is a character, not a brace.
    Of nested boxes, the inner one is the last. A box that is never closed is ignored: a truncated reply keeps the
    answer that it gave before. Linear in the reply's length.
    """
    boxes = list(_BOX.finditer(reply))
    if not boxes:
        return None
    ends = _closing_braces(reply, {box.end() for box in boxes if reply.startswith("{", box.end())})
    for box in reversed(boxes):
        start = box.end()
        if not reply.startswith("{", start):
            bare = _BARE.match(reply, start)
            if bare:
                return bare.group()
        elif start in ends:
            return reply[start + 1 : ends[start]].strip()
    return None


def _closing_braces(reply: str, starts: set[int]) -> dict[int, int]:
    """The closing positions of the braces that open at `starts`, in one pass; unclosed braces are left out."""
    ends: dict[int, int] = {}
    if not starts:
        return ends
    open_braces: list[int] = []
    for brace in _BRACE.finditer(reply, min(starts)):
        if brace.group() == "{":
            open_braces.append(brace.start())
        elif brace.group() == "}" and open_braces:
            start = open_braces.pop()
            if start in starts:
                ends[start] = brace.start()
    return ends
