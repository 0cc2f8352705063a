"""Environments that cannot be branched are found when the trainer is made; those that can be are left as they were."""

from __future__ import annotations

import copy
import inspect
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import Dataset
from pettingzoo import AECEnv
from pettingzoo.utils import BaseWrapper

from classic_games import TextGame, connect_four, rock_paper_scissors, tictactoe
from clients import Client, Count, RestorableCount, Transcript
from pettingllms_envs import plan_path_v0
from pettingllms_trl import MultiAgentGRPOTrainer
from pettingllms_trl.rollout.branch_probe import EPISODES, Branching, check_branching
from short_runs import settings
from third_party import Relay


TREE = Branching.of(sampling="tree", num_continuations=0, crash_reward=None)
CHARGED = Branching.of(sampling="tree", num_continuations=0, crash_reward=-1.0)


def probe(make_env: Callable[[], AECEnv], branching: Branching | None = TREE) -> AECEnv:
    def made() -> AECEnv:
        env = make_env()
        env.reset(seed=5)
        return env

    assert branching is not None
    return check_branching(made(), made, branching)


# ---- What cannot be branched ----------------------------------------------------------------------------------------


class Restarts(Relay):
    """Says itself how it is copied: as a new game."""

    def __reduce__(self) -> Any:
        return (_restarted, ())


def _restarted() -> Restarts:
    game = Restarts()
    game.reset(seed=5)
    return game


class Shallow(RestorableCount):
    """Its snapshot is its own attributes, which move on."""

    def snapshot(self) -> dict[str, Any]:
        return vars(self)

    def restore(self, snapshot: dict[str, Any]) -> None:
        vars(self).update(snapshot)


class Unpaid(RestorableCount):
    """Its snapshot leaves the rewards out."""

    def snapshot(self) -> dict[str, Any]:
        return {name: value for name, value in super().snapshot().items() if name != "rewards"}


class Locked(Relay):
    """Holds what cannot be copied."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


class LockedWrapper(Transcript):
    """The same as a wrapper."""

    def __init__(self, env: AECEnv) -> None:
        super().__init__(env)
        self.lock = threading.Lock()


class Elsewhere(BaseWrapper):
    """Shows what is kept in its class."""

    SAID: list[str] = []

    def step(self, action: str | None) -> None:
        self.SAID.append(str(action))
        super().step(action)

    def observe(self, agent: str) -> str:
        return f"{super().observe(agent)} {self.SAID}"


class HandsOut(RestorableCount):
    """Its numbers are a list; restoring makes the snapshot's own list that of the game."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        super().reset(seed, options)
        self.numbers: list[str] = []

    def observe(self, agent: str) -> str:
        return f"numbers {self.numbers}"

    def step(self, action: str | None) -> None:
        self.numbers.append(str(action))
        super().step(action)

    def restore(self, snapshot: dict[str, Any]) -> None:
        vars(self).update(snapshot)


class Numbers(HandsOut):
    """The same restored rightly."""

    restore = RestorableCount.restore


class Forgets(RestorableCount):
    """Its snapshot leaves out what only rewards show."""

    def snapshot(self) -> dict[str, Any]:
        return {name: value for name, value in super().snapshot().items() if name != "sum"}

    def observe(self, agent: str) -> str:
        return "a sum"


class Looks(BaseWrapper):
    """Shows a list of the game to which it refers."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        super().reset(seed, options)
        self.numbers = self.env.numbers

    def observe(self, agent: str) -> str:
        return f"numbers {self.numbers}"


class Deals(Relay):
    """Pays by a deck that all of its kind, and so its copies, draw from."""

    DECK = list(range(1000))

    def step(self, action: str | None) -> None:
        acting = self.agent_selection
        super().step(action)
        if action is not None:
            self.rewards = {**self.rewards, acting: float(self.DECK.pop())}

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self.DECK[:] = range(1000)
        super().reset(seed, options)


class Lucky(RestorableCount):
    """Pays by chance, from a generator that reset(seed) seeds and that its snapshot leaves out."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        super().reset(seed, options)
        self.random = random.Random(seed)

    def step(self, action: str | None) -> None:
        super().step(action)
        self.rewards = {agent: self.random.random() for agent in self.rewards}

    def snapshot(self) -> dict[str, Any]:
        return {name: value for name, value in super().snapshot().items() if name != "random"}


