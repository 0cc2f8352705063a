"""Plays an episode of any AEC environment with text observations, and compares two episodes."""

from __future__ import annotations

import copy
import inspect
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from pettingllms_envs.branching import SavedState, branchable, branching_of, save_state
from pettingllms_envs.branching.snapshots import has_snapshots
from pettingllms_envs.copying import copy_env
from pettingllms_envs.core import TEAM
from pettingllms_envs.episodes.difference import difference, short
from pettingllms_envs.episodes.observing import success_of
from pettingllms_envs.observations import Image
from pettingllms_envs.prompts import text_of


Policy = Callable[[Any, str], str]  # the environment and the agent that is to act: its reply


class Failed(AssertionError):
    """An environment does not do what a check expects."""


class Skipped(Exception):
    """A check does not apply to an environment, and why."""


class Warned(Exception):
    """What an environment does is not wrong, but probably not meant."""


class Start(NamedTuple):
    """How an episode is reset."""

    seed: int
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """The environment under test and what to play on it; see `pettingllms_envs.testing.check`.

    Args:
        starts: How episodes are reset, each seed with each of the options.
        floor: Greatest mean success, and share of the best return, of a floor policy.
        blind: Replies that ignore the state, the caller's and the task's.
    """

    make: Callable[..., Any]
    make_parallel: Callable[..., Any] | None
    starts: tuple[Start, ...]
    floor: float
    blind: tuple[str, ...]
    pool: tuple[str, ...]
    max_steps: int


class Course(NamedTuple):
    """An episode that was played.

    Args:
        replies: What was played, with None for the dead step of an agent whose episode is over.
        seen: What `look` returned after the reset and after each reply.
        team: The sum of the team's parts of the rewards (before alpha) where the environment's snapshots have them;
            else the mean over the agents of their rewards' sum.
        success: The last value of `infos[agent]["outcome"]["success"]`; None if there is none.
    """

    start: Start
    replies: tuple[str | None, ...]
    seen: tuple[Any, ...]
    team: float
    totals: Mapping[str, float]
    success: bool | None
    over: bool


def episode(
    env: Any, start: Start, policy: Policy, *, max_steps: int, look: Callable[[Any], Any] = lambda env: None
) -> Course:
    """Play until no agents are left, or for `max_steps` steps. Errors of the environment get a note with the play."""
    replies: list[str | None] = []
    totals: dict[str, float] = {}
    team, success = 0.0, None
    with blaming(lambda: told(start, replies)):
        env.reset(seed=start.seed, options=dict(start.options) or None)
        seen = [look(env)]
        while env.agents and len(replies) < max_steps:
            reply = None if over(env) else policy(env, env.agent_selection)
            replies.append(reply)
            env.step(reply)
            if reply is not None:
                rewards = dict(env.rewards)
                for agent, reward in rewards.items():
                    totals[agent] = totals.get(agent, 0.0) + reward
                parts = scoped_parts(env)
                if parts is None:
                    team += sum(rewards.values()) / max(len(rewards), 1)
                else:
                    team += sum(parts.get(TEAM, {}).values())
                success = next((success_of(info["outcome"]) for info in env.infos.values() if _says(info)), None)
            seen.append(look(env))
    return Course(start, tuple(replies), tuple(seen), team, totals, success, not env.agents)


def over(env: Any) -> bool:
    """Whether the agent that is to act is terminated or truncated, so that only a dead step is left."""
    agent = env.agent_selection
    return bool(env.terminations[agent] or env.truncations[agent])


def advance(env: Any, reply: str) -> None:
    """One step: the reply, or a dead step where the agent is done, or nothing when no agents are left."""
    if env.agents:
        env.step(None if over(env) else reply)


def view(env: Any) -> dict[str, Any]:
    """A copy of everything observable of an environment."""
    agents = list(env.agents)
    shown = {
        "agents": agents,
        "agent_selection": env.agent_selection if agents else None,
        "observations": {agent: env.observe(agent) for agent in agents},
        "rewards": env.rewards,
        "reward_since": env.last(observe=False)[1] if agents else None,
        "terminations": env.terminations,
        "truncations": env.truncations,
        "infos": env.infos,
    }
    if hasattr(env, "state_hash"):
        shown["state_hash"] = env.state_hash()
    return copy.deepcopy(shown)


