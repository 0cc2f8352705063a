"""The conformance suite: it passes a sound environment, and each check fails one that is broken in just that way."""

import copy
import json
import pickle
import random
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from gymnasium.spaces import Dict, Sequence
from gymnasium.utils import EzPickle
from pettingzoo import AECEnv
from pettingzoo.utils import BaseWrapper
from pettingzoo.utils.conversions import turn_based_aec_to_parallel_wrapper

from pettingllms_envs.aec import TextEnv
from pettingllms_envs.environments.plan_path.rules import PlanPath
from pettingllms_envs.episodes.difference import difference
from pettingllms_envs.plan_path_v0 import raw_env
from pettingllms_envs.spaces import ChatText
from pettingllms_envs.teams.single import Single
from pettingllms_envs.testing import CHECKS, Report, Result, check, conforms, replies
from pettingllms_envs.testing.observations import telling
from pettingllms_envs.testing.rewards import pieces


class Sum(AECEnv):
    """A third-party environment: two agents in turn add two numbers of nine digits, at most two turns each."""

    metadata: ClassVar[dict[str, Any]] = {
        "name": "sum_v0",
        "render_modes": ["ansi"],
        "is_parallelizable": False,
        "max_return": 1.0,
        "reward_ranges": {"success": (0.0, 1.0), "format": (-0.1, 0.0)},
        "reset_options": {"split": ("train", "test")},
    }
    kept = ("a", "b", "made", "note", "agents", "agent_selection", "rewards", "_cumulative_rewards")
    kept += ("terminations", "truncations", "infos")
    prompt = "Add two numbers.\nEnd your reply with one line: Sum: and then the number."

    def __init__(self, max_cycles: int = 2, render_mode: str | None = None) -> None:
        self.max_cycles = max_cycles
        self.render_mode = render_mode
        self.possible_agents = ["left_0", "right_0"]
        self.observation_spaces = {a: Dict({"system": ChatText(), "text": ChatText()}) for a in self.possible_agents}
        self.action_spaces = {agent: ChatText() for agent in self.possible_agents}
        self.rng = random.Random()

    def observation_space(self, agent: str) -> Any:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        split = (options or {}).get("split", "train")
        if split not in ("train", "test"):
            raise ValueError(f"split is {split!r}; expected 'train' or 'test'.")
        self.rng = self.rng if seed is None else random.Random(f"{split} {seed}")
        self.a, self.b = self.rng.randrange(10**8, 10**9), self.rng.randrange(10**8, 10**9)
        self.made, self.note = 0, ""
        self.agents = self.possible_agents[:]
        self.agent_selection = self.agents[0]
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.show({}, solved=False)

    def step(self, action: str | None) -> None:
        if self.terminations[self.agent_selection] or self.truncations[self.agent_selection]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[self.agent_selection] = 0.0
        number = self.read(action)
        solved = number == self.a + self.b
        self.note = "\nThe last reply was unreadable." if number is None else f"\nThe sum is not {number}."
        self.made += 1
        actor = self.agent_selection
        parts = {"success": 1.0} if solved else {} if number is not None else {"format": -0.1}
        self.show({agent: parts for agent in self.agents if solved or agent == actor}, solved=solved)
        self._accumulate_rewards()
        self.agent_selection = self.agents[self.made % 2]

    def show(self, parts: dict[str, dict[str, float]], *, solved: bool) -> None:
        self.rewards = {agent: sum(parts.get(agent, {}).values()) for agent in self.agents}
        self.terminations = dict.fromkeys(self.agents, solved)
        self.truncations = dict.fromkeys(self.agents, not solved and self.made == 2 * self.max_cycles)
        self.infos = {a: {"rewards": dict(parts.get(a, {})), "outcome": {"success": solved}} for a in self.agents}

    def read(self, reply: Any) -> int | None:
        found = re.fullmatch(r"Sum: ([0-9]{1,12})", reply.rstrip()[-40:].split("\n")[-1])
        return int(found[1]) if found else None

    def observe(self, agent: str) -> Any:
        return {"system": self.prompt, "text": f"Step {self.made + 1}. What is {self.a} + {self.b}?{self.note}"}

    def oracle(self) -> str:
        return f"Sum: {self.a + self.b}"

    def snapshot(self) -> Any:
        return copy.deepcopy({name: getattr(self, name) for name in self.kept})

    def restore(self, snapshot: Any) -> None:
        for name, value in copy.deepcopy(snapshot).items():
            setattr(self, name, value)

    def render(self) -> str:
        return f"{self.a} + {self.b}"

    def close(self) -> None:
        pass


