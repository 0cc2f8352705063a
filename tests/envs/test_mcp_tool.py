"""The tool `mcp` with a real server, written with the SDK, that speaks over its standard streams."""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import pettingllms_envs
from pettingllms_envs.core import ToolResult
from pettingllms_envs.tools import make_tool, written_call


pytest.importorskip("mcp", reason="needs the extra `mcp`")

COMMAND = [sys.executable, str(Path(__file__).parent / "mcp_server.py")]


@contextmanager
def tool_of(name: str | None, **settings: Any) -> Iterator[Any]:
    tool: Any = make_tool({"tool": "mcp", "command": COMMAND, "name": name, **settings})
    try:
        yield tool
    finally:
        tool.close()


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture(scope="module")
def shout() -> Iterator[Any]:
    with tool_of("shout", timeout=30) as tool:
        yield tool


def test_a_tool_is_what_the_server_says_of_it(shout: Any) -> None:
    assert (shout.spec.name, shout.spec.description) == ("shout", "Repeats words in capitals.")
    assert shout.spec.parameters["properties"]["words"]["type"] == "string"
    assert len(shout.digest) == 16
    assert shout.deterministic is False


def test_a_call_returns_the_tools_text(shout: Any) -> None:
    assert shout("hello </tool_call> \ufffd") == ToolResult("HELLO </TOOL_CALL> \ufffd")


def test_a_tool_that_raises_has_an_error_and_its_server_goes_on(shout: Any) -> None:
    failed = shout("raise")
    assert failed.error == "the tool failed"
    assert shout("on") == ToolResult("ON")


def test_a_server_that_ends_is_an_error_in_fixed_words_and_is_started_again(shout: Any) -> None:
    assert shout("exit") == ToolResult("", "the tool's server failed or did not answer in time")
    assert shout("again") == ToolResult("AGAIN")


def test_a_tool_of_several_arguments_is_called_with_json() -> None:
    with tool_of("add") as add:
        assert add('{"a": 2, "b": 3}') == ToolResult("5")
        assert add("2 and 3") == ToolResult("", "the arguments are no JSON object")
        assert add('{"a": "two"}').error == "the tool failed"
        again = pickle.loads(pickle.dumps(add))
        assert (again.spec, again.digest, again('{"a": 1, "b": 1}')) == (add.spec, add.digest, ToolResult("2"))
        again.close()


@pytest.mark.slow
def test_an_image_is_a_part_of_the_result_if_it_is_a_png_file() -> None:
    with tool_of("draw") as draw:
        (image,) = draw("png").media
        assert image.alt == "image 1 of the tool's result"
        assert draw("gif") == ToolResult("", "the tool returned something other than texts and PNG images")


@pytest.mark.slow
def test_a_call_without_an_answer_fails_in_time_and_closes_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "k-7")
    with tool_of("shout", timeout=8, variables=["KEY"]) as tool:
        assert tool("a") == ToolResult("A k-7")  # the variable that was named, and no other
        start = time.monotonic()
        assert tool("sleep") == ToolResult("", "the tool's server failed or did not answer in time")
        assert time.monotonic() - start < 30


def test_closing_a_tool_ends_its_server() -> None:
    with tool_of("process") as tool:
        process = int(tool("").text)
        assert is_running(process)
    assert not is_running(process)


