"""Reads a reply whatever its form: marks, fences, bullets, thoughts and end tokens are taken off first."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from pettingllms_envs.core import Unreadable
from pettingllms_envs.replies.fences import FENCE, without_thoughts


TWO_ANSWERS = Unreadable("it marks two different answers")
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
_AROUND = re.compile(r"(\*\*|__|[`*_])(.+)\1")
_PAIRS = {'"': '"', "'": "'", "“": "”", "‘": "’", "«": "»", "$": "$", "(": ")", "[": "]", "{": "}"}
_END_OF_SENTENCE = " \t.;,!。"


def read_again(parse: Callable[[str], Any], reply: str, found: Unreadable) -> Any:
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
        if not isinstance(move, Unreadable) and (move := unmarked_value(move)) not in moves:
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


def unmarked_value(move: Any) -> Any:
    """A move whose free texts of one line have no marks around them; any other as it is."""
    if isinstance(move, str):
        move = _without_end_tokens(move) or move
        marked = _AROUND.fullmatch(move)
        if marked is None or marked[1] in marked[2] or not marked[2].strip():
            return move
        return unmarked_value(marked[2].strip())
    if isinstance(move, tuple) and hasattr(move, "_make"):
        values = [unmarked_value(each) if isinstance(each, str) else each for each in move]
        return move if values == [*move] else type(move)._make(values)
    return move
