"""Fenced blocks are read in one way for every task and workflow."""

import pytest

from pettingllms_envs.core import Unreadable
from pettingllms_envs.replies.fences import PYTHON, only_program, read_blocks


@pytest.mark.parametrize("word", ["python", "py", "python3", "Python3", "PY"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_every_word_for_python_and_every_line_end_begins_a_program(word: str, end: str) -> None:
    assert only_program(end.join(["So:", f"```{word}", "print(7)", "```"])) == "print(7)"


@pytest.mark.parametrize(
    ("reply", "rest"),
    [
        ("no block", "no block"),
        ("```python3\nprint(r'\\boxed{1}')\n```\n\\boxed{2}", "\\boxed{2}"),
        ("before\n```py\nx\n```\nbetween\n```py\ny\n```", ""),
        ("```py\nno end \\boxed{3}", ""),
        ("```py\na draft\n</think>\nafter", "after"),
        ("```text\na\n```", "```text\na\n```"),
    ],
)
def test_the_rest_is_what_follows_the_last_block(reply: str, rest: str) -> None:
    assert read_blocks(reply, PYTHON).rest == rest


def test_line_ends_within_a_block_are_kept_but_for_carriage_returns_before_a_line_feed() -> None:
    assert read_blocks("```py\r\na\r\n\x0cb\u2028c\n```", PYTHON).found == [("Python", "a\n\x0cb\u2028c")]


def test_a_program_without_an_end_is_unreadable() -> None:
    assert only_program("```py\nprint(1)") == Unreadable("its block of Python has no end")
