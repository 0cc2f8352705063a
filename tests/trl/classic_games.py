"""PettingZoo's classic games as text, as a user would write it; docs/add_environment.md shows `TextGame`."""

from __future__ import annotations

import re

import numpy as np
import pettingzoo
from pettingzoo import AECEnv
from pettingzoo.utils import BaseWrapper

from pettingllms_envs.spaces import ChatText


class TextGame(BaseWrapper):
    """A classic board game as text: an agent reads the board and replies with the number of its move."""

    def __init__(self, env: AECEnv) -> None:
        super().__init__(env)
        self.prompts = {agent: ChatText() for agent in env.possible_agents}
        self.replies = {
            agent: ChatText(replies=[str(move) for move in range(env.action_space(agent).n)])
            for agent in env.possible_agents
        }

    def observation_space(self, agent: str) -> ChatText:
        return self.prompts[agent]

    def action_space(self, agent: str) -> ChatText:
        return self.replies[agent]

    def observe(self, agent: str) -> str:
        seen = super().observe(agent)
        own, other = np.moveaxis(seen["observation"], -1, 0).astype(bool)
        board = "\n".join(map("".join, np.where(own, "x", np.where(other, "o", "."))))
        moves = " ".join(map(str, np.flatnonzero(seen["action_mask"])))
        return f"You play x.\n{board}\nReply with one of the moves {moves}."

    def step(self, action: str | None) -> None:
        if action is None:
            super().step(None)
            return
        legal = np.flatnonzero(super().observe(self.agent_selection)["action_mask"])
        moves = {str(move): move for move in legal}
        number = re.search(r"\d+", action)
        super().step(moves.get(number[0] if number else "", legal[0]))  # an illegal move is replaced


class TextThrows(BaseWrapper):
    """Rock, paper, scissors as text: an agent sees what the other one threw last, and replies with a number."""

    def __init__(self, env: AECEnv) -> None:
        super().__init__(env)
        self.text = ChatText()  # the space of all strings, the same object at every call

    def observation_space(self, agent: str) -> ChatText:
        return self.text

    def action_space(self, agent: str) -> ChatText:
        return self.text

    def observe(self, agent: str) -> str:
        return f"The last throw was {super().observe(agent)}. Throw 0, 1 or 2."

    def step(self, action: str | None) -> None:
        super().step(None if action is None else len(action) % 3)


def tictactoe() -> AECEnv:
    return TextGame(pettingzoo.make("aec", "classic/tictactoe-v3"))


def connect_four() -> AECEnv:
    return TextGame(pettingzoo.make("aec", "classic/connect_four-v3"))


def rock_paper_scissors() -> AECEnv:
    return TextThrows(pettingzoo.make("aec", "classic/rps-v2", max_cycles=3))
