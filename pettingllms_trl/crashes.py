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

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pettingzoo import AECEnv

from pettingllms_envs.copying import copy_env
from pettingllms_trl.branches import Branch, Start, play_branches
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
    start: Start,
    crashes: Crashes,
    *,
    renew: Callable[[], AECEnv],
    note: Callable[[int, Exception], None],
) -> Iterator[Branch]:
    """As `play_branches`, but a reply to blame for a crash ends its own branch alone.

    Args:
        env: Of a kind that makes no snapshots, it is stepped in copies only.
        agent: Who acts.
        completions: Its candidates.
        start: The state that the environment is in.
        crashes: What a crash is worth.
        renew: Puts a fresh environment, just reset, in the place of one that has failed.
        note: Told of each crash that a reply is to blame for, by the reply's index.

    Raises:
        Exception: The environment's, where no reply is to blame.
    """
    beginning = _Beginning(env, renew, start)
    for k, completion in enumerate(completions):
        try:
            branch = beginning.play(agent, completion)
        except Exception as crash:  # a stranger's code may raise anything
            beginning.renew()
            if not beginning.crashes_alike(agent, completion, crash):
                raise
            beginning.renew()
            beginning.play(agent, Completion(ids=(), text=""))  # raises if no reply is taken at all
            note(k, crash)
            branch = beginning.crashed(agent, completion, crashes.reward)
        yield branch


class _Beginning:
    """An environment in the state from which the candidates are played, again and again."""

    def __init__(self, env: AECEnv, renew: Callable[[], AECEnv], start: Start) -> None:
        self._env, self._renew, self._start = env, renew, start

    def play(self, agent: str, completion: Completion) -> Branch:
        """What a reply leads to, from that state."""
        if self._start.saved is not None:
            env = self._env
            self._start.saved.restore(env)
        else:
            env = copy_env(self._env)
        (branch,) = play_branches(env, agent, [completion], self._start)
        return branch

    def renew(self) -> None:
        """After a crash: the next is played in an environment that has seen none."""
        if self._start.saved is not None:  # else it was a copy that crashed
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
        if self._start.saved is not None:
            self._start.saved.restore(env)
        return Branch(
            Candidate(completion=completion, reward=reward, parts={"crash": reward}),
            {**dict.fromkeys(env.possible_agents, 0.0), agent: reward},
            outcome=dict(env.infos.get(agent, {}).get("outcome", {})),
            over=True,
            saved=self._start.saved,
            copy=env if self._start.saved is None else None,
            team=(),
            crashed=True,
        )
