"""The summary of a run: one of which nothing was played to its end, and the interval of a share."""

from pettingllms_envs.page.summary import _mean, _parts


def test_parts_of_rewards_of_episodes_that_all_ended_in_an_error_have_no_mean() -> None:
    table = {"parts": [{"solver.progress": 0.5}], "error": ["refused"], "problem": ["a"]}
    assert list(_parts(table)) == []


def test_the_interval_of_a_share_stays_a_share() -> None:
    values = dict(enumerate([0.0] * 9 + [0.5]))  # with the interval of a mean of any values: -0.04 to 0.21
    item = _mean("planner_0", {"problem": [f"p{at}" for at in values]}, values, is_share=True)
    assert item["value"] == 0.05
    assert 0.0 <= item["low"] < 0.05 < item["high"] <= 1.0
