"""Rollouts with a fake sampler: what is asked of it, which branch goes on, and what an episode's record says."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from pettingzoo import AECEnv

from group_checks import check_groups
from pettingllms_envs import plan_path_v0
from pettingllms_envs.prompts import read_observation
from pettingllms_trl.engines.batched import BatchedEngine
from pettingllms_trl.records import Completion, Decision, Episode, Request, Sample, Sampled
from pettingllms_trl.trainer.rollout_checks import UnsoundRollouts
from plays import play
from third_party import Relay, letters


ROWS = [{"seed": seed} for seed in range(6)]
PLAN_PATH = partial(plan_path_v0.env, size=4, num_turns=3)


def says(write: Callable[[Request, int], str]) -> Sample:
    """A sampler whose k-th completion of a request is `write(request, k)`, one token per byte."""

    def sample(requests: Sequence[Request]) -> list[Sampled]:
        return [
            Sampled(
                replace(request.prompt, ids=tuple("".join(m["content"] for m in request.prompt.messages).encode())),
                tuple(
                    Completion(ids=tuple(text.encode()) or (0,), text=text)
                    for text in (write(request, k) for k in range(request.num_candidates))
                ),
            )
            for request in requests
        ]

    return sample


def rng_of(request: Request, k: int) -> random.Random:
    """A function of the prompt and k alone, so what is sampled does not depend on what else is in play."""
    return random.Random(hashlib.sha256(f"{request.prompt.messages}/{k}".encode()).digest())


def babble(request: Request, k: int) -> str:
    return "".join(rng_of(request, k).choices("AZ", k=8))


def wander(request: Request, k: int) -> str:
    rng = rng_of(request, k)
    return "I do not know" if rng.random() < 0.1 else "Moves: " + " ".join(rng.choices("UDLR", k=rng.randint(1, 3)))


def tree(rows: Sequence[Any], make_env: Callable[[], AECEnv], write: Any, k: int = 4, **options: Any) -> list[Episode]:
    options = {"seed": "s", **options}
    engine = BatchedEngine(says(write))
    return play(rows, make_env=make_env, engine=engine, sampling="tree", num_candidates=k, **options).episodes


def parallel(
    rows: Sequence[Any], make_env: Callable[[], AECEnv], write: Any, k: int = 4, **options: Any
) -> list[Episode]:
    options = {"seed": "s", **options}
    engine = BatchedEngine(says(write))
    return play(rows, make_env=make_env, engine=engine, sampling="parallel", num_candidates=k, **options).episodes


def order(episode: Episode) -> list[tuple[str, int]]:
    return [(decision.agent, decision.turn) for decision in episode.decisions]


def text_of(decision: Decision) -> str:
    return decision.prompt.messages[-1]["content"]


GAMES = pytest.mark.parametrize(
    ("make_env", "write"), [(Relay, babble), (PLAN_PATH, wander)], ids=["third_party", "plan_path"]
)


# ---- Trees ------------------------------------------------------------------------------------------------------


@GAMES
def test_a_tree_samples_k_candidates_for_each_decision_and_the_best_goes_on(make_env: Any, write: Any) -> None:
    episodes = tree(ROWS, make_env, write)
    assert [(e.instance, e.episode) for e in episodes] == [(i, 0) for i in range(6)]
    for episode in episodes:
        for decision in episode.decisions:
            rewards = [candidate.reward for candidate in decision.candidates]
            assert len(rewards) == 4
            assert decision.played.reward == max(rewards)
    assert any(len({c.reward for c in d.candidates}) > 1 for e in episodes for d in e.decisions)


def test_candidates_are_scored_by_hand_worked_rewards_and_no_branch_sees_another() -> None:
    # Shares of letters below 'P': 0.5, 1, 0, 0.5. The best is the second; the closer then reads that one alone.
    texts = {"opener_0": ["AZ", "AB", "ZZ", "ZA"], "closer_0": ["Z", "A", "ZZZ", "AZ"]}
    (episode,) = tree(ROWS[:1], partial(Relay, 1), lambda request, k: texts[request.agent][k])
    first, second = episode.decisions
    assert [c.reward for c in first.candidates] == [0.5, 1, 0, 0.5]
    assert (first.chosen, second.chosen) == (1, 1)
    assert text_of(first) == "opener_0, task 0: "
    assert text_of(second) == "closer_0, task 0: AB"
    assert [c.completion.text for c in second.candidates] == texts["closer_0"]


def replayed(row: Any, episode: Episode, make_env: Callable[[], AECEnv]) -> dict[str, float]:
    """Play an episode's chosen actions again in a fresh environment; each prompt must be what it shows. Returns."""
    env = make_env()
    env.reset(seed=row["seed"])
    returns = dict.fromkeys(env.possible_agents, 0.0)
    for decision in episode.decisions:
        assert env.agent_selection == decision.agent
        assert decision.prompt.messages == read_observation(env.observe(decision.agent), agent=decision.agent).messages
        if decision.state is not None:
            assert decision.state == env.unwrapped.state_hash()
        env.step(decision.played.completion.text)
        if decision.played.state is not None:
            assert decision.played.state == env.unwrapped.state_hash()
        for agent, reward in env.rewards.items():
            returns[agent] += reward
    assert all(env.terminations[a] or env.truncations[a] for a in env.agents)
    return returns


