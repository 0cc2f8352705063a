r"""Reads a reply whatever its form: strictly first, and where that finds nothing, without marks, fences and thoughts.

Models write the same answer as `Moves: R R`, `**Moves:** R R`, `- Moves : R R`, in a block of code, after thoughts or
before an end token. That is their form and not their ability. `with_reading` makes a task whose `parse` reads so.
"""

from __future__ import annotations

import copy
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import cache
from typing import Any, TypeVar, cast

from pettingllms_envs.core import Unreadable
from pettingllms_envs.replies.fences import FENCE


STRICTLY, LENIENTLY, UNREADABLE = "strictly", "leniently", "unreadable"
READ_AS = {STRICTLY: "frac_read_strictly", LENIENTLY: "frac_read_leniently", UNREADABLE: "frac_unreadable"}
"""The share of an agent's replies that were read so, as a training logs it."""
LONGEST = 250_000
"""Characters of the longest reply that is read again without its marks, which takes a tenth of a second."""
MOST_UNREADABLE = 0.05
"""The share of replies that are unreadable above which reports and trainings warn."""
TWO_ANSWERS = Unreadable("it marks two different answers")

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
_END_TOKEN = re.compile(
    r"(?:<[|｜][^\s<>|｜]{1,40}[|｜]>|</s>|<(?:end_of_turn|end_of_utterance|eos|turn\|)>|\[(?:/INST|EOS|EOT)\])\Z",
    re.I,
)
_MOST_LAYERS = 20
"""End tokens, or quotation marks around a line, one after the other, that are taken off."""
_FENCE = re.compile(r"[ \t]*(`{3,}+|~{3,}+)([^`]*)")
_RULE = re.compile(r"[ \t]*(?:-{3,}|\*{3,}|_{3,}|={3,})[ \t]*")
_PYTHON = re.compile(r"|code|.*\bpy.*", re.I)
_TAG = re.compile(r"</?(?:b|strong|em|i|u|p|code|pre|mark|answer|final|final_answer|output|response|result)>", re.I)
_COMMAND = re.compile(r"\\(?:boxed|fbox|text|textbf|textit|texttt|mathbf|mathrm|mathtt|emph)\{([^{}]*)\}")
_BULLET = re.compile(r"[ \t]*(?:(?:[-*+•>]|#{1,6}|\d{1,3}[.)]|[✅☑✔→➜]\ufe0f?)[ \t]+)+|>+")
_MARK = re.compile(r"(?<!\w)(?:\*{1,3}|_{1,3}|`+)(?=\S)|(?<=\S)(?:\*{1,3}|_{1,3}|`+)(?!\w)")
_STRUCK = re.compile(r"~~[^~]+~~")
_LABEL = re.compile(r"([A-Za-z]+)[ \t]*[:：][ \t]*")
_UNSEEN = re.compile("[\u200b-\u200f\u2060\ufeff\u00ad]")
_LAST_OF_MARKS = "*_`>]"
"""An end token, and a mark around a value, end with one of them."""
_AROUND = re.compile(r"(\*\*|__|[`*_])(.+)\1")
_PAIRS = {'"': '"', "'": "'", "“": "”", "‘": "’", "«": "»", "$": "$", "(": ")", "[": "]", "{": "}"}
_END_OF_SENTENCE = " \t.;,!。"

T = TypeVar("T")


Notes = list[tuple[str, str]]
"""Texts, and how each was read as a move: `"strictly"`, `"leniently"` (without its marks) or `"unreadable: why"`."""
NOTES: ContextVar[Notes | None] = ContextVar("readings", default=None)
"""Where each reading of a task of `with_reading` is added; None: nowhere."""


def last_reading(notes: Notes, reply: str) -> str | None:
    """How the reply, or a part of it, was read last; None if it was not."""
    for text, reading in reversed(notes):
        if text in reply:
            return reading
    return None


