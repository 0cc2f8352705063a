"""Checks that the reward of a role's own step depends on its reply, or that the role is declared as paid later.

AT-GRPO compares an agent's replies by the reward of the step in which they are played. A role whose own steps pay the
same for every reply gets no advantage at any decision and never learns, unless it is trained with a credit scheme that
uses later rewards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pettingllms_envs.testing import play


NUM_STARTS = 10
NUM_DECISIONS = 6
"""Decisions of each agent that are tested in an episode, spread from its first to its last."""
NUM_KNOWN = 4
"""Latest replies of the agent that are tried in another state."""
TOLERANCE = 1e-9
REMEDIES = (
    "pay the role for its own step, or declare metadata['delayed_roles'] and train with credit={'at_grpo': {'value': "
    "'return_to_go'}}, credit='counterfactual', or sampling='parallel' with credit='grpo'"
)


@dataclass(slots=True)
class Trial:
    """The result of changing one agent's replies.

    Args:
        known: Its replies so far, the oracle's first.
        example: Description of a play that leads to one of the decisions.
    """

    num_decisions: int = 0
    num_replies: int = 0
    pays: bool = False
    later: bool = False
    known: list[str] = field(default_factory=list)
    example: str = ""


def check_learning_signal(case: play.Case) -> str:
    """The reward of each role's own step changes with its reply, or the role is declared as paid later.

    At decisions of several instances the agent's reply is replaced by the oracle's, by its replies in other states,
    and by those of random play; everything before stays the same. Replies that the environment calls unreadable (a
    negative part `format`) are ignored, since a role must learn more than to be readable.

    `metadata["delayed_roles"]` names the roles that are paid at later steps, by role or by agent.
    """
    env = case.make()
    declared = _declared(env)
    trials = {agent: Trial() for agent in env.possible_agents}
    for start in case.starts[:NUM_STARTS]:
        course = _course(env, case, start)
        for i, agent in _decisions(course):
            if not trials[agent].pays:
                with play.blaming(partial(play.told, start, course.replies[:i])):
                    _vary(env, case, course, i, trials[agent])
        if all(trial.pays for trial in trials.values()):
            break
    silent = {agent: trial for agent, trial in trials.items() if trial.num_decisions and not trial.pays}
    undeclared = {agent: trial for agent, trial in silent.items() if agent not in declared}
    changed = any(trial.pays or trial.later for trial in trials.values())
    if undeclared and not changed and play.oracle_of(env) is None:
        raise play.Skipped("it has no oracle(), and no reply tried changed any reward. Give replies: check(blind=...)")
    for agent, trial in undeclared.items():
        raise play.Failed(f"{_account(agent, trial)}. AT-GRPO would never teach it: {REMEDIES}\n{trial.example}")
    paid = [agent for agent, trial in trials.items() if trial.pays]
    details = [f"the reward of its own step changes with the reply of {', '.join(paid)}"] if paid else []
    details += [f"paid later, as declared: {', '.join(silent)}"] if silent else []
    return "; ".join(details) or "no agent took a decision"


def _declared(env: Any) -> set[str]:
    """The agents whose roles are declared to be paid later."""
    names = env.metadata.get("delayed_roles", ())
    roles = {agent: agent.rpartition("_")[0] or agent for agent in env.possible_agents}
    if isinstance(names, str) or (unknown := [name for name in names if name not in {*roles, *roles.values()}]):
        what = names if isinstance(names, str) else unknown
        raise play.Failed(
            f"metadata['delayed_roles'] has {what!r}; expected a list with some of the roles "
            f"{', '.join(dict.fromkeys(roles.values()))}"
        )
    return {agent for agent, role in roles.items() if agent in names or role in names}


def _course(env: Any, case: play.Case, start: play.Start) -> play.Course:
    """Random play with some of the oracle's replies, with the acting agent and the oracle's reply at each step."""

    def look(env: Any) -> tuple[str, str | None] | None:
        if not env.agents or play.over(env):
            return None
        ask = play.oracle_of(env)
        return env.agent_selection, None if ask is None else ask()

    return play.mixed_episode(case, start, env, look=look)


def _decisions(course: play.Course) -> Iterator[tuple[int, str]]:
    """The steps at which an agent's reply is replaced, and the agent."""
    steps: dict[str, list[int]] = {}
    for i, reply in enumerate(course.replies):
        if reply is not None:
            steps.setdefault(course.seen[i][0], []).append(i)
    for agent, own in steps.items():
        stride = max((len(own) - 1) / (NUM_DECISIONS - 1), 1.0)
        for k in range(min(len(own), NUM_DECISIONS)):
            yield own[round(k * stride)], agent


def _vary(env: Any, case: play.Case, course: play.Course, i: int, trial: Trial) -> None:
    """Replace the i-th reply of an episode, until two replies have different rewards at their own step."""
    _, oracle = course.seen[i]
    given = [*([] if oracle is None else [oracle]), *filter(None, [course.replies[i]])]
    readable: list[str] = []
    rewards: list[float] = []
    for reply in dict.fromkeys((*given, *trial.known[-NUM_KNOWN:], *case.pool)):
        own, is_readable = _own_step(env, course, i, reply)
        if is_readable:
            readable.append(reply)
            rewards.append(own)
        if _differ(rewards):
            trial.pays = True
            return
    trial.num_decisions += 1
    trial.num_replies += len(readable)
    trial.known += given
    trial.example = trial.example or play.told(course.start, course.replies[:i])
    if not trial.later:
        trial.later = _differ([_later_steps(env, case, course, i, reply) for reply in readable])


def _own_step(env: Any, course: play.Course, i: int, reply: str) -> tuple[float, bool]:
    """The reward of the acting agent's own step, and whether the reply was readable."""
    agent, _ = course.seen[i]
    play.episode(env, course.start, play.scripted([*course.replies[:i], reply]), max_steps=i + 1)
    parts = env.infos[agent].get("rewards", {}) if agent in env.infos else {}
    return env.rewards.get(agent, 0.0), not (isinstance(parts, Mapping) and parts.get("format", 0.0) < 0)


def _later_steps(env: Any, case: play.Case, course: play.Course, i: int, reply: str) -> float:
    """The agent's rewards after its own step, with all later replies unchanged."""
    agent, _ = course.seen[i]
    replies = [*course.replies[:i], reply, *course.replies[i + 1 :]]
    rewards: list[float] = []
    played = play.episode(
        env,
        course.start,
        play.scripted(replies),
        max_steps=case.max_steps,
        look=lambda env: rewards.append(env.rewards.get(agent, 0.0)),
    )
    return played.totals.get(agent, 0.0) - sum(rewards[1 : i + 2])


def _differ(values: Sequence[float]) -> bool:
    return bool(values) and max(values) - min(values) > TOLERANCE


def _account(agent: str, trial: Trial) -> str:
    """A description of what was tried without effect."""
    later = (
        "what it is paid at later steps does change"
        if trial.later
        else "neither did what it is paid at later steps, while the other agents replied as before"
    )
    return (
        f"no reply of {agent} changed the reward of its own step, in {trial.num_decisions} decisions with "
        f"{trial.num_replies} readable replies together; {later}"
    )