BLIND = ("Sum: 1", "Sum: 1000000000")
NO_FEATURES = {
    "images": "its observations have no images",
    "tools": "its roles have no tools",
    "channel": "its workflow has no channel",
    "questions": "its team is no function",
    "zero sum": "it does not declare metadata['competitive'] = 'zero_sum'",
    "cooperation": "it declares no forms, metadata['cooperation']",
}


def judged(make: Callable[..., Any], **settings: Any) -> Report:
    """The report; `make` is hidden in a function that no other process could import, which saves half a second."""
    return check(lambda **kwargs: make(**kwargs), **{"blind": BLIND, "seeds": range(6), **settings})


@pytest.fixture
def few_replies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fuzzed and long replies, which take most of a check's time, have tests of their own."""
    monkeypatch.setattr(replies, "EPISODES", 20)
    monkeypatch.setattr(replies, "LONGEST", 2**13)


def test_a_sound_third_party_environment_passes_every_check() -> None:
    report = judged(Sum, make_parallel=lambda: turn_based_aec_to_parallel_wrapper(Sum()))
    assert report.ok, str(report)
    assert [result.name for result in report if result.status == "skipped"] == [
        "another process",
        "states",
        "potential",
        *NO_FEATURES,
    ]
    assert report["pettingzoo"].detail == (
        "api_test, seed_test, max_cycles_test (of make, and of PettingZoo's aec_to_parallel_wrapper around it), "
        "render_test (ansi)"
    )
    assert report["oracle"].detail == "success and the maximum 1 in 6 episodes of 1.0 replies"
    assert report["floors"].detail.endswith(
        "in 20 episodes each; the best succeeds on 0% and returns 0.00 of 1.00: always 'Sum: 1'"
    )
    assert report["rewards"].detail == "success 1.00 to 1.00, format -0.10 to -0.10"
    assert report["options"].detail == "split (2)"
    conforms(lambda: Sum(), seeds=[3], only=["oracle", "floors"])


class Bare(Sum):
    """Nothing that PettingZoo does not ask for: observations are strs, and there is no oracle, snapshot or figure."""

    metadata: ClassVar[dict[str, Any]] = {"name": "bare_v0", "render_modes": []}
    oracle = property()  # type: ignore[assignment]
    snapshot = property()  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.observation_spaces = {agent: ChatText() for agent in self.possible_agents}

    def show(self, parts: dict[str, dict[str, float]], *, solved: bool) -> None:
        super().show(parts, solved=solved)
        self.infos = {agent: {} for agent in self.agents}

    def observe(self, agent: str) -> str:
        return f"{self.prompt}\n{super().observe(agent)['text']}"


class Dialogue(Sum):
    """Shows its question at the end of a dialogue. The space is a `Sequence`, whose elements are tuples."""

    def __init__(self) -> None:
        super().__init__()
        message = Dict({"role": ChatText(), "content": ChatText()})
        spaces = {agent: Dict({"messages": Sequence(message)}) for agent in self.possible_agents}
        self.observation_spaces = spaces

    def messages(self, shown: dict[str, str]) -> Any:
        texts = (("system", shown["system"]), ("user", "Sums?"), ("assistant", "Yes."), ("user", shown["text"]))
        return tuple({"role": role, "content": content} for role, content in texts)

    def observe(self, agent: str) -> Any:
        return {"messages": self.messages(super().observe(agent))}


def test_an_environment_that_shows_chat_messages_passes_the_checks_of_what_is_shown() -> None:
    seen = ["pettingzoo", "observations", "infos", "determinism", "no solution shown", "floors"]
    report = judged(Dialogue, only=seen, seeds=range(2))
    assert [result.status for result in report] == ["passed"] * len(seen), report


class EndsWithTheAssistant(Dialogue):
    def messages(self, shown: dict[str, str]) -> Any:
        return super().messages(shown)[:-1]


class MessageWithAnImage(Dialogue):
    def messages(self, shown: dict[str, str]) -> Any:
        return ({"role": "user", "content": shown["text"], "image": "0x00"},)


class CriticsMessage(Dialogue):
    def messages(self, shown: dict[str, str]) -> Any:
        return ({"role": "critic", "content": "3"}, *super().messages(shown))


class TextBesideMessages(Dialogue):
    def observe(self, agent: str) -> Any:
        return super().observe(agent) | {"text": "Add."}


class SharedMessages(Dialogue):
    """Gives its own list away."""

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        super().reset(seed=seed, options=options)
        self.shared = list(self.messages(Sum.observe(self, "left_0")))

    def observe(self, agent: str) -> Any:
        return {"messages": self.shared}


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (EndsWithTheAssistant, "expected a last message of the role 'user' or 'tool'"),
        (MessageWithAnImage, "'left_0' observes {'role': 'str', 'content': 'str', 'image': 'str'} as message 0"),
        (CriticsMessage, "'left_0' observes message 0 with the role 'critic'; expected one of 'system', 'user',"),
        (TextBesideMessages, "'left_0' observes 'messages' beside 'text'; expected 'messages' alone"),
        (SharedMessages, "the observation after a caller emptied the one before, of left_0"),
    ],
)
def test_messages_that_no_policy_can_be_asked_with_fail(broken: Callable[..., Any], words: str) -> None:
    report = judged(broken, only=["observations"])
    assert words in report["observations"].detail, report