@pytest.mark.slow
def test_an_agent_calls_the_server_in_an_episode() -> None:
    env = pettingllms_envs.make(
        "plan_path",
        role_tools={"planner": [{"tool": "mcp", "command": COMMAND, "name": "shout"}]},
        tool_calls="native",
    )
    env.reset(seed=0)
    env.step("Moves: U")
    env.step(written_call("shout", {"words": "up"}))
    assert env.observe("planner_0")["messages"][-1]["content"] == "UP"
    assert env.metadata["settings"]["role_tools"]["planner"][0]["name"] == "shout"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, r"the tool 'mcp' got command=None and url=None; expected one of them"),
        ({"command": "python server.py"}, r"got command='python server.py' .* the command as a list"),
        ({"command": COMMAND}, r"has the tools shout, add, draw, process; expected one. Name it: name="),
        ({"command": COMMAND, "name": "shou"}, r"the name of the server's tool .*'shou'.*Did you mean 'shout'"),
        ({"command": COMMAND, "variables": ["NO_SUCH"]}, r"variables has 'NO_SUCH'; expected variables of the env"),
        ({"command": COMMAND, "timeout": 0}, r"timeout is 0; expected seconds, more than 0"),
        ({"command": COMMAND, "timeout": float("nan")}, r"timeout is nan; expected seconds"),
        ({"command": COMMAND, "timeout": "30"}, r"timeout is '30'; expected seconds"),
        ({"command": ["false"]}, r"the MCP server 'false' failed or did not answer in time; .* Start it by hand"),
        ({"command": ["no-such-program"]}, r"the MCP server 'no-such-program' failed or did not answer in time"),
        ({"url": "http://127.0.0.1:9/mcp"}, r"the MCP server 'http://127.0.0.1:9/mcp' failed or did not answer"),
    ],
)
def test_a_server_that_cannot_be_used_raises_when_the_tool_is_made(settings: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_tool({"tool": "mcp", "timeout": 30, **settings})


HOSTILE = str(Path(__file__).parent / "hostile_mcp_server.py")


def busy() -> float:
    """Times the bound that a machine may take: twice on one of its own, more as its load makes everything longer."""
    return 2.0 * max(1.0, os.getloadavg()[0] / len(os.sched_getaffinity(0)))


def numbers_of_processes(file: Path) -> list[int]:
    """The server's and its child's; empty if there was no time to start."""
    return [int(each) for each in file.read_text().split()] if file.exists() else []


def has_ended(process: int) -> bool:
    """Whether it runs no more. Nobody may have asked how it ended, which keeps its number."""
    found = subprocess.run(["ps", "-o", "stat=", "-p", str(process)], capture_output=True, text=True, check=False)
    return not found.stdout.strip() or found.stdout.startswith("Z")


@pytest.mark.parametrize("way", ["silent", "junk", "an endless line", "pages"])
def test_a_server_that_never_lists_its_tools_is_given_up_within_a_second_of_the_timeout(
    way: str, tmp_path: Path
) -> None:
    file = tmp_path / "processes"
    start = time.monotonic()
    with pytest.raises(ValueError, match=r"failed or did not answer in time; .* Start it by hand"):
        make_tool({"tool": "mcp", "command": [sys.executable, HOSTILE, way, str(file)], "timeout": 1.0})
    assert time.monotonic() - start < busy() * (1.0 + 1.0)
    assert all(has_ended(each) for each in numbers_of_processes(file))


def test_a_call_that_a_server_never_reads_is_given_up_within_a_second_of_the_timeout(tmp_path: Path) -> None:
    file = tmp_path / "processes"
    tool: Any = make_tool({"tool": "mcp", "command": [sys.executable, HOSTILE, "deaf", str(file)], "timeout": 4.0})
    failed = ToolResult("", "the tool's server failed or did not answer in time")
    start = time.monotonic()
    assert tool('{"x": "' + 10**6 * "x" + '"}') == failed  # more than a pipe holds
    assert time.monotonic() - start < busy() * (4.0 + 1.0)
    assert all(has_ended(each) for each in numbers_of_processes(file))


def test_a_server_that_does_not_end_is_killed_within_a_second(tmp_path: Path) -> None:
    file = tmp_path / "processes"
    tool: Any = make_tool({"tool": "mcp", "command": [sys.executable, HOSTILE, "deaf", str(file)], "timeout": 30.0})
    processes = numbers_of_processes(file)
    assert not any(has_ended(each) for each in processes)
    start = time.monotonic()
    tool.close()
    assert time.monotonic() - start < busy() * 1.0
    assert all(has_ended(each) for each in processes)


def test_an_address_that_accepts_and_says_nothing_is_given_up_within_a_second_of_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        start = time.monotonic()
        with pytest.raises(ValueError, match="failed or did not answer in time"):
            make_tool({"tool": "mcp", "url": f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", "timeout": 1.0})
        assert time.monotonic() - start < busy() * (1.0 + 1.0)