def form_of(recorded: str) -> str:
    """The form in a record's `reading`: `"unreadable"` of `"unreadable: it is empty"`."""
    return recorded.partition(": ")[0]


def counts_of(found: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """How many of an agent's replies were read strictly, only leniently, or not at all; why most of these were not.

    Each is a record's `reading` and the end of the reply. Without any, nothing is counted.
    """
    if not found:
        return {}
    forms = Counter(form_of(reading) for reading, _ in found)
    own = {"read_strictly": forms[STRICTLY], "only_leniently": forms[LENIENTLY], "unreadable": forms[UNREADABLE]}
    reasons = Counter(reading for reading, _ in found if form_of(reading) == UNREADABLE)
    for commonest, _ in reasons.most_common(1):
        example = next(end for reading, end in found if reading == commonest)
        return {**own, "unreadable_because": commonest.partition(": ")[2], "unreadable_example": example}
    return own


def warning_of(agent: str, own: Mapping[str, Any], remedy: str) -> str | None:
    """What to say of an agent of whose replies, see `counts_of`, more than `MOST_UNREADABLE` could not be read."""
    total = sum(own.get(each, 0) for each in ("read_strictly", "only_leniently", "unreadable"))
    if not own.get("unreadable", 0) > MOST_UNREADABLE * total:
        return None
    return (
        f"{own['unreadable'] / total:.0%} of the replies of {agent} are unreadable, most often because "
        f"{own['unreadable_because']}. One of them ends {json.dumps(own['unreadable_example'])}. Say in the prompt "
        f"how a reply is to end, {remedy} where replies are cut off."
    )


def with_reading(task: T, *, strict: bool) -> T:
    """The task, with a `parse` that notes how it read, and reads leniently unless `strict`.

    It is of a subclass of the task's class, under the same name, so whatever else is asked of the task stays.
    """
    if not isinstance(strict, bool):
        raise ValueError(f"strict_format is {strict!r}; expected one of True, False.")
    made = copy.copy(task)
    object.__setattr__(made, "__class__", _reading_class(cast("Any", type(task)), strict))
    return made


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


def _read_again(parse: Callable[[str], Any], reply: str, found: Unreadable) -> Any:
    """What `parse` finds in a reply without marks: `TWO_ANSWERS` where these differ, `found` where there is none.

    It takes time linear in the reply's length where `parse` does.
    """
    for candidates, others in _forms(reply):
        moves = _moves(parse, candidates)
        if moves:
            return moves[0] if len(moves) == 1 and _moves(parse, others) in ([], moves) else TWO_ANSWERS
    return found


def _moves(parse: Callable[[str], Any], texts: list[str]) -> list[Any]:
    """The different moves in some texts, at most two of them."""
    moves: list[Any] = []
    for text in dict.fromkeys(texts):
        move = parse(text)
        if not isinstance(move, Unreadable) and (move := _unmarked_value(move)) not in moves:
            moves.append(move)
            if len(moves) > 1:
                break
    return moves


def _forms(reply: str) -> Iterator[tuple[list[str], list[str]]]:
    """Forms of a reply, those with fewer changes first: the texts to read, and others that must not say otherwise."""
    said = without_thoughts(_UNSEEN.sub("", reply).replace("\u00a0", " ")).strip()
    said = _without_end_tokens(said)
    lines, blocks = _without_fences(said)
    yield [said, *(f"{FENCE}python\n{block}\n{FENCE}" for block in blocks)], []
    unmarked = {line: _unmarked_line(line) for line in dict.fromkeys(lines)}
    plain = [unmarked[line] for line in lines]
    others = [*plain, *"\n".join(plain).split("\n\n")]
    yield ["\n".join(lines)], others
    yield ["\n".join(plain)], others
    yield ["\n".join(plain).rstrip(_END_OF_SENTENCE)], others


def _without_end_tokens(text: str) -> str:
    for _ in range(_MOST_LAYERS):
        if (token := _END_TOKEN.search(text, max(0, len(text) - 60))) is None:
            break
        text = text[: token.start()].rstrip()
    return text


def _without_fences(text: str) -> tuple[list[str], list[str]]:
    """The lines of a text that are neither fences nor rules, and the blocks that may be Python.

    There is none where a further one has no end: the reply was cut off in what was to replace them.
    """
    lines: list[str] = []
    blocks: list[str] = []
    fence, start, may_be_python = "", 0, False
    for line in text.splitlines():
        found = _FENCE.fullmatch(line)
        if found is None:
            if not _RULE.fullmatch(line):
                lines.append(line)
        elif not fence:
            fence, start = found[1][:3], len(lines)
            may_be_python = _PYTHON.fullmatch(found[2].strip()) is not None
        elif found[1].startswith(fence) and not found[2].strip():
            fence = ""
            if may_be_python:
                blocks.append("\n".join(lines[start:]))
    return lines, [] if fence and may_be_python else blocks


def _unmarked_line(line: str) -> str:
    """A line without bullets, emphasis, tags, quotation marks around it, and a space before the colon of its label.

    What is struck out is withdrawn, and goes with its marks.
    """
    line = _STRUCK.sub("", _TAG.sub("", line)).strip()
    if bullet := _BULLET.match(line):
        line = line[bullet.end() :]
    for _ in range(2):
        line = _COMMAND.sub(r"\1", line)
    line = _MARK.sub("", line).strip()
    for _ in range(_MOST_LAYERS):
        if len(line) < 2 or _PAIRS.get(line[0]) != line[-1]:
            break
        line = line[1:-1].strip()
    label = _LABEL.match(line)
    return line if label is None else f"{label[1]}: {line[label.end() :]}"


def _unmarked_value(move: Any) -> Any:
    """A move whose free texts of one line have no marks around them; any other as it is."""
    if isinstance(move, str):
        move = _without_end_tokens(move) or move
        marked = _AROUND.fullmatch(move)
        if marked is None or marked[1] in marked[2] or not marked[2].strip():
            return move
        return _unmarked_value(marked[2].strip())
    if isinstance(move, tuple) and hasattr(move, "_make"):
        values = [_unmarked_value(each) if isinstance(each, str) else each for each in move]
        return move if values == [*move] else type(move)._make(values)
    return move


@cache
def _reading_class(kind: Any, strict: bool) -> type[Any]:
    """A subclass whose `parse` notes its readings; it can be pickled, since it is made again."""
    read = kind.parse

    def parse(self: Any, reply: str) -> Any:
        found = read(self, reply)
        reading = STRICTLY
        if isinstance(found, Unreadable):
            words = reply.replace(" ", "")  # of letters and digits alone there is no other form
            is_plain = not words or (words.isalnum() and "final" not in words.lower())
            if not (strict or (is_plain and reply == reply.strip()) or len(reply) > LONGEST):
                found = _read_again(read.__get__(self), reply, found)
            reading = f"{UNREADABLE}: {found.reason}" if isinstance(found, Unreadable) else LENIENTLY
        elif not (strict or (type(found) is str and found[-1:] not in _LAST_OF_MARKS)):
            found = _unmarked_value(found)
        notes = NOTES.get()
        if notes is not None:
            notes.append((reply, reading))
        return found

    def reduce(self: Any, protocol: Any) -> Any:
        _, made_with, *state = cast("tuple[Any, ...]", object.__reduce_ex__(self, 2))
        return _new, (kind, strict, *made_with[1:]), *state  # for its class is in no module

    fields = {"__slots__": (), "parse": parse, "__reduce_ex__": reduce, "__doc__": kind.__doc__}
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    return type(kind.__name__, (kind,), {**fields, **names})


def _new(kind: Any, strict: bool, *args: Any) -> Any:
    made = _reading_class(kind, strict)
    return made.__new__(made, *args)
