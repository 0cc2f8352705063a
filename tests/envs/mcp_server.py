"""A small MCP server for tests, written with the SDK: `python mcp_server.py` speaks over its standard streams."""

from __future__ import annotations

import base64
import os
import time

from mcp.server import MCPServer
from mcp.types import ImageContent


server = MCPServer("small", version="1.0")
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="


@server.tool()
def shout(words: str) -> str:
    """Repeats words in capitals."""
    if words == "exit":
        os._exit(1)
    if words == "sleep":
        time.sleep(60)
    if words == "raise":
        raise RuntimeError("no such words")
    return words.upper() + ("" if "KEY" not in os.environ else f" {os.environ['KEY']}")


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool()
def draw(kind: str) -> ImageContent:
    """Draws a pixel."""
    data = PIXEL if kind == "png" else base64.b64encode(b"GIF89a").decode("ascii")
    return ImageContent(type="image", data=data, mime_type=f"image/{kind}")


@server.tool()
def process(words: str) -> str:
    """The number of the server's process."""
    return str(os.getpid())


if __name__ == "__main__":
    server.run("stdio")