@pytest.mark.usefixtures("few_replies")
def test_what_a_third_party_environment_need_not_have_is_skipped_with_the_reason() -> None:
    report = judged(Bare)
    assert report.ok, str(report)
    assert {result.name: result.detail for result in report if result.status == "skipped"} == {
        "parallel": "no make_parallel was given",
        "another process": report["another process"].detail,
        "states": "it has no state_hash()",
        "options": "it declares no metadata['reset_options']; an unknown one was ignored",
        "oracle": "it has no oracle()",
        "floors": "it has no oracle(), declares no metadata['max_return'] and reports no success",
        "rewards": "it declares no metadata['reward_ranges']; all rewards were finite",
        "no solution shown": "it has no oracle()",
        "pairs of roles": "it has no oracle()",
        "potential": "it is not made of a workflow and a task",
        **NO_FEATURES,
    }
    assert report["another process"].detail.startswith("make cannot be sent to another process: ")
    assert report["snapshots"].detail.endswith("by copying it, for it has no snapshot()")
    assert report["pettingzoo"].detail == "api_test (each observation as the text of a dictionary), seed_test"


class Restarting(Bare, EzPickle):
    """Is made anew by `copy.deepcopy`, as PettingZoo's classic games are."""

    def __init__(self) -> None:
        EzPickle.__init__(self)
        Bare.__init__(self)


