"""Credit fidelity: how well a scheme's advantages agree with the counterfactual ones that they stand for.

The counterfactual advantage of a candidate is by how much the acting agent's expected return is higher with it than
with what its policy replies on average in the same state, if all go on with the current policies. It is estimated by
playing each candidate's branch to its end n times: `Q(s, a) = reward + mean of n returns`, less the mean of the
siblings' Q or, where decisions have no siblings (`sampling="parallel"`), less the mean of n returns from the state.

A scheme's fidelity is the rank correlation (Spearman) of its advantages with such an estimate, over the candidates of
all decisions. The ceiling is what the exact counterfactual advantages would reach with an estimate that has noise: the
square root of the correlation of two independent estimates.

Continuations are played from a replayed state: the environment is reset to the instance and given the episode's
replies up to there. So this needs environments whose steps are determined by the instance and the replies.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pettingzoo import AECEnv
from pettingzoo.utils import BaseWrapper
from transformers import set_seed

from pettingllms_envs.research.studies.results import Fidelity, digest_of
from pettingllms_trl.records import DataRow, Decision
from pettingllms_trl.research.study.cells import open_trainer
from pettingllms_trl.research.study.credit_fidelity.known_returns import KnownReturns, Returns, file_name
from pettingllms_trl.research.study.credit_fidelity.rank_correlation import correlations
from pettingllms_trl.research.study.plans.plan import PlannedRun
from pettingllms_trl.rollout import RolloutOptions
from pettingllms_trl.rollout.env_pool import MakeEnv
from pettingllms_trl.rollout.play import EnvironmentSource
from pettingllms_trl.trainer.trainer import MultiAgentGRPOTrainer


PREFIX = "replayed_prefix"
ROWS_AT_ONCE, MAX_ENVS = 32, 512
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A decision with the advantages that a scheme gave to its candidates.

    Args:
        prefix: The replies of the episode before it.
        instance: Number of its instance among all that were played.
    """

    decision: Decision
    advantages: Sequence[float]
    row: DataRow
    prefix: tuple[str, ...]
    instance: int


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A state that continuations are played from, and the replies that lead to it from the start of the episode."""

    judged: Judged
    replies: tuple[str, ...]

    @property
    def key(self) -> str:
        """Equal for states from which the same agent's returns have the same distribution."""
        row = repr(sorted(self.judged.row.items()))
        return digest_of({"row": row, "agent": self.judged.decision.agent, "replies": self.replies})


def measure(run: PlannedRun, folder: Path, prepared: Path | None) -> Fidelity:
    """The fidelity of a method's credit with the policies that it starts from.

    Args:
        prepared: What `{folder}` in the configuration stands for. It gets a file of returns, see `KnownReturns`; if
            there is none, the folder of the environment's runs does.
    """
    options, began = run.config["fidelity"], time.perf_counter()
    with open_trainer(run, folder, prepared) as trainer, trainer.team.in_eval_mode():
        _check(trainer)
        set_seed(run.cell.seed)
        judged, tokens, num_episodes = judged_decisions(trainer, options["decisions"], seed=run.cell.seed)
        known = KnownReturns((prepared or folder.parents[1]) / file_name(run.config))
        estimates, more = counterfactual(trainer, judged, options["continuations"], known)
    advantages = np.concatenate([each.advantages for each in judged])
    instances = np.concatenate([[each.instance] * len(each.advantages) for each in judged])
    return Fidelity(
        cell=run.cell,
        config=run.config,
        digest=run.digest,
        **correlations(advantages, estimates, instances),
        num_decisions=len(judged),
        num_candidates=len(advantages),
        num_continuations=options["continuations"],
        num_episodes=num_episodes,
        tokens=tokens + more,
        seconds=round(time.perf_counter() - began, 1),
    )


def _check(trainer: MultiAgentGRPOTrainer) -> None:
    args = trainer.args
    if args.history not in (None, "none"):
        raise ValueError(
            f"history is {args.history!r}, but fidelity is measured from replayed states, in which agents remember "
            "nothing; expected none. Measure it without a history."
        )
    if args.max_turns is not None:
        raise ValueError(
            f"max_turns is {args.max_turns}, but turns are not counted in replayed states; expected None. Limit the "
            "turns by the environment's own setting."
        )
    if trainer.collector.has_reward_functions:
        raise ValueError("there are reward_funcs, which continuations are not given; expected none. Leave them out.")


# ---- Decisions and what the scheme makes of them --------------------------------------------------------------------