HOW = {
    "snapshot": "by snapshot() and restore()",
    "copy": "by copying it",
    "replay": "by playing the same replies again",
}
"""How an environment is branched, by its mode."""


def branched(make: Callable[..., Any]) -> tuple[Callable[[], Any], str]:
    """A function that makes an environment in the form in which it is branched, and how it is, in words.

    Raises:
        Skipped: The environment declares that it is not branched.
    """
    env = make()
    mode, declared = branching_of(env), env.metadata.get("branching")
    if mode == "none":
        raise Skipped("it declares metadata[\"branching\"] = 'none'")
    if mode == declared:
        why = f'as metadata["branching"] = {mode!r} declares'
    elif mode == "copy":
        why = "as a wrapper defines how" if has_snapshots(env) else "for it has no snapshot()"
    else:
        why = "which it has"
    return lambda: branchable(make()), f"{HOW[mode]}, {why}"


def saver(env: Any) -> tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]:
    """Functions that save an episode (environment: token) and resume it (environment, token: environment).

    They do what the trainer does: restore, copy, or replay.
    """

    def restored(env: Any, token: SavedState) -> Any:
        token.restore(env)
        return env

    if branching_of(env) == "copy":
        return _copied, (lambda env, token: _copied(token))
    return save_state, restored


def _copied(env: Any) -> Any:
    """A copy in the same state; `Failed` if it cannot be copied."""
    try:
        return copy_env(env)
    except Exception as error:  # a third-party environment may raise anything when it is copied
        lacks = "" if has_snapshots(env) else "it has no snapshot() and "
        raise Failed(
            f"{lacks}cannot be copied ({type(error).__name__}: {error}); expected one of the two. Give it snapshot() "
            'and restore(), or declare metadata["branching"] = "replay" if it is deterministic, or "none" and train '
            "it with sampling='parallel' and credit='grpo', which play no branches"
        ) from error


def scoped_parts(env: Any) -> Mapping[str, Mapping[str, float]] | None:
    """The parts of the last step's reward as `pettingllms_envs.core.Parts`, if a snapshot has them."""
    if not (hasattr(env.unwrapped, "snapshot") and hasattr(env.unwrapped, "restore")):
        return None
    parts: Mapping[str, Mapping[str, float]] | None = getattr(env.unwrapped.snapshot(), "parts", None)
    return parts


def texts(observation: Any) -> tuple[str, ...]:
    """The texts of an observation, the system prompt first: a `str`, or those of a dictionary; at least one.

    Parts are one text, with the descriptions of images in their places.
    """
    shown = observation if isinstance(observation, Mapping) else {"text": observation}
    if isinstance(messages := shown.get("messages"), list | tuple):
        shown = {number: dict(message).get("content") for number, message in enumerate(messages)}
    keys = sorted(shown, key=lambda key: key != "system")
    found = [text_of(shown[key]) if _are_parts(shown[key]) else shown[key] for key in keys]
    return tuple(text for text in found if isinstance(text, str)) or ("",)


def _are_parts(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(part, str | Image) for part in value)


def made_if_taken(make: Callable[..., Any], **settings: Any) -> Any | None:
    """The environment with these settings, or None if `make` does not accept them."""
    try:
        inspect.signature(make).bind(**settings)
        return make(**settings)
    except TypeError:
        return None


def oracle_of(env: Any) -> Callable[[], str] | None:
    """The environment's `oracle()`, or None; an environment may say in `metadata["has_oracle"]` that it has none."""
    found: Callable[[], str] | None = getattr(env.unwrapped, "oracle", None)
    return found if env.metadata.get("has_oracle", True) else None


def always(reply: str) -> Policy:
    """A policy that always gives the same reply."""
    return lambda env, agent: reply


def best(env: Any, agent: str) -> str:
    """The oracle's reply."""
    return str(env.unwrapped.oracle())