class Locked(Bare):
    """Holds what cannot be copied."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


def test_a_wrapper_around_an_environment_that_is_copied_by_its_constructor_passes() -> None:
    report = judged(lambda: BaseWrapper(Restarting()), only=["snapshots", "branches"])
    assert report.ok, str(report)
    assert report["snapshots"].detail.endswith("by copying it, for it has no snapshot()")


def test_an_environment_that_cannot_be_copied_is_told_what_it_lacks() -> None:
    report = judged(Locked, only=["snapshots", "branches"])
    assert [result.name for result in report.failed] == ["snapshots", "branches"]
    for result in report:
        assert result.detail.startswith(
            "it has no snapshot() and cannot be copied (TypeError: cannot pickle '_thread.lock' object); expected one "
            'of the two. Give it snapshot() and restore(), or declare metadata["branching"] = "replay" if it is '
            "deterministic, or \"none\" and train it with sampling='parallel'"
        )


class BadlyNamed(Sum):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.possible_agents = ["Left", "Right"]
        self.observation_spaces = dict(zip(self.possible_agents, self.observation_spaces.values(), strict=True))
        self.action_spaces = dict(zip(self.possible_agents, self.action_spaces.values(), strict=True))


class Forgetful(Sum):
    """Pays each reward once, so that an agent which was paid between its steps is not told."""

    def _accumulate_rewards(self) -> None:
        self._cumulative_rewards = dict(self.rewards)


class Endless(Sum):
    """Takes a turn budget that it does not keep."""

    def __init__(self, max_cycles: int = 2, render_mode: str | None = None) -> None:
        super().__init__(2, render_mode)


class CountsEpisodes(Sum):
    played = 0
    kept = (*Sum.kept, "played")

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        super().reset(seed, options)
        self.played += 1

    def observe(self, agent: str) -> Any:
        seen = super().observe(agent)
        return {**seen, "text": f"{seen['text']} Episode {self.played}."} if self.made else seen


class Unpicklable(Sum):
    def snapshot(self) -> Any:
        return super().snapshot() | {"close": lambda: None}


class Stale(Sum):
    """Restores all but the number of replies made."""

    kept = tuple(name for name in Sum.kept if name != "made")


class SharedLog(Sum):
    """A snapshot holds the very list of replies, which restoring cuts to its length then."""

    log: list[str]

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        super().reset(seed, options)
        self.log = []

    def step(self, action: str | None) -> None:
        if action is not None:
            self.log.append(action[:9])
        super().step(action)

    def observe(self, agent: str) -> Any:
        seen = super().observe(agent)
        return {**seen, "text": f"{seen['text']} So far: {self.log}"}

    def snapshot(self) -> Any:
        return super().snapshot(), self.log, len(self.log)

    def restore(self, snapshot: Any) -> None:
        state, self.log, length = snapshot
        del self.log[length:]
        super().restore(state)


class GlobalNumbers(Sum):
    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        random.seed(0 if seed is None else seed)
        super().reset(random.randrange(10**6), options)


class GlobalNumpyNumbers(Sum):
    def render(self) -> str:
        return f"{super().render()} {np.random.rand() >= 0}"  # noqa: NPY002 - it is the mistake


class SharedObservation(Sum):
    """Hands out its own dictionary."""

    def show(self, parts: dict[str, dict[str, float]], *, solved: bool) -> None:
        super().show(parts, solved=solved)
        self.seen = {agent: super(SharedObservation, self).observe(agent) for agent in self.possible_agents}

    def observe(self, agent: str) -> Any:
        return self.seen[agent]

    kept = (*Sum.kept, "seen")


class ForgetsWhoLeft(Sum):
    def observe(self, agent: str) -> Any:
        if agent not in self.agents:
            raise ValueError(f"no agent {agent}")
        return super().observe(agent)


class ObservedNumber(Sum):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        spaces = {"system": ChatText(), "text": ChatText(), "made": AnyNumber()}
        self.observation_spaces = {agent: Dict(spaces) for agent in self.possible_agents}

    def observe(self, agent: str) -> Any:
        return {**super().observe(agent), "made": self.made}


class AnyNumber(ChatText):
    def contains(self, x: Any) -> bool:
        return isinstance(x, int)


class SetInInfos(Sum):
    def show(self, parts: dict[str, dict[str, float]], *, solved: bool) -> None:
        super().show(parts, solved=solved)
        for info in self.infos.values():
            info["numbers"] = {self.a, self.b}


class MaskInInfos(Sum):
    def show(self, parts: dict[str, dict[str, float]], *, solved: bool) -> None:
        super().show(parts, solved=solved)
        for info in self.infos.values():
            info["deep"] = [{"action_mask": None}]


class ClockInInfos(Sum):
    def show(self, parts: dict[str, dict[str, float]], *, solved: bool) -> None:
        super().show(parts, solved=solved)
        for info in self.infos.values():
            info["time"] = time.perf_counter()


class AnySplit(Sum):
    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        super().reset(seed, {"split": "test"} if (options or {}).get("split") not in (None, "train") else {})


class KnownOptionsOnly(Sum):
    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        if set(options or {}) - {"split"}:
            raise KeyError("options")
        super().reset(seed, options)


class ListedOptions(Sum):
    metadata: ClassVar[dict[str, Any]] = {**Sum.metadata, "reset_options": ("split",)}


class TrustsItsReader(Sum):
    def read(self, reply: Any) -> int | None:
        found = re.fullmatch(r"Sum: ([0-9][0-9 ]{0,12}[0-9])", reply.rstrip()[-40:].split("\n")[-1])
        return int(found[1]) if found else super().read(reply)


class GrowingSpace(Sum):
    """Makes a new action space after a reply that it cannot read but that begins well."""

    def step(self, action: str | None) -> None:
        if action is not None and action.startswith("Sum: ") and not action[5:].strip("0123456789"):
            self.action_spaces = {agent: ChatText() for agent in self.possible_agents}
        super().step(action)


class SlowReader(Sum):
    def read(self, reply: Any) -> int | None:
        re.search(r"\s+$", reply)  # from each space of a run it reads on to the end of the run
        return super().read(reply)


class WrongOracle(Sum):
    def oracle(self) -> str:
        return f"Sum: {self.a + self.b + self.a % 2}"


class FickleOracle(Sum):
    asked = 0

    def oracle(self) -> str:
        self.asked += 1
        return f"{'Well.' * (self.asked % 2)}\n{super().oracle()}"


class PromisesTooMuch(Sum):
    metadata: ClassVar[dict[str, Any]] = {**Sum.metadata, "max_return": 2.0}


class ExampleSolves(Sum):
    """The reference's Sudoku: what the prompt gives for an example is right for every instance."""

    prompt = f"{Sum.prompt}\nFor example:\nI add.\nSum: 0"

    def read(self, reply: Any) -> int | None:
        number = super().read(reply)
        return self.a + self.b if number == 0 and reply.startswith("I add.") else number


class OneInstance(Sum):
    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        super().reset(0, options)


class BlindSucceeds(Sum):
    def read(self, reply: Any) -> int | None:
        return self.a + self.b if reply == "Sum: 1" else super().read(reply)


class Undeclared(Sum):
    metadata: ClassVar[dict[str, Any]] = {**Sum.metadata, "reward_ranges": {"success": (0.0, 1.0)}}


class OutOfRange(Sum):
    metadata: ClassVar[dict[str, Any]] = {
        **Sum.metadata,
        "reward_ranges": {"success": (0.0, 0.5), "format": (-0.1, 0.0)},
    }


class Unwinnable(Sum):
    """Nothing that anybody says is right."""

    oracle: Any = property()

    def read(self, reply: Any) -> int | None:
        return None


