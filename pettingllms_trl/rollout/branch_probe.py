"""Checks with a few steps, when a trainer is created, that its environments can be branched as they declare.

A branch that is not exact gives candidates wrong rewards without any error: a copy that restarts the game, a client
whose copy talks to the same session, a replay of what is random.
"""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from operator import methodcaller
from typing import Any

from pettingzoo import AECEnv

from pettingllms_envs.branching import ReplayWrapper, branching_of
from pettingllms_envs.branching.views import View, is_other, name_of, read, view_of
from pettingllms_trl.rollout import branch_states as states


Close = Callable[[AECEnv], object]

ATTEMPTS = 8  # episodes that are tried if replies crash the environment and there is a `crash_reward`
REPLIES = ("0", "1", "a", "")  # of every second episode; those of the others are sampled from the action spaces
SAMPLES, NUMBERS, WORDS = 3, 4, 8  # replies that are tried: samples, and numbers and words of the observation
_NUMBER, _WORD = re.compile(r"\d+"), re.compile(r"[^\W\d_]+")
FRESH = 5  # environments that are compared, to distinguish randomness from a state that is not restored

# What to change in an environment that cannot be branched as it declares: if it is replayed, and otherwise.
REPLAYABLE = (
    "draw all random numbers from a generator that reset(seed) seeds, and keep nothing from one episode to the next"
)
RESTORABLE = (
    "give the environment snapshot() and restore() (or the wrapper that keeps a state of its own), or declare "
    'metadata["branching"] = "replay" if the same seed and replies always lead to the same state'
)

EPISODES = 'sampling="parallel" (with credit="grpo", or another that compares episodes)'


@dataclass(frozen=True, slots=True)
class Branching:
    """Why environments are branched: the settings that need it (`sampling='tree'`), and what to set instead."""

    settings: str
    remedy: str
    crash_reward: float | None

    @classmethod
    def of(
        cls, *, sampling: str, num_continuations: int, crash_reward: float | None, trains: bool = True
    ) -> Branching | None:
        """`None` if no environment is branched: in evaluation, and in training with `sampling="parallel"` alone."""
        remedies = {
            f"sampling={sampling!r}": EPISODES if trains and sampling == "tree" else "",
            f"num_continuations={num_continuations}": "num_continuations=0" if trains and num_continuations else "",
            f"crash_reward={crash_reward}": "crash_reward=None" if crash_reward is not None else "",
        }
        needed = {setting: other for setting, other in remedies.items() if other}
        return cls(" and ".join(needed), " and ".join(needed.values()), crash_reward) if needed else None


def check_branching(
    env: AECEnv, replace: Callable[[], AECEnv], branching: Branching, *, close: Close = methodcaller("close")
) -> AECEnv:
    """Play a short episode, branched as in training, and check at each decision that a branch starts in its state,
    changes nothing else, and leads to the same state when its reply is played again.

    A reply is a sample of the agent's action space, as text. Until two replies lead to different states, further
    samples are tried and, if they are `str`, the last numbers and words of the observation. The environment and the
    random states of Python and NumPy are left unchanged.

    Warns if no reply made a difference, and if fresh environments, which are not replayed, differ after the same ones.

    Args:
        env: An environment, as `branchable` returns it, just reset.
        replace: Makes another one, reset the same way, to be returned if the given one cannot be used further.

    Raises:
        ValueError: It cannot be branched; or it raised when it was stepped, and there is no `crash_reward`.
    """
    name, mode = name_of(env), branching_of(env)
    with states.same_random_numbers_afterwards():
        for attempt in range(ATTEMPTS):
            actions: list[str | None] = []
            try:
                if not _play(env, attempt, actions, replace, close):
                    _warn(
                        f"the check could not see the environment {name!r} move: all replies that it tried led to the "
                        f"same, so a state or session that branches share would go unseen. Set {branching.remedy}, or "
                        "give it an action_space whose sample() is a legal reply."
                    )
                return env
            except states.NotBranched as error:
                if isinstance(error, states.Differs) and mode != "replay" and _is_random(replace, close, actions):
                    _warn(
                        f"the environment {name!r} leads elsewhere when the same replies are played again, even when "
                        f"it is newly made and reset with the same seed, so whether it can be branched was not fully "
                        f"checked, and the replies that {branching.settings} compares are not equally lucky. Draw all "
                        "random numbers from a generator that reset(seed) seeds and that its state includes, or set "
                        f"{branching.remedy}."
                    )
                    return _replaced(env, replace, close)
                raise ValueError(
                    f"the environment {name!r} cannot be branched, which {branching.settings} needs: {error}. Set "
                    f"{branching.remedy}, or {REPLAYABLE if mode == 'replay' else RESTORABLE}."
                ) from error.__cause__
            except states.Crash as crash:
                if branching.crash_reward is None:
                    raise ValueError(
                        f"the environment {name!r} raised {crash}. A model may reply with any text: set crash_reward "
                        "to a number below any return, which a reply that crashes the environment is then given; or "
                        "have the environment accept every text."
                    ) from crash.__cause__
                env = _replaced(env, replace, close)
    _warn(
        f"the environment {name!r} raised in each of {ATTEMPTS} short episodes, so whether it can be branched was not "
        "checked. Give it an action_space whose samples it accepts."
    )
    return env


