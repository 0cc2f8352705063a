"""Training branches an environment as it declares: what is replayed plays as what is restored; "none" raises."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from pettingzoo import AECEnv

from clients import Client, Count, RestorableCount
from hosted import Hosted, HostedCopy, Server
from mortal import equal, mortal
from moved_weights import weights
from pettingllms_envs import plan_path_v0
from pettingllms_envs.branching import ReplayWrapper
from pettingllms_trl import MultiAgentGRPOTrainer
from pettingllms_trl.records import EnvironmentFailure, Request
from pettingllms_trl.rollout import Rollout, stepping
from pettingllms_trl.rollout.branch_probe import EPISODES, Branching
from pettingllms_trl.rollout.env_checks import check_envs
from pettingllms_trl.rollout.workers import InlinePool
from plays import play
from schedules import Patient, Tidal, wander
from short_runs import KeepsRollouts, settings
from third_party import Relay


TREE = Branching.of(sampling="tree", num_continuations=0, crash_reward=None)
ROWS = [{"seed": seed} for seed in range(3)]
plain = partial(plan_path_v0.env, size=4, num_turns=2)


def declaring(kind: type, mode: str) -> Any:
    return type(kind.__name__, (kind,), {"metadata": {**kind.metadata, "branching": mode}})


def rollout(make_env: Callable[[], AECEnv], **options: Any) -> Rollout:
    options = {"sampling": "tree", "num_candidates": 4, "engine": Patient(wander), **options}
    return play(ROWS, make_env=make_env, seed="s", **options)


# ---- Replay ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_threads", [0, 3], ids=["sequentially", "concurrently"])
@pytest.mark.parametrize(
    "options",
    [{}, {"num_continuations": 1}, {"crash_reward": -1.0}, {"max_envs": 1}],
    ids=lambda options: "".join(options),
)
def test_a_hosted_environment_that_is_replayed_plays_as_the_same_one_that_is_restored(
    num_threads: int, options: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stepping, "SLOW", 0.0)  # with threads, candidates are stepped in sessions of their own
    server, pool = Server(), []
    found = rollout(partial(Hosted, server), pool=pool, num_threads=num_threads, **options)
    assert found == rollout(plain, num_threads=num_threads, **options)
    assert all(decision.state for episode in found.episodes for decision in episode.decisions)
    assert len(server.sessions) == len(pool)  # no session is left open that no environment of the pool uses


@pytest.mark.parametrize(
    ("candidates", "steps_per_depth", "steps_once"),
    [("1235", 3, 4), ("5123", 4, 5)],
    ids=["the last one is the best", "the first one is the best"],
)
def test_a_decision_at_depth_d_replays_d_steps_for_each_candidate_but_the_one_that_the_environment_is_in(
    candidates: str, steps_per_depth: int, steps_once: int
) -> None:
    steps: list[str | None] = []

    class Counted(declaring(Count, "replay")):  # type: ignore[misc]
        def step(self, action: str | None) -> None:
            steps.append(action)
            super().step(action)

    def write(ticket: int, request: Request, k: int) -> str:
        return candidates[k]

    play([{"seed": 3}], make_env=Counted, seed="s", sampling="tree", num_candidates=4, engine=Tidal(write))
    # Four steps for the candidates; d for each but the first; and d + 1 to return to the best, unless it was the last.
    decisions = sum(steps_once + steps_per_depth * depth for depth in range(4))
    assert len([step for step in steps if step is not None]) == decisions
    assert len([step for step in steps if step is None]) == 2  # dead steps, at the end


class Flaky(declaring(RestorableCount, "replay")):  # type: ignore[misc]
    """Loses its connection at the steps whose numbers are in `at`, over all environments."""

    at: frozenset[int] = frozenset()
    num_steps_of_all = 0

    def step(self, action: str | None) -> None:
        type(self).num_steps_of_all += 1
        if self.num_steps_of_all in self.at:
            raise ConnectionError("reset by peer")
        super().step("0" if action == "" else action)


def number(ticket: int, request: Request, k: int) -> str:
    return "5123"[k]


def test_an_error_of_a_replay_is_never_that_of_the_reply_which_was_to_be_stepped_next() -> None:
    # Steps 1 to 4 are the first decision's; 5 returns to the best; 6 is the second decision's first candidate, and 7
    # the replay for its second one, in which the connection is lost, and would be if that were tried again.
    kind = type("TwiceFlaky", (Flaky,), {"at": frozenset({7, 8})})
    found = play(
        [{"seed": 3}],
        make_env=kind,
        seed="s",
        sampling="tree",
        num_candidates=4,
        engine=Tidal(number),
        crash_reward=-1.0,
    )
    assert (list(found.crashed), found.dropped) == ([], {})
    assert found.retried > 0
    assert [[c.reward for c in d.candidates] for d in found.episodes[0].decisions][:2] == [[5, 1, 2, 3], [10, 6, 7, 8]]


class Clocked(InlinePool):
    """Two workers by a clock that moves on by 6 ms at each step, which is quick; two steps are slow."""

    num_workers = 2
    seconds = 0.0

    def now(self) -> float:  # type: ignore[override]
        return self.seconds


@pytest.mark.parametrize("options", [{}, {"crash_reward": -1.0}], ids=["", "crash_reward"])
def test_each_call_of_a_replay_is_timed_by_itself(options: Any) -> None:
    workers, made = Clocked(), []

    class Timed(declaring(Count, "replay")):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

        def step(self, action: str | None) -> None:
            workers.seconds += 0.006
            super().step(action)

    play(
        [ROWS[0]],
        make_env=Timed,
        seed="s",
        sampling="tree",
        num_candidates=4,
        engine=Tidal(number),
        workers=workers,
        **options,
    )
    assert len(made) == 1  # a slow decision would have been stepped in several
    assert workers.seconds > 3 * stepping.SLOW


class Unseeded(declaring(Relay, "replay")):  # type: ignore[misc]
    """Pays by a number of its own that no seed determines."""

    NUMBERS = iter(range(100_000))

    def step(self, action: str | None) -> None:
        super().step(action)
        self.rewards = {agent: float(next(self.NUMBERS)) for agent in self.rewards}


class OfItsOwn(declaring(Relay, "replay")):  # type: ignore[misc]
    """Shows a number that only this instance has."""

    NUMBERS = iter(range(100_000))

    def __init__(self) -> None:
        super().__init__()
        self.number = next(self.NUMBERS)

    def observe(self, agent: str) -> Any:
        return {"text": f"{self.number}: {super().observe(agent)['text']}"}


class Remembering(declaring(Relay, "replay")):  # type: ignore[misc]
    """Shows how often it was reset."""

    num_resets = 0

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self.num_resets += 1
        super().reset(seed, options)

    def observe(self, agent: str) -> Any:
        return {"text": f"{self.num_resets}: {super().observe(agent)['text']}"}


class GlobalChance(declaring(Relay, "replay")):  # type: ignore[misc]
    """Pays by chance, from the generator of the process."""

    def step(self, action: str | None) -> None:
        super().step(action)
        self.rewards = {agent: random.random() for agent in self.rewards}


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Unseeded, r"the reply .* leads elsewhere when it is played again, .* \(rewards: expected"),
        (OfItsOwn, r"not deterministic: reset\(seed=42\) and 3 steps, played again, .* \(observation of 'opener_0'"),
        (Remembering, r"not deterministic: reset\(seed=42\) and 0 steps, .* \(observation of 'opener_0': .* '1: o"),
        (GlobalChance, r"not deterministic: reset\(seed=42\) and 1 step, .* led to another state \(rewards: "),
    ],
)
def test_an_environment_that_is_not_deterministic_must_not_declare_replay(kind: Any, message: str) -> None:
    with pytest.raises(
        ValueError, match=f"(?s)cannot be branched, which sampling='tree' needs: .*{message}"
    ) as caught:
        check_envs(kind, 42, [], TREE)
    assert f"Set {EPISODES}, or draw all random numbers from a generator that reset(seed) seeds" in str(caught.value)


def test_one_that_shows_it_in_training_alone_is_a_failing_environment() -> None:
    with pytest.raises(EnvironmentFailure, match=r"ReplayError at the instance .* is not deterministic: .*\(rewards:"):
        play([ROWS[0]], make_env=Unseeded, seed="s", sampling="tree", num_candidates=4, engine=Patient(wander))


def test_the_check_closes_the_session_that_it_opens() -> None:
    server = Server()
    envs = check_envs(partial(Hosted, server), 42, [], TREE)
    assert isinstance(envs[""][0], ReplayWrapper)
    assert server.num_opened == 2
    assert len(server.sessions) == 1


# ---- Other declarations ---------------------------------------------------------------------------------------------


def test_a_hosted_environment_that_declares_a_copy_raises() -> None:
    with pytest.raises(
        ValueError, match=r"moves with it, so both share a state or a session .* \"replay\" if the same"
    ):
        check_envs(partial(HostedCopy, Server()), 42, [], TREE)


def test_an_environment_that_declares_a_copy_is_copied_though_it_could_be_restored() -> None:
    class Copied(declaring(RestorableCount, "copy")):  # type: ignore[misc]
        def snapshot(self) -> Any:
            raise AssertionError("saved")

    check_envs(Copied, 42, [], TREE)
    found = play([ROWS[0]], make_env=Copied, seed="s", sampling="tree", num_candidates=4, engine=Tidal(number))
    assert [c.reward for c in found.episodes[0].decisions[1].candidates] == [10, 6, 7, 8]


NONE = declaring(Count, "none")


@pytest.mark.parametrize(
    "options",
    [
        {"sampling": "tree"},
        {"sampling": "parallel", "num_continuations": 1},
        {"sampling": "parallel", "crash_reward": -1.0},
    ],
    ids=lambda options: " ".join(options),
)
def test_an_environment_that_declares_none_raises_where_it_is_branched(options: Any) -> None:
    message = (
        r"= 'none', so that only one reply .* Set sampling=\"parallel\" .*, num_continuations=0 and crash_reward="
    )
    with pytest.raises(ValueError, match=message):
        rollout(NONE, engine=Tidal(number), **options)
    with pytest.raises(ValueError, match=message):
        check_envs(NONE, 42, [], Branching.of(**{"num_continuations": 0, "crash_reward": None, **options}))


def test_it_plays_episodes_in_parallel() -> None:
    found = rollout(NONE, engine=Tidal(lambda *_: "4"), sampling="parallel", num_candidates=2)
    assert [[d.played.reward for d in e.decisions] for e in found.episodes] == [[4, 8, 12, 16]] * 6


@pytest.mark.parametrize("branching", [TREE, None], ids=["tree", "parallel"])
@pytest.mark.parametrize(
    ("mode", "message"),
    [("fork", "expected one of 'snapshot', 'copy', 'replay', 'none'"), ("snapshot", "Add them, or declare 'copy'")],
)
def test_a_wrong_declaration_raises_when_the_environment_is_made(mode: str, message: str, branching: Any) -> None:
    with pytest.raises(ValueError, match=message):
        check_envs(declaring(Count, mode), 42, [], branching)


# ---- Training -------------------------------------------------------------------------------------------------------


class Kept(KeepsRollouts, MultiAgentGRPOTrainer):
    pass


def trained(env: Any, model_path: str, path: Path, **options: Any) -> Kept:
    rows = Dataset.from_dict({"seed": range(8)})
    credit = "grpo" if options.get("sampling") == "parallel" else "at_grpo"
    made = Kept(model_path, env, settings(path, max_completion_length=2, **options), rows, credit=credit)
    made.train()
    return made


def test_training_a_team_of_a_hosted_environment_equals_training_it_by_snapshots(
    model_path: str, tmp_path: Path
) -> None:
    expected = trained(plain, model_path, tmp_path)
    found = trained(partial(Hosted, Server()), model_path, tmp_path)
    assert [len(episode.decisions) for episode in found.rollouts[0]] == [4, 4]
    assert found.rollouts == expected.rollouts  # prompts, groups, rewards, choices, digests of states
    assert equal(weights(found), weights(expected))


@pytest.mark.slow
def test_a_run_with_a_replayed_client_that_is_resumed_inside_a_generation_equals_one_never_interrupted(
    model_path: str, tmp_path: Path
) -> None:
    env, inside = declaring(Client, "replay"), {"steps_per_generation": 2, "gradient_accumulation_steps": 1}
    whole = mortal(model_path, tmp_path / "whole", steps=4, env=env, **inside)
    whole.train()
    for step in (1, 3):
        resumed = mortal(model_path, tmp_path / f"from {step}", steps=4, env=env, **inside)
        resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / f"checkpoint-{step}"))
        assert equal(weights(whole), weights(resumed))


def test_an_environment_that_declares_none_trains_by_parallel_episodes_alone(model_path: str, tmp_path: Path) -> None:
    env = declaring(Client, "none")
    with pytest.raises(ValueError, match=r"'client_v0' has metadata\[\"branching\"\] = 'none'"):
        trained(env, model_path, tmp_path)
    assert trained(env, model_path, tmp_path, sampling="parallel", max_turns=1).state.global_step == 1
