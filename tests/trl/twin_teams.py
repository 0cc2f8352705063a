"""Two teams, each as an environment and as a program that asks the same and posts the same rewards.

In `sequence` a writer and a critic take four turns, and each is paid after its reply. In `fan_out` three writers are
asked at the same time, then a judge who is shown their texts; all are paid after the judge's reply, but the writers
once the last of them has replied.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from pettingllms_envs.programs import ProgramMaker, program
from third_party import PlainEnv


PAIR = ("writer", "critic")
WRITERS = ("writer_0", "writer_1", "writer_2")
FOUR = (*WRITERS, "judge")
WAIT = 0.2
"""Seconds for which threads may be kept from their calls at the same time on a busy machine."""


def send(url: str, body: Any) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def ask(base_url: str, agent: str, *texts: str) -> str:
    roles = ("system", "user", "assistant", "user", "assistant", "user")
    messages = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]
    answer = send(f"{base_url}/chat/completions", {"model": agent, "messages": messages})
    content: str = answer["choices"][0]["message"]["content"] or ""
    return content


def score(text: str) -> float:
    """A reward that differs from text to text."""
    return sum(text.encode()) % 7 / 7


def shown(agent: str, seed: int | None, number: int, text: str) -> tuple[str, str]:
    """The system's and the user's message."""
    return f"You are the {agent}.", f"{seed}.{number} {text}"


def sequence(base_url: str, row: Mapping[str, Any]) -> None:
    """The first team as a program."""
    text = ""
    for number in range(4):
        agent = PAIR[number % 2]
        text = ask(base_url, agent, *shown(agent, row["seed"], number, text))
        send(f"{base_url}/reward", {"reward": {agent: score(text)}})


def fan_out(base_url: str, row: Mapping[str, Any]) -> None:
    """The second team as a program."""
    with ThreadPoolExecutor(3) as pool:
        texts = list(pool.map(lambda agent: ask(base_url, agent, *shown(agent, row["seed"], 0, "")), WRITERS))
    pay_writers(base_url, texts)
    pay_judge(base_url, ask(base_url, "judge", *shown("judge", row["seed"], 1, " ".join(texts))))


def pay_writers(base_url: str, texts: list[str]) -> None:
    send(f"{base_url}/reward", {"reward": dict(zip(WRITERS, map(score, texts), strict=True))})


def pay_judge(base_url: str, text: str) -> None:
    send(f"{base_url}/reward", {"reward": {"judge": score(text)}})


class Native(PlainEnv):
    """A team as an environment.

    Args:
        agents: In the order in which they act, each as often as it does.
    """

    metadata = {"name": "native_v0"}

    def __init__(self, agents: tuple[str, ...]) -> None:
        self.order = agents
        self.possible_agents = list(dict.fromkeys(agents))

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.begin()
        self.seed, self.texts = seed, list[str]()

    def observe(self, agent: str) -> Any:
        roles = ("system", "user")
        return {"messages": [{"role": r, "content": t} for r, t in zip(roles, self._shown(agent), strict=True)]}

    def step(self, action: str | None) -> None:
        if action is None:
            self._was_dead_step(action)
            return
        self.texts.append(action)
        self.rewards = {**dict.fromkeys(self.possible_agents, 0.0), **self._paid()}
        if len(self.texts) == len(self.order):
            self.terminations = dict.fromkeys(self.possible_agents, True)
        else:
            self.agent_selection = self.order[len(self.texts)]

    def _shown(self, agent: str) -> tuple[str, str]:
        return shown(agent, self.seed, len(self.texts), self.texts[-1] if self.texts else "")

    def _paid(self) -> dict[str, float]:
        return {self.agent_selection: score(self.texts[-1])}


class NativeFanOut(Native):
    """The second team as an environment."""

    def _shown(self, agent: str) -> tuple[str, str]:
        return shown(agent, self.seed, 1 if agent == "judge" else 0, " ".join(self.texts) if agent == "judge" else "")

    def _paid(self) -> dict[str, float]:
        if len(self.texts) < len(WRITERS):
            return {}
        return (
            {"judge": score(self.texts[-1])}
            if len(self.texts) == 4
            else dict(zip(WRITERS, map(score, self.texts), strict=True))
        )


NATIVE = {"sequence": partial(Native, 2 * PAIR), "fan-out": partial(NativeFanOut, FOUR)}


def as_program(name: str, targets: Mapping[str, Any] | None = None, wait: float = 0.0) -> ProgramMaker:
    """A team as a program, or what `targets` has in its place.

    Args:
        wait: Least seconds for calls at the same time. Where one comes later the episode is sampled again.
    """
    target = (targets or {"sequence": sequence, "fan-out": fan_out})[name]
    is_parallel = name == "fan-out"
    made = program(target, agents=FOUR if is_parallel else PAIR, rewards="by step", parallel=is_parallel)
    if is_parallel:
        made.program.state.wait = max(made.program.state.wait, wait)
    return made