@GAMES
def test_every_prompt_shows_the_state_that_the_chosen_branch_reached(make_env: Any, write: Any) -> None:
    episodes = tree(ROWS, make_env, write)
    check_groups(episodes, num_candidates=4)
    for row, episode in zip(ROWS, episodes, strict=True):
        assert replayed(row, episode, make_env) == pytest.approx(episode.returns)
        assert all(d.episode_return == episode.returns[d.agent] for d in episode.decisions)


def test_the_second_role_sees_what_the_first_just_did() -> None:
    for episode in tree(ROWS, PLAN_PATH, wander):
        for before, now in zip(episode.decisions, episode.decisions[1:], strict=False):
            if now.agent == "planner_0":
                said = before.played.completion.text
                expected = said.removeprefix("Moves: ") if said.startswith("Moves: ") else "unreadable"
                assert expected in text_of(now)


def test_states_are_recorded_where_the_environment_has_a_hash_and_only_there() -> None:
    assert all(d.state and d.played.state for e in tree(ROWS, PLAN_PATH, wander) for d in e.decisions)
    assert all(d.state is None for e in tree(ROWS, Relay, babble) for d in e.decisions)


# ---- The tie ----------------------------------------------------------------------------------------------------


def tied(request: Request, k: int) -> str:
    return "AAAA"[: k + 1]  # every reward is 1


def choices(episodes: Sequence[Episode]) -> list[int]:
    return [decision.chosen for episode in episodes for decision in episode.decisions]


def test_ties_are_broken_by_the_seed_and_not_by_the_order_of_candidates() -> None:
    rows = [{"seed": seed} for seed in range(20)]
    found = choices(tree(rows, Relay, tied))
    assert set(found) == {0, 1, 2, 3}
    assert found == choices(tree(rows, Relay, tied))
    assert found != choices(tree(rows, Relay, tied, seed="another"))


def test_a_tie_among_some_goes_to_one_of_them() -> None:
    rows = [{"seed": seed} for seed in range(20)]
    found = choices(tree(rows, Relay, lambda request, k: ["Z", "A", "ZZ", "AA"][k]))
    assert set(found) == {1, 3}


@GAMES
@pytest.mark.parametrize("max_envs", [1, 2, 4])
@pytest.mark.parametrize("kind", [tree, parallel])
def test_how_many_environments_are_in_play_changes_nothing(
    make_env: Any, write: Any, max_envs: int, kind: Any
) -> None:
    assert kind(ROWS, make_env, write, max_envs=max_envs) == kind(ROWS, make_env, write)


def test_how_many_environments_are_in_play_does_not_break_ties_otherwise() -> None:
    assert tree(ROWS, Relay, tied, max_envs=1) == tree(ROWS, Relay, tied)


def test_no_more_environments_than_max_envs_are_made_and_asked_together() -> None:
    made, asked = [], []

    def make_env() -> Relay:
        made.append(Relay())
        return made[-1]

    def sample(requests: Sequence[Request]) -> Sequence[Sampled]:
        asked.append(len(requests))
        return says(babble)(requests)

    play(
        ROWS, make_env=make_env, engine=BatchedEngine(sample), sampling="tree", num_candidates=2, seed="s", max_envs=4
    )
    assert len(made) == 4
    assert asked == [4, 4, 4, 4, 2, 2, 2, 2]


