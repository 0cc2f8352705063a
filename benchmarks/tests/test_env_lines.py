"""The counting of code lines, and the most that third-party environments may take."""

from pathlib import Path

import pytest
from architecture import ROOT, lines_of
from env_lines import CONTRIBUTED, ENVIRONMENTS, table


PROGRAM = '''"""A docstring.

Of two lines."""

x = 1  # a comment after code


# a comment
def f(
    a,
):
    """A docstring."""
    return """a string
of two lines"""
'''


def test_blank_lines_comments_and_docstrings_are_no_code(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    # x = 1; def f( / a, / ):; return and the second line of its string.
    assert lines_of(file) == (6, 5)


@pytest.mark.parametrize(("file", "most"), [("lights_out_v0.py", 130), ("council_v0.py", 45), ("debate_v0.py", 40)])
def test_an_environment_takes_no_more_lines_than_was_promised(file: str, most: int) -> None:
    assert lines_of(CONTRIBUTED / file)[0] <= most


def test_the_table_has_every_environment_of_the_folder() -> None:
    assert {each.file for each in ENVIRONMENTS} == {path.name for path in CONTRIBUTED.glob("*_v0.py")}
    assert len(table()) == len(ENVIRONMENTS) + 2
    assert "\n".join(table()) in (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
