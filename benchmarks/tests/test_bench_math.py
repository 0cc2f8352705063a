import random

import bench_math
import pytest
from bench_math import FIRST, GOLDS, Found, Group, Seconds, goals, make_groups, near_misses, reply, spellings


@pytest.mark.parametrize(
    ("rate", "ratio", "ended", "met"),
    [
        (2000.0, 2.5, 5.0, [True, True, True]),
        (1999.0, 2.5, 5.0, [False, True, True]),
        (2000.0, 2.4, 5.0, [True, False, True]),
        (2000.0, 2.5, 5.1, [True, True, False]),
        (2000.0, 2.5, None, [True, True, False]),
    ],
)
def test_the_goals_are_those_of_the_issue(rate, ratio, ended, met):
    assert [each for _, each in goals(rate, ratio, ended)] == met


def test_the_ratio_is_that_of_cpu_seconds():
    assert Found(Seconds(2.0, 9.0), Seconds(6.0, 9.0), ()).ratio == 3.0


def test_the_groups_are_the_same_every_time_and_have_repetitions():
    groups = make_groups(GOLDS, 40, seed=3)
    assert groups == make_groups(GOLDS, 40, seed=3)
    assert all(len(group.replies) == 8 for group in groups)
    assert sum(len(set(group.replies)) < 8 for group in groups) > 30
    assert all(len(each) > 1500 for group in groups for each in group.replies)


def test_the_right_answers_of_the_benchmark_are_right_and_the_wrong_ones_wrong(grader):
    for gold in GOLDS:
        right, wrong = spellings(gold), near_misses(gold, random.Random(0))
        verdicts = grader.grade_many([*right, *wrong], gold)
        assert [each.correct for each in verdicts] == [True] * len(right) + [False] * len(wrong), gold


def test_ours_grades_what_the_boxes_hold(grader):
    group = Group("7", (reply("7"), reply("8"), "no box", reply("x=7")))
    assert bench_math.grade_ours(grader, group) == [True, False, False, True]


def test_the_first_group_needs_math_verify(grader):
    assert grader.grade("\\sqrt{8}", FIRST.gold).found_by == "math_verify"