def first_replies(env: Any, start: Start, max_steps: int) -> dict[str, str]:
    """The first reply of each agent when the oracle plays."""
    firsts: dict[str, str] = {}

    def policy(env: Any, agent: str) -> str:
        reply = best(env, agent)
        firsts.setdefault(agent, reply)
        return reply

    episode(env, start, policy, max_steps=max_steps)
    return firsts


def scripted(replies: Iterable[str | None]) -> Policy:
    """A policy that gives the replies in order, without those of dead steps, and empty ones after the last."""
    waiting = itertools.chain((reply for reply in replies if reply is not None), itertools.repeat(""))
    return lambda env, agent: next(waiting)


def random_replies(pool: Sequence[str], seed: int, oracle: float = 0.0) -> Policy:
    """A policy of random replies from the pool, or the oracle's with probability `oracle`, if there is one."""
    rng = random.Random(f"random replies {seed}")

    def policy(env: Any, agent: str) -> str:
        ask = oracle_of(env)
        return ask() if ask is not None and rng.random() < oracle else rng.choice(pool)

    return policy


def reply_pool(env: Any, blind: Iterable[str]) -> tuple[str, ...]:
    """Replies for random play: samples of the action spaces, blind ones and junk. The environment was just reset."""
    samples: list[Any] = []
    for i, agent in enumerate(env.agents):
        space = env.action_space(agent)
        space.seed(i)  # agents with spaces that are alike give different samples
        samples += [space.sample() for _ in range(8)]
    known = [sample for sample in samples if isinstance(sample, str)]
    return tuple(dict.fromkeys((*known, *blind, "", "perhaps", "\ud800\N{GRINNING FACE}\x00")))


def mixed_episode(case: Case, start: Start, env: Any = None, *, look: Callable[[Any], Any] = view) -> Course:
    """Play an episode with `mixed_play`, in this environment or in a new one."""
    made = case.make() if env is None else env
    return episode(made, start, mixed_play(case, start), max_steps=case.max_steps, look=look)


def played_again(case: Case, first: Course, env: Any = None, *, look: Callable[[Any], Any] = view) -> Sequence[Any]:
    """The observations where the replies of an episode are given again, in this environment or in a new one."""
    made = case.make() if env is None else env
    return episode(made, first.start, scripted(first.replies), max_steps=case.max_steps, look=look).seen


def mixed_play(case: Case, start: Start) -> Policy:
    """A policy of random replies, 40% of them the oracle's, so that both mistakes and the end of the game occur."""
    return random_replies(case.pool, start.seed, oracle=0.4)


def same(expected: Any, got: Any, what: str) -> None:
    """Raise `Failed` with the first place in which two values differ."""
    found = difference(expected, got)
    if found is not None:
        raise Failed(f"{what}: {found}")


def same_course(expected: Course, seen: Sequence[Any], what: str, offset: int = 0) -> None:
    """Raise `Failed` with the first reply after which two episodes differ."""
    for i, (one, other) in enumerate(zip(expected.seen[offset:], seen, strict=False), offset):
        with blaming(lambda i=i: told(expected.start, expected.replies[:i])):  # type: ignore[misc]
            same(one, other, what)
    if len(expected.seen) - offset != len(seen):
        raise Failed(f"{what}: expected {len(expected.seen) - offset} moments, got {len(seen)}")


def told(start: Start, replies: Iterable[str | None]) -> str:
    """The play that leads to a failure: how to reset, and the replies so far without dead steps."""
    options = f", options {dict(start.options)}" if start.options else ""
    return f"seed {start.seed}{options}, replies so far: [{', '.join(short(r) for r in replies if r is not None)}]"


@contextmanager
def blaming(words: Callable[[], str]) -> Iterator[None]:
    """Add a note on its origin to an error raised inside, unless it has one."""
    try:
        yield
    except Skipped:
        raise
    except Exception as error:
        if not getattr(error, "__notes__", ()):
            error.add_note(words())
        raise


def _says(info: Any) -> bool:
    return isinstance(info, Mapping) and isinstance(info.get("outcome"), Mapping) and "success" in info["outcome"]
