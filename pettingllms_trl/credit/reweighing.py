"""The door of `alpha` and `reward_parts`: what weighs a step's reward, tried on one step before any training."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial

from pettingzoo import AECEnv

from pettingllms_trl.credit import check_weights, weigh
from pettingllms_trl.records import Completion
from pettingllms_trl.rollout.branching import Branch, Weigh, play_branches, start_of, weighed


def weigher(
    envs: Sequence[AECEnv], *, alpha: float | None, weights: Mapping[str, float] | None, functions: Collection[str]
) -> Weigh | None:
    """What weighs the rewards of a run, or `None` where they stay as the environment gives them.

    Args:
        envs: Of each kind one, just reset; an empty reply is played in it.
        alpha: Weight of the team's parts; `None` leaves them as they are.
        weights: Of parts by name; 1 where none is given.
        functions: Names of the user's reward functions, whose rewards are parts, too.

    Raises:
        ValueError: A part is unknown, a weight cannot be meant, the environment weighs the team's rewards by itself or
            does not say which they are, or its parts do not add up to its rewards.
    """
    if alpha is None and not weights:
        return None
    weights = dict(weights or {})
    steps: list[tuple[AECEnv, str, Branch]] = []
    for env in envs:
        agent = env.agent_selection
        (branch,) = play_branches(env, agent, [Completion(ids=(), text="")], start_of(env))
        steps.append((env, agent, branch))
    known = [name for env, _, branch in steps for name in _known_parts(env, branch, functions)]
    check_weights(weights, alpha, known=list(dict.fromkeys(known)))
    made = partial(weigh, weights=weights, alpha=alpha)
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


def _known_parts(env: AECEnv, branch: Branch, functions: Collection[str]) -> list[str]:
    """The parts that the environment declares; where it declares none, those of the step that was played."""
    declared = env.metadata.get("reward_ranges")
    if declared is None:
        declared = [name for parts in branch.parts.values() for name in parts]
    return list(dict.fromkeys([*declared, *functions]))
