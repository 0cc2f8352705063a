"""Branches of third-party environments: rewards and prompts worked by hand, however the environment is branched."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from gymnasium import spaces
from gymnasium.utils import EzPickle
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils import BaseWrapper, OrderEnforcingWrapper, TerminateIllegalWrapper, parallel_to_aec

from clients import Count, RestorableCount, Transcript
from pettingllms_envs import plan_path_v0
from pettingllms_trl.records import Request
from pettingllms_trl.rollout import Rollout, stepping
from plays import play
from schedules import Patient, Tidal
from third_party import Relay


def number(ticket: int, request: Request, k: int) -> str:
    """Candidates are 5, 1, 2, 3; who is asked for one reply alone says 4."""
    return "5123"[k] if request.num_candidates == 4 else "4"


def rollout(make_env: Callable[[], AECEnv], write: Any = number, **options: Any) -> Rollout:
    options = {"sampling": "tree", "num_candidates": 4, "engine": Tidal(write), **options}
    return play([{"seed": 3}], make_env=make_env, seed="s", **options)


def rewards(found: Rollout) -> list[list[float]]:
    (episode,) = found.episodes
    return [[candidate.reward for candidate in decision.candidates] for decision in episode.decisions]


def shown(found: Rollout) -> list[str]:
    (episode,) = found.episodes
    return [decision.prompt.messages[-1]["content"].partition("Said so far: ")[2] for decision in episode.decisions]


class Holder(AECEnv):
    """Plays a game that it holds in a list."""

    metadata = Count.metadata
    possible_agents = ["one", "other"]

    def __init__(self) -> None:
        self.games = [Count()]

    def __getattr__(self, name: str) -> Any:
        if name in ("agents", "agent_selection", "rewards", "terminations", "truncations", "infos", "observe", "step"):
            return getattr(self.games[0], name)
        raise AttributeError(name)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self.games[0].reset(seed, options)

    def observe(self, agent: str) -> Any:
        return self.games[0].observe(agent)

    def step(self, action: Any) -> None:
        self.games[0].step(action)


ENVS = pytest.mark.parametrize(
    "make_env",
    [
        Count,
        lambda: OrderEnforcingWrapper(Count()),
        Holder,
        RestorableCount,
        lambda: Transcript(RestorableCount()),
    ],
    ids=["itself", "wrapped", "held in a list", "restored", "restored in a wrapper"],
)


# The sum is 0, 5, 10, 15 where a decision begins, for 5 is the best of 5, 1, 2, 3; who names one is paid the sum then.
SUMS = [[5, 1, 2, 3], [10, 6, 7, 8], [15, 11, 12, 13], [20, 16, 17, 18]]


@ENVS
def test_a_game_that_pickles_by_its_constructor_is_branched_where_it_stands(make_env: Callable[[], AECEnv]) -> None:
    assert rewards(rollout(make_env)) == SUMS


@ENVS
def test_its_candidates_are_continued_from_where_they_stand(make_env: Callable[[], AECEnv]) -> None:
    (episode,) = rollout(make_env, num_continuations=1).episodes
    # After 5 the others add 4 each: 9, 13, 17, of which the agent that named 5 is paid 13; after 1 it is paid 9, ...
    assert [c.continuations for c in episode.decisions[0].candidates] == [(13,), (9,), (10,), (11,)]
    # After 5 + 5 there are two steps more, 14 and 18, of which the second is this agent's.
    assert [c.continuations for c in episode.decisions[1].candidates] == [(18,), (14,), (15,), (16,)]


class Sums(ParallelEnv, EzPickle):
    """Both name numbers at once and are paid the sum of all so far."""

    metadata = {"name": "sums_v0", "render_modes": []}
    render_mode = None

    def __init__(self) -> None:
        EzPickle.__init__(self)
        self.possible_agents = ["one", "other"]

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Text(100)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(9)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.agents, self.sum, self.rounds = self.possible_agents[:], 0, 0
        return dict.fromkeys(self.agents, "sum 0"), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, str]) -> Any:
        self.sum += sum(map(int, actions.values()))
        self.rounds += 1
        agents, over = self.agents, self.rounds == 2
        self.agents = [] if over else agents
        given: list[Any] = [f"sum {self.sum}", float(self.sum), over, False]
        return (*(dict.fromkeys(agents, each) for each in given), {agent: {} for agent in agents})


def test_a_parallel_environment_is_branched_where_it_stands() -> None:
    # All are paid once both have named a number: 5 + 5 = 10 or less in the first round, 10 + 5 + 5 in the second.
    # Of the first agent's candidates, all paid 0, the one that goes on is drawn by chance: it is read off the record.
    (episode,) = rollout(lambda: parallel_to_aec(Sums())).episodes
    first, second, third, fourth = episode.decisions
    named = int(first.played.completion.text)
    again = int(third.played.completion.text)
    assert [c.reward for c in first.candidates] == [0, 0, 0, 0]
    assert [c.reward for c in second.candidates] == [named + other for other in (5, 1, 2, 3)]
    assert [c.reward for c in fourth.candidates] == [named + 5 + again + other for other in (5, 1, 2, 3)]


MOVES = ("Moves: R", "Moves: D", "Moves: L", "Moves: U")
GAMES = pytest.mark.parametrize(
    "make_env", [partial(plan_path_v0.env, size=4, num_turns=2), Relay], ids=["restored", "copied"]
)


@pytest.fixture(params=["in turn", "at once"])
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Of the rollout: with threads the candidates are played at once, on environments of their own."""
    monkeypatch.setattr(stepping, "SLOW", 0.0)
    return 3 if request.param == "at once" else 0


