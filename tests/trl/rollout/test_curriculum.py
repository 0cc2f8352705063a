"""Levels go up with success, rows get their level, and the state is a value."""

from typing import Any

import pytest

from pettingllms_trl.records import Episode
from pettingllms_trl.rollout.curriculum import Curriculum, Progress


def ended(*successes: bool) -> list[Episode]:
    """One episode of each row, in their order."""
    return [
        Episode(instance=i, episode=0, decisions=(), returns={}, outcome={"success": success})
        for i, success in enumerate(successes)
    ]


def test_every_row_begins_on_the_first_level_and_keeps_its_other_fields() -> None:
    rows = [{"seed": seed, "split": "train"} for seed in range(3)]
    assert Curriculum(levels=(1, 2)).assign(rows, Progress(), "s") == [{**row, "level": 1} for row in rows]


def test_the_next_level_is_reached_by_three_successes_of_the_latest_four() -> None:
    curriculum = Curriculum(levels=("easy", "hard"), advance_at=0.75, window=4)
    rows = [{"level": "easy"}] * 3
    progress = curriculum.after(Progress(), rows, ended(True, True, True))
    assert progress == Progress(0, (True, True, True))  # three of three, but the window is four
    progress = curriculum.after(progress, rows, ended(False, False))
    assert progress == Progress(0, (True, True, False, False))
    progress = curriculum.after(progress, rows, ended(True, True))
    assert progress == Progress(0, (False, False, True, True))
    assert curriculum.after(progress, rows, ended(True)) == Progress(1)
    assert curriculum.after(Progress(1, (True, True, True)), [{"level": "hard"}], ended(True)) == Progress(
        1, (True,) * 4
    )


def test_episodes_of_a_level_reached_before_count_for_nothing() -> None:
    curriculum = Curriculum(levels=(1, 2), window=2)
    assert curriculum.after(Progress(1), [{"level": 1}, {"level": 2}], ended(True, False)) == Progress(1, (False,))


@pytest.mark.parametrize(("share", "window", "least"), [(0.55, 100, 55), (0.7, 10, 7), (0.28, 50, 14), (0.5, 3, 2)])
def test_a_level_is_reached_by_the_fewest_successes_with_that_share(share: float, window: int, least: int) -> None:
    curriculum = Curriculum(levels=(1, 2), advance_at=share, window=window)
    for right, index in ((least - 1, 0), (least, 1)):
        episodes = ended(*[i < right for i in range(window)])
        rows = [{"level": 1}] * window
        assert curriculum.after(Progress(), rows, episodes).index == index


def test_a_fifth_of_the_rows_reviews_the_levels_before_and_the_seed_decides_which() -> None:
    curriculum = Curriculum(levels=(1, 2, 3), review=0.2)
    rows: list[dict[str, Any]] = [{"seed": seed} for seed in range(2000)]
    levels = [row["level"] for row in curriculum.assign(rows, Progress(2), "a")]
    assert [levels.count(level) / 2000 for level in (1, 2, 3)] == pytest.approx([0.1, 0.1, 0.8], abs=0.03)
    assert levels == [row["level"] for row in curriculum.assign(rows, Progress(2), "a")]
    assert levels != [row["level"] for row in curriculum.assign(rows, Progress(2), "b")]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"levels": ()}, "levels is empty; expected the values of a reset option"),
        ({"levels": (1,), "advance_at": 0.0}, r"advance_at is 0.0; expected a share of successes in \(0, 1\]"),
        ({"levels": (1,), "window": 0}, "window is 0; expected a number of episodes of at least 1"),
        ({"levels": (1,), "review": 1.0}, r"review is 1.0; expected a share of the rows in \[0, 1\)"),
    ],
)
def test_a_curriculum_that_cannot_be_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Curriculum(**settings)


def test_an_environment_without_success_has_no_curriculum() -> None:
    for outcome in ({"score": 1}, {"success": None}):
        episode = Episode(instance=0, episode=0, decisions=(), returns={}, outcome=outcome)
        with pytest.raises(ValueError, match=r"outcome of an episode is {.*}; a curriculum expects 'success'"):
            Curriculum(levels=(1,)).after(Progress(), [{"level": 1}], [episode])
