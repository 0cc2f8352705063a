"""Every credit scheme in training: the advantages in the table of completions are those its formula gives.

The formulas are written out here once more, for one group at a time, on the episodes that were played.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas
import pytest
from datasets import Dataset

from pettingllms_trl import Decision, MultiAgentGRPOTrainer
from pettingllms_trl.credit import loo
from short_runs import KeepsRollouts, settings
from third_party import Relay


K = 3
Numbers = list[list[float]]
"""One list per decision, one number per candidate of it."""


class Uneven(Relay):
    """Over after two texts where they are of odd length together, so that episodes differ in length."""

    def step(self, action: str | None) -> None:
        super().step(action)
        if action is not None and len(self.written) == 2 and len("".join(self.written)) % 2:
            self.truncations = dict.fromkeys(self.agents, True)


class Watched(KeepsRollouts, MultiAgentGRPOTrainer):
    pass


def trained(model: str, path: Path, credit: Any, **options: Any) -> Watched:
    """Two steps of 2 rows; every row of the table is logged."""
    trainer = Watched(
        model,
        Uneven,
        settings(
            path,
            per_device_train_batch_size=2 * K,
            num_generations=K,
            max_completion_length=4,
            max_steps=2,
            log_completions=True,
            num_completions_to_print=0,
            seed=3,
            **options,
        ),
        Dataset.from_dict({"seed": range(8)}),
        credit=credit,
    )
    trainer.train()
    return trainer


def normalised(group: Sequence[float]) -> list[float]:
    mean, deviation = statistics.mean(group), statistics.stdev(group)
    return [(number - mean) / (deviation + 1e-4) for number in group]


def less_others(group: Sequence[float]) -> list[float]:
    return [number - (sum(group) - number) / (len(group) - 1) for number in group]


def less_mean(group: Sequence[float]) -> list[float]:
    return [number - statistics.mean(group) for number in group]


def over_mean(group: Sequence[float]) -> list[float]:
    mean = statistics.mean(group)
    return [(number - mean) / mean if mean else 0.0 for number in group]


def best_alone(group: Sequence[float]) -> list[float]:
    return [float(number > max(group) - 1e-6 > min(group)) for number in group]


Formula = Callable[[Sequence[float]], list[float]]


def of_siblings(formula: Formula, decisions: Sequence[Decision]) -> Numbers:
    return [formula([c.reward for c in d.candidates]) for d in decisions]


def of_continued(decisions: Sequence[Decision]) -> Numbers:
    return [normalised([c.reward + statistics.mean(c.continuations) for c in d.candidates]) for d in decisions]


def of_played_on(decisions: Sequence[Decision]) -> Numbers:
    """Siblings, of which the played one alone is paid for what followed."""
    return [
        less_mean([d.return_to_go if k == d.chosen else c.reward for k, c in enumerate(d.candidates)])
        for d in decisions
    ]


def of_groups(formula: Formula, decisions: Sequence[Decision], key: Any, number: Any) -> Numbers:
    """Every decision a member of the group that `key` names."""
    groups: dict[Any, list[int]] = defaultdict(list)
    for i, decision in enumerate(decisions):
        groups[decision.agent, decision.instance, key(decision)].append(i)
    found: Numbers = [[] for _ in decisions]
    for members in groups.values():
        values = formula([number(decisions[i]) for i in members]) if len(members) > 1 else [0.0]
        for i, value in zip(members, values, strict=True):
            found[i] = [value]
    return found


def of_episodes(formula: Formula, decisions: Sequence[Decision]) -> Numbers:
    """Every episode a member of its instance's group, once; all of an agent's decisions get what it got."""
    returns: dict[Any, dict[int, float]] = defaultdict(dict)
    for d in decisions:
        returns[d.agent, d.instance][d.episode] = d.episode_return
    advantages = {
        (*group, episode): value
        for group, members in returns.items()
        for episode, value in zip(members, formula(list(members.values())), strict=True)
    }
    return [[advantages[d.agent, d.instance, d.episode]] for d in decisions]


def of_states(decisions: Sequence[Decision]) -> Numbers:
    """GiGPO with no discount: the episode's advantage and one among the decisions at the same prompt."""
    at_prompt = of_groups(normalised, decisions, lambda d: d.prompt.ids, lambda d: d.return_to_go)
    whole = of_episodes(normalised, decisions)
    return [[e + s] for (e,), (s,) in zip(whole, at_prompt, strict=True)]


