"""A reply that crashes its environment, told from an environment that fails by itself, and charged to who wrote it.

A failing environment is replaced and its instance played anew, then dropped and never scored. Where a certain reply
always crashes it, that makes crashing free: such a reply is drawn again and never counts, so nothing teaches a policy
to leave it, and success is measured on what is left. So with a `reward` for it, a crash is looked into, in fresh
environments in the very same state:

| the reply, once more | the empty reply | whose doing                                             |
|----------------------|-----------------|---------------------------------------------------------|
| does not crash       |                 | the environment's (a lost connection, a full disk)      |
| crashes alike        | crashes         | the environment's (a server that is down)               |
| crashes alike        | does not        | the reply's: its branch ends there, with that reward    |
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pettingzoo import AECEnv

from pettingllms_trl.branches import Branch, makes_snapshots, play_branches
from pettingllms_trl.records import Candidate, Completion


@dataclass(frozen=True, slots=True)
class Crashes:
    """What is done about a reply that crashes its environment.

    Args:
        make_env: Makes a fresh one, by the environment's name.
        reward: Of the agent that wrote it: a number below any return of the environment, or crashing pays.
    """

    make_env: Callable[[str], AECEnv]
    reward: float


def play_carefully(
    env: AECEnv,
    agent: str,
    completions: Sequence[Completion],
    crashes: Crashes,
    *,
    renew: Callable[[], AECEnv],
    note: Callable[[Exception, Completion], None],
) -> Iterator[Branch]:
    """As `play_branches`, but a reply to blame for a crash ends its own branch alone.

    Args:
        env: Of a kind that makes no snapshots, it is stepped in copies only.
        agent: Who acts.
        completions: Its candidates.
        crashes: What a crash is worth.
        renew: Puts a fresh environment, just reset, in the place of one that has failed.
        note: Told of each crash that a reply is to blame for.

    Raises:
        Exception: The environment's, where no reply is to blame.
    """
    start = _Start(env, renew, env.unwrapped.snapshot() if makes_snapshots(env) else None)
    for completion in completions:
        try:
            branch = start.play(agent, completion)
        except Exception as crash:  # a stranger's code may raise anything
            start.renew()
            if not start.crashes_alike(agent, completion, crash):
                raise
            start.renew()
            start.play(agent, Completion(ids=(), text=""))  # raises if no reply is taken at all
            note(crash, completion)
            branch = start.crashed(agent, completion, crashes.reward)
        yield branch


class _Start:
    """The state from which the candidates are played."""

    def __init__(self, env: AECEnv, renew: Callable[[], AECEnv], snapshot: Any) -> None:
        self._env, self._renew, self._snapshot = env, renew, snapshot

    def play(self, agent: str, completion: Completion) -> Branch:
        """What a reply leads to, from that state."""
        if self._snapshot is None:
            env = copy.deepcopy(self._env)
        else:
            env = self._env
            env.unwrapped.restore(self._snapshot)
        (branch,) = play_branches(env, agent, [completion])
        return branch

    def renew(self) -> None:
        """After a crash: the next is played in an environment that has seen none."""
        if self._snapshot is not None:  # else it was a copy that crashed
            self._env = self._renew()

    def crashes_alike(self, agent: str, completion: Completion, crash: Exception) -> bool:
        """Whether the reply raises the same once more."""
        try:
            self.play(agent, completion)
        except Exception as again:  # noqa: BLE001  # compared with the first
            return type(again) is type(crash)
        return False

    def crashed(self, agent: str, completion: Completion, reward: float) -> Branch:
        """A branch that ends where it began."""
        env = self._env
        if self._snapshot is not None:
            env.unwrapped.restore(self._snapshot)
        return Branch(
            Candidate(completion=completion, reward=reward, parts={"crash": reward}),
            {**dict.fromkeys(env.possible_agents, 0.0), agent: reward},
            outcome=dict(env.infos.get(agent, {}).get("outcome", {})),
            over=True,
            snapshot=self._snapshot,
            copy=None if self._snapshot is not None else env,
            team=(),
            crashed=True,
        )
