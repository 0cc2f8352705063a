"""Environments that copying or restoring handles wrongly, or nearly: what a contributor might bring."""

from __future__ import annotations

import copy
from typing import Any

from gymnasium import spaces
from gymnasium.utils import EzPickle
from pettingzoo import AECEnv
from pettingzoo.utils import BaseWrapper

from third_party import PlainEnv, Relay


class Count(PlainEnv, EzPickle):
    """Two agents add numbers in turn; who adds one is paid the sum. Its constructor resets it, as many do."""

    metadata = {"name": "count_v0", "render_modes": []}

    def __init__(self, num_turns: int = 2) -> None:
        EzPickle.__init__(self, num_turns=num_turns)
        self.possible_agents = ["one", "other"]
        self.num_turns = num_turns
        self.reset()

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(9)

    def observe(self, agent: str) -> str:
        return f"sum {self.sum}"

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self.begin()
        self.sum = self.num_steps = 0

    def step(self, action: str | None) -> None:
        if action is None:
            self._was_dead_step(action)
            return
        self.sum += int(action)
        self.num_steps += 1
        self.rewards = {**dict.fromkeys(self.agents, 0.0), self.agent_selection: float(self.sum)}
        self.terminations = dict.fromkeys(self.agents, self.num_steps == 2 * self.num_turns)
        self.agent_selection = self.possible_agents[self.num_steps % 2]


class RestorableCount(Count):
    """The same with `snapshot` and `restore`."""

    def snapshot(self) -> dict[str, Any]:
        return copy.deepcopy(vars(self))

    def restore(self, snapshot: dict[str, Any]) -> None:
        vars(self).update(copy.deepcopy(snapshot))


class Transcript(BaseWrapper):
    """Shows every agent all that was said."""

    def __init__(self, env: AECEnv) -> None:
        super().__init__(env)
        self.said: list[str] = []

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self.said = []
        super().reset(seed, options)

    def step(self, action: str | None) -> None:
        if action is not None:
            self.said.append(action)
        super().step(action)

    def observe(self, agent: str) -> Any:
        seen = super().observe(agent)
        text = seen["text"] if isinstance(seen, dict) else seen
        return f"{text}\nSaid so far: {' / '.join(self.said)}"


class Client(AECEnv):
    """Talks to a session elsewhere: it holds the session's number alone, and so does a copy of it."""

    metadata = {"name": "client_v0", "render_modes": []}
    SESSIONS: list[Relay] = []

    def __init__(self) -> None:
        self.session = len(self.SESSIONS)
        self.SESSIONS.append(Relay())
        self.possible_agents = self.there.possible_agents

    @property
    def there(self) -> Relay:
        return self.SESSIONS[self.session]

    agents = property(lambda self: self.there.agents)
    agent_selection = property(lambda self: self.there.agent_selection)
    rewards = property(lambda self: self.there.rewards)
    terminations = property(lambda self: self.there.terminations)
    truncations = property(lambda self: self.there.truncations)
    infos = property(lambda self: self.there.infos)

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return self.there.observation_space(agent)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return self.there.action_space(agent)

    def observe(self, agent: str) -> Any:
        return self.there.observe(agent)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self.there.reset(seed, options)

    def step(self, action: str | None) -> None:
        self.there.step(action)