def moves(ticket: int, request: Request, k: int) -> str:
    return MOVES[k]


@GAMES
def test_no_reply_that_was_not_played_is_in_what_a_wrapper_shows(make_env: Any, threads: int) -> None:
    found = rollout(lambda: Transcript(make_env()), moves, engine=Patient(moves), num_threads=threads)
    said = [decision.played.completion.text for decision in found.episodes[0].decisions]
    assert shown(found) == [" / ".join(said[:turn]) for turn in range(len(said))]
    assert len(said) == 4


class Bonus(BaseWrapper):
    """Pays, beside the game's rewards, how many letters were written since the reset: a reward with a memory."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self.written: dict[str, list[str]] = {"letters": []}
        super().reset(seed, options)

    def step(self, action: str | None) -> None:
        self.written["letters"] += action or ""
        super().step(action)

    @property
    def rewards(self) -> dict[str, float]:
        return {agent: reward + len(self.written["letters"]) for agent, reward in self.env.rewards.items()}


def test_a_wrappers_reward_counts_the_branchs_own_steps_alone(threads: int) -> None:
    def write(ticket: int, request: Request, k: int) -> str:
        return ("1", "01", "001", "0001")[k]

    # A candidate adds 1 to the sum, whatever its length of 1 to 4; the longest is the best.
    # Sum 1 plus 1, 2, 3, 4 letters; sum 2 plus 4 + (1, 2, 3, 4); ...
    found = rollout(lambda: Bonus(RestorableCount()), engine=Patient(write), num_threads=threads)
    assert rewards(found) == [[2, 3, 4, 5], [7, 8, 9, 10], [12, 13, 14, 15], [17, 18, 19, 20]]


class Masked(RestorableCount):
    """As PettingZoo's board games have it: a mask of legal moves, here all but the last one."""

    def observe(self, agent: str) -> Any:
        return {"text": f"sum {self.sum}", "action_mask": [1] * 8 + [0]}


class Number(BaseWrapper):
    """A text becomes a number, and the mask of legal numbers is for the wrapper below alone."""

    def observe(self, agent: str) -> Any:
        return super().observe(agent)["text"]

    def step(self, action: str | None) -> None:
        super().step(None if action is None else int(action))


def test_an_illegal_candidate_leaves_nothing_in_the_wrapper_that_ended_its_episode() -> None:
    def write(ticket: int, request: Request, k: int) -> str:
        return "5128"[k]  # 8 is illegal, and the last to be played

    illegal = TerminateIllegalWrapper(Masked(), illegal_reward=-1)
    found = rollout(lambda: OrderEnforcingWrapper(Number(illegal)), write, max_turns=1)
    assert rewards(found) == [[5, 1, 2, -1], [10, 6, 7, -1]]
    assert vars(illegal)["_terminated"] is False


def test_an_environment_with_one_reply_for_a_decision_is_neither_copied_nor_saved() -> None:
    class Single(RestorableCount):
        def __deepcopy__(self, memo: Any) -> Any:
            raise AssertionError("copied")

        def snapshot(self) -> Any:
            raise AssertionError("saved")

    found = rollout(lambda: Transcript(Single()), sampling="parallel", num_candidates=2)
    assert [d.played.reward for d in found.episodes[0].decisions] == [4, 8, 12, 16]


@pytest.mark.parametrize("given", [0.25, "False"])
def test_a_success_that_is_a_share_or_a_text_is_refused_as_in_an_evaluation(given: Any) -> None:
    class Judging(Count):
        def step(self, action: str | None) -> None:
            super().step(action)
            self.infos = {agent: {"outcome": {"success": given}} for agent in self.infos}

    with pytest.raises(ValueError, match=r"outcome has the success .*; expected true, false or none. Have it say"):
        rollout(Judging)


def test_copy_deepcopy_itself_is_as_it_was() -> None:
    game = Count()
    game.step("5")
    rollout(Count)
    assert copy.deepcopy(game).sum == 0
