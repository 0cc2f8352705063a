"""Changes the weights of a reward's named parts (`reward_parts`) and of the team's part (`alpha`).

Which candidate is chosen, and what an episode returns, depend on the weights. So the rollout computes every agent's
reward right after a step (`weigh`); `weigher` checks the user's weights on one step before any training, and
`reweighed` applies other weights to decisions that were played before.

The names of parts are known where the environment declares them, those of the end of an episode included. Elsewhere a
name that one step does not show may be that of a part that comes later; if none has come in the first generation,
`RewardWeights` warns.

    metadata = {"name": "my_game_v0", "reward_ranges": {"format": (-0.1, 0.0), "success": (0.0, 1.0)}}
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

from pettingzoo import AECEnv

from pettingllms_envs.suggestions import did_you_mean
from pettingllms_trl.records import Completion, Decision
from pettingllms_trl.rollout.branching import Branch, branch_of, check_part_names, weighed


RANGES = "reward_ranges"
"""Where an environment's metadata declares the parts of its rewards: by name, the least and the greatest value."""
DECLARE = (
    "An environment declares all its parts in metadata['reward_ranges'], such as {'success': (0.0, 1.0)}; then every "
    "name is checked when the trainer is created."
)
MISSPELT = 0.8
"""Similarity (`difflib`) from which an unknown name is taken for a misspelt one."""


def weigh(
    reward: float,
    parts: Mapping[str, float],
    *,
    weights: Mapping[str, float],
    alpha: float | None = None,
    team: Collection[str] | None = None,
) -> float:
    r"""The weighted sum of a reward's parts, `alpha * sum_team w_p x_p + sum_others w_p x_p`.

    Args:
        reward: As the environment gave it, with `alpha = 1` and every weight 1.
        parts: By name (`infos[agent]["rewards"]`), those of reward functions included.
        weights: By name; 1 where none is given.
        alpha: Weight of the team's parts (arXiv:2510.11062, section 3); `None` leaves them as they are.
        team: The names of the team's parts, all others being an agent's own; needed with `alpha`.

    Returns:
        The reward; to the last bit the one given, where there is neither `alpha` nor a weight.

    Raises:
        ValueError: The parts do not add up to the reward, so that a weight of 1 would change it; or `alpha` is given,
            but not which parts are the team's.

    Example:
        progress 0.5 and success 1, of the team, with format -0.2 make 1.3. Format weighed with 2 and alpha 0.5:
        0.5 * (0.5 + 1) - 0.4 = 0.35.
    """
    if alpha is None and not weights:
        return reward
    total = math.fsum(parts.values())
    if not math.isclose(total, reward, rel_tol=1e-6, abs_tol=1e-6):
        named = ", ".join(f"{name} {value:g}" for name, value in parts.items()) or "none"
        raise ValueError(
            f"a reward of {reward:g} has the parts {named}, expected them to add up to it ({total:g} is their sum). "
            "Either the environment weighs them by an alpha of its own: make it with alpha=1, and give alpha here. Or "
            "it does not name them all: leave out alpha and the weights."
        )
    if alpha is not None and team is None:
        raise ValueError(
            f"alpha={alpha:g} without the team's parts: {', '.join(parts) or 'no part'} could be the team's or an "
            "agent's own. Say which are the team's, or give each of them a weight instead of alpha."
        )
    return math.fsum(
        value * weights.get(name, 1.0) * (alpha if alpha is not None and team is not None and name in team else 1.0)
        for name, value in parts.items()
    )


def reweighed(
    decisions: Sequence[Decision],
    /,
    *,
    parts: Mapping[str, float],
    alpha: float | None = None,
    team: Collection[str] | None = None,
) -> list[Decision]:
    """The decisions with each candidate's reward recomputed, to apply other weights to what was already played.

    The chosen candidate stays the same, though another may be the best by the new weights. What an agent was paid at
    the steps of others is not in its decisions, so the returns are unknown: they are NaN, continuations are removed,
    and the schemes that need them raise an error.

    Args:
        parts: The weight of each part by name; 1 where none is given.
    """
    result = []
    for i, decision in enumerate(decisions):
        candidates = []
        for candidate in decision.candidates:
            try:
                reward = weigh(candidate.reward, candidate.parts, weights=parts, alpha=alpha, team=team)
            except ValueError as error:
                raise ValueError(f"decision {i} ({decision.agent}, turn {decision.turn}): {error}") from None
            candidates.append(replace(candidate, reward=reward, continuations=()))
        result.append(replace(decision, candidates=tuple(candidates), episode_return=math.nan, return_to_go=math.nan))
    return result