def test_an_environment_that_ends_early_makes_room_for_the_next_row_at_once() -> None:
    class Uneven(Relay):
        def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
            super().reset(seed, options)
            self.num_turns = 3 if seed == 0 else 1

    asked = []

    def sample(requests: Sequence[Request]) -> Sequence[Sampled]:
        asked.append([text_of_request(r) for r in requests])
        return says(babble)(requests)

    def text_of_request(request: Request) -> str:
        return request.prompt.messages[0]["content"].split(":")[0]

    play(
        ROWS[:3],
        make_env=Uneven,
        engine=BatchedEngine(sample),
        sampling="tree",
        num_candidates=2,
        seed="s",
        max_envs=2,
    )
    assert asked[1] == ["closer_0, task 0", "closer_0, task 1"]
    assert any({"opener_0, task 0", "opener_0, task 2"} == set(batch) for batch in asked)


@GAMES
@pytest.mark.parametrize("kind", [tree, parallel])
def test_a_rollout_is_the_same_twice_under_a_seed(make_env: Any, write: Any, kind: Any) -> None:
    assert kind(ROWS, make_env, write) == kind(ROWS, make_env, write)


# ---- Parallel episodes, bounds, returns, outcomes ----------------------------------------------------------------


@GAMES
def test_parallel_plays_k_episodes_of_each_row_with_one_candidate_each(make_env: Any, write: Any) -> None:
    episodes = parallel(ROWS, make_env, write, k=3)
    assert [(e.instance, e.episode) for e in episodes] == [(i, e) for i in range(6) for e in range(3)]
    assert all(len(d.candidates) == 1 and d.chosen == 0 for e in episodes for d in e.decisions)
    check_groups(episodes, num_candidates=1)
    for episode in episodes:
        assert replayed(ROWS[episode.instance], episode, make_env) == pytest.approx(episode.returns)


def test_episodes_of_one_row_go_their_own_ways() -> None:
    stream = random.Random(0)
    episodes = parallel(ROWS[:1], Relay, lambda request, k: "".join(stream.choices("AZ", k=8)))
    assert len({tuple(d.played.completion.text for d in e.decisions) for e in episodes}) == 4


@pytest.mark.parametrize(
    ("max_turns", "expected"),
    [
        (1, [("opener_0", 0), ("closer_0", 0)]),
        (2, [("opener_0", 0), ("closer_0", 0), ("opener_0", 1), ("closer_0", 1)]),
        (None, [(agent, turn) for turn in range(3) for agent in ("opener_0", "closer_0")]),
    ],
)
def test_max_turns_ends_an_episode_when_an_agent_would_decide_more_often(max_turns: Any, expected: Any) -> None:
    (episode,) = tree(ROWS[:1], partial(Relay, 3), babble, max_turns=max_turns)
    assert order(episode) == expected


class Tips(Relay):
    """The other agent gets 0.25 at every step, and the last step says how it ended."""

    def step(self, action: str | None) -> None:
        actor = self.agent_selection
        super().step(action)
        if action is not None:
            for agent in self.possible_agents:
                if agent != actor:
                    self.rewards[agent] = 0.25
            done = self.truncations["opener_0"]
            self.infos = {
                agent: {"outcome": {"success": done}, "rewards": {"letters": letters(action)}}
                for agent in self.possible_agents
            }


def test_a_return_adds_up_an_agents_rewards_on_every_agents_step() -> None:
    # opener: 1 on its own step and 0.25 on the closer's; closer: 0.25 and then 0.5.
    texts = {"opener_0": "AA", "closer_0": "AZ"}
    (episode,) = tree(ROWS[:1], partial(Tips, 1), lambda request, k: texts[request.agent], k=2)
    assert episode.returns == {"opener_0": 1.25, "closer_0": 0.75}
    assert [d.episode_return for d in episode.decisions] == [1.25, 0.75]
    assert [d.played.reward for d in episode.decisions] == [1.0, 0.5]
    assert [d.played.parts for d in episode.decisions] == [{"letters": 1.0}, {"letters": 0.5}]


@pytest.mark.parametrize("kind", [tree, parallel])
def test_the_outcome_survives_the_farewell_steps(kind: Any) -> None:
    assert all(e.outcome == {"success": True} for e in kind(ROWS, Tips, babble))
    for episode in kind(ROWS, PLAN_PATH, wander):
        assert {"success", "regret"} <= set(episode.outcome)


