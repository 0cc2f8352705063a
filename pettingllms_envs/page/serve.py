"""Serves a run's page on this machine and rebuilds it when the run has grown, so that a run can be watched."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


HOST = "127.0.0.1"


def server(file: Path, made: Callable[[], str], port: int = 0) -> ThreadingHTTPServer:
    """A server of one page, for this machine alone, at `server_address[1]`; `serve_forever()` runs it.

    The page is rebuilt by `made` when its file has changed. Port 0 takes a free one.
    """
    lock = threading.Lock()
    seen: tuple[object, bytes] = (None, b"")

    def current() -> bytes:
        nonlocal seen
        with lock:
            state = file.stat()
            mark = (state.st_mtime_ns, state.st_size)
            if seen[0] != mark:
                seen = (mark, made().encode("utf-8"))
            return seen[1]

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # A page of another site could otherwise read the run by a name that it points at this machine.
            host = (self.headers.get("Host") or "").rpartition(":")[0]
            if self.path != "/" or host not in (HOST, "localhost"):
                self.send_error(404)
                return
            try:
                body = current()
            except (OSError, ValueError) as error:
                self.send_error(500, "no page", str(error))
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return ThreadingHTTPServer((HOST, port), Page)
