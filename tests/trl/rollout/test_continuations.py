"""Candidates continued to the episode's end, and what an agent's rewards add up to: numbers worked by hand."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from pettingzoo import AECEnv

from pettingllms_trl.records import Decision, Request
from pettingllms_trl.rollout import Rollout
from plays import play
from schedules import Dawdlers, Patient, Tidal, Whimsical, babble
from third_party import PlainEnv, Relay


class Products(PlainEnv):
    """Agents a and b name numbers in turn. Who names one gets it times the one before; the other gets a quarter of
    that. Over after three numbers, or with a 0. No snapshot: it is copied."""

    metadata = {"name": "products", "render_modes": []}

    def __init__(self) -> None:
        self.possible_agents = ["a", "b"]

    def observe(self, agent: str) -> str:
        return " ".join(map(str, self.named)) or "nothing"

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self.begin()
        self.named: list[int] = []

    def step(self, action: str | None) -> None:
        if action is None:
            self._was_dead_step(action)
            return
        actor, other = ("a", "b") if self.agent_selection == "a" else ("b", "a")
        product = float(int(action) * (self.named[-1] if self.named else 1))
        self.rewards = {actor: product, other: product / 4}
        self.named = [*self.named, int(action)]
        over = len(self.named) == 3 or self.named[-1] == 0
        self.terminations = {"a": over, "b": over}
        self.agent_selection = other


class Restorable(Products):
    """The same with `snapshot` and `restore`; it shall not be copied."""

    def __deepcopy__(self, memo: Any) -> Restorable:
        raise AssertionError("copied, though it can be restored")

    def snapshot(self) -> dict[str, Any]:
        return copy.deepcopy(vars(self))

    def restore(self, snapshot: dict[str, Any]) -> None:
        vars(self).update(copy.deepcopy(snapshot))


def failing(make_env: Any, fails: Callable[[Any, str | None], bool], *, times: int = 1000) -> Any:
    """The game, of which at most `times` steps fail, where a function of the environment and the action says so."""
    left = iter(range(times))

    class Fails(make_env):  # type: ignore[misc]
        def step(self, action: str | None) -> None:
            if fails(self, action) and next(left, None) is not None:
                raise OSError("it failed")
            super().step(action)

        def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
            super().reset(seed, options)
            self.instance = seed

    return Fails


def at_the_last_decision(env: Any, action: str | None) -> bool:
    """The episode's own, not one of a continuation."""
    return len(env.named) == 2 and action == "2"


def at_a_3_of_instance_4(env: Any, action: str | None) -> bool:
    return action == "3" and env.instance == 4


BOTH = pytest.mark.parametrize("make_env", [Products, Restorable], ids=["copied", "restored"])


