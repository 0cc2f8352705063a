"""A hosted environment: a server plays Plan-Path, and its client is a PettingZoo environment that knows a session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pettingzoo import AECEnv

from pettingllms_envs import plan_path_v0


class Server:
    """Plays sessions, and counts what clients ask for."""

    def __init__(self) -> None:
        self.sessions: dict[int, Any] = {}
        self.num_opened = self.num_resets = self.num_steps = 0

    def __deepcopy__(self, memo: Any) -> Server:
        return self  # it is elsewhere

    def open(self) -> int:
        self.num_opened += 1
        self.sessions[self.num_opened] = plan_path_v0.env(size=4, num_turns=2)
        return self.num_opened


class Hosted(AECEnv):
    """Holds the number of its session alone, and so does a copy of it."""

    metadata: ClassVar[dict[str, Any]] = {
        "name": "hosted_v0",
        "render_modes": [],
        "is_parallelizable": False,
        "branching": "replay",
    }

    def __init__(self, server: Server) -> None:
        self.server, self.session = server, server.open()
        self.possible_agents = self.there.possible_agents
        self.render_mode = None

    @property
    def there(self) -> Any:
        return self.server.sessions[self.session]

    agents = property(lambda self: self.there.agents)
    agent_selection = property(lambda self: self.there.agent_selection)
    rewards = property(lambda self: self.there.rewards)
    terminations = property(lambda self: self.there.terminations)
    truncations = property(lambda self: self.there.truncations)
    infos = property(lambda self: self.there.infos)
    _cumulative_rewards = property(lambda self: self.there._cumulative_rewards)

    def observation_space(self, agent: str) -> Any:
        return self.there.observation_space(agent)

    def action_space(self, agent: str) -> Any:
        return self.there.action_space(agent)

    def observe(self, agent: str) -> Any:
        return self.there.observe(agent)

    def state_hash(self) -> str:
        return self.there.state_hash()  # type: ignore[no-any-return]

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        self.server.num_resets += 1
        self.there.reset(seed, options)

    def step(self, action: str | None) -> None:
        self.server.num_steps += 1
        self.there.step(action)

    def close(self) -> None:
        del self.server.sessions[self.session]


class HostedCopy(Hosted):
    """Declares a copy, which talks to the same session."""

    metadata: ClassVar[dict[str, Any]] = {**Hosted.metadata, "branching": "copy"}
