"""Clients of the endpoint for the tests of programs, and a loop that plays an environment with given replies."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any


def send(url: str, body: Any, **headers: str) -> tuple[int, Any]:
    """The status and the JSON of an answer, or its text where it is a stream; of a GET if there is no body."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else None
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, content, {"content-type": "application/json", **names})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            status, kind, text = answer.status, answer.headers["content-type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            status, kind, text = error.code, error.headers["content-type"], error.read().decode()
    return status, json.loads(text) if kind == "application/json" else text


def chat(base_url: str, agent: str, text: str, **fields: Any) -> tuple[int, Any]:
    """A chat completion for one user message, or for the messages given."""
    messages = [{"role": "user", "content": text}]
    return send(f"{base_url}/chat/completions", {"model": agent, "messages": messages, **fields})


def ask(base_url: str, agent: str, text: str) -> str:
    """The words of the reply to one user message.

    Raises:
        RuntimeError: The endpoint answered with an error.
    """
    status, answer = chat(base_url, agent, text)
    if status != 200:
        raise RuntimeError(answer["error"]["message"])
    content: str = answer["choices"][0]["message"]["content"]
    return content


def played(env: Any, replies: Iterable[str] | Callable[[str], str], seed: int = 0) -> list[tuple[str, str]]:
    """Play an episode to its end. Returns the acting agents, each with the last message that it was shown."""
    shown = []
    given = None if callable(replies) else iter(replies)
    env.reset(seed=seed)
    while env.agents:
        agent = env.agent_selection
        if env.terminations[agent]:
            env.step(None)
            continue
        text = env.observe(agent)["messages"][-1]["content"]
        shown.append((agent, text))
        env.step(replies(text) if callable(replies) else next(given))  # type: ignore[call-overload]
    return shown


def returns_of(env: Any, replies: Iterable[str], seed: int = 0) -> tuple[dict[str, float], list[dict[str, float]]]:
    """Play an episode. Returns the sum of each agent's rewards, and the rewards of each step."""
    env.reset(seed=seed)
    steps = []
    for reply in replies:
        env.step(reply)
        steps.append(dict(env.rewards))
    assert all(env.terminations.values())
    return {agent: sum(step[agent] for step in steps) for agent in env.possible_agents}, steps


def assert_ends(process: int) -> None:
    """Wait until a process has ended, at most 10 s."""
    until, place = time.monotonic() + 10, Path(f"/proc/{process}")
    while place.exists() and "Z" not in (place / "stat").read_text().split()[2]:
        assert time.monotonic() < until
        time.sleep(0.01)