def of_the_past(decisions: Sequence[Decision], baselines: dict[str, float], *, once: bool) -> Numbers:
    """Each agent's running mean, from 0 in the first step on; `once` an episode, with its return."""
    before: dict[Any, float] = {}
    found: Numbers = []
    for i, d in enumerate(decisions):
        sample = (d.instance, d.episode, d.agent) if once else i
        numbers = [d.episode_return] if once else [c.reward for c in d.candidates]
        if sample not in before:
            before[sample] = baselines.get(d.agent, 0.0)
            baselines[d.agent] = 0.95 * before[sample] + 0.05 * statistics.mean(numbers)
        found.append([number - before[sample] for number in numbers])
    return found


TREE, PARALLEL = {"sampling": "tree"}, {"sampling": "parallel"}
TO_GO, TOTAL = (lambda d: d.return_to_go), (lambda d: d.episode_return)
SCHEMES: dict[str, tuple[Any, dict[str, Any], Callable[..., Numbers]]] = {
    "at_grpo": ("at_grpo", TREE, partial(of_siblings, normalised)),
    "at_grpo, no scale": ("at_grpo", {**TREE, "scale_rewards": "none"}, partial(of_siblings, less_mean)),
    "at_grpo, to go": ({"at_grpo": {"value": "return_to_go", "scale": "none"}}, TREE, of_played_on),
    "counterfactual": ("counterfactual", {**TREE, "num_continuations": 2}, of_continued),
    "magrpo": ("magrpo", TREE, of_played_on),
    "loo": ("loo", TREE, partial(of_siblings, less_others)),
    "max_rl": ("max_rl", TREE, partial(of_siblings, over_mean)),
    "best": ("best", TREE, partial(of_siblings, best_alone)),
    "rae": ("rae", TREE, partial(of_the_past, baselines={}, once=False)),
    "grpo": ("grpo", PARALLEL, partial(of_episodes, normalised)),
    "loo of episodes": (loo, PARALLEL, partial(of_episodes, less_others)),
    "max_rl of episodes": ("max_rl", PARALLEL, partial(of_episodes, over_mean)),
    "best of episodes": ("best", PARALLEL, lambda ds: of_groups(best_alone, ds, lambda d: d.turn, TO_GO)),
    "rae of episodes": ("rae", PARALLEL, partial(of_the_past, baselines={}, once=True)),
    "dr_mas": ("dr_mas", PARALLEL, lambda ds: of_groups(normalised, ds, lambda d: 0, TOTAL)),
    "magrpo of episodes": ("magrpo", PARALLEL, lambda ds: of_groups(less_mean, ds, lambda d: d.turn, TO_GO)),
    "gigpo": ({"gigpo": {"gamma": 1.0}}, PARALLEL, of_states),
}


# In the slow tests: those whose groups are another one's. What each makes of a group is in test_schemes.py.
SLOW = {"at_grpo, no scale", "magrpo", "loo", "max_rl", "best"} | {
    f"{name} of episodes" for name in ("loo", "max_rl", "best")
}


@pytest.mark.parametrize(
    ("credit", "options", "expected"),
    [pytest.param(*each, id=name, marks=pytest.mark.slow if name in SLOW else ()) for name, each in SCHEMES.items()],
)
def test_the_advantages_in_the_table_are_those_of_the_formula(
    credit: Any, options: dict[str, Any], expected: Callable[..., Numbers], model_path: str, tmp_path: Path
) -> None:
    trainer = trained(model_path, tmp_path, credit, **options)
    assert len(trainer.rollouts) == 2
    seen = []
    for step, episodes in enumerate(trainer.rollouts, start=1):
        decisions = [d for episode in episodes for d in episode.decisions]
        table = pandas.read_parquet(tmp_path / "completions" / f"completions_{step:05d}.parquet")
        rows = [(d.instance, d.episode, d.agent, d.turn) for d in decisions for _ in d.candidates]
        assert list(table[["instance", "episode", "agent", "turn"]].itertuples(index=False, name=None)) == rows
        assert list(table["environment"]) == pytest.approx([c.reward for d in decisions for c in d.candidates])
        by_hand = [value for values in expected(decisions) for value in values]
        assert list(table["advantage"]) == pytest.approx(by_hand, rel=1e-3, abs=1e-5)
        seen += by_hand
    least = 2 if credit == "best" else 5
    assert len({round(value, 6) for value in seen}) >= least  # groups that tell candidates apart
    losses = [log["loss"] for log in trainer.state.log_history if "loss" in log]
    assert len(losses) == 2
    assert all(map(math.isfinite, losses))


def test_episodes_differ_in_length_so_that_a_weight_by_decisions_shows(model_path: str, tmp_path: Path) -> None:
    trainer = trained(model_path, tmp_path, "grpo", sampling="parallel")
    assert len({len(episode.decisions) for episodes in trainer.rollouts for episode in episodes}) > 1