class UnwinnableByItsOracle(Sum):
    """The same, with an oracle that is wrong."""

    def read(self, reply: Any) -> int | None:
        return None


class PaysForTalk(Sum):
    """Every readable reply is paid, so talk that never ends is worth more than the answer."""

    metadata: ClassVar[dict[str, Any]] = {
        **Sum.metadata,
        "reward_ranges": {"success": (0.0, 1.0), "format": (-0.1, 0.6)},
    }

    def show(self, parts: dict[str, dict[str, float]], *, solved: bool) -> None:
        talk = {agent: {"format": 0.6} for agent in self.agents if parts.get(agent) == {}}
        super().show({**parts, **talk}, solved=solved)


class PaysForTalkAlone(PaysForTalk):
    """The same, and nobody can win it: of every sum one digit is read."""

    metadata: ClassVar[dict[str, Any]] = {**PaysForTalk.metadata, "max_return": None}
    oracle = property()  # type: ignore[assignment]

    def read(self, reply: Any) -> int | None:
        number = super().read(reply)
        return None if number is None else number % 10


class PaysOneForTalk(Sum):
    """The team gets nothing for talk, but one agent is paid for it what the other one is charged."""

    metadata: ClassVar[dict[str, Any]] = {
        **Sum.metadata,
        "reward_ranges": {**Sum.metadata["reward_ranges"], "talk": (-0.3, 0.3)},
    }

    def show(self, parts: dict[str, dict[str, float]], *, solved: bool) -> None:
        talk = {"left_0": {"talk": 0.3}, "right_0": {"talk": -0.3}}
        super().show(talk if {} in parts.values() else parts, solved=solved)


class Hints(Sum):
    def observe(self, agent: str) -> Any:
        seen = super().observe(agent)
        hint = f"Do not say {self.a + self.b:,} at once." if agent == "right_0" else ""
        return {**seen, "text": f"{hint}\n{seen['text']}"}


