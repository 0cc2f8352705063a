"""The hint at the end of an error about a name that nobody knows."""

import pytest

from pettingllms_envs.suggestions import did_you_mean


@pytest.mark.parametrize(
    ("given", "known", "hint"),
    [
        ("sudoko", ["sokoban", "sudoku"], " Did you mean 'sudoku'?"),
        ("zzz", ["sokoban", "sudoku"], ""),
        ("sudoko", [], ""),
        (11, [1, 12], " Did you mean '1'?"),
        ("--model", ["--delta", "--models", "--model_name_or_path"], " Did you mean '--model_name_or_path'?"),
    ],
)
def test_the_hint_names_the_nearest_known_name_if_one_is_near(given: object, known: list[object], hint: str) -> None:
    assert did_you_mean(given, known) == hint
