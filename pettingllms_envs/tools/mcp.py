"""Tool `mcp`: a tool of a server that speaks the Model Context Protocol, through the official SDK (extra `mcp`).

    {"tool": "mcp", "command": ["python", "server.py"], "name": "search"}
    {"tool": "mcp", "url": "http://localhost:8000/mcp", "name": "search"}

A server that is a command is started here, and ends with the tool. It is not isolated: it runs with the rights of this
process, unlike what a model writes in the sandbox. Each tool has a connection of its own.

Source: https://modelcontextprotocol.io, and the SDK's https://py.sdk.modelcontextprotocol.io.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pettingllms_envs.core import ToolResult, ToolSpec, check_choice
from pettingllms_envs.installing import needs_extra
from pettingllms_envs.observations import PNG, Image
from pettingllms_envs.tools.calls import only_text


if TYPE_CHECKING:
    from pettingllms_envs.tools.mcp_connection import Connection


SERVER_FAILED = "the tool's server failed or did not answer in time"
BY_HAND = "failed or did not answer in time; expected one that lists its tools. Start it by hand to see why."
TOOL_FAILED = "the tool failed"
NO_OBJECT = "the arguments are no JSON object"
NOT_SHOWN = "the tool returned something other than texts and PNG images"


class McpTool:
    """A tool of an MCP server; see `pettingllms_envs.core.Tool`.

    Args:
        url: The address of a server that runs already, in place of a command.
        name: The tool's name on the server; None takes the only one.
        timeout: Seconds after which a call fails, and so does making the tool: starting or reaching the server and
            listing its tools. Ending a server that missed it takes less than a second more.
        variables: Names of environment variables that the command is given, such as one with a key, besides the few
            that are harmless (`PATH`, `HOME`, ...).
        deterministic: Whether the same request always gives the same result, which the protocol does not say.
    """

    def __init__(
        self,
        *,
        command: Sequence[str] | None = None,
        url: str | None = None,
        name: str | None = None,
        timeout: float = 30.0,
        variables: Sequence[str] = (),
        deterministic: bool = False,
    ) -> None:
        if (command is None) == (url is None) or isinstance(command, str) or (command is not None and not command):
            raise ValueError(
                f"the tool 'mcp' got command={command!r} and url={url!r}; expected one of them, the command as a list "
                'such as ["python", "server.py"].'
            )
        if missing := [each for each in variables if each not in os.environ]:
            raise ValueError(
                f"variables has {missing[0]!r}; expected variables of the environment. Set it, or leave it out."
            )
        if not isinstance(timeout, int | float) or not timeout > 0:
            raise ValueError(f"timeout is {timeout!r}; expected seconds, more than 0. Raise it.")
        self._settings: dict[str, Any] = {
            "command": command,
            "url": url,
            "name": name,
            "timeout": timeout,
            "variables": variables,
            "deterministic": deterministic,
        }
        with needs_extra("mcp", "mcp, the MCP SDK,", "the tool"):
            from pettingllms_envs.tools.mcp_connection import Connection
        self._connect = partial(Connection, command, url, {each: os.environ[each] for each in variables})
        self._where = url if command is None else " ".join(command)
        self.deterministic = deterministic
        self._lock = threading.Lock()
        until = time.monotonic() + timeout
        try:
            self._connection: Connection = self._connect(until)
            try:
                self.spec, self.digest = self._described(self._connection, name, until)
            except BaseException:
                self._connection.abandon()
                raise
        except ConnectionError as error:
            raise ValueError(f"the MCP server {self._where!r} {BY_HAND}") from error

    def __call__(self, request: str) -> ToolResult:
        """The result of a call. After a failure of the server the next call starts or reaches it again."""
        arguments = self._arguments(request)
        if arguments is None:
            return ToolResult("", NO_OBJECT)
        until = time.monotonic() + self._settings["timeout"]
        try:
            found = self._reached(until).call(self.spec.name, arguments, until)
        except ConnectionError:
            return ToolResult("", SERVER_FAILED)
        return ToolResult("", TOOL_FAILED) if found is None else _result(found.content, failed=bool(found.is_error))

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(McpTool, **self._settings), ()

    def _reached(self, until: float) -> Connection:
        """A connection that has not ended; only one thread makes it, and the others wait no longer than they may."""
        if not self._lock.acquire(timeout=max(0.0, until - time.monotonic())):
            raise ConnectionError
        try:
            if self._connection.ended:
                self._connection = self._connect(until)
            return self._connection
        finally:
            self._lock.release()

    def _described(self, connection: Connection, name: str | None, until: float) -> tuple[ToolSpec, str]:
        """What the server says of the tool, and a digest of it and of the server's name and version."""
        tools = connection.tools(until)
        if name is None and len(tools) != 1:
            raise ValueError(
                f"the MCP server {self._where!r} has the tools {', '.join(tools) or 'none'}; expected one. Name it: "
                "name=..."
            )
        name = next(iter(tools)) if name is None else name
        check_choice("the name of the server's tool", name, tuple(tools))
        spec = ToolSpec(name, tools[name].description or "", dict(tools[name].input_schema))
        identity = json.dumps([connection.server, spec], sort_keys=True)
        return spec, hashlib.sha256(identity.encode()).hexdigest()[:16]

    def _arguments(self, request: str) -> dict[str, Any] | None:
        text = only_text(self.spec)
        if text is not None:
            return {text: request}
        try:
            found = json.loads(request)
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None


def _result(content: Sequence[Any], *, failed: bool) -> ToolResult:
    """The content of an answer: texts, one below the other, and images."""
    texts: list[str] = []
    media: list[Image] = []
    for part in content:
        if part.type == "text":
            texts.append(part.text)
        elif (png := _png_of(part)) is not None:
            media.append(Image(png, f"image {len(media) + 1} of the tool's result"))
        else:
            return ToolResult("\n".join(texts), NOT_SHOWN)
    return ToolResult("\n".join(texts), TOOL_FAILED if failed else "", tuple(media))


def _png_of(part: Any) -> bytes | None:
    if part.type != "image":
        return None
    try:
        png = base64.b64decode(part.data, validate=True)
    except binascii.Error:
        return None
    return png if png.startswith(PNG) else None
