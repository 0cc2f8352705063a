"""Chooses the credit scheme where roles are paid at later steps, and checks if the one of the user is suitable.

metadata = {"name": "my_game_v0", "delayed_roles": ["adviser"]}
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from pettingzoo import AECEnv

from pettingllms_trl.config import MultiAgentGRPOConfig
from pettingllms_trl.credit import Credit, Named, Sampling, best_sampling, facts_of, name_of
from pettingllms_trl.records import role_of


REMEDIES = (
    "Set credit='return_to_go', or credit='counterfactual' with num_continuations=1, or "
    "sampling='parallel' with credit='grpo' (docs/delayed_rewards.md compares them)."
)
REMEDIES_IN_COMPETITION = (
    "Its agents compete: set sampling='parallel' with credit='rae' for self-play, or with credit='grpo' "
    "(docs/competition.md)."
)


class CreditChoice(NamedTuple):
    """How a run is credited.

    Args:
        note: What to tell the user of a choice that was made for roles that are paid later; else empty.
    """

    credit: str | Named | Credit
    sampling: Sampling
    note: str = ""


def choose_credit(
    credit: str | Named | Credit | None, args: MultiAgentGRPOConfig, delayed: Sequence[str]
) -> CreditChoice:
    """The user's credit scheme and sampling, or those that suit the environment where they are not given.

    Args:
        args: The trainer's; `sampling` is `None` to choose, and what needs a tree is not sampled in parallel.
        delayed: Agents that are trained and paid at later steps.
    """
    needs_tree = args.num_continuations > 0 or args.choose != "reward" or args.train_continuations
    if args.imitate is not None:  # what is kept has 1
        credit = {args.imitate: {} if args.keep_fraction is None else {"keep_fraction": args.keep_fraction}}
    if not delayed or (credit is not None and args.imitate != "best"):
        given = "at_grpo" if credit is None else credit
        return CreditChoice(given, args.sampling or ("tree" if needs_tree else best_sampling(given)))
    of_tree = "counterfactual" if args.num_continuations and args.sampling != "parallel" else "return_to_go"
    chosen = args.imitate or of_tree
    sampling: Sampling = args.sampling or ("tree" if needs_tree else "parallel")
    paid = f"{', '.join(delayed)} {'is' if len(delayed) == 1 else 'are'} paid at later steps"
    others = " Others are given as credit=... (docs/delayed_rewards.md)." if args.imitate is None else ""
    note = f"{paid}, so the credit is {chosen!r} with sampling={sampling!r}.{others}"
    return CreditChoice(chosen, sampling, note)


def delayed_agents(envs: Mapping[str, Sequence[AECEnv]]) -> list[str]:
    """The agents whose roles `metadata["delayed_roles"]` names, by role or by agent, of all environments."""
    found: dict[str, None] = {}
    for env, *_ in envs.values():
        names = env.metadata.get("delayed_roles", ())
        known = {*env.possible_agents, *map(role_of, env.possible_agents)}
        if isinstance(names, str) or not known.issuperset(names):
            raise ValueError(
                f"the environment's metadata['delayed_roles'] is {names!r}, expected a list with some of its roles "
                f"{', '.join(dict.fromkeys(map(role_of, env.possible_agents)))}. Correct the names."
            )
        found |= {agent: None for agent in env.possible_agents if agent in names or role_of(agent) in names}
    return list(found)


def check_delayed_roles(
    envs: Mapping[str, Sequence[AECEnv]],
    trained: Collection[str],
    credit: Credit,
    args: MultiAgentGRPOConfig,
    *,
    reward_functions: Sequence[str] = (),
) -> None:
    """Warn if a role that is paid later would be trained by the reward of its own steps.

    Args:
        reward_functions: Names of the user's reward functions. They may reward a step immediately, so there is no
            warning if there are any.

    Raises:
        ValueError: See `delayed_agents`; or a program is rewarded at its end, and neither are the candidates of a tree
            continued nor does the credit read their returns.
    """
    agents = [agent for agent in delayed_agents(envs) if agent in trained]
    alone = facts_of(credit, args.sampling).value == "reward"
    is_late = any(pool[0].metadata.get("program") == "end" for pool in envs.values()) and not reward_functions
    if agents and is_late and args.sampling == "tree" and (alone or not args.num_continuations):
        raise ValueError(
            f"sampling='tree' with num_continuations={args.num_continuations} and credit={name_of(credit)!r} on a "
            "program that is rewarded at its end; expected continuations and a credit that reads their returns, since "
            "no candidate of a decision is paid. Set num_continuations=1, choose='value' and credit='counterfactual'; "
            "or sampling='parallel' with credit='grpo'; or rewards='by step' if the program posts rewards on the way."
        )
    if agents and alone and not reward_functions and args.process_index == 0:
        competes = any(pool[0].metadata.get("competitive") is not None for pool in envs.values())
        warnings.warn(
            f"the environment declares that {', '.join(agents)} {'is' if len(agents) == 1 else 'are'} paid at later "
            f"steps (metadata['delayed_roles']), but credit={name_of(credit)!r} compares replies by the reward of "
            f"their own step, and would teach nothing there. {REMEDIES_IN_COMPETITION if competes else REMEDIES}",
            stacklevel=3,
        )
