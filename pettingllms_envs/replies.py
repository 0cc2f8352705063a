"""Reading what a model wrote: the last line of a reply, blocks, and lists of moves. Total, linear, never evaluated."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pettingllms_envs.core import Unreadable


LETTERS = "UDLR"
FENCE = "```"
END_OF_THINKING = "</think>"

_NO_SEPARATORS = str.maketrans("", "", " \t,")
_LIST = r"[UDLR](?:[ \t]*(?:,[ \t]*)?[UDLR])*"
_ANSWER = re.compile(rf"moves:[ \t]*(?:\[[ \t]*({_LIST})[ \t]*\]|\([ \t]*({_LIST})[ \t]*\)|({_LIST}))", re.I | re.A)


def last_line(reply: str) -> str:
    """The last line with anything on it, without the white space around it; empty if there is none."""
    line = reply.strip()
    if "\n" in line or "\r" in line:
        line = line[max(line.rfind("\n"), line.rfind("\r")) + 1 :].lstrip()
    return line


def fenced_blocks(reply: str, kinds: Mapping[str, str]) -> list[tuple[str, str]] | Unreadable:
    """The blocks of a reply: what stands between a line such as "```python" and the next line "```".

    Where a line is `</think>`, as models that think aloud write it when they are done, what stands before it is not
    looked at: drafts are no answer.

    Args:
        reply: The reply.
        kinds: From the word after the three backticks, in small letters, to the kind of the block. Blocks that begin
            with another word are not looked at.

    Returns:
        Kind and text of each block, in order; unreadable if the last one has no end. Linear in the reply's length.
    """
    openings = {f"{FENCE}{word}": kind for word, kind in kinds.items()}
    found: list[tuple[str, str]] = []
    lines: list[str] = []
    kind = None
    for line in reply.split("\n"):
        mark = line.strip()
        if mark == END_OF_THINKING:
            found, kind = [], None
        elif kind is None:
            kind = openings.get(mark.lower()) if mark.startswith(FENCE) else None
            lines = []
        elif mark == FENCE:
            found.append((kind, "\n".join(lines)))
            kind = None
        else:
            lines.append(line.removesuffix("\r"))
    if kind is not None:
        return Unreadable(f"its block of {kind} has no end")
    return found


def read_moves(reply: str, limit: int) -> str | Unreadable:
    """The moves, such as `"RRD"`, if the last line is `Moves:` and a list of U D L R and nothing else.

    Case does not matter; the letters may be separated by spaces, tabs and single commas or not at all, and the list
    may be in round or square brackets. More than `limit` moves are unreadable.
    """
    line = last_line(reply)
    letters = line[7:].replace(" ", "") if line.startswith("Moves: ") else ""
    if not letters or letters.strip(LETTERS):  # else it is as asked for; no need of the rest
        found = _ANSWER.fullmatch(line)
        if found is None:
            return Unreadable(_why_unreadable(line))
        letters = found[found.lastindex or 0].upper().translate(_NO_SEPARATORS)
    if len(letters) > limit:
        return Unreadable(f"it has {len(letters)} moves, and at most {limit} are allowed")
    return letters


def write_moves(moves: str) -> str:
    """`"RRD"` is written `Moves: R R D`."""
    return "Moves: " + " ".join(moves)


def blind_moves(limit: int) -> tuple[str, ...]:
    """Lists of moves that know nothing of the board: each letter, each to the end, to and fro, rounds, every move."""
    runs = [*LETTERS, *(letter * limit for letter in LETTERS), "UD", "LR", "UDLR", "URDL"]
    runs += [("UD" * limit)[:limit], ("LR" * limit)[:limit], ("URDL" * limit)[:limit], ("RRDD" * limit)[:limit]]
    return tuple(write_moves(run) for run in runs)


def _why_unreadable(line: str) -> str:
    """A reason in fixed words: a prompt must not carry text that a model made up."""
    if not line:
        return "it is empty"
    if line[:6].lower() != "moves:":
        return "its last line does not begin with 'Moves:'"
    if not line[6:].strip(" \t,[]()"):
        return "its list of moves is empty"
    if "moves:" in line[6:].lower():
        return "its last line has more than one list of moves"
    return "its last line has something other than U, D, L and R after 'Moves:'"
