"""PettingZoo's classic games as text, as a user would write it; docs/add_environment.md shows `TextGame`."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pettingzoo
from gymnasium import spaces
from pettingzoo import AECEnv
from pettingzoo.utils import BaseWrapper


class TextGame(BaseWrapper):
    """A classic board game as text: an agent reads the board and replies with the number of its move."""

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Text(1000)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Text(100)

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
        number = re.search(r"\d+", action)
        move = int(number[0]) if number else -1
        super().step(move if move in legal else legal[0])  # an illegal move is replaced


class TextThrows(BaseWrapper):
    """Rock, paper, scissors as text: an agent sees what the other one threw last, and replies with a number."""

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Text(1000)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Text(100)

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