def check_weights(weights: Mapping[str, float], alpha: float | None, *, known: Collection[str]) -> None:
    """Validate the weights of reward parts before any training.

    Args:
        alpha: Weight of the team's parts, or `None`.
        known: All names of parts: the environment's (`metadata["reward_ranges"]`) and those of reward functions.

    Raises:
        ValueError: A name is unknown, or a number is not finite, or alpha is negative.
    """
    for name, weight in weights.items():
        if name not in known:
            hint = did_you_mean(name, known)
            raise ValueError(f"no reward part {name!r}.{hint} Known: {', '.join(known) or 'none'}. {DECLARE}")
        if not math.isfinite(weight):
            raise ValueError(f"the weight of the reward part {name!r} is {weight!r}, expected a finite number")
    if alpha is not None and not 0.0 <= alpha < math.inf:
        raise ValueError(f"alpha={alpha!r}, expected the weight of the team's rewards, finite and at least 0")


class RewardWeights:
    """The weights of a run, a `RewardWeigher` that remembers which parts have come.

    Args:
        late: Names of parts that have a weight, and are not known to exist.
    """

    def __init__(self, weights: Mapping[str, float], alpha: float | None, late: Collection[str]) -> None:
        self.late, self._weigh = frozenset(late), partial(weigh, weights=weights, alpha=alpha)
        self.seen: set[str] = set()

    def __call__(self, reward: float, parts: Mapping[str, float], /, *, team: Collection[str] | None = None) -> float:
        if self.late:
            self.seen.update(parts)
        return self._weigh(reward, parts, team=team)

    def warnings_of_missing_parts(self, seen: Collection[str]) -> list[str]:
        """Warnings for weights of parts that have not come on any process."""
        return [
            f"reward_parts has a weight for {name!r}, but no reward of the first generation had such a part; they had "
            f"{', '.join(sorted(seen)) or 'none'}. Correct the name, unless the part comes but rarely. {DECLARE}"
            for name in sorted(self.late.difference(seen))
        ]


def weigher(
    envs: Sequence[AECEnv], *, alpha: float | None, weights: Mapping[str, float] | None, functions: Collection[str]
) -> RewardWeights | None:
    """The function that computes the rewards of a run, or `None` if they stay as the environment gives them.

    Args:
        envs: One environment of each kind, just reset; an empty reply is played in it.
        alpha: Weight of the team's parts; `None` leaves them as they are.
        weights: Weights of parts by name; 1 where none is given.
        functions: Names of the user's reward functions, whose rewards are parts, too.

    Raises:
        ValueError: A part is unknown, a weight is not a finite number, a function has the name of a part, the
            environment was made with an alpha of its own or does not say which parts are the team's, or its parts do
            not add up to its rewards.
    """
    if alpha is None and not weights:
        return None
    weights = dict(weights or {})
    steps: list[tuple[AECEnv, str, Branch]] = []
    for env in envs:
        agent = env.agent_selection
        branch = branch_of(env, agent, Completion(ids=(), text=""), None, in_place=True)
        steps.append((env, agent, branch))
        check_part_names(branch, functions)
    shown = [name for _, _, branch in steps for parts in branch.parts.values() for name in parts]
    known = list(dict.fromkeys([*declared_parts(envs), *shown, *functions]))
    is_declared = all(env.metadata.get(RANGES) is not None for env in envs)
    # What is like a known one is that, or a misspelt one; any other may come at a later step.
    is_like = partial(difflib.get_close_matches, possibilities=known, n=1, cutoff=MISSPELT)
    late = [] if is_declared else [name for name in weights if not is_like(name)]
    check_weights(weights, alpha, known=[*known, *late])
    made = RewardWeights(weights, alpha, late)
    for env, agent, branch in steps:
        own = env.metadata.get("alpha", 1.0)
        if own != 1.0:
            raise ValueError(
                f"alpha={alpha} and reward_parts={weights} for an environment that was made with alpha={own}, "
                "expected 1: the team's rewards would be weighed twice. Make it with alpha=1 (env_kwargs), and give "
                "alpha here."
            )
        if alpha is not None and branch.team is None:
            raise ValueError(
                f"alpha={alpha}, but the environment does not say which parts of a reward are the team's, expected "
                "their names in infos[agent]['team_rewards']. Add them, or give each of those parts a weight in "
                "reward_parts."
            )
        weighed(branch, agent, made)
    return made


def check_not_negative(envs: Sequence[AECEnv], weights: Mapping[str, float] | None, crash: float | None) -> None:
    """Raise `ValueError` if rewards may be below 0 by what environments declare, for credit that takes none such.

    Args:
        crash: The reward of a crash; `None`: there is none.
    """
    for env in envs:
        declared = {**(env.metadata.get(RANGES) or {}), **({} if crash is None else {"crash": (crash, 0.0)})}
        least = {name: min((weights or {}).get(name, 1.0) * end for end in ends) for name, ends in declared.items()}
        if sum(least.values()) < 0:
            named = ", ".join(f"{name!r} is at least {value:g}" for name, value in least.items() if value < 0)
            raise ValueError(
                "the credit reads a reward as a rate of success, expected 0 or more, but of "
                f"{env.metadata.get('name')} {named}. Weigh these parts with 0 (reward_parts), or take another credit."
            )


def declared_parts(envs: Sequence[AECEnv]) -> list[str]:
    """The reward parts that environments declare, each name once."""
    return list(dict.fromkeys(name for env in envs for name in env.metadata.get(RANGES) or ()))
