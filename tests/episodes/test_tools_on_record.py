"""Native tool calls: in records, replayed, sent to a server, on the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

import pettingllms_envs
from adder import Adder
from pettingllms_envs.agents.base import AgentRefused, Oracle, Reply, Request, Scripted
from pettingllms_envs.agents.openai import ChatApi, Endpoint
from pettingllms_envs.core import ToolResult
from pettingllms_envs.episodes import schema
from pettingllms_envs.episodes.episode import Instance, RunLimits, episode
from pettingllms_envs.episodes.files import remade, write_line
from pettingllms_envs.episodes.prompts import messages_of, tools_of
from pettingllms_envs.episodes.recorded import Recorded
from pettingllms_envs.episodes.replay import replay, same_bytes
from pettingllms_envs.evaluation.compare import telling_settings
from pettingllms_envs.evaluation.data_label import labelled
from pettingllms_envs.page.boards import Boards
from pettingllms_envs.page.read import episode_of
from pettingllms_envs.research.influence import of_roles
from pettingllms_envs.tools import written_call


FUNCTION = {"type": "function", "function": Adder.spec._asdict()}
CALL = written_call("add", {"numbers": "1 2 3"})


class Ignorant:
    """An agent by others, which says nothing of tools."""

    def reply(self, request: Request) -> Reply:
        return Reply(text="Moves: U")


def make() -> Any:
    return pettingllms_envs.make("plan_path", role_tools={"planner": [Adder()]}, tool_calls="native", max_tool_calls=2)


def calls_then_plays(request: Request) -> str:
    """A call before each move."""
    return CALL if request.tools and request.messages[-1]["role"] == "user" else Oracle().reply(request).text


def row_of(agent: Any, env: Any = None) -> dict[str, Any]:
    env = env or make()
    agents = dict.fromkeys(env.possible_agents, agent)
    read: dict[str, Any] = json.loads(write_line(episode(env, Instance(0, 3), 0, agents, RunLimits())))
    return read


def test_calls_are_steps_of_their_own_and_their_messages_are_recorded() -> None:
    row = row_of(Scripted(calls_then_plays))
    assert schema.of_row(row) is None
    assert row["success"]
    drafter, call, move = row["steps"][:3]
    assert [step["agent"] for step in (drafter, call, move)] == ["drafter_0", "planner_0", "planner_0"]
    assert call["reply"] == CALL
    assert "messages" not in call  # a system prompt and a text
    called = {"id": "c00000000", "type": "function", "function": {"name": "add", "arguments": {"numbers": "1 2 3"}}}
    assert messages_of(move)[2:] == [
        {"role": "assistant", "content": "", "tool_calls": [called]},
        {"role": "tool", "tool_call_id": "c00000000", "name": "add", "content": "6"},
    ]
    assert move["prompt"] == call["prompt"]


def test_the_tools_of_an_episodes_prompts_are_recorded_once() -> None:
    row = row_of(Scripted(calls_then_plays))
    assert row["tools"] == [[FUNCTION]]
    assert [tools_of(row, step) for step in row["steps"][:3]] == [[], [FUNCTION], [FUNCTION]]
    assert "tools" not in row["steps"][0]
    assert "tools" not in row_of(Oracle(), pettingllms_envs.make("plan_path"))


def test_an_episode_with_calls_is_replayed_byte_for_byte() -> None:
    row = row_of(Scripted(calls_then_plays))
    replayed = replay(make(), row)
    assert (replayed.first, replayed.off_prompt) == (None, 0)
    assert same_bytes(row, replayed.row)


def test_the_recorded_agent_repeats_replies_to_the_same_tools() -> None:
    row = row_of(Scripted(calls_then_plays))
    assert [step["reply"] for step in row_of(Recorded([row]))["steps"]] == [step["reply"] for step in row["steps"]]


def test_a_prompt_without_the_recorded_tools_is_a_difference() -> None:
    row = row_of(Scripted(calls_then_plays))
    del row["steps"][1]["tools"]
    first = replay(make(), row).first
    assert first is not None
    assert (first.step, first.what) == (1, "tools: expected None, got 0")


def test_an_agent_that_knows_no_tools_is_refused_before_it_is_asked() -> None:
    env = make()
    agents = {"drafter_0": Oracle(), "planner_0": Ignorant()}
    with pytest.raises(AgentRefused, match=r"planner_0 observes tools, which Ignorant cannot be .* tool_calls='text'"):
        episode(env, Instance(0, 3), 0, agents, RunLimits())


def test_a_server_is_sent_tools_and_messages_in_its_form_and_its_calls_become_replies() -> None:
    bodies: list[dict[str, Any]] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        bodies.append(json.loads(request.content))
        calls = [{"id": "x", "type": "function", "function": {"name": "add", "arguments": '{"numbers": "1 2 3"}'}}]
        is_first = "tools" in bodies[-1] and bodies[-1]["messages"][-1]["role"] == "user"
        message = {"content": None, "tool_calls": calls} if is_first else {"content": "Moves: U"}
        return httpx2.Response(200, json={"choices": [{"message": message, "finish_reason": "stop"}]})

    client = httpx2.Client(transport=httpx2.MockTransport(answer))
    row = row_of(ChatApi(Endpoint(base_url="http://host/v1", model="m"), client))
    drafter, call, move = bodies[:3]
    assert "tools" not in drafter
    assert call["tools"] == move["tools"] == [FUNCTION]
    assert row["steps"][1]["reply"] == CALL
    assert move["messages"][2]["tool_calls"][0]["function"]["arguments"] == '{"numbers": "1 2 3"}'
    assert move["messages"][3] == {"role": "tool", "tool_call_id": "c00000000", "name": "add", "content": "6"}
    assert row["steps"][2]["reply"] == "Moves: U"


def test_the_page_shows_calls_and_results_after_the_text() -> None:
    row = row_of(Scripted(calls_then_plays))
    shown = episode_of(row, [None] * (len(row["steps"]) + 1), {})
    assert shown["tools"] == [[FUNCTION]]
    drafter, call, move = shown["steps"][:3]
    assert [drafter["tools"], call["tools"], move["tools"]] == [None, 0, 0]
    assert [message["role"] for message in move["rounds"]] == ["assistant", "tool"]
    assert (call["rounds"], drafter["rounds"]) == ([], [])


def test_a_page_has_the_boards_of_an_episode_with_calls_and_runs_no_program() -> None:
    env = pettingllms_envs.make("plan_path", role_tools={"planner": ["python"]}, tool_calls="native")
    program = written_call("python", {"program": "while True: pass"})
    played = row_of(Scripted(lambda asked: program if asked.step == 1 else Oracle().reply(asked).text), env=unrun(env))
    settings = json.loads(json.dumps(env.metadata["settings"]))
    boards = Boards({"kind": "bench", "config": {"env": "plan_path", "settings": settings}}).of(played)
    assert None not in boards
    assert boards[1] == boards[2]
    assert boards[0] != boards[-1]


def unrun(env: Any) -> Any:
    """The environment with a tool of the same name that runs nothing."""
    spec = env.workflow.tools["planner"][0].spec

    class Unrun(Adder):
        def __call__(self, request: str) -> ToolResult:
            return ToolResult("")

    tool = Unrun()
    tool.spec = spec
    return pettingllms_envs.make("plan_path", role_tools={"planner": [tool]}, tool_calls="native")


@pytest.mark.parametrize("given", [{"planner": ["python", {"tool": "mcp", "command": ["rm"]}]}, [{"tool": "mcp"}]])
def test_a_record_starts_no_program_that_its_settings_name(given: Any) -> None:
    row = row_of(Oracle(), pettingllms_envs.make("plan_path"))
    header = {"kind": "bench", "config": {"env": "plan_path", "settings": {"role_tools": given}}}
    with pytest.raises(ValueError, match=r"the run has the tool \{'tool': 'mcp'.* If you trust it, give it yourself"):
        remade(header, row)
    assert remade(header, row, {"role_tools": given})[1] == {"role_tools": given}
    assert set(Boards(header).of(row)) == {None}
    assert str(of_roles(header, lambda: [row], num_replies=1)).startswith(
        "the environment cannot be made or played again"
    )


def test_reading_somebody_elses_run_makes_no_environment_that_starts_a_program(tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    settings = {"size": 9, "role_tools": [{"tool": "mcp", "command": ["touch", str(touched)]}]}
    header = {"kind": "bench", "config": {"env": "plan_path_v0", "settings": settings}}
    assert labelled(header)["data"] is None
    assert telling_settings("plan_path_v0", settings) == settings
    assert not touched.exists()
