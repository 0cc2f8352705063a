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
import weakref
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any

from pettingllms_envs.core import ToolResult, ToolSpec, check_choice
from pettingllms_envs.observations import PNG, Image
from pettingllms_envs.tools.calls import only_text


EXTRA = "the tool needs the MCP SDK, which is not installed; expected the extra `mcp`. pip install 'pettingllms[mcp]'"
SERVER_FAILED = "the tool's server failed or did not answer in time"
BY_HAND = "failed or did not answer in time; expected one that lists its tools. Start it by hand to see why."
TOOL_FAILED = "the tool failed"
NO_OBJECT = "the arguments are no JSON object"
NOT_SHOWN = "the tool returned something other than texts and PNG images"


class McpTool:
    """A tool of an MCP server; see `pettingllms_envs.core.Tool`.

    Args:
        command: The server's program and its arguments.
        url: The address of a server that runs already, in place of a command.
        name: The tool's name on the server; None takes the only one.
        timeout: Seconds after which a call fails.
        variables: Names of environment variables that the command is given, such as one with a key, besides the few
            that are harmless (`PATH`, `HOME`, ...).
        deterministic: Whether the same request always gives the same result, which the protocol does not say.

    Raises:
        ValueError: There is not one of `command` and `url`, a variable is not set, or the server has no such tool, or
            cannot be reached.
        ImportError: The SDK is not installed.
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
        self._settings: dict[str, Any] = {
            "command": command,
            "url": url,
            "name": name,
            "timeout": timeout,
            "variables": variables,
            "deterministic": deterministic,
        }
        self._where = url if command is None else " ".join(command)
        self.deterministic = deterministic
        self._lock = threading.Lock()
        self._connection: _Connection | None = self._connected()
        if self._connection is None:
            raise ValueError(f"the MCP server {self._where!r} {BY_HAND}")
        try:
            self.spec, self.digest = self._described(self._connection, name)
        except BaseException:
            self.close()
            raise

    def __call__(self, request: str) -> ToolResult:
        """The result of a call. After a failure of the server the next call starts or reaches it again."""
        arguments = self._arguments(request)
        if arguments is None:
            return ToolResult("", NO_OBJECT)
        with self._lock:
            if self._connection is None:
                self._connection = self._connected()
            connection = self._connection
        if connection is None:
            return ToolResult("", SERVER_FAILED)
        result = connection.call(self.spec.name, arguments)
        if result is None:
            self.close(connection)
            return ToolResult("", SERVER_FAILED)
        return result

    def close(self, connection: _Connection | None = None) -> None:
        """End the connection, and the server if it was started here.

        Args:
            connection: The one that failed: one that has replaced it stays. None: any.
        """
        with self._lock:
            if connection is None or connection is self._connection:
                connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, (self._settings,)

    def _connected(self) -> _Connection | None:
        settings = self._settings
        return _Connection.open(settings["command"], settings["url"], settings["timeout"], settings["variables"])

    def _described(self, connection: _Connection, name: str | None) -> tuple[ToolSpec, str]:
        """What the server says of the tool, and a digest of it and of the server's name and version."""
        tools = connection.tools()
        if tools is None:
            raise ValueError(f"the MCP server {self._where!r} {BY_HAND}")
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


class _Connection:
    """A connection to a server, used from any thread: the SDK's client in an event loop on a thread of its own."""

    def __init__(self, stack: ExitStack, portal: Any, client: Any) -> None:
        self._portal, self._client = portal, client
        info = client.server_info
        self.server = None if info is None else [info.name, info.version]
        self._close = weakref.finalize(self, _close, stack, portal.call(threading.get_ident))  # also when Python ends

    @classmethod
    def open(
        cls, command: Sequence[str] | None, url: str | None, timeout: float, variables: Sequence[str]
    ) -> _Connection | None:
        """A connection; None if the server failed or did not answer.

        Raises:
            ImportError: The SDK is not installed.
        """
        try:
            from anyio.from_thread import start_blocking_portal
            from mcp import Client, StdioServerParameters
        except ImportError as error:
            raise ImportError(EXTRA) from error
        server: Any = url
        if command is not None:
            passed = {name: os.environ[name] for name in variables}
            server = StdioServerParameters(command=command[0], args=list(command[1:]), env=passed)
        stack = ExitStack()
        try:
            portal = stack.enter_context(start_blocking_portal())
            client = Client(server, read_timeout_seconds=timeout)
            return cls(stack, portal, stack.enter_context(portal.wrap_async_context_manager(client)))
        except Exception:  # noqa: BLE001  # its transports raise errors of many libraries, alone and in groups
            _close(stack)
            return None

    def tools(self) -> dict[str, Any] | None:
        """The server's tools by name; None if it failed."""
        found: dict[str, Any] = {}
        cursor: str | None = None
        try:
            while True:
                page = self._portal.call(self._list, cursor)
                found |= {tool.name: tool for tool in page.tools}
                cursor = page.next_cursor
                if not cursor:
                    return found
        except Exception:  # noqa: BLE001  # as in `open`
            return None

    async def _list(self, cursor: str | None) -> Any:
        return await self._client.list_tools(cursor=cursor)

    def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult | None:
        """The result of a call; None if the server failed."""
        try:
            found = self._portal.call(self._client.call_tool, name, dict(arguments))
        except Exception as error:  # noqa: BLE001  # as in `open`
            return ToolResult("", TOOL_FAILED) if _is_answer(error) else None
        return _result(found.content, failed=bool(found.is_error))

    def close(self) -> None:
        """End it, and the server if it was started here."""
        self._close()


def _is_answer(error: Exception) -> bool:
    """Whether an error is the server's answer to a call, such as to arguments that do not match its schema."""
    from mcp import MCPError
    from mcp.types import CONNECTION_CLOSED, REQUEST_TIMEOUT

    return isinstance(error, MCPError) and error.error.code not in (CONNECTION_CLOSED, REQUEST_TIMEOUT)


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


def _close(stack: ExitStack, thread: int | None = None) -> None:
    """Close a connection. On its own thread, where the garbage may have been collected, it would wait for itself."""
    if threading.get_ident() == thread:
        threading.Thread(target=_close, args=(stack,), daemon=True).start()
        return
    with suppress(Exception):  # a server that failed may fail once more when it is closed; nobody can act on it
        stack.close()


def _made(settings: Mapping[str, Any]) -> McpTool:
    return McpTool(**settings)