def write(ticket: int, request: Request, k: int) -> str:
    """Candidates are 1 and 2. Of the two continuations of each, the first says 3 throughout and the second 1."""
    if request.num_candidates == 2:
        return "12"[k]
    return "31"[(ticket // 3 - 1) % 2]  # one row, whose continuations have the tickets 3, 6, 9, ...


def ends_at_once(ticket: int, request: Request, k: int) -> str:
    """As `write`, but the first candidate of all is a 0."""
    return (
        "0"
        if (request.prompt.messages[0]["content"], request.num_candidates, k) == ("nothing", 2, 0)
        else write(ticket, request, k)
    )


def rollout(make_env: Any, engine: Any, *, num_rows: int = 1, **options: Any) -> Rollout:
    options = {"num_candidates": 2, "num_continuations": 2, **options}
    rows = [{"seed": seed} for seed in range(num_rows)]
    return play(rows, make_env=make_env, engine=engine, sampling="tree", seed="s", **options)


def continuations(found: Rollout) -> list[list[tuple[float, ...]]]:
    (episode,) = found.episodes
    return [[candidate.continuations for candidate in decision.candidates] for decision in episode.decisions]


# The chosen path is 2, 2, 2. What followed each candidate for who named it:
#   a names 1 -> b 3 (a gets 1*3/4), a 3 (a gets 3*3): 9.75;  b 1 (1*1/4), a 1 (1): 1.25
#   a names 2 -> b 3 (a gets 2*3/4), a 3 (a gets 3*3): 10.5;  b 1 (2*1/4), a 1 (1): 1.5
#   then b names 1 -> a 3 (b gets 1*3/4): 0.75;  a 1 (1*1/4): 0.25
#        b names 2 -> a 3 (b gets 2*3/4): 1.5;   a 1 (2*1/4): 0.5
#   and a's last number ends it.
BY_HAND = [[(9.75, 1.25), (10.5, 1.5)], [(0.75, 0.25), (1.5, 0.5)], [(0.0, 0.0), (0.0, 0.0)]]


@BOTH
def test_each_candidate_is_continued_to_the_end_and_worth_what_its_agent_gets_from_then_on(make_env: Any) -> None:
    found = rollout(make_env, Patient(write))
    assert continuations(found) == BY_HAND
    assert [d.played.completion.text for d in found.episodes[0].decisions] == ["2", "2", "2"]
    # One token a number: 3 decisions x 2 candidates; then 4 continuations of two numbers each, 4 of one, none.
    assert found.num_sampled_tokens == 6 + 8 + 4


@BOTH
def test_a_partner_who_does_not_learn_answers_once_and_is_not_continued(make_env: Any) -> None:
    """b, asked once where the episode goes on, says 1 (ticket 0): the path is 2, 1, 2."""
    found = rollout(make_env, Patient(write), partners=["b"])
    assert continuations(found) == [[(9.75, 1.25), (10.5, 1.5)], [()], [(0.0, 0.0), (0.0, 0.0)]]
    assert [len(decision.candidates) for decision in found.episodes[0].decisions] == [2, 1, 2]


@BOTH
def test_nothing_follows_a_candidate_that_ended_the_episode(make_env: Any) -> None:
    assert continuations(rollout(make_env, Patient(ends_at_once))) == [[(0.0, 0.0), (10.5, 1.5)], *BY_HAND[1:]]


@BOTH
def test_a_bound_on_turns_ends_continuations_as_it_ends_episodes(make_env: Any) -> None:
    # Each agent names one number: after a's candidates only b's number follows, after b's nothing.
    expected = [[(0.75, 0.25), (1.5, 0.5)], [(0.0, 0.0), (0.0, 0.0)]]
    assert continuations(rollout(make_env, Patient(write), max_turns=1)) == expected


@BOTH
def test_a_reward_function_counts_in_continuations_too(make_env: Any) -> None:
    def judge(choice: Any) -> list[dict[str, float]]:
        return [{"turn": 100.0 * choice.turn}] * len(choice.completions)

    # a gets 100 for its second number, which is in a's first two continuations and in nobody else's.
    expected = [[tuple(value + 100 for value in c) for c in BY_HAND[0]], *BY_HAND[1:]]
    assert continuations(rollout(make_env, Patient(write), judge=judge)) == expected


@BOTH
def test_any_candidate_may_be_played_on_at_random(make_env: Any) -> None:
    options: dict[str, Any] = {"num_rows": 16, "num_continuations": 0, "choose": "random"}
    found = rollout(make_env, Patient(ends_after_a_2), **options)
    first = {episode.decisions[0].played.completion.text for episode in found.episodes}
    assert first == {"1", "2"}  # by reward always 2; a fair coin falls 16 times alike once in 32,768
    assert found == rollout(make_env, Patient(ends_after_a_2), **options)


@BOTH
@pytest.mark.parametrize("max_envs", [None, 1, 3])
def test_no_order_of_answers_and_steps_changes_them(make_env: Any, max_envs: int | None) -> None:
    for seed in range(10):
        rng = random.Random(seed)
        found = rollout(make_env, Whimsical(write, rng), workers=Dawdlers(rng), max_envs=max_envs)
        assert continuations(found) == BY_HAND
    assert continuations(rollout(make_env, Tidal(write), max_envs=max_envs)) == BY_HAND
    assert continuations(rollout(make_env, Patient(write), max_envs=max_envs, num_threads=3)) == BY_HAND


@BOTH
def test_none_of_them_is_a_decision_or_changes_one(make_env: Any) -> None:
    asked: list[int] = []

    def counts(ticket: int, request: Request, k: int) -> str:
        asked.append(request.num_candidates)
        return write(ticket, request, k)

    def without(decision: Decision) -> dict[str, Any]:
        return {"candidates": [(c.completion, c.reward, c.parts) for c in decision.candidates]} | {
            name: getattr(decision, name) for name in ("agent", "turn", "prompt", "chosen", "return_to_go")
        }

    plain = rollout(make_env, Patient(write), num_continuations=0).episodes
    found = rollout(make_env, Patient(counts)).episodes
    assert [without(d) for e in found for d in e.decisions] == [without(d) for e in plain for d in e.decisions]
    assert all(c.continuations == () for e in plain for d in e.decisions for c in d.candidates)
    # Two numbers follow each of a's two first candidates, one each of b's, twice.
    assert asked.count(2) == 3 * 2
    assert asked.count(1) == 2 * (2 * 2 + 2 * 1)


@BOTH
def test_a_continuation_whose_environment_failed_is_played_anew_and_counts_once(make_env: Any) -> None:
    found = rollout(failing(make_env, lambda env, action: action == "3", times=2), Patient(write))
    assert continuations(found) == BY_HAND
    assert (found.retried, found.dropped) == (2, {})


@BOTH
def test_who_continued_an_episode_that_was_begun_anew_counts_nowhere(make_env: Any) -> None:
    for seed in range(5):
        rng = random.Random(seed)
        fails = failing(make_env, at_the_last_decision, times=2)
        found = rollout(fails, Whimsical(by_number, rng), workers=Dawdlers(rng))
        assert continuations(found) == BY_HAND
        assert found.retried == 2


def test_what_an_attempt_left_behind_is_neither_played_nor_taken_for_the_next_attempts() -> None:
    # Continuations wait twenty steps for their tokens. By then the episode has failed at its second decision (tickets
    # of the first attempt: 0, and 3, 6, ... for those who continue it), and the next attempt (1; 4, 7, ...) is over.
    asked: list[int] = []
    fails = failing(Restorable, lambda env, action: len(env.named) == 1, times=1)

    def notes(ticket: int, request: Request, k: int) -> str:
        asked.append(ticket)
        return by_number(ticket, request, k)

    found = rollout(fails, Patient(notes, delay=lambda ticket: 20 if ticket > 2 else 1), max_envs=40)
    assert continuations(found) == BY_HAND
    assert found.retried == 1
    # One answer, and no further question, to each of the four who continued the first attempt's first decision.
    assert sorted(ticket for ticket in asked if ticket > 2 and ticket % 3 == 0) == [3, 6, 9, 12]


def by_number(ticket: int, request: Request, k: int) -> str:
    """As `write`, whichever attempt asks: the tickets of attempt `n` are `n + 3, n + 6, ...`"""
    return write(ticket - ticket % 3, request, k)


@BOTH
def test_a_continuation_that_fails_three_times_drops_its_instance(make_env: Any) -> None:
    def of_rows(ticket: int, request: Request, k: int) -> str:
        return "12"[k] if request.num_candidates == 2 else "3"

    found = rollout(failing(make_env, at_a_3_of_instance_4), Patient(of_rows), num_rows=10)
    assert list(found.dropped) == [4]
    assert [episode.instance for episode in found.episodes] == [i for i in range(10) if i != 4]


# ---- Chosen by value ------------------------------------------------------------------------------------------------


def ends_after_a_2(ticket: int, request: Request, k: int) -> str:
    """Candidates are 1 and 2. A continuation says 0, which ends the episode, after a 2, and else 3."""
    if request.num_candidates == 2:
        return "12"[k]
    return "0" if request.prompt.messages[0]["content"].endswith("2") else "3"


# The steps pay 1 and 2 to a, but after its 2 the episode ends. Values:
#   a names 1 -> b 3 (a gets 1*3/4), a 3 (3*3): 1 + 9.75 = 10.75;   a names 2 -> b 0: 2 + 0
#   after the 1, b names 1 -> a 3 (b gets 3/4): 1 + 0.75;           b names 2 -> a 0: 2 + 0
#   after 1, 2, a's last numbers end it: 2 and 4.
BY_VALUE = [[(9.75,), (0.0,)], [(0.75,), (0.0,)], [(0.0,), (0.0,)]]


@BOTH
@pytest.mark.parametrize(("choose", "path"), [("reward", ["2", "2", "2"]), ("value", ["1", "2", "2"])])
def test_the_candidate_that_is_played_on_has_the_highest_reward_or_value(
    make_env: Any, choose: Any, path: list[str]
) -> None:
    found = rollout(make_env, Patient(ends_after_a_2), num_continuations=1, choose=choose)
    assert [d.played.completion.text for d in found.episodes[0].decisions] == path
    if choose == "value":
        assert continuations(found) == BY_VALUE
        assert [[c.value for c in d.candidates] for d in found.episodes[0].decisions] == [
            [10.75, 2.0],
            [1.75, 2.0],
            [2.0, 4.0],
        ]


@BOTH
@pytest.mark.parametrize("max_envs", [None, 1, 3])
def test_no_order_of_answers_and_steps_changes_what_is_chosen_by_value(make_env: Any, max_envs: int | None) -> None:
    options: dict[str, Any] = {"num_rows": 3, "num_continuations": 1, "choose": "value", "keep_continuations": True}
    expected = rollout(make_env, Patient(ends_after_a_2), **options)
    assert [[d.played.completion.text for d in e.decisions] for e in expected.episodes] == [["1", "2", "2"]] * 3
    for seed in range(10):
        rng = random.Random(seed)
        engine = Whimsical(ends_after_a_2, rng)
        assert rollout(make_env, engine, workers=Dawdlers(rng), max_envs=max_envs, **options) == expected
    assert rollout(make_env, Tidal(ends_after_a_2), max_envs=max_envs, **options) == expected
    assert rollout(make_env, Patient(ends_after_a_2), max_envs=max_envs, num_threads=3, **options) == expected


@BOTH
def test_values_that_are_equal_are_a_tie_like_equal_rewards(make_env: Any) -> None:
    def alike(ticket: int, request: Request, k: int) -> str:
        return "00" if request.num_candidates == 1 else "0" * (k + 1)  # 0 and 00 are the same number, and end it

    def path(choose: str) -> list[str]:
        found = rollout(make_env, Patient(alike), num_rows=20, num_continuations=1, choose=choose)
        return [episode.decisions[0].played.completion.text for episode in found.episodes]

    assert path("value") == path("reward")
    assert set(path("value")) == {"0", "00"}


@BOTH
def test_an_episode_that_fails_after_its_continuations_is_played_again(make_env: Any) -> None:
    for seed in range(5):
        rng = random.Random(seed)
        engine = Whimsical(ends_after_a_2, rng)
        fails = failing(make_env, at_the_last_decision, times=2)
        found = rollout(fails, engine, workers=Dawdlers(rng), num_continuations=1, choose="value")
        assert continuations(found) == BY_VALUE
        assert found.retried == 2


@BOTH
@pytest.mark.parametrize("max_envs", [None, 1, 2])
def test_an_episode_is_not_resumed_if_a_continuation_dropped_its_instance(make_env: Any, max_envs: Any) -> None:
    made: list[AECEnv] = []

    def make() -> AECEnv:
        made.append(failing(make_env, at_a_3_of_instance_4)())
        return made[-1]

    pool: list[AECEnv] = []
    options: dict[str, Any] = {"num_rows": 10, "num_continuations": 1, "choose": "value", "max_envs": max_envs}
    found = rollout(make, Patient(ends_after_a_2), pool=pool, **options)
    assert list(found.dropped) == [4]
    assert [episode.instance for episode in found.episodes] == [i for i in range(10) if i != 4]
    num_closed = 0 if make_env is Products else 3  # of Products it was a copy that failed
    assert len(set(map(id, pool))) == len(pool) == len(made) - num_closed


@pytest.mark.parametrize(
    ("options", "given"),
    [
        ({"num_continuations": 0}, "sampling='tree' and num_continuations=0"),
        ({"sampling": "parallel"}, "sampling='parallel' and num_continuations=2"),
    ],
)
def test_values_without_continuations_or_siblings_are_an_error(options: dict[str, Any], given: str) -> None:
    with pytest.raises(
        ValueError, match=rf"choose='value' with {given}, expected a tree with continuations .*Set num"
    ):
        play([{}], make_env=Products, engine=Patient(write), seed="s", choose="value", num_candidates=2,
             **{"sampling": "tree", "num_continuations": 2, **options})  # fmt: skip


# ---- The decisions of continuations ---------------------------------------------------------------------------------


@BOTH
def test_decisions_of_continuations_are_kept_with_their_place_and_their_own_returns(make_env: Any) -> None:
    # After a's 1 (a 1, b 0.25) b names 3 (b 3, a 0.75) and a 3 (a 9, b 2.25): from b's on b gets 5.25, from a's a 9.
    # After a's 2 b names 0, which ends it and pays nothing; a 2 had paid b 0.5.
    # The episode goes on with 1. After b's 1 (a 0.25, b 1) a names 3 (a 3, b 0.75), and has 1 + 0.25 + 3 in all; after
    # its 2 (a 0.5, b 2) a names 0, and has 1 + 0.5.
    options: dict[str, Any] = {"num_continuations": 1, "choose": "value"}
    (episode,) = rollout(make_env, Patient(ends_after_a_2), keep_continuations=True, **options).episodes
    found = [
        (tuple(d.continuation or ()), d.agent, d.turn, d.played.completion.text, d.return_to_go, d.episode_return)
        for d in episode.continuations
    ]
    assert found == [
        ((0, 0, 0), "b", 0, "3", 5.25, 5.5),
        ((0, 0, 0), "a", 1, "3", 9.0, 10.75),
        ((0, 1, 0), "b", 0, "0", 0.0, 0.5),
        ((1, 0, 0), "a", 1, "3", 3.0, 4.25),
        ((1, 1, 0), "a", 1, "0", 0.0, 1.5),
    ]
    assert all(decision.continuation is None for decision in episode.decisions)
    assert {len(decision.candidates) for decision in episode.continuations} == {1}
    assert rollout(make_env, Patient(ends_after_a_2), **options).episodes[0].continuations == ()


# ---- The pool -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("choose", ["reward", "value"])
@pytest.mark.parametrize(
    ("make_env", "max_envs", "bound"),
    [(Restorable, None, 3 * 2), (Restorable, 4, 4), (Products, None, 3), (Products, 2, 2)],
    ids=["restored", "restored, bounded", "copied", "copied, bounded"],
)
def test_the_pool_holds_at_most_as_many_as_were_in_play_however_often_it_is_used(
    make_env: Any, max_envs: int | None, bound: int, choose: str
) -> None:
    # Restored: K environments a row, so that continuations keep the engine as busy as candidates. Copies are made from
    # copies and never pooled.
    made: list[AECEnv] = []
    pool: list[AECEnv] = []

    def make() -> AECEnv:
        made.append(make_env())
        return made[-1]

    for _ in range(3):
        rollout(make, Patient(lambda t, r, k: "12"[k]), num_rows=3, pool=pool, max_envs=max_envs, choose=choose)
        assert len(made) == len(pool) == bound
        assert len(set(map(id, pool))) == bound


@BOTH
def test_episodes_that_wait_for_their_continuations_have_a_place_among_those_allowed(make_env: Any) -> None:
    made: list[AECEnv] = []

    def make() -> AECEnv:
        made.append(make_env())
        return made[-1]

    for seed in range(10):
        rng = random.Random(seed)
        pool: list[AECEnv] = []
        made.clear()
        engine = Whimsical(ends_after_a_2, rng)
        rollout(make, engine, workers=Dawdlers(rng), num_rows=6, choose="value", max_envs=3, pool=pool)
        assert len(made) == len(pool) == 3


def test_no_more_environments_are_in_play_than_allowed_continuations_included() -> None:
    class Counts(Patient):
        def step(self) -> Any:
            assert len(self._open) <= 4
            return super().step()

    rollout(Restorable, Counts(lambda t, r, k: "12"[k]), num_rows=3, max_envs=4)


def test_those_who_continue_candidates_go_before_rows_that_have_not_begun() -> None:
    engine = Patient(lambda t, r, k: "12"[k])
    rollout(Restorable, engine, num_rows=2, max_envs=1)
    order = [int(asked.split()[0]) for step in engine.asked for asked in step]
    assert order.index(1) == 3 + 2 * (2 * 2 + 2 * 1)  # row 0's decisions and all that its continuations ask


# ---- Returns --------------------------------------------------------------------------------------------------------


@BOTH
def test_the_return_to_go_counts_an_agents_rewards_from_its_decision_on_whoever_acts(make_env: Any) -> None:
    # 2, 2, 2 pays the namer 2, 4, 4 and the other 0.5, 1, 1. a: 2 + 1 + 4; b: 0.5 + 4 + 1.
    (episode,) = rollout(make_env, Patient(write), num_continuations=0).episodes
    assert episode.returns == {"a": 7.0, "b": 5.5}
    assert [d.episode_return for d in episode.decisions] == [7.0, 5.5, 7.0]
    assert [d.return_to_go for d in episode.decisions] == [7.0, 5.0, 4.0]


def test_the_return_to_go_at_an_agents_first_decision_leaves_out_what_it_was_paid_before() -> None:
    (episode,) = rollout(partial(Relay, 1), Patient(babble), num_continuations=0).episodes
    first, second = episode.decisions
    assert (first.return_to_go, second.return_to_go) == (first.played.reward, second.played.reward)