@pytest.mark.parametrize(
    ("broken", "fails", "words"),
    [
        (BadlyNamed, "pettingzoo", "api_test warns: We recommend agents to be named in the format"),
        (Forgetful, "pettingzoo", "reward returned by last is not the accumulated rewards"),
        (Endless, "pettingzoo", "in PettingZoo's max_cycles_test"),
        (
            CountsEpisodes,
            "determinism, gymnasium",
            "a second run in the same instance: observations['left_0']['text'] from",
        ),
        (Unpicklable, "snapshots", "pickle"),
        (Stale, "snapshots, branches", "taken up after 0 steps: observations['left_0']['text'] from character 0:"),
        (SharedLog, "branches", "after its siblings"),
        (GlobalNumbers, "global random state", "reset() without a seed changed the global random state"),
        (GlobalNumpyNumbers, "global random state", "render() changed the global random state"),
        (SharedObservation, "observations", "the observation after a caller emptied the one before, of left_0"),
        (ForgetsWhoLeft, "observations", "ValueError: no agent left_0"),
        (
            ObservedNumber,
            "observations, fuzzed replies, long replies, gymnasium",
            "observes 'made', a int; expected text",
        ),
        (SetInInfos, "infos", "the infos of left_0 are no plain data: Object of type set is not JSON serializable"),
        (MaskInInfos, "infos", "left_0 has a key 'action_mask'; expected none"),
        (AnySplit, "options", "reset accepts options={'split': 'no such value'}, which is not among the declared"),
        (KnownOptionsOnly, "pettingzoo, options", "KeyError: 'options'"),
        (ListedOptions, "options", "metadata['reset_options'] is ('split',); expected each name with its legal"),
        (TrustsItsReader, "fuzzed replies", "ValueError: invalid literal for int()"),
        (WrongOracle, "oracle", "the oracle has no success; expected infos[agent]['outcome']['success'] to be True"),
        (FickleOracle, "oracle", "the oracle, asked twice: expected the same str, got 'Well."),
        (PromisesTooMuch, "oracle", "the oracle's return: expected metadata['max_return'], 2, got 1"),
        (ExampleSolves, "floors", "the policy copy of 'I add.\\nSum: 0' succeeds; expected that it never does"),
        (OneInstance, "floors", "the policy the oracle's replies in another instance succeeds on 100% of 80 further"),
        (
            BlindSucceeds,
            "floors",
            "the policy always 'Sum: 1' succeeds on 100% of 80 further seeds; expected at most 25%. If that is right, "
            "as where there are few answers, give another floor: --floor SHARE, conforms(floor=...)",
        ),
        (Undeclared, "rewards", "the reward has a part 'format'; metadata['reward_ranges'] declares ['success']"),
        (OutOfRange, "rewards", "the part 'success' of the reward: expected 0 to 0.5, got 1"),
        (UnwinnableByItsOracle, "oracle, rewards, learning signal", "the oracle has no success"),
        (
            PaysForTalk,
            "floors, rewards, pairs of roles",
            "has a mean return of 0.50 on 80 seeds; expected at most 0.25 times",
        ),
        (
            PaysOneForTalk,
            "floors, pairs of roles",
            "sum of left_0's rewards: expected at most the oracle's mean, 1, got 1.2",
        ),
        (Hints, "no solution shown", "the observation of right_0 shows the oracle's reply"),
    ],
)
@pytest.mark.usefixtures("few_replies")
def test_a_check_fails_an_environment_that_is_broken_in_its_way(
    broken: Callable[..., Any], fails: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "fuzzed replies" in fails:
        monkeypatch.setattr(replies, "EPISODES", 200)
    report = judged(broken)
    assert ", ".join(result.name for result in report.failed) == fails, report
    assert words in report.failed[0].detail, report
    if "floors" in fails or "branches" in fails or fails in ("oracle", "rewards", "no solution shown"):
        assert "\nseed " in report.failed[0].detail


def test_a_game_in_which_no_reply_and_no_oracle_earns_anything_fails() -> None:
    (failed,) = judged(Unwinnable, only=["rewards", "learning signal", "oracle"]).failed
    assert failed.name == "rewards"
    assert failed.detail.startswith(
        "no reply that was tried earns anything, and it has no oracle(), so nobody is seen"
    )


def test_where_replies_earn_something_and_nobody_was_seen_to_win_the_check_of_rewards_says_so() -> None:
    note = "; success was never seen: no oracle, and no reply that was tried"
    result = judged(PaysForTalkAlone, only=["rewards"])["rewards"]
    assert result == Result("rewards", "passed", f"format -0.10 to 0.60{note}")
    assert note not in judged(Sum, only=["rewards"])["rewards"].detail


@pytest.mark.usefixtures("few_replies")
def test_a_clock_in_the_infos_is_seen_by_every_check_that_compares_episodes() -> None:
    failed = {result.name for result in judged(ClockInInfos).failed}
    assert failed == {
        "pettingzoo",
        "gymnasium",
        "determinism",
        "snapshots",
        "branches",
        "infos",
        "options",
        "wrappers",
    }


def test_a_space_that_changes_with_the_replies_is_seen() -> None:
    failed = {result.name: result.detail for result in judged(GrowingSpace).failed}
    assert set(failed) == {"fuzzed replies", "long replies"}
    assert failed["fuzzed replies"].startswith("the action space of left_0 changed; it was ChatText()\nseed 0, repl")


def test_a_reader_slower_than_linear_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replies, "SLOWEST", 0.1)
    failed = judged(SlowReader).failed
    assert [result.name for result in failed] == ["long replies"]
    assert re.search(r"characters took \d.\d s of CPU time; expected less than 0.1 s, linear", failed[0].detail)


def test_the_parallel_form_is_tested_where_it_is_given() -> None:
    class Unseeded(Sum):
        def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
            super().reset(None, options)

    report = judged(Sum, make_parallel=lambda: turn_based_aec_to_parallel_wrapper(Unseeded()), only=["parallel"])
    assert report["parallel"].detail.startswith("AssertionError: Incorrect observations")
    assert report["parallel"].detail.endswith("\nin PettingZoo's parallel_seed_test")


def test_an_environment_that_depends_on_the_hash_seed_fails_in_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "from test_testing import Sum\n\nclass Hashed(Sum):\n    def observe(self, agent):\n"
    module += "        return {**super().observe(agent), 'text': str(hash('a'))}\n"
    (tmp_path / "hashed_sum.py").write_text(module)
    monkeypatch.syspath_prepend(tmp_path)
    hashed_sum = pytest.importorskip("hashed_sum")
    only = ["determinism", "another process"]
    report = check(hashed_sum.Hashed, seeds=[0], only=only)
    assert report["determinism"].status == "passed"
    assert report["another process"].status == "failed"
    assert "observations['left_0']['text']" in report["another process"].detail
    sound = check(hashed_sum.Sum, seeds=[0], only=only)
    assert sound["another process"].status == "passed", sound
    (tmp_path / "hashed_sum.py").unlink()
    assert check(hashed_sum.Hashed, seeds=[0], only=only)["another process"].detail == (
        "make cannot be imported in another process: No module named 'hashed_sum'"
    )


class Underpaid(TextEnv):
    """Forgets alpha."""

    @property
    def rewards(self) -> dict[str, float]:
        return {agent: reward / 2 for agent, reward in super().rewards.items()}


