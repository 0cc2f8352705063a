"""Environments by others: with as little as PettingZoo asks for, and with faults."""

from __future__ import annotations

from typing import Any

from third_party import PlainEnv


class Echo(PlainEnv):
    """Two agents speak in turn, two turns each; whoever says `yes` gets 1. No outcome, no parts, no snapshots."""

    metadata = {"name": "echo_v1"}

    def __init__(self, raises: str = "", endless: bool = False) -> None:
        super().__init__()
        self.possible_agents = ["a_0", "b_0"]
        self._raises, self._endless = raises, endless

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        if self._raises == "reset":
            raise RuntimeError("no reset")
        self.begin()
        self._said: list[str] = [f"seed {seed}"]

    def observe(self, agent: str) -> str:
        return self._said[-1]

    def step(self, action: str | None) -> None:
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        if action == self._raises:
            raise RuntimeError("no such word")
        assert action is not None
        self._said.append(action)
        self.rewards = {each: float(each == agent and action == "yes") for each in self.agents}
        if action == "nan":
            self.rewards[agent] = float("nan")
        self.agent_selection = "b_0" if agent == "a_0" else "a_0"
        if len(self._said) == 5 and not self._endless:
            self.truncations = dict.fromkeys(self.agents, True)

    def close(self) -> None:
        pass
