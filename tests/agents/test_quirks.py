"""Thirty quirks of servers, each against the same four prompts, of Plan-Path and of a program."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import pettingllms_envs
from calls import send
from pettingllms_envs.agents.base import AgentRefused
from pettingllms_envs.agents.openai import open_apis
from pettingllms_envs.agents.spec import AgentSpec
from pettingllms_envs.episodes.episode import Instance, RunLimits, episode
from pettingllms_envs.evaluation.metrics import report
from pettingllms_envs.programs import program
from quirk_server import LIMIT, QUIRKS, Quirk, serving


TOOL = {"type": "function", "function": {"name": "add", "description": "", "parameters": {"type": "object"}}}


def adds(base_url: str, row: Any) -> float:
    """A program that is told the sum, by a tool of which the model makes a call if its server has it so."""
    messages: list[Any] = [
        {"role": "system", "content": "Add."},
        {"role": "user", "content": f"Add {row['seed']} and 2"},
    ]
    while True:
        body = {"model": "adder", "messages": messages, "tools": row.get("tools", [])}
        _, answer = send(f"{base_url}/chat/completions", body)
        message = answer["choices"][0]["message"]
        if not message.get("tool_calls"):
            return float(message["content"] == str(row["seed"] + 2))
        call_id = message["tool_calls"][0]["id"]
        messages += [message, {"role": "tool", "tool_call_id": call_id, "content": "done"}]


ENVIRONMENTS: dict[str, Callable[[], Any]] = {
    "plan_path": lambda: pettingllms_envs.make("plan_path", workflow="single", num_turns=1),
    "program": program(adds, agents=("adder",)),
}
NOT_PLAYED = (("plan_path", "ids of tool calls"), ("program", "bold"))  # without tools; what is right is the program's
CASES = [(env, name) for env in ENVIRONMENTS for name in QUIRKS if (env, name) not in NOT_PLAYED]


# After these the client waits and asks again; it is the same one that a program has its answers of.
ASKED_AGAIN = ("abort with a part", "error", "error with a part", "error in place of choices", "409", "498")


@pytest.mark.parametrize(
    ("env", "name"),
    [
        pytest.param(env, name, marks=pytest.mark.slow if env == "program" and name in ASKED_AGAIN else ())
        for env, name in CASES
    ],
)
def test_a_server_with_a_quirk_is_read_as_one_without(
    env: str, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    quirk = QUIRKS[name]
    caplog.set_level(logging.ERROR)
    if quirk.proxy:
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
        for variable in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(variable, raising=False)
    with serving(quirk) as server:
        options = {"base_url": server.url, "max_tokens": LIMIT, "patience": 5.0}
        made = ENVIRONMENTS[env]()
        pool = open_apis(dict.fromkeys(made.possible_agents, AgentSpec("api", "fake", options)), 1)
        try:
            if quirk.stops:
                with pytest.raises(AgentRefused, match=quirk.stops):
                    episode(made, Instance(0, 0), 0, pool.agents, RunLimits())
            else:
                tools = {"tools": [TOOL]} if name == "ids of tool calls" else {}
                rows = [episode(made, Instance(i, i, tools), 0, pool.agents, RunLimits()) for i in range(4)]
                check(quirk, rows)
        finally:
            made.close()
            pool.close()
    if name != "ids of tool calls":
        assert len(server.requests) == quirk.requests


def test_there_are_thirty_quirks() -> None:
    assert len(QUIRKS) == 30


def check(quirk: Quirk, rows: list[Any]) -> None:
    """Compare the rows of four episodes, and their report, with what the quirk's table says."""
    found = report({"config": {}}, rows)
    errors = Counter(row["error"]["kind"] for row in rows if row["error"])
    assert sum(row["success"] is True for row in rows) == quirk.solved, [row["error"] for row in rows]
    assert found["episodes"]["errors"] == errors == ({"refused": quirk.refused} if quirk.refused else {})
    steps = [row["steps"][-1] for row in rows if not row["error"]]
    assert [(step["tokens"]["completion"], step["finish"]) for step in steps] == [(quirk.written, quirk.finish)] * len(
        steps
    )
    (agent,) = found["agents"].values()
    assert agent["unknown_tokens"] == ({quirk.note: len(steps)} if quirk.note else {})
    assert agent["finish_words"] == ({quirk.finish: len(steps)} if quirk.finish == "fin" else {})
    assert agent["cut_off"] == (len(steps) if quirk.finish == "length" else 0)
