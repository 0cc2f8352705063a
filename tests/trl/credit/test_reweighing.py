"""Rewards weighed anew in the rollout: which candidate goes on, what everybody is paid, and the door. By hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from pettingllms_envs import plan_path_v0
from pettingllms_trl import Episode, MultiAgentGRPOTrainer
from pettingllms_trl.credit import counterfactual, weigh
from pettingllms_trl.credit.reward_weights import RewardWeights
from pettingllms_trl.engines.batched import BatchedEngine
from pettingllms_trl.records import Completion, PendingDecision, Request, Sampled
from plays import play
from short_runs import KeepsDecisions, settings
from third_party import PlainEnv, Relay


class Shop(PlainEnv):
    """A cook serves, then a clerk sells: each says how many. Both share what is sold or served (`plates`); who acts
    pays `waste` of its own, the square of its number; and the other one gets a `tip` of 1. A snapshot is a tuple."""

    metadata = {"name": "shop", "render_modes": []}

    def __init__(self, *, scoped: bool = True, declared: bool = False) -> None:
        self.possible_agents = ["cook_0", "clerk_0"]
        self._scoped = scoped
        if declared:
            self.metadata = {**Shop.metadata, "reward_ranges": {"plates": (0, 9), "waste": (-81, 0), "tip": (0, 1)}}

    def observe(self, agent: str) -> str:
        return f"{agent} {self.said}"

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self.settle(())

    def settle(self, said: tuple[int, ...]) -> None:
        self.said = said
        self.agents = self.possible_agents[:]
        self.agent_selection = self.possible_agents[len(said) % 2]
        parts: dict[str, dict[str, float]] = {agent: {} for agent in self.agents}
        if said:
            actor, other = self.possible_agents[(len(said) - 1) % 2], self.possible_agents[len(said) % 2]
            plates = float(said[-1])
            parts = {actor: {"plates": plates, "waste": -(plates**2)}, other: {"plates": plates, "tip": 1.0}}
        self.rewards = {agent: sum(parts[agent].values()) for agent in self.agents}
        self._cumulative_rewards = dict(self.rewards)
        team = {"team_rewards": ["plates"]} if self._scoped else {}
        self.infos = {agent: {"rewards": parts[agent], **team} for agent in self.agents}
        self.terminations = dict.fromkeys(self.agents, len(said) == 2)
        self.truncations = dict.fromkeys(self.agents, False)

    def step(self, action: str | None) -> None:
        if action is None:
            self._was_dead_step(action)
        else:
            self.settle((*self.said, int(action) if action.removeprefix("-").isdecimal() else 0))

    def snapshot(self) -> tuple[int, ...]:
        return self.said

    def restore(self, snapshot: tuple[int, ...]) -> None:
        self.settle(snapshot)


def sample(requests: Sequence[Request]) -> list[Sampled]:
    """Candidates 1, 2, 3; who continues says 1."""
    return [
        Sampled(
            replace(request.prompt, ids=(0,)),
            tuple(Completion(ids=(0,), text=str(k + 1)) for k in range(request.num_candidates)),
        )
        for request in requests
    ]


def played(*, alpha: float | None = None, num_continuations: int = 0, judge: Any = None, **weights: float) -> Episode:
    changed = alpha is not None or bool(weights)
    rollout = play(
        [{"seed": 0}],
        make_env=Shop,
        engine=BatchedEngine(sample),
        judge=judge,
        weigh=partial(weigh, weights=weights, alpha=alpha) if changed else None,
        sampling="tree",
        num_candidates=3,
        num_continuations=num_continuations,
        seed="s",
    )
    (episode,) = rollout.episodes
    return episode


# Saying n pays the actor n - n^2 and the other n + 1.
@pytest.mark.parametrize(
    ("given", "rewards", "chosen", "returns"),
    [
        ({}, [0, -2, -6], 0, {"cook_0": 0 + 2, "clerk_0": 2 + 0}),
        ({"waste": 0.0}, [1, 2, 3], 2, {"cook_0": 3 + 4, "clerk_0": 4 + 3}),
        ({"alpha": 4.0}, [3, 4, 3], 1, {"cook_0": 4 + 9, "clerk_0": 9 + 4}),  # 4 n - n^2; 4 n + 1
        ({"alpha": 2.0, "waste": 0.25}, [1.75, 3, 3.75], 2, {"cook_0": 3.75 + 7, "clerk_0": 7 + 3.75}),
        ({"tip": -5.0}, [0, -2, -6], 0, {"cook_0": 0 - 4, "clerk_0": -4 + 0}),
        ({"alpha": 0.0}, [-1, -4, -9], 0, {"cook_0": -1 + 1, "clerk_0": 1 - 1}),
    ],
)
def test_the_best_by_the_new_weights_goes_on_and_everybody_is_paid_by_them(
    given: dict[str, float], rewards: list[float], chosen: int, returns: dict[str, float]
) -> None:
    episode = played(**given)
    for decision in episode.decisions:
        assert [candidate.reward for candidate in decision.candidates] == pytest.approx(rewards)
        assert decision.chosen == chosen
        assert decision.episode_return == pytest.approx(returns[decision.agent])
        number = float(chosen + 1)
        assert decision.played.parts == {"plates": number, "waste": -(number**2)}  # as they were given
    assert episode.returns == pytest.approx(returns)
    assert episode.decisions[0].return_to_go == pytest.approx(returns["cook_0"])
    assert episode.decisions[1].return_to_go == pytest.approx(rewards[chosen])


def test_continuations_are_paid_by_the_new_weights_too() -> None:
    # Of the cook's candidates 1, 2, 3 each is continued by a clerk who says 1: the cook then gets plates 1 and tip 1.
    episode = played(num_continuations=2, waste=0.0, tip=3.0)
    cook, clerk = episode.decisions
    assert [candidate.continuations for candidate in cook.candidates] == [(4.0, 4.0)] * 3
    assert [candidate.continuations for candidate in clerk.candidates] == [(0.0, 0.0)] * 3  # the end
    assert counterfactual([cook], scale="none") == [pytest.approx([-1, 0, 1])]  # 1 + 4, 2 + 4, 3 + 4


def test_the_rewards_of_reward_functions_are_parts_that_are_weighed_as_well() -> None:
    def judge(choice: PendingDecision) -> list[dict[str, float]]:
        return [{"brief": 10.0 - 10 * k} for k in range(len(choice.completions))]

    cook, _ = played(judge=judge).decisions
    assert [candidate.reward for candidate in cook.candidates] == [0 + 10, -2 + 0, -6 - 10]
    cook, _ = played(judge=judge, brief=-1.0, waste=0.0).decisions
    assert [candidate.reward for candidate in cook.candidates] == [1 - 10, 2 - 0, 3 + 10]
    assert cook.chosen == 2


def test_a_reward_that_its_parts_do_not_make_says_whose() -> None:
    class Silent(Shop):
        def settle(self, said: tuple[int, ...]) -> None:
            super().settle(said)
            self.infos["clerk_0"] = {}

    with pytest.raises(ValueError, match=r"'clerk_0'.*'cook_0'.*reward of 2"):
        play(
            [{}],
            make_env=Silent,
            engine=BatchedEngine(sample),
            weigh=partial(weigh, weights={"tip": 2.0}, alpha=None),
            sampling="tree",
            num_candidates=3,
            seed="s",
        )


# ---- In training ----------------------------------------------------------------------------------------------------


def made(model: str, path: Path, env: Any, **options: Any) -> MultiAgentGRPOTrainer:
    own = {name: options.pop(name) for name in ("reward_funcs", "credit") if name in options}
    args = settings(path, **{"max_completion_length": 4, **options})
    return MultiAgentGRPOTrainer(model, env, args, Dataset.from_dict({"seed": range(8)}), **own)


PLAN_PATH = partial(plan_path_v0.raw_env, size=4, num_turns=2)
TEAM = ("progress", "success")


@pytest.mark.parametrize(("alpha", "weights"), [(0.5, {}), (0.0, {"format": 3.0}), (None, {"progress": -1.0})])
def test_a_run_is_paid_by_alpha_and_the_weights_of_its_configuration(
    alpha: float | None, weights: dict[str, float], model_path: str, tmp_path: Path
) -> None:
    credit = KeepsDecisions()
    trainer = made(model_path, tmp_path, PLAN_PATH, alpha=alpha, reward_parts=weights, credit=credit)
    moves = ["U", "U D", "?", "R", "D", "L L", "R D", "D R"]
    trainer.processing_class.batch_decode = lambda rows, **_: [f"Moves: {moves[ids[0] % 8]}" for ids in rows]
    trainer.train()
    candidates = [c for d in credit.decisions for c in d.candidates]
    assert {name for c in candidates for name in c.parts} >= {"progress", "format"}
    for c in candidates:
        due = sum(
            value * weights.get(name, 1.0) * (alpha if alpha is not None and name in TEAM else 1.0)
            for name, value in c.parts.items()
        )
        assert c.reward == pytest.approx(due)
    for d in credit.decisions:
        assert d.played.reward == max(c.reward for c in d.candidates)
    logs = trainer.state.log_history[0]
    mean = sum(c.reward for c in candidates) / len(candidates)
    assert logs["reward"] == pytest.approx(mean, abs=1e-6)


def brief(completions: list[Any], **_: Any) -> list[float]:
    return [0.0] * len(completions)


def plates(completions: list[Any], **_: Any) -> list[float]:
    return [10.0] * len(completions)


class Hidden(Shop):
    """Pays 5 more than it names."""

    def settle(self, said: tuple[int, ...]) -> None:
        super().settle(said)
        self.rewards = {agent: reward + 5 for agent, reward in self.rewards.items()}


WRONG: dict[str, tuple[Any, dict[str, Any], str]] = {
    "unknown part": (
        PLAN_PATH,
        {"reward_parts": {"progres": 2.0}},
        r"'progres'.*'progress'.*success, format",
    ),
    "unknown part beside a reward function's": (
        PLAN_PATH,
        {"reward_parts": {"brif": 2.0}, "reward_funcs": brief},
        r"'brif'.*'brief'",
    ),
    "unknown part of what declares none": (
        Shop,
        {"reward_parts": {"wast": 2.0}},
        r"'wast'.*'waste'.*plates, waste, tip\. An environment declares all its parts in metadata\['reward_ranges'\]",
    ),
    "unknown part, though a late one, of what declares its parts": (
        partial(Shop, declared=True),
        {"reward_parts": {"success": 2.0}},
        r"'success'.*plates, waste, tip\. An environment declares",
    ),
    "a reward function of the name of a part": (
        Shop,
        {"reward_parts": {"plates": 2.0}, "reward_funcs": [plates]},
        r"the reward function 'plates' has the name of a part .* expected another name, .* Rename the function, or",
    ),
    "alpha twice": (
        partial(plan_path_v0.raw_env, alpha=0.5),
        {"alpha": 2.0},
        r"alpha=0\.5.*alpha=1",
    ),
    "alpha of what does not say which": (
        partial(Shop, scoped=False),
        {"alpha": 2.0},
        r"alpha=2\.0.*\['team_rewards'\]",
    ),
    "parts that do not make the reward": (
        Hidden,
        {"reward_parts": {"tip": 2.0}},
        r"'cook_0'.*reward of 5.*plates 0, waste -0",
    ),
    "negative alpha": (PLAN_PATH, {"alpha": -1.0}, r"alpha=-1\.0"),
    "no number": (
        PLAN_PATH,
        {"reward_parts": {"format": "a lot"}},
        r"reward_parts=.*'a lot'",
    ),
    "no mapping": (PLAN_PATH, {"reward_parts": "format=2"}, r"reward_parts='format=2'"),
}


@pytest.mark.parametrize(("env", "options", "message"), WRONG.values(), ids=WRONG.keys())
def test_what_cannot_be_meant_is_refused_before_a_model_is_loaded(
    env: Any, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        made(str(tmp_path / "no model"), tmp_path, env, **options)


def test_a_part_that_is_declared_but_not_in_the_first_step_is_known(model_path: str, tmp_path: Path) -> None:
    made(model_path, tmp_path, partial(Shop, declared=True), reward_parts={"tip": 0.5, "waste": 2})
    made(model_path, tmp_path, PLAN_PATH, reward_parts={"settle": 0.0}, alpha=1.0)


class Closing(Relay):
    """Names no part, and pays nothing, but at the end: a `bonus` for whoever acts, and another for the other one."""

    parts = ("bonus", "share")

    def step(self, action: str | None) -> None:
        who = self.agent_selection
        super().step(action)
        self.rewards = dict.fromkeys(self.possible_agents, 0.0)
        if len(self.written) == 4 and action is not None:
            own, others = self.parts
            self.rewards = {agent: 1.0 if agent == who else 3.0 for agent in self.agents}
            self.infos = {agent: {"rewards": {own: 1.0} if agent == who else {others: 3.0}} for agent in self.agents}


class Declared(Closing):
    metadata = {**Relay.metadata, "reward_ranges": {"bonus": (0.0, 1.0), "share": (0.0, 3.0)}}


@pytest.mark.parametrize("env", [Closing, Declared])
def test_a_part_that_first_comes_at_the_end_of_an_episode_is_weighed(
    env: Any, model_path: str, tmp_path: Path
) -> None:
    credit = KeepsDecisions()
    made(model_path, tmp_path, env, reward_parts={"bonus": 5.0, "share": -2.0}, credit=credit).train()
    assert {(d.agent, d.episode_return) for d in credit.decisions} == {("closer_0", 5.0), ("opener_0", -6.0)}


def test_a_part_that_never_came_is_told_after_the_first_generation(model_path: str, tmp_path: Path) -> None:
    trainer = made(model_path, tmp_path, Closing, reward_parts={"succes": 5.0, "bonus": 2.0}, max_steps=2)
    with pytest.warns(
        UserWarning, match=r"weight for 'succes', but no reward of the first .* they had bonus, share\. C"
    ):
        trainer.train()


def test_a_part_that_never_came_is_told_on_one_process_of_two() -> None:
    weights = RewardWeights({"bonus": 2.0, "share": 1.0, "succes": 5.0}, None, ["bonus", "share", "succes"])
    weights(1.0, {"bonus": 1.0})  # the other process has seen a share
    (warning,) = weights.warnings_of_missing_parts({*weights.seen, "share"})
    assert warning.startswith("reward_parts has a weight for 'succes'")


@pytest.mark.filterwarnings("ignore:the reward function")
def test_a_reward_function_with_the_name_of_a_declared_part_is_numbered(model_path: str, tmp_path: Path) -> None:
    def bonus(completions: list[Any], **_: Any) -> list[float]:
        return [10.0] * len(completions)

    credit = KeepsDecisions()
    weights = {"bonus": 5.0, "bonus_2": 0.5}
    trainer = made(model_path, tmp_path, Declared, reward_funcs=bonus, reward_parts=weights, credit=credit)
    trainer.train()
    assert trainer.state.log_history[0]["rewards/bonus_2/mean"] == 10.0
    assert [d.played.parts for d in credit.decisions][-1] == {"bonus": 1.0, "bonus_2": 10.0}
    assert [d.played.reward for d in credit.decisions][-1] == 5 * 1.0 + 0.5 * 10.0


def test_a_reward_function_with_the_name_of_a_part_that_shows_late_is_refused(model_path: str, tmp_path: Path) -> None:
    def share(completions: list[Any], **_: Any) -> list[float]:
        return [0.0] * len(completions)

    trainer = made(model_path, tmp_path, Closing, reward_funcs=share)
    with pytest.raises(ValueError, match="the reward function 'share' has the name of a part of the environment's"):
        trainer.train()
