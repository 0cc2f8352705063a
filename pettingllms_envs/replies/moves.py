"""Parses the last line of a reply, such as a list of the moves U D L R, and writes such lists."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from pettingllms_envs.core import Unreadable


LETTERS = "UDLR"

_NO_SEPARATORS = str.maketrans("", "", " \t,")
_LIST = r"[UDLR](?:[ \t]*(?:,[ \t]*)?[UDLR])*"
_ANSWER = re.compile(rf"moves:[ \t]*(?:\[[ \t]*({_LIST})[ \t]*\]|\([ \t]*({_LIST})[ \t]*\)|({_LIST}))", re.I | re.A)


def last_line(reply: str) -> str:
    """The last line that is not blank, without surrounding white space; empty if there is none."""
    line = reply.strip()
    if "\n" in line or "\r" in line:
        line = line[max(line.rfind("\n"), line.rfind("\r")) + 1 :].lstrip()
    return line


def match_last_line(pattern: re.Pattern[str], reply: str, expected: str) -> re.Match[str] | Unreadable:
    """The match of the whole last line; without one it is unreadable, and `expected` says in fixed words why."""
    line = last_line(reply)
    return pattern.fullmatch(line) or Unreadable(f"its last line is not {expected}" if line else "it is empty")


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
    """Lists of moves that ignore the board: each letter, each to the end, to and fro, rounds, every move."""
    runs = [*LETTERS, *(letter * limit for letter in LETTERS), "UD", "LR", "UDLR", "URDL"]
    runs += [("UD" * limit)[:limit], ("LR" * limit)[:limit], ("URDL" * limit)[:limit], ("RRDD" * limit)[:limit]]
    return tuple(write_moves(run) for run in runs)


def _why_unreadable(line: str) -> str:
    """The reason, in fixed words: a prompt must not contain text that a model made up."""
    if not line:
        return "it is empty"
    if line[:6].lower() != "moves:":
        return "its last line does not begin with 'Moves:'"
    if not line[6:].strip(" \t,[]()"):
        return "its list of moves is empty"
    if "moves:" in line[6:].lower():
        return "its last line has more than one list of moves"
    return "its last line has something other than U, D, L and R after 'Moves:'"


def move_of_kind(move: Any, kinds: Sequence[str]) -> tuple[Any, str]:
    """A parsed move, if it is of one of these kinds, or None and why the reply is unreadable."""
    if isinstance(move, Unreadable):
        return None, move.reason
    expected = " or ".join(f"'{kind.title()}:'" for kind in kinds)
    return (move, "") if move.kind in kinds else (None, f"its last line does not begin with {expected}")


def between(task: Any, before: Any, reply: str) -> Iterator[Any]:
    """The states between the moves of a reply that is a list of U D L R, so that a GIF shows every move."""
    move = task.parse(reply)
    if isinstance(move, Unreadable) or not isinstance(move, str) or not set(move) <= set(LETTERS):
        return
    last = task.apply(before, move)
    for end in range(1, len(move)):
        state = task.apply(before, move[:end])
        if state == last:
            return
        yield state
