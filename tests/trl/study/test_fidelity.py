"""Credit fidelity: rank correlations by hand, and schemes whose advantages are known to be right or wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import Dataset

from pettingllms_envs import plan_path_v0
from pettingllms_trl import MultiAgentGRPOTrainer
from pettingllms_trl.research.study.credit_fidelity.fidelity import (
    PREFIX,
    ReplayedEnv,
    counterfactual,
    judged_decisions,
)
from pettingllms_trl.research.study.credit_fidelity.known_returns import KnownReturns
from pettingllms_trl.research.study.credit_fidelity.rank_correlation import correlations, rank_correlation
from short_runs import settings
from third_party import Relay, letters


def test_rank_correlations_by_hand() -> None:
    assert rank_correlation(np.array([1.0, 2, 3]), np.array([1.0, 3, 2])) == pytest.approx(0.5)
    assert rank_correlation(np.array([1.0, 2, 3]), np.array([10.0, 1000, 2000])) == pytest.approx(1.0)
    # Ranks 1.5, 1.5, 3 and 1, 2, 3: covariance 1.5, variances 1.5 and 2.
    assert rank_correlation(np.array([5.0, 5, 9]), np.array([1.0, 2, 3])) == pytest.approx(1.5 / np.sqrt(3))
    assert rank_correlation(np.array([5.0, 5, 5]), np.array([1.0, 2, 3])) is None
    assert rank_correlation(np.array([1.0, 1 + 1e-12, 5]), np.array([2.0, 1, 5])) == pytest.approx(1.5 / np.sqrt(3))


@pytest.mark.slow
def test_exact_advantages_reach_the_ceiling_and_a_scheme_with_as_much_noise_as_an_estimate_does_not() -> None:
    rng = np.random.default_rng(0)
    exact = rng.normal(size=4000)
    estimates, noisy = exact + rng.normal(size=(2, 4000)), exact + rng.normal(size=4000)
    found = correlations(exact, estimates, np.arange(4000) // 400)
    assert found["ceiling"] == pytest.approx(np.sqrt(0.5), abs=0.03)
    assert found["correlation"] == pytest.approx(found["ceiling"], abs=0.02)
    assert correlations(noisy, estimates, np.arange(4000) // 400)["correlation"] == pytest.approx(0.5, abs=0.03)
    opposed = np.stack([exact, -exact])
    assert correlations(exact, opposed, np.arange(4000) // 400)["ceiling"] == 0.0


def test_a_scheme_is_compared_with_both_estimates_which_are_compared_with_each_other() -> None:
    advantages, estimates = np.array([1.0, 2, 3]), np.array([[1.0, 2, 3], [1.0, 3, 2]])
    found = correlations(advantages, estimates, np.array([0, 0, 1]))
    assert found["correlation"] == pytest.approx(0.75)
    assert found["ceiling"] == pytest.approx(np.sqrt(0.5), abs=1e-4)
    low, high = found["interval"]
    assert -1 <= low <= high <= 1
    assert correlations(np.zeros(3), estimates, np.arange(3))["correlation"] is None


def test_the_interval_of_a_scheme_that_tells_candidates_apart_in_one_instance_of_three_includes_0() -> None:
    advantages, instances = np.array([1.0, -1, 0, 0, 0, 0]), np.array([0, 0, 1, 1, 2, 2])
    estimates = np.array([[5.0, -5, 1, -1, 2, -2]] * 2)
    found = correlations(advantages, estimates, instances)
    assert found["correlation"] > 0.5
    assert found["interval"][0] == 0.0  # 8 of 27 resamples leave the instance out


class Regret(Relay):
    """The opener writes once, then the closer. The opener is paid for its letters at once, and loses twice as much
    after the closer's turn: what looks good at its own step is bad."""

    def __init__(self) -> None:
        super().__init__(num_turns=1)

    def step(self, action: str | None) -> None:
        super().step(action)
        if len(self.written) == 2 and action is not None:
            self.rewards["opener_0"] = -2 * letters(self.written[0])


def fidelity_of(model: str, path: Path, credit: Any, sampling: str = "tree") -> tuple[dict[str, Any], list[Any]]:
    trainer = MultiAgentGRPOTrainer(
        model,
        Regret,
        settings(path, sampling=sampling),
        Dataset.from_dict({"seed": range(40)}),
        credit=credit,
    )
    with trainer.team.in_eval_mode():
        judged, tokens, _ = judged_decisions(trainer, 6, seed=0)
        openers = [each for each in judged if each.decision.agent == "opener_0"]
        estimates, more = counterfactual(trainer, openers, 2, KnownReturns(path / "returns.jsonl"))
    assert tokens > 0
    assert more > 0
    advantages = np.concatenate([each.advantages for each in openers])
    return correlations(advantages, estimates, np.arange(len(advantages))), judged


def test_a_scheme_that_sees_only_the_own_step_is_as_wrong_as_the_later_reward_makes_it(
    model_path: str, tmp_path: Path
) -> None:
    # The opener's return is letters - 2 letters: within each decision the order is reversed.
    found, judged = fidelity_of(model_path, tmp_path, {"at_grpo": {"scale": "none"}})
    assert found["correlation"] == pytest.approx(-1.0)
    assert found["ceiling"] == pytest.approx(1.0)
    assert sum(len(each.advantages) for each in judged) == 6 * 4


def test_decisions_without_siblings_are_compared_with_their_state(model_path: str, tmp_path: Path) -> None:
    found, judged = fidelity_of(model_path, tmp_path, {"grpo": {"scale": "none"}}, sampling="parallel")
    assert {len(each.advantages) for each in judged} == {1}
    assert len(judged) == 6 * 4  # as many candidates as in a tree
    assert found["ceiling"] < 1.0  # the value of the state is estimated from two episodes


def test_a_replayed_environment_is_in_the_state_that_the_replies_led_to() -> None:
    settings_of_env: dict[str, Any] = {"size": 4, "num_turns": 3}
    env = plan_path_v0.env(**settings_of_env)
    env.reset(seed=5, options={"split": "test"})
    replies = [env.unwrapped.oracle(), "nonsense"]
    for reply in replies:
        env.step(reply)
    replayed = ReplayedEnv(plan_path_v0.env(**settings_of_env), [[], replies])
    replayed.reset(seed=5, options={"split": "test", PREFIX: 1})
    assert replayed.agent_selection == env.agent_selection
    assert replayed.observe(env.agent_selection) == env.observe(env.agent_selection)
    replayed.reset(seed=5, options={"split": "test", PREFIX: 0})
    assert replayed.agent_selection == replayed.possible_agents[0]
