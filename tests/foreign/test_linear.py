"""Texts of others that would hold the process: four times the text costs at most six times the CPU time."""

from collections.abc import Callable
from typing import Any

import pytest

import patterns
from pettingllms_envs.environments.coding.examples import _calls, _stdin
from pettingllms_envs.graders import reading
from pettingllms_envs.graders.shapes import names
from pettingllms_envs.programs.replies import read_reply
from pettingllms_envs.server_errors import one_line


TOOL = {"type": "function", "function": {"name": "f", "description": "", "parameters": {}}}
CALL = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'


def replied(text: str) -> Any:
    return read_reply(text, [TOOL], 0)


@pytest.mark.parametrize(
    ("read", "before", "piece", "after"),
    [
        (one_line, "", "<!--a-->", "<div>busy</div>"),
        (one_line, "", "<title", "busy"),
        (replied, "a", "\n", f"b{CALL}"),
        (replied, "", CALL, ""),
        (replied, CALL, "\n<tool_call>", ""),
        (names, "x", "_\\T", "!"),
        (reading.read, r"\text{", " ", "<"),
        (reading.read, r"\sin", " ", "!"),
        (_stdin, "", " ", "\n"),
        (_calls, "", "input: a ", ""),
    ],
)
def test_a_reader_takes_at_most_six_times_as_long_for_four_times_the_text(
    read: Callable[[str], object], before: str, piece: str, after: str
) -> None:
    assert patterns.fault(None, lambda _, text: read(text), (before, piece, after)) is None


def test_calls_are_taken_out_of_a_reply_with_the_white_space_before_them() -> None:
    assert replied(f"Look.\n\n{CALL} Then\n{CALL}\nwait. ")[0] == "Look. Then\nwait."


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ("<!-- a --> <!doctype html><title>Busy</title><p>no", "a page of text/html: 'Busy'"),
        ("<html><title lang=en>Busy <b>", "a page of text/html: 'Busy'"),
        ("<!-- <html> --> busy", "<!-- <html> --> busy"),
        ("<html><title></title><body>down", "a page of text/html: 'down'"),
    ],
)
def test_a_page_is_shown_by_its_title(body: str, shown: str) -> None:
    assert one_line(body) == shown