class Hosted(Relay):
    """Its moves are kept by a server, which ignores all that is not a move; whose turn it is, by the client."""

    SERVER: list[str] = []
    MOVES = ("up", "down")

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self.SERVER.clear()
        super().reset(seed, options)

    def observe(self, agent: str) -> Any:
        return f"Turn {len(self.written) // 2}: {self.SERVER}. Say {' or '.join(self.MOVES)}, please."

    def step(self, action: str | None) -> None:
        super().step(action)
        self.rewards = dict.fromkeys(self.rewards, 0.0)
        if action in self.MOVES:
            self.SERVER.append(action)


class HostedByNumber(Hosted):
    """The same with numbers for moves."""

    MOVES = ("1", "2")


AGAIN = r"leads elsewhere when it is played again, so a part of the state is left out, or shared"


@pytest.mark.parametrize(
    ("make_env", "message"),
    [
        (HandsOut, r"it is not put back into a state that it was in \(observation of 'one': expected 'numbers \[\]'"),
        (Forgets, rf"the reply '\d' {AGAIN} .* \(rewards: expected"),
        (lambda: Looks(Numbers()), rf"{AGAIN} .* \(observation of 'one': expected .* got 'numbers \[\]'\)"),
        (Deals, rf"{AGAIN} .* \(rewards: expected"),
        (Lucky, rf"{AGAIN} .* a generator of random numbers \(rewards: expected"),
        (Hosted, r"moves with it, so both share a state or a session \(observation .*\['(up|down)'\]"),
        (HostedByNumber, r"moves with it, so both share a state or a session \(observation .*\['[12]'\]"),
        (Client, r"'client_v0' cannot be branched, .* stepped, it moves with it, so both share a state or a session"),
        (Restarts, r"its copy is in another state \(agent_selection: expected 'closer_0', got 'opener_0'\)"),
        (Shallow, r"it is not put back into a state that it was in \(agent_selection: expected 'one', got 'other'\)"),
        (Unpaid, r"not put back .* \(rewards: expected \{'one': 0\.0, 'other': 0\.0\}, got \{'one': \d\.0, 'other'"),
        (Locked, r"it has no snapshot\(\), and copying it raised TypeError: cannot pickle '_thread\.lock' object"),
        (
            lambda: LockedWrapper(RestorableCount()),
            r"saving its state raised TypeError: cannot pickle '_thread\.lock'",
        ),
        (lambda: Elsewhere(RestorableCount()), r"not put back into a state .* \(observation of 'one': expected"),
        (lambda: Elsewhere(Relay()), r"moves with it, so both share a state"),
        (
            rock_paper_scissors,
            r"'rps_v2' cannot be branched, .* TypeError: cannot pickle 'pygame.surface.Surface' obj",
        ),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_cannot_be_branched_raises_and_names_the_remedies(make_env: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"(?s){message}") as caught:
        probe(make_env)
    assert str(caught.value).startswith("the environment '")
    assert "which sampling='tree' needs: " in str(caught.value)
    assert f"Set {EPISODES}, or give the environment snapshot() and restore()" in str(caught.value)


# ---- What can be ----------------------------------------------------------------------------------------------------


class Noisy(Relay):
    """Shows each time another greeting."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        super().reset(seed, options)
        self.random = random.Random(seed)

    def observe(self, agent: str) -> Any:
        return {"text": f"Hello {self.random.random()}"}


class Private(Relay):
    """Shows an agent nothing but when it is to act."""

    def observe(self, agent: str) -> Any:
        if agent != self.agent_selection:
            raise KeyError(agent)
        return super().observe(agent)


class OnItsOwn(LockedWrapper):
    """A wrapper that accounts for its state itself."""

    def snapshot(self) -> Any:
        return list(self.said), self.env.snapshot()

    def restore(self, snapshot: Any) -> None:
        self.said, inner = list(snapshot[0]), snapshot[1]
        self.env.restore(inner)


class Chance(Relay):
    """Pays by chance, from the generator of the process."""

    def step(self, action: str | None) -> None:
        super().step(action)
        self.rewards = {agent: random.random() for agent in self.rewards}


class OneMove(Hosted):
    """Keeps its moves itself; what the check first replies is no move."""

    def __init__(self) -> None:
        super().__init__()
        self.SERVER = []


SOUND = [
    Numbers,
    lambda: Transcript(Numbers()),
    Chance,
    OneMove,
    Relay,
    Count,
    RestorableCount,
    Noisy,
    Private,
    tictactoe,
    connect_four,
    lambda: plan_path_v0.env(size=4, num_turns=2),
    lambda: Transcript(plan_path_v0.env(size=4, num_turns=2)),
    lambda: OnItsOwn(RestorableCount()),
]


@pytest.mark.parametrize("make_env", SOUND)
def test_what_can_be_branched_is_left_in_the_state_in_which_it_was_reset(make_env: Any) -> None:
    expected = make_env()
    expected.reset(seed=5)
    env = probe(make_env)
    for there in (env, expected):  # and its spaces have drawn nothing
        there.action_space(there.agent_selection)
    assert env.agent_selection == expected.agent_selection
    assert env.rewards == expected.rewards
    if make_env is not Noisy:
        assert env.observe(env.agent_selection) == expected.observe(expected.agent_selection)


def test_random_numbers_of_the_process_and_of_action_spaces_are_left_as_they_were() -> None:
    class Drawing(Relay):
        def step(self, action: str | None) -> None:
            random.random()
            np.random.random()  # noqa: NPY002
            super().step(action)

    class SameSpace(Drawing):
        SPACE = Relay().action_space("opener_0")

        def action_space(self, agent: str) -> Any:
            return self.SPACE

    SameSpace.SPACE.seed(3)
    before = random.getstate(), np.random.get_state()[1].tolist(), copy.deepcopy(SameSpace.SPACE)  # noqa: NPY002
    probe(SameSpace)
    assert random.getstate() == before[0]
    assert np.random.get_state()[1].tolist() == before[1]  # noqa: NPY002
    assert SameSpace.SPACE.sample() == before[2].sample()


# ---- What cannot be told -------------------------------------------------------------------------------------------


def test_an_environment_that_no_reply_moves_is_told_not_to_have_been_seen_moving() -> None:
    class Password(OneMove):
        MOVES = ("x7 y9",)

        def observe(self, agent: str) -> Any:
            return f"Turn {len(self.written)}: {self.SERVER}. What is the password?"

    with pytest.warns(UserWarning, match=r"could not see the environment 'relay' move: all replies that") as caught:
        probe(Password)
    assert len(caught) == 1
    assert f"Set {EPISODES}, or give it an action_space whose sample() is a legal reply." in str(caught[0].message)


@pytest.mark.parametrize("kind", [Relay, RestorableCount])
def test_an_environment_that_differs_when_made_anew_is_told_to_be_random_and_is_given_fresh(kind: Any) -> None:
    class Unseeded(kind):  # type: ignore[misc]
        NUMBERS = iter(range(10_000))

        def step(self, action: str | None) -> None:
            super().step(action)
            self.rewards = {agent: float(next(self.NUMBERS)) for agent in self.rewards}

        def __deepcopy__(self, memo: dict[int, Any]) -> Any:
            twin = copy.copy(self)
            vars(twin).update(copy.deepcopy(vars(self), memo))
            return twin

    with pytest.warns(
        UserWarning, match=r"leads elsewhere .* even when it is newly made .* not equally lucky"
    ) as caught:
        env = probe(Unseeded)
    assert len(caught) == 1
    assert env.agent_selection == env.possible_agents[0]
    assert not any(env.rewards.values())


# ---- What raises when it is stepped ---------------------------------------------------------------------------------


class Strict(Count):
    """Takes numbers alone, and has none of them as samples."""

    made: list[Strict]
    accepted = "0"

    def __init__(self) -> None:
        super().__init__()
        self.closed = False
        self.made.append(self)

    def action_space(self, agent: str) -> Any:
        return Relay().action_space(agent)

    def step(self, action: str | None) -> None:
        if action not in (None, self.accepted):
            raise AssertionError("action is not in action space")
        super().step(action)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def strict() -> type[Strict]:
    return type("Strict", (Strict,), {"made": []})


def test_an_environment_that_raises_on_a_reply_names_the_reward_for_such_replies(strict: Any) -> None:
    with pytest.raises(
        ValueError, match=r"raised AssertionError: action is not in action space when 'one' replied"
    ) as e:
        probe(strict)
    assert "set crash_reward to a number below any return" in str(e.value)
    assert len(str(e.value)) < 500  # a sampled reply may have thousands of characters


def test_with_a_reward_for_them_other_replies_are_tried_on_a_fresh_environment(strict: Any) -> None:
    with pytest.warns(UserWarning, match="could not see the environment 'count_v0' move"):  # it adds 0 at most
        env = probe(strict, CHARGED)
    first, second = strict.made
    assert env is second
    assert (first.closed, second.closed, second.sum, second.agent_selection) == (True, False, 0, "one")


def test_an_environment_that_raises_on_all_of_them_is_told_not_to_be_checked(strict: Any) -> None:
    strict.accepted = "forty-two"
    with pytest.warns(UserWarning, match=r"'count_v0' raised in each of 8 short episodes, .* was not checked"):
        probe(strict, CHARGED)


# ---- When it is checked ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "settings", "remedy"),
    [
        ({}, "sampling='tree'", EPISODES),
        (
            {"num_continuations": 2},
            "sampling='tree' and num_continuations=2",
            f"{EPISODES} and num_continuations=0",
        ),
        ({"sampling": "parallel", "num_continuations": 1}, "num_continuations=1", "num_continuations=0"),
        ({"sampling": "parallel", "crash_reward": -1.0}, "crash_reward=-1.0", "crash_reward=None"),
        ({"crash_reward": -1.0, "trains": False}, "crash_reward=-1.0", "crash_reward=None"),
    ],
    ids=["tree", "continuations in a tree", "continuations", "crash_reward", "evaluation with crash_reward"],
)
def test_the_settings_that_branch_are_named_with_what_to_set_instead(options: Any, settings: str, remedy: str) -> None:
    needed = Branching.of(**{"sampling": "tree", "num_continuations": 0, "crash_reward": None, **options})
    assert needed == Branching(settings, remedy, options.get("crash_reward"))


@pytest.mark.parametrize("options", [{"sampling": "parallel"}, {"sampling": "tree", "trains": False}])
def test_episodes_played_side_by_side_and_evaluation_branch_nothing(options: Any) -> None:
    assert Branching.of(num_continuations=0, crash_reward=None, **options) is None


def trainer(path: Path, env: Any, model: Any = "/no/such/model", **options: Any) -> MultiAgentGRPOTrainer:
    rows = {"seed": range(8), "environment": ["a"] * 8} if isinstance(env, dict) else {"seed": range(8)}
    credit = "grpo" if options.get("sampling") == "parallel" else "at_grpo"
    return MultiAgentGRPOTrainer(model, env, settings(path, **options), Dataset.from_dict(rows), credit=credit)


@pytest.mark.parametrize("env", [Client, {"a": Client}], ids=["one", "by name"])
def test_a_trainer_refuses_what_it_cannot_branch_before_it_loads_a_model(env: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the environment 'client_v0' cannot be branched"):
        trainer(tmp_path, env)


def test_it_takes_the_same_where_it_branches_nothing(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="/no/such/model"):
        trainer(tmp_path, Client, sampling="parallel")
    with pytest.raises(OSError, match="/no/such/model"):
        MultiAgentGRPOTrainer("/no/such/model", Client, settings(tmp_path))


def test_the_documentation_shows_the_wrapper_that_is_tested_here() -> None:
    page = Path(__file__).parents[3] / "docs" / "add_environment.md"
    assert inspect.getsource(TextGame) in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("make_env", "sampling"),
    [
        (tictactoe, "tree"),
        pytest.param(tictactoe, "parallel", marks=pytest.mark.slow),
        pytest.param(connect_four, "tree", marks=pytest.mark.slow),
        pytest.param(connect_four, "parallel", marks=pytest.mark.slow),
        (rock_paper_scissors, "parallel"),
    ],
)
def test_a_classic_game_of_pettingzoo_trains_through_a_text_wrapper(
    make_env: Any, sampling: str, model_path: str, tmp_path: Path
) -> None:
    made = trainer(tmp_path, make_env, model_path, sampling=sampling, max_turns=2, max_completion_length=2)
    made.train()
    assert made.state.global_step == 1
    assert made.state.log_history[0]["rollout/dropped"] == 0