def test_a_solved_instance_is_a_success_and_ends_its_episode() -> None:
    env = plan_path_v0.env(size=4)
    env.reset(seed=0)
    game = env.unwrapped
    answer = game.workflow.task.write(game.workflow.task.oracle(game.snapshot().play.task))
    (episode,) = tree([{"seed": 0}], partial(plan_path_v0.env, size=4), lambda request, k: answer, k=2)
    assert order(episode) == [("drafter_0", 0), ("planner_0", 0)]
    assert episode.outcome["success"] is True
    assert episode.outcome["regret"] == 0


def test_a_row_gives_the_seed_and_the_reset_options() -> None:
    seen = []

    class Curious(Relay):
        def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
            seen.append((seed, options))
            super().reset(seed, options)

    tree([{"seed": 5, "split": "test"}, {"seed": 6}, {"level": 2}], Curious, babble, default_env_seed=9)
    assert seen == [(5, {"split": "test"}), (6, None), (9, {"level": 2})]


# ---- What is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_reward_that_is_not_finite_is_refused_and_the_agent_named(value: float) -> None:
    class Broken(Relay):
        def step(self, action: str | None) -> None:
            super().step(action)
            self.rewards["closer_0"] = value

    with pytest.raises(ValueError, match=rf"'closer_0': {value}\}} after 'opener_0' said .*must be finite"):
        tree(ROWS, Broken, babble)


@pytest.mark.parametrize(
    ("observation", "given"),
    [
        ([1, 2], "observes a list"),
        ({"observation": "text"}, r"observes a mapping with the keys \['observation'\]"),
        ({"text": 3}, r"observes a mapping with the keys \['text'\]"),
        (None, "observes a NoneType"),
    ],
)
def test_an_observation_that_is_not_text_is_refused(observation: Any, given: str) -> None:
    class Mute(Relay):
        def observe(self, agent: str) -> Any:
            return observation

    with pytest.raises(TypeError, match=rf"agent 'opener_0' {given}; expected text: .* Wrap the environment"):
        tree(ROWS, Mute, babble)


@pytest.mark.parametrize(
    ("observation", "messages"),
    [
        ("hi", [{"role": "user", "content": "hi"}]),
        ({"text": "hi"}, [{"role": "user", "content": "hi"}]),
        ({"text": "hi", "system": ""}, [{"role": "user", "content": "hi"}]),
        ({"text": "hi", "system": "Be."}, [{"role": "system", "content": "Be."}, {"role": "user", "content": "hi"}]),
        # What a partner wrote or a data set has; a tokenizer takes no half of a character.
        ({"text": "\ud800 hi"}, [{"role": "user", "content": "\N{REPLACEMENT CHARACTER} hi"}]),
        ("\ud83d\ude00", [{"role": "user", "content": "\N{GRINNING FACE}"}]),
    ],
)
def test_text_becomes_chat_messages(observation: Any, messages: Any) -> None:
    assert read_observation(observation, agent="a").messages == messages


# ---- The check of the invariant -----------------------------------------------------------------------------------


def with_decision(whole: Episode, index: int, /, **changes: Any) -> Episode:
    decisions = list(whole.decisions)
    decisions[index] = replace(decisions[index], **changes)
    return replace(whole, decisions=tuple(decisions))


@pytest.mark.parametrize(
    ("tamper", "message"),
    [
        (lambda e: with_decision(e, 1, state="another"), "not the state that the chosen branch reached"),
        (
            lambda e: with_decision(e, 0, candidates=tuple(replace(c, state="x") for c in e.decisions[0].candidates)),
            "not the state that the chosen branch reached",
        ),
        (lambda e: with_decision(e, 1, candidates=e.decisions[1].candidates[:3]), "3 candidates, expected 4"),
        (lambda e: with_decision(e, 1, instance=7), "instance 7 in an episode of 0"),
        (lambda e: with_decision(e, 1, episode=1), "sample 1 in an episode of 0"),
        (
            lambda e: replace(e, decisions=(*e.decisions, e.decisions[0])),
            "the agent decided twice at this turn.*drafter_0, turn 0",
        ),
    ],
    ids=["state", "branch", "size", "instance", "episode", "twice"],
)
def test_check_groups_catches_a_tampered_episode(tamper: Callable[[Episode], Episode], message: str) -> None:
    (episode,) = tree(ROWS[:1], PLAN_PATH, lambda request, k: "pass")
    check_groups([episode], num_candidates=4)
    with pytest.raises(UnsoundRollouts, match=message):
        check_groups([tamper(episode)], num_candidates=4)