def judged_decisions(trainer: MultiAgentGRPOTrainer, number: int, *, seed: int) -> tuple[list[Judged], int, int]:
    """Decisions of training rollouts, drawn at random, with the scheme's advantages.

    Where decisions have one candidate each, `num_generations` times as many are drawn, for as many candidates.

    Returns:
        The decisions, the tokens generated for all that were played, and the number of episodes.
    """
    rows = iter(trainer.train_dataset)
    num_candidates = trainer.args.num_generations
    found: list[Judged] = []
    tokens = num_episodes = num_instances = 0
    while sum(len(each.advantages) for each in found) < 2 * number * num_candidates:
        batch = list(islice(rows, trainer.plan.rows))
        if len(batch) < trainer.plan.rows:
            break
        generation = trainer.collector.collect(
            batch, name=f"fidelity/{num_instances}", learning=trainer.routing.trained
        )
        given = {id(d): a for d, a in zip(generation.decisions, trainer.credit(generation.decisions), strict=True)}
        for episode in generation.played.episodes:
            for i, decision in enumerate(episode.decisions):
                if id(decision) in given:
                    replies = tuple(before.played.completion.text for before in episode.decisions[:i])
                    row = generation.rows[decision.instance]
                    instance = num_instances + decision.instance
                    found.append(
                        Judged(
                            decision=decision,
                            advantages=given[id(decision)],
                            row=row,
                            prefix=replies,
                            instance=instance,
                        )
                    )
        tokens += int(generation.played.counts["sampled_tokens"])
        num_episodes += len(generation.played.episodes)
        num_instances += len(generation.rows)
    order = np.random.default_rng(seed).permutation(len(found))
    drawn: list[Judged] = []
    for i in order:
        if sum(len(each.advantages) for each in drawn) >= number * num_candidates:
            break
        drawn.append(found[i])
    return drawn, tokens, num_episodes


# ---- Counterfactual advantages --------------------------------------------------------------------------------------


class ReplayedEnv(BaseWrapper):
    """An environment whose episodes start after given replies: the reset option `PREFIX` says which `prefixes`."""

    def __init__(self, env: AECEnv, prefixes: Sequence[Sequence[str]]) -> None:
        super().__init__(env)
        self._prefixes = prefixes

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        given = dict(options or {})
        prefix = self._prefixes[given.pop(PREFIX)]
        super().reset(seed=seed, options=given or None)
        for reply in prefix:
            while self.terminations[self.agent_selection] or self.truncations[self.agent_selection]:
                self.step(None)
            self.step(reply)


def counterfactual(
    trainer: MultiAgentGRPOTrainer, judged: Sequence[Judged], number: int, known: KnownReturns
) -> tuple[Floats, int]:
    """Two independent estimates of each candidate's counterfactual advantage.

    Args:
        number: Continuations in an estimate.
        known: Returns that need not be played for; what is played is added.

    Returns:
        The estimates (2, candidates of all decisions), and the tokens that they took, known ones included.
    """
    states: dict[str, State] = {}  # equal replies lead to one state, which is played from once
    for each in judged:
        for state in _states_of(each):
            states.setdefault(state.key, state)
    _play(trainer, list(states.values()), 2 * number, known)
    returns = {key: found for key in states if (found := known.get(key)) is not None}
    means = {key: np.reshape(found.values, (2, number)).mean(axis=1) for key, found in returns.items()}  # (2,) of each
    parts = []
    for each in judged:
        values = np.stack([means[state.key] for state in _states_of(each)], axis=1)  # (2, K), or (2, 1 + 1)
        rewards = np.array([candidate.reward for candidate in each.decision.candidates])
        after = values[:, : len(rewards)] + rewards
        baseline = after.mean(axis=1) if len(rewards) > 1 else values[:, -1]
        parts.append(after - baseline[:, None])
    return np.concatenate(parts, axis=1), sum(found.tokens for found in returns.values())


def _states_of(judged: Judged) -> list[State]:
    """The states after each candidate and, where there is one candidate, the state before it."""
    texts = [(candidate.completion.text,) for candidate in judged.decision.candidates]
    return [State(judged=judged, replies=(*judged.prefix, *text)) for text in (*texts, *[()] * (len(texts) == 1))]


def _play(trainer: MultiAgentGRPOTrainer, states: Sequence[State], number: int, known: KnownReturns) -> None:
    """Add the acting agent's returns of `number` episodes from each state that is not known."""
    source = trainer.collector.source
    assert isinstance(source, EnvironmentSource)
    makers = source.make_env if isinstance(source.make_env, Mapping) else {"": source.make_env}
    states = [state for state in states if known.get(state.key) is None]
    prefixes = [state.replies for state in states]
    made = {name: partial(_replayed, make, prefixes) for name, make in makers.items()}
    replayed = dataclasses.replace(
        source, make_env=made if isinstance(source.make_env, Mapping) else made[""], pool={name: [] for name in made}
    )
    options = RolloutOptions(sampling="parallel", num_candidates=number, max_envs=MAX_ENVS)
    for first in range(0, len(states), ROWS_AT_ONCE):
        part = states[first : first + ROWS_AT_ONCE]
        rows = [{**state.judged.row, PREFIX: first + i} for i, state in enumerate(part)]
        name = f"fidelity/continuations/{part[0].key}"
        with trainer.sampling(name) as engine:
            rollout = replayed.play(rows, engine, options, seed=name)
        values = np.zeros((len(part), number))
        tokens = [0] * len(part)
        for episode in rollout.episodes:
            agent = part[episode.instance].judged.decision.agent
            values[episode.instance, episode.episode] = episode.returns.get(agent, 0.0)
            completions = (c.completion for decision in episode.decisions for c in decision.candidates)
            tokens[episode.instance] += sum(len(completion.ids) for completion in completions)
        returns = [Returns(tuple(map(float, row)), count) for row, count in zip(values, tokens, strict=True)]
        known.add([state.key for state in part], returns)


def _replayed(make: MakeEnv, prefixes: Sequence[Sequence[str]]) -> AECEnv:
    return ReplayedEnv(make(), prefixes)
