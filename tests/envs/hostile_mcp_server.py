"""An MCP server that misbehaves as its first argument says, and writes the numbers of its processes to its second.

It ends neither when its input does nor when it is told to, and its child does not either.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any


def answer(request: dict[str, Any], result: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)


def initialized(request: dict[str, Any]) -> dict[str, Any]:
    return {
        "protocolVersion": request["params"]["protocolVersion"],
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "hostile", "version": "1"},
    }


def main(way: str, file: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = os.fork()
    if child == 0:
        time.sleep(60)
        return
    Path(file).write_text(f"{os.getpid()} {child}")
    while way == "silent":
        time.sleep(1)
    while way == "junk":
        print("junk", flush=True)
    while way == "an endless line":
        print("junk" * 1000, end="")
    page = 0
    for line in sys.stdin:
        request = json.loads(line)
        if request["method"] == "server/discover":
            message = {"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32601, "message": "unknown"}}
            print(json.dumps(message), flush=True)
        elif request["method"] == "initialize":
            answer(request, initialized(request))
        elif request["method"] == "tools/list":
            page += 1
            tool = {"name": "wait", "description": "Waits.", "inputSchema": {"type": "object", "properties": {}}}
            answer(request, {"tools": [tool], **({"nextCursor": str(page)} if way == "pages" else {})})
        elif request["method"] == "tools/call":
            time.sleep(60)  # and reads nothing more
    while True:
        time.sleep(1)


main(*sys.argv[1:])
