"""Where tests find rows of data: those that ship with the tests, and those of public data sets, which do not.

Sokoban and Sudoku rows that were generated for this project are in this folder. To run the tests on rows of public
data sets, set `PETTINGLLMS_TEST_DATA` to a folder of them; they are skipped otherwise.
"""

import os
from pathlib import Path

import pytest


SHIPPED = Path(__file__).parent
VARIABLE = "PETTINGLLMS_TEST_DATA"
NOT_SET = f"rows of public data sets: set {VARIABLE} to the folder that has them"

# Never read without the variable: tests that would are skipped.
PUBLIC = Path(os.environ.get(VARIABLE) or "no-public-rows").absolute()

needs_public = pytest.mark.skipif(not os.environ.get(VARIABLE), reason=NOT_SET)


def public(name: str) -> Path:
    """A file of rows of a public data set; skips the test where no folder of them is named.

    A folder that is named and lacks the file is an error, so that a wrong path does not pass for a green run.
    """
    if not os.environ.get(VARIABLE):
        pytest.skip(NOT_SET)
    path = PUBLIC / name
    if not path.exists():
        raise FileNotFoundError(f"{path}: {VARIABLE} names a folder without {name}")
    return path
