"""Connections to MCP servers, for the tool `mcp`: each wait is bounded, and a server that was started here is ended.

The SDK bounds single messages, and takes seconds to end a server that does not answer. Here a deadline holds for all
that a request takes; a server that missed it is told to end at once and killed `GRACE` seconds later.
"""

from __future__ import annotations

import math
import os
import signal
import threading
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import Any

import anyio
from anyio.abc import Process
from anyio.from_thread import BlockingPortal, start_blocking_portal
from anyio.streams.buffered import BufferedByteReceiveStream
from mcp import Client, MCPError
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp.types import CONNECTION_CLOSED, REQUEST_TIMEOUT, CallToolResult, Tool, jsonrpc_message_adapter


MOST_ENDING, GRACE = 0.6, 0.3
"""Seconds that a server has to end by itself when nothing failed, and after it was told to before it is killed."""

MOST_BYTES = 64 * 2**20
"""Bytes of one message; a server that writes more without an end of line has failed."""


class Connection:
    """A connection to a server, used from any thread: the SDK's client in an event loop on a thread of its own.

    Args:
        command: The server's program and its arguments; None for one at `url`.
        until: The deadline, a time of `time.monotonic`.

    Raises:
        ConnectionError: It did not start or answer in time.
    """

    def __init__(
        self, command: Sequence[str] | None, url: str | None, variables: Mapping[str, str], until: float
    ) -> None:
        server: Any = url if command is None else _process(command, variables)
        try:
            with ExitStack() as stack:
                self._portal: BlockingPortal = stack.enter_context(start_blocking_portal())
                self._client, self._scope = stack.enter_context(
                    self._portal.wrap_async_context_manager(_connected(Client(server), until))
                )
                thread = self._portal.call(threading.get_ident)
                self._close = weakref.finalize(self, _close, stack.pop_all(), thread)  # also when Python ends
        except Exception as error:  # its transports raise errors of many libraries, alone and in groups
            raise ConnectionError from error
        info = self._client.server_info
        self.server = None if info is None else [info.name, info.version]

    @property
    def ended(self) -> bool:
        """Whether it was closed, or has failed."""
        return not self._close.alive

    def tools(self, until: float) -> dict[str, Tool]:
        """The server's tools by name.

        Raises:
            ConnectionError: They were not all listed in time.
        """
        try:
            return self._portal.call(_within, until, _tools, self._client)
        except Exception as error:  # as in `__init__`
            self.abandon()
            raise ConnectionError from error

    def call(self, name: str, arguments: Mapping[str, Any], until: float) -> CallToolResult | None:
        """The result of a call; None if the server refused it, such as for arguments that do not match its schema.

        Raises:
            ConnectionError: There was none in time.
        """
        try:
            found: CallToolResult = self._portal.call(_within, until, self._client.call_tool, name, dict(arguments))
        except Exception as error:  # as in `__init__`
            if isinstance(error, MCPError) and error.error.code not in (CONNECTION_CLOSED, REQUEST_TIMEOUT):
                return None
            self.abandon()
            raise ConnectionError from error
        return found

    def close(self) -> None:
        """End it, and the server if it was started here, which is given time to end by itself."""
        self._close()

    def abandon(self) -> None:
        with suppress(RuntimeError):  # it has ended already
            self._portal.call(self._scope.cancel)
        self._close()


def _close(stack: ExitStack, thread: int | None = None) -> None:
    """Close a connection. On its own thread, where the garbage may have been collected, it would wait for itself."""
    if threading.get_ident() == thread:
        threading.Thread(target=_close, args=(stack,), daemon=True).start()
        return
    with suppress(Exception):  # a server that failed may fail once more when it is closed; nobody can act on it
        stack.close()


@asynccontextmanager
async def _connected(client: Client, until: float) -> AsyncIterator[tuple[Client, anyio.CancelScope]]:
    """The client, and the scope that ends it at once when it is cancelled."""
    with anyio.fail_after(until - time.monotonic()) as scope:
        async with client:
            scope.deadline = math.inf
            yield client, scope
            scope.deadline = anyio.current_time() + MOST_ENDING


async def _within(until: float, function: Callable[..., Awaitable[Any]], *args: Any) -> Any:
    with anyio.fail_after(until - time.monotonic()):
        return await function(*args)


async def _tools(client: Client) -> dict[str, Tool]:
    found: dict[str, Tool] = {}
    cursor: str | None = None
    while True:
        page = await client.list_tools(cursor=cursor)
        found |= {tool.name: tool for tool in page.tools}
        cursor = page.next_cursor
        if not cursor:
            return found


@asynccontextmanager
async def _process(command: Sequence[str], variables: Mapping[str, str]) -> AsyncIterator[Any]:
    """A server that is started and ended here, as a transport of the SDK: messages are lines of its standard streams.

    The SDK's own waits up to seven seconds for a server's end, whatever failed.
    """
    process = await anyio.open_process(
        command, env={**get_default_environment(), **variables}, stderr=None, start_new_session=True
    )
    received, from_server = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    # Without a bound, so that the SDK, when it is cancelled, does not wait for a server that reads nothing.
    to_server, sent = anyio.create_memory_object_stream[SessionMessage](math.inf)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_read, process, received)
            group.start_soon(_write, process, sent)
            yield from_server, to_server
            to_server.close()
            await _ended(process)
            group.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await _kill(process)
        for stream in (received, from_server, to_server, sent):
            stream.close()


async def _read(process: Process, received: Any) -> None:
    """The messages among the lines that a server writes; others, such as those of a log, are left out."""
    assert process.stdout is not None
    lines = BufferedByteReceiveStream(process.stdout)
    with received, suppress(anyio.IncompleteRead, anyio.DelimiterNotFound, anyio.BrokenResourceError, OSError):
        while True:
            line = await lines.receive_until(b"\n", MOST_BYTES)
            with suppress(ValueError):
                await received.send(SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False)))


async def _write(process: Process, sent: Any) -> None:
    """The client's messages to the server, and then the end of its input."""
    assert process.stdin is not None
    with suppress(anyio.BrokenResourceError, OSError):
        async with sent, process.stdin:
            async for each in sent:
                text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
                await process.stdin.send(f"{text}\n".encode())


async def _ended(process: Process) -> None:
    """Wait for the end of a server. `Process.wait` would wait for its children, too, if they have its streams."""
    while process.returncode is None:
        await anyio.sleep(0.01)


async def _kill(process: Process) -> None:
    """End a server and its children: first they are told to, then killed."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with anyio.move_on_after(GRACE):
            await _ended(process)
    with suppress(anyio.BrokenResourceError, OSError):
        await process.aclose()
