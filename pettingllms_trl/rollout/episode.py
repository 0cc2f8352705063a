"""AT-GRPO's rollout of one row of the data set (arXiv:2510.11062), as a generator.

At each decision the acting agent is asked for K candidates, each is stepped on its own branch of the environment, and
the episode goes on from the best. `episode` yields what it waits for, and is sent the answer:

| yielded              | sent when                                          | goes on                |
|----------------------|----------------------------------------------------|------------------------|
| `Wait.ENGINE`        | the engine takes requests                          | on the caller's thread |
| `Request`            | there is a `Sampled`, which is sent                | on the caller's thread |
| `Candidates`         | all are stepped; `branches` is sent                | on a worker            |
| `Continuation`       | at once: it will be played                         | on the same thread     |
| `Wait.CONTINUATIONS` | the episode's continuations are over               | on the caller's thread |
| `Wait.ENVIRONMENT`   | its handle has an environment, or needs none       | on a worker            |

`loop.py` plays many of them at the same time. Environments are called on workers only.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any, NamedTuple

from pettingllms_envs.branching import SavedState, save_state
from pettingllms_envs.copying import copy_env
from pettingllms_envs.observations import Image
from pettingllms_envs.pictures import with_known_images
from pettingllms_envs.prompts import followup_of, images_of, limits_of, read_observation
from pettingllms_envs.replies.counted import CountedReply
from pettingllms_trl.records import (
    Candidate,
    Choose,
    ContinuationPlace,
    DataRow,
    Decision,
    Episode,
    PendingDecision,
    Prompt,
    Request,
    RolloutOptions,
    Sampled,
)
from pettingllms_trl.rollout.branching import Branch, state_hash, sum_of, with_continuations, with_returns
from pettingllms_trl.rollout.prompts import ChatHistory
from pettingllms_trl.rollout.stepping import Candidates, EnvHandle


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What all episodes of a rollout have in common, see `rollout.play`."""

    options: RolloutOptions
    seed: str
    score: Callable[[Sequence[Branch], PendingDecision], Sequence[Branch]]  # `branching.scored`, by judge and weigher
    partners: Collection[str]
    history: ChatHistory
    images: dict[str, Image] = field(default_factory=dict)  # those that were shown, by their digests


class WaitFor(Enum):
    """What an episode yields to wait without a request of its own."""

    ENGINE = auto()
    CONTINUATIONS = auto()
    ENVIRONMENT = auto()


@dataclass(frozen=True, slots=True, eq=False)
class Continuation:
    """A candidate whose branch is played to the end of the episode, by an `episode` of its own."""

    place: ContinuationPlace
    branch: Branch
    history: ChatHistory  # after the candidate
    turns: Mapping[str, int]  # how many decisions each agent had taken by then
    before: Sequence[Mapping[str, float]]  # the rewards of the steps up to then, by agent
    results: dict[ContinuationPlace, Episode]  # where the rest of the episode is put once it is over


class Turn(NamedTuple):
    """An agent that decides, and the state in which it does."""

    agent: str
    observation: Any
    saved: SavedState | None  # the state; `None` if the environment is copied instead
    digest: str | None  # of the state; `None` if the environment has no `state_hash`
    phase: Any  # `infos[agent]["phase"]`; `None` if there is none


Steps = Generator[Request | Candidates | Continuation | WaitFor, Any, Episode]