def test_the_scalar_is_alpha_times_team_plus_local_where_the_parts_are_known() -> None:
    task = PlanPath(size=5)
    assert check(lambda: TextEnv(Single(task), alpha=2.0), seeds=range(3), only=["rewards"]).ok
    report = check(lambda: Underpaid(Single(task), alpha=2.0), seeds=range(3), only=["rewards"])
    assert report["rewards"].detail.startswith("the reward of planner_0: expected alpha * team + local = ")


def test_the_return_is_the_teams_parts_before_alpha_where_they_are_known() -> None:
    report = check(lambda: raw_env(size=5, alpha=0.5), seeds=range(3), only=["oracle"])
    assert report["oracle"].detail.startswith("success and the maximum 2 in 3 episodes of ")


def test_fuzzing_reports_the_least_reply_that_shows_it() -> None:
    detail = judged(TrustsItsReader, only=["fuzzed replies"])["fuzzed replies"].detail
    assert re.search(r"\nseed 0, replies so far: \['Sum: \d+ +\d+'\]$", detail), detail


def test_without_hypothesis_fuzzing_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    result = judged(Sum, only=["fuzzed replies"])["fuzzed replies"]
    assert result[1:] == ("skipped", "Hypothesis is not installed. Install it: pip install hypothesis")


def test_without_an_oracle_the_floor_is_a_share_of_the_declared_maximum() -> None:
    class NoOracle(Sum):
        oracle = property()  # type: ignore[assignment]

    report = judged(NoOracle, only=["oracle", "floors"])
    assert report["oracle"].detail == "it has no oracle()"
    assert report["floors"].detail.endswith("the best succeeds on 0% and returns 0.00 of 1.00: always 'Sum: 1'")


class OneOfEight(Sum):
    """A fair guess among 1 to 8; 1 is right on the seeds 0 to 5 and on 10 of the seeds 20 to 99."""

    def answer(self, seed: int) -> int:
        return seed % 8 + 1 if seed >= 20 else 1 if seed < 6 else seed % 7 + 2

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        super().reset(seed, options)
        self.a, self.b = 0, self.answer(seed or 0)


class OneOfThree(OneOfEight):
    """1 is right on every third seed: 7 of the seeds 0 to 19, and 27 of the seeds 20 to 99."""

    def answer(self, seed: int) -> int:
        return seed % 3 + 1


def test_a_policy_that_was_lucky_on_the_seeds_is_judged_by_further_ones() -> None:
    result = judged(OneOfEight, blind=["Sum: 1"], seeds=range(20), only=["floors"])["floors"]
    assert result.status == "passed", result
    assert ", 2 of them above the floor and so in 80 further ones, which count; the best succeeds on 25% " in (
        result.detail
    )


def test_a_policy_that_is_above_the_floor_on_further_seeds_fails_unless_another_floor_is_given() -> None:
    result = judged(OneOfThree, blind=["Sum: 1"], only=["floors"])["floors"]
    assert result.detail.startswith(
        "the policy always 'Sum: 1' succeeds on 34% of 80 further seeds; expected at most"
    ), result
    assert "\nseed 21, replies so far: ['Sum: 1']" in result.detail
    assert judged(OneOfThree, blind=["Sum: 1"], only=["floors"], floor=0.4).ok


def test_an_oracle_that_never_comes_to_an_end_fails() -> None:
    # one reply and two farewells make three steps
    assert judged(Sum, max_steps=3, only=["oracle"]).ok
    assert judged(Sum, max_steps=2, only=["oracle"])["oracle"].detail.startswith(
        "the oracle's episode is not over after 2 steps\nseed 0, "
    )


def test_an_environment_that_cannot_be_made_has_one_line() -> None:
    def make() -> Any:
        raise OSError("no disk")

    report = check(make, only=["oracle", "floors"])
    assert [(result.name, result.status) for result in report] == [("start", "failed")]
    assert report["start"].detail.startswith("OSError: no disk (line ")
    with pytest.raises(AssertionError, match=r"the environment does not conform.\nConformance of"):
        conforms(make)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"seeds": []}, "got no seeds or no options; expected one of each at least"),
        ({"options": []}, "got no seeds or no options"),
        ({"only": ["oracles"]}, r"got only=\['oracles'\]; expected names among pettingzoo, parallel, "),
    ],
)
def test_a_callers_mistake_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check(Sum, **settings)


def test_every_seed_is_played_with_each_of_the_options() -> None:
    both = judged(Sum, options=[{}, {"split": "test"}], only=["determinism"])
    assert both["determinism"].detail.startswith("12 episodes")
    detail = judged(WrongOracle, options=[{"split": "test"}], only=["oracle"])["oracle"].detail
    assert re.search(r"\nseed \d, options {'split': 'test'}, replies so far: \['Sum: \d{9,10}'", detail)


