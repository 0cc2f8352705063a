"""The summary of a run of which nothing was played to its end."""

from pettingllms_envs.page.summary import _parts


def test_parts_of_rewards_of_episodes_that_all_ended_in_an_error_have_no_mean() -> None:
    table = {"parts": [{"solver.progress": 0.5}], "error": ["refused"], "problem": ["a"]}
    assert list(_parts(table)) == []
