"""Guessers: the best of a task's blind policies and replies, on given instances."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

import pettingllms_envs
from echo_env import Echo
from pettingllms_envs.episodes.episode import Instance
from pettingllms_envs.evaluation.guessers import best_guesser, guessers_of, succeeds


TINY: dict[str, Any] = {"size": 4, "wording": "symbols"}
TODAY = partial(pettingllms_envs.make, "archives", **TINY, facts=1, order="question")
INSTANCES = tuple(Instance(index, seed, {"split": "test"}) for index, seed in enumerate(range(20, 40)))


def test_the_best_guesser_of_a_task_that_need_not_be_read_is_always_right() -> None:
    found = best_guesser(TODAY, INSTANCES)
    assert found.name == "copier"
    assert found.successes == (True,) * 20


def test_a_guesser_chooses_alike_with_the_same_seed_whatever_was_played_before() -> None:
    make = partial(pettingllms_envs.make, "archives", **TINY, facts=2, results=2)
    whole = [best_guesser(make, INSTANCES, seed) for seed in (0, 0, 1)]
    assert whole[0] == whole[1]
    assert whole[0].successes != whole[2].successes
    env, policy = make(), guessers_of(make())[whole[0].name]
    assert tuple(succeeds(env, policy, each) for each in reversed(INSTANCES)) == whole[0].successes[::-1]


def test_the_best_constant_answer_is_named() -> None:
    # a yes-or-no question of notes whose digit is 0 or 1: "Answer: 0" or "Answer: 1" is right in more than none
    found = best_guesser(partial(pettingllms_envs.make, "note_taking", readings=2, values=2, digits=1), INSTANCES)
    assert found.name in ("always 'Answer: 0'", "always 'Answer: 1'")
    assert 0 < sum(found.successes) < 20


def test_an_environment_without_guessers_is_named() -> None:
    with pytest.raises(ValueError, match=r"echo_v1 has no guessers; expected a task with `blind_policies`"):
        best_guesser(Echo, INSTANCES)


def test_of_note_taking_every_constant_answer_is_a_guesser() -> None:
    make = partial(pettingllms_envs.make, "note_taking", readings=4, values=10, digits=2)
    assert {f"always 'Answer: {digit}'" for digit in range(10)} <= set(guessers_of(make()))
    fives = tuple(each for each in INSTANCES if always_right(make(), each) == "Answer: 5")
    assert fives
    found = best_guesser(make, fives)
    assert found == ("always 'Answer: 5'", (True,) * len(fives))


def always_right(env: Any, instance: Instance) -> str:
    """The oracle's last reply, which is the answer."""
    env.reset(seed=instance.seed, options=dict(instance.options))
    reply = ""
    while not env.terminations[env.agent_selection]:
        reply = env.oracle()
        env.step(reply)
    return reply