_warn = partial(warnings.warn, stacklevel=2)


def _replaced(env: AECEnv, replace: Callable[[], AECEnv], close: Close) -> AECEnv:
    with suppress(Exception):  # it may have crashed, and this may fail, too
        close(env)
    return replace()


def _play(env: AECEnv, attempt: int, actions: list[str | None], replace: Callable[[], AECEnv], close: Close) -> bool:
    """Play an episode with one decision more than there are agents, so that all have acted before the last branch.

    `attempt` determines the replies; `actions` is filled with what is stepped, up to the error if one is raised.
    Returns whether two replies led to different states.
    """
    first, view = states.saved_state(env), view_of(env)
    now = env if first is not None else states.copied(env, view)
    has_moved = False
    for _ in range(len(env.possible_agents) + 1):
        while now.agents and states.is_done(now, now.agent_selection):
            actions.append(None)
            states.step(now, None)
        if not now.agents:
            break
        now, moved = _branched(now, _replies(now, attempt), actions)
        has_moved = has_moved or moved
    if isinstance(env, ReplayWrapper) and (last := states.saved_state(env)) is not None:
        other = replace()  # the episode must lead to the same state in another environment
        try:
            states.restore(other, last, view_of(env))
        finally:
            close(other)
    if first is not None:
        states.restore(env, first, view)
    return has_moved


def _branched(env: AECEnv, replies: Sequence[str], actions: list[str | None]) -> tuple[AECEnv, bool]:
    """The environment after one of the replies, and whether the replies lead to different states.

    They are played until one ends the episode or leads to another state than the first. A later reply that crashes the
    environment is skipped.
    """
    decision, num_before = states.BranchPoint(env), len(actions)
    ends: dict[str, View] = {}
    has_ended = False
    for reply in replies:
        try:
            later = decision.play(reply, is_first=not ends)
        except states.Crash:
            if not ends:
                raise
            continue
        after, has_ended = view_of(later), all(states.is_done(later, agent) for agent in later.agents)
        if not ends or is_other(after, next(iter(ends.values()))):
            ends[reply] = after
        if has_ended or len(ends) > 1:
            break
    in_order = list(reversed(ends)) if has_ended else list(ends)  # the last is played on from
    for reply in in_order:
        actions[num_before:] = [reply]
        later = decision.replay(reply, ends[reply], is_last=reply == in_order[-1])
    return later, has_ended or len(ends) > 1


def _is_random(replace: Callable[[], AECEnv], close: Close, actions: Sequence[str | None]) -> bool:
    """Whether environments that are made and stepped the same way, without branching, differ."""
    views = list[View]()
    for _ in range(FRESH):
        with states.same_random_numbers_afterwards():
            env = replace()
            try:
                for action in actions:
                    env.step(action)
            except Exception:  # noqa: BLE001  # the environment is not ours, and took these actions before
                return True
            views.append(view_of(env))
        close(env)
        if is_other(views[-1], views[0]):
            return True
    return False


def _replies(env: AECEnv, attempt: int) -> list[str]:
    """Different replies of the acting agent; the first is always played."""
    samples = [_sample(env, seed=attempt + ATTEMPTS * k) for k in range(SAMPLES)]
    replies = [str(sample) for sample in samples]
    if attempt % 2:
        replies.insert(0, REPLIES[attempt // 2 % len(REPLIES)])
    if isinstance(samples[0], str):
        shown = str(read(lambda: env.observe(env.agent_selection)))
        for pattern, count in ((_NUMBER, NUMBERS), (_WORD, WORDS)):
            replies += list(dict.fromkeys(reversed(pattern.findall(shown))))[:count]
    return list(dict.fromkeys(replies))


def _sample(env: AECEnv, *, seed: int) -> Any:
    """A sample of the acting agent's action space, which leaves the space's random state unchanged."""
    try:
        space = copy.deepcopy(env.action_space(env.agent_selection))
        space.seed(seed)
        return space.sample()
    except Exception:  # noqa: BLE001  # it may have no such space, or none that can be sampled
        return REPLIES[seed % len(REPLIES)]