def episode(
    row: DataRow, instance: int, number: int, rules: Rules, handle: EnvHandle, start: Continuation | None = None
) -> Steps:
    """Play one episode of a row, the `number`-th of an instance, or the rest of one after a candidate, `start`.

    The decisions of a continuation are left out of its record unless they are kept.
    """
    options, num_siblings = rules.options, rules.options.num_siblings
    decisions, rewards, results = list[Decision](), list[Mapping[str, float]](), dict[ContinuationPlace, Episode]()
    outcome: Mapping[str, Any] = {}
    turns = Counter(() if start is None else start.turns)
    history = rules.history if start is None else start.history
    agents = _begin(handle, start)
    turn = _next_turn(handle, turns, rules)
    while turn is not None:
        agent, observation = turn.agent, turn.observation
        messages, tools = read_observation(observation, agent=agent)
        prompt = Prompt(messages, images=tuple(images_of(messages)), tools=tools)
        is_branched = start is None and agent not in rules.partners

        yield WaitFor.ENGINE
        if agent in history.extensions:
            prompt = history.prompt(agent, prompt, followup_of(observation))
        sampled = yield Request(agent, prompt, num_siblings if is_branched else 1, limits=limits_of(observation))
        if getattr(handle.env.unwrapped, "takes_reply", False):  # a TakesReply; isinstance takes 4% of a rollout
            sampled = _with_counts(sampled)

        stepped = yield Candidates(handle, turn.saved, agent, sampled.completions, options.crash_reward)
        pending = PendingDecision(
            row=row,
            agent=agent,
            turn=turns[agent],
            prompt=sampled.prompt,
            completions=sampled.completions,
            is_text=isinstance(observation, str) and len(prompt.messages) == 1,
        )
        branches = rules.score([stepped[k] for k in sorted(stepped)], pending)
        candidates = tuple([branch.candidate for branch in branches])
        handle.crashes += [branch.crash for branch in branches if branch.crash is not None]
        turns[agent] += 1
        histories = [history] * len(branches)
        if agent in history.extensions:
            histories = [history.replied(agent, sampled.prompt, each) for each in sampled.completions]

        at, repeats = len(decisions), options.num_continuations if is_branched else 0
        continued = [k for k, branch in enumerate(branches) if repeats and not branch.over]
        for place in [ContinuationPlace(at, k, m) for k in continued for m in range(repeats)]:
            branch, so_far = branches[place.candidate], [*rewards, branches[place.candidate].rewards]
            yield Continuation(place, branch, histories[place.candidate], dict(turns), so_far, results)
        if repeats and options.choose == "value":
            if continued:
                yield from _await_values(handle, keeps_env=turn.saved is None)
            candidates = with_continuations(candidates, results, at, agent, repeats)

        chosen = _chosen(candidates, branches, options.choose, (rules.seed, instance, number, agent, pending.turn))
        branch, history, outcome = branches[chosen], histories[chosen], branches[chosen].outcome
        rewards.append(branch.rewards)
        decisions.append(
            Decision(
                instance=instance,
                episode=number,
                agent=agent,
                turn=pending.turn,
                prompt=sampled.prompt,
                candidates=candidates,
                chosen=chosen,
                state=turn.digest,
                phase=turn.phase,
                environment=handle.reset_args.environment,
                policy_version=sampled.policy_version,
                continuation=None if start is None else start.place,
            )
        )
        is_start = chosen in continued and options.choose != "value"
        del stepped, branches  # with the states that are not played on
        turn = None if branch.crash is not None else _next_turn(handle, turns, rules, branch, is_start=is_start)
    handle.release()

    if start is None and options.num_continuations:
        yield WaitFor.CONTINUATIONS
        for at, each in enumerate(decisions):
            if each.agent not in rules.partners:
                candidates = with_continuations(each.candidates, results, at, each.agent, options.num_continuations)
                decisions[at] = replace(each, candidates=candidates)
    before, is_kept = () if start is None else start.before, start is None or options.keep_continuations
    return Episode(
        instance=instance,
        episode=number,
        decisions=with_returns(decisions, rewards, outcome, before) if is_kept else (),
        returns=sum_of(rewards, agents),
        outcome=outcome,
        environment=handle.reset_args.environment,
        continuations=tuple([decision for place in sorted(results) for decision in results[place].decisions]),
    )


def _begin(handle: EnvHandle, start: Continuation | None) -> list[str]:
    """Reset the environment, or put it into the state of a candidate. Returns its agents."""
    with handle:
        if start is not None and start.branch.copy is not None:
            handle.env = copy_env(start.branch.copy)
        else:
            handle.reset()
            if start is not None and start.branch.saved is not None:  # after the reset, which some wrappers require
                start.branch.saved.restore(handle.env, handle.next_call)
        return list(handle.env.agents)


def _next_turn(
    handle: EnvHandle, turns: Mapping[str, int], rules: Rules, branch: Branch | None = None, *, is_start: bool = False
) -> Turn | None:
    """Whose turn is next, after `branch` (`is_start`: of continuations, too); `None` if the episode is over."""
    most = rules.options.max_turns
    with handle:
        if branch is not None:
            handle.spares.switch_to(branch.saved)
            if branch.copy is not None:
                handle.env = copy_env(branch.copy) if is_start else branch.copy
            elif branch.saved is not None:
                branch.saved.restore(handle.env, handle.next_call)
            handle.next_call()
        env = handle.env
        while env.agents:
            agent = env.agent_selection
            if env.terminations[agent] or env.truncations[agent]:
                env.step(None)  # PettingZoo's dead step of a terminated or truncated agent
                handle.next_call()
                continue
            if most is not None and turns.get(agent, 0) >= most:
                return None
            handle.agent = agent
            observation = with_known_images(env.observe(agent), rules.images)
            handle.saved = save_state(env) if handle.branches else None
            return Turn(agent, observation, handle.saved, state_hash(env), env.infos.get(agent, {}).get("phase"))
    return None


def _await_values(handle: EnvHandle, *, keeps_env: bool) -> Generator[WaitFor, None, None]:
    """Wait for the continuations of a decision; without the environment unless its states are copies (`keeps_env`)."""
    if not keeps_env:
        handle.release()
    yield WaitFor.CONTINUATIONS
    yield WaitFor.ENVIRONMENT
    if not keeps_env:
        with handle:
            handle.reset()


def _with_counts(sampled: Sampled) -> Sampled:
    """The answer, for an environment that is a `TakesReply`, with texts that also have the numbers of tokens."""
    num = len(sampled.prompt.ids)
    found = [replace(c, text=CountedReply(c.text, num, len(c.ids), c.finish == "length")) for c in sampled.completions]
    return replace(sampled, completions=tuple(found))


def _chosen(
    candidates: Sequence[Candidate], branches: Sequence[Branch], choose: Choose, place: tuple[Any, ...]
) -> int:
    """Index of the candidate that is played on; where there are several, `place` seeds the draw.

    It has the highest value, or reward if it was not continued; or, at random, it is any whose step did not fail.
    """
    if choose == "random":
        best = [k for k, branch in enumerate(branches) if branch.crash is None] or [*range(len(branches))]
    else:
        worth = [candidate.value if candidate.continuations else candidate.reward for candidate in candidates]
        best = [k for k, each in enumerate(worth) if each == max(worth)]
    return best[0] if len(best) == 1 else random.Random("/".join(map(str, place))).choice(best)
