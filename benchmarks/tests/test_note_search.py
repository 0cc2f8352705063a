"""benchmarks/note_search.py: note takers that read in order, by an exact count and by play."""

import pytest
from note_search import TASK, main, search
from scripted_teams import success

from pettingllms_envs.environments.note_taking.note_takers import LoneNoteTaker
from pettingllms_envs.evaluation.statistics import wilson


def test_a_note_taker_that_reads_in_order_is_right_as_often_as_counted_and_below_the_bound() -> None:
    found = search(3, 0)
    assert 0.57 < found.share < float(TASK.lone_bound())  # who writes readings down in order: 0.55
    right = sum(success(LoneNoteTaker(TASK), seed, found.reply) for seed in range(1000))
    low, high = wilson(right, 1000, 0.9999)
    assert low <= found.share <= high


def test_no_start_is_an_error() -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--starts", "0"])