@pytest.mark.usefixtures("few_replies")
def test_a_check_touches_no_global_random_state_and_repeats() -> None:
    before = random.getstate(), json.dumps(np.random.get_state()[1].tolist())  # noqa: NPY002
    first, again = judged(Sum), judged(Sum)
    assert str(first) == str(again)
    assert (random.getstate(), json.dumps(np.random.get_state()[1].tolist())) == before  # noqa: NPY002


def test_a_report_is_a_table_with_the_failures_in_capitals() -> None:
    results = (
        Result("floors", "passed", "9 policies"),
        Result("oracle", "failed", "got 1\nseed 3"),
        Result("options", "skipped", "none"),
    )
    report = Report("sum_v0", results)
    assert str(report) == (
        "Conformance of sum_v0\n"
        "  passed   floors   9 policies\n"
        "  FAILED   oracle   got 1\n"
        "                    seed 3\n"
        "  skipped  options  none\n"
        "1 passed, 1 failed, 1 skipped"
    )
    assert (report.ok, report.failed, len(report), tuple(report)) == (False, results[1:2], 3, results)
    with pytest.raises(AssertionError, match="seed 3"):
        report.raise_if_failed()
    Report("sum_v0", results[:1]).raise_if_failed()
    assert pickle.loads(pickle.dumps(report)) == report
    assert len(CHECKS) == 29


@pytest.mark.parametrize(
    ("expected", "got", "words"),
    [
        ({"a": [1, 2.0]}, {"a": [1, 2.0]}, None),
        ({"a": [1, 2]}, {"a": [1, 3]}, "a[1]: expected 2, got 3"),
        ({"a": {"b": 1}}, {"a": {"c": 1}}, "a has the keys: expected ['b'], got ['c']"),
        ({"a": 1}, {"a": True}, "a: expected 1, got True"),
        ({"a": (1,)}, {"a": (1, 2)}, "a: expected (1,), got (1, 2)"),
        ({"a": float("nan")}, {"a": float("nan")}, None),
        ({"a": np.array([1, 2])}, {"a": np.array([1, 2])}, None),
        ({"a": np.array([1, 2])}, {"a": np.array([1, 3])}, "a: expected array([1, 2]), got array([1, 3])"),
        (
            {"t": "x" * 30 + "same"},
            {"t": "x" * 30 + "sand"},
            "t from character 12: expected 'xxxxxxxxxxxxxxxxxxsame', got 'xxxxxxxxxxxxxxxxxxsand'",
        ),
    ],
)
def test_a_difference_is_named_by_its_place(expected: Any, got: Any, words: str | None) -> None:
    assert difference(expected, got) == words


@pytest.mark.parametrize(
    ("prompt", "among"),
    [
        ("Walk.\nEnd with one line: Moves: R R D.", ["Moves: R R D", "R R D", "Moves: R R D.", "Walk."]),
        ("Say 'R R' or \"D D\" or `U`.", ["R R", "D D", "U"]),
        ("Answer so:\n```text\n1 2\n2 1\n```\nGood luck.", ["1 2\n2 1"]),
        ("Example:\n1 2\n2 1\nNow you.", ["1 2\n2 1", "1 2\n2 1\nNow you.", "2 1"]),
        ("\n".join(map(str, range(20))), ["18\n19", "17\n18\n19", "0"]),
    ],
)
def test_whatever_may_be_an_example_is_copied_from_a_prompt(prompt: str, among: list[str]) -> None:
    found = pieces(prompt)
    assert set(among) <= set(found)
    assert len(found) == len(set(found)) <= 120


@pytest.mark.parametrize(
    ("reply", "sought"),
    [
        ("Moves: R R D", ["Moves:RRD"]),
        ("Moves: R", []),
        ("Moves: R R R D D D L L", ["Moves:RRRDDDLL", "RRRDDDLL"]),
        ("1 2 3 4\n3 4 1 2", ["12343412"]),
        ("I think.\nMoves: R, R", ["Ithink.Moves:RR"]),
        ("I think.\nMoves: " + "U " * 16, ["Ithink.Moves:" + "U" * 16, "Moves:" + "U" * 16, "U" * 16]),
        ("", []),
    ],
)
def test_what_would_give_a_reply_away(reply: str, sought: list[str]) -> None:
    assert list(telling(reply)) == sought


class Echoes(Sum):
    """Never finds a reply right, and tells everyone what it was."""

    def step(self, action: str | None) -> None:
        super().step(action)
        self.note = f"\nThe last reply was {action}."

    def read(self, reply: Any) -> int | None:
        return None


def test_what_a_reply_said_itself_may_be_shown() -> None:
    env = Echoes()
    env.reset(seed=0)
    report = check(lambda: Echoes(), seeds=[0] * 3, blind=[env.oracle()], only=["no solution shown"])
    assert report["no solution shown"].status == "passed", report
