"""Third-party environments: plain PettingZoo, nothing of ours."""

from __future__ import annotations

from typing import Any

from gymnasium import spaces
from pettingzoo import AECEnv


def letters(text: str) -> float:
    """Share of a text's characters that are below 'P' in ASCII: something that random completions differ in."""
    return sum(character < "P" for character in text) / max(len(text), 1)


class PlainEnv(AECEnv):  # type: ignore[misc]  # pettingzoo ships no types
    """What games of texts have in common: spaces, and how an episode begins, with the first of `possible_agents`."""

    space: spaces.Space[Any] = spaces.Text(1000)

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return self.space

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return self.space

    def begin(self) -> None:
        """What a `reset` sets in every AEC environment."""
        self.agents = list(self.possible_agents)
        self.agent_selection = self.agents[0]
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, Any] = {agent: {} for agent in self.agents}


class OneShot(PlainEnv):
    """One agent answers once: GRPO's own setting."""

    metadata = {"name": "one_shot", "render_modes": []}

    def __init__(self) -> None:
        self.possible_agents = ["solver_0"]

    def observe(self, agent: str) -> str:
        return f"Question {self.question}?"

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self.begin()
        self.question = seed

    def step(self, action: str | None) -> None:
        if action is None:
            self.agents = []
            return
        self.rewards = {"solver_0": letters(action)}
        self.terminations = {"solver_0": True}


class Relay(PlainEnv):
    """Two agents write a text in turn; each sees all that was written. No snapshot: the trainer copies it."""

    metadata = {"name": "relay", "render_modes": []}

    def __init__(self, num_turns: int = 2) -> None:
        self.possible_agents = ["opener_0", "closer_0"]
        self.num_turns = num_turns

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Dict({"text": spaces.Text(10_000)})

    def observe(self, agent: str) -> dict[str, str]:
        return {"text": f"{agent}, task {self.task}: {'|'.join(self.written)}"}

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self.begin()
        self.task = seed
        self.written: list[str] = []

    def step(self, action: str | None) -> None:
        if action is None:
            self._was_dead_step(action)
            return
        self.written.append(action)
        self.rewards = dict.fromkeys(self.possible_agents, 0.0)
        self.rewards[self.agent_selection] = letters(action)
        if len(self.written) == 2 * self.num_turns:
            self.truncations = dict.fromkeys(self.agents, True)
        self.agent_selection = self.possible_agents[len(self.written) % 2]


class Dull(Relay):
    """In rows whose seed is odd nobody is paid, whatever is said."""

    def step(self, action: str | None) -> None:
        super().step(action)
        if self.task % 2:
            self.rewards = dict.fromkeys(self.possible_agents, 0.0)


class Monologue(Relay):
    """Two agents, of which only one ever acts."""

    def step(self, action: str | None) -> None:
        actor = self.agent_selection
        super().step(action)
        if action is not None:
            self.agent_selection = actor
