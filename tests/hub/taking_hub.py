"""A Hub on this machine: what `huggingface_hub` asks of the real one to make a repository and to commit to it."""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


SHA = "0123456789abcdef0123456789abcdef01234567"


class FakeHub:
    """Repositories by `kind/name`, each with its files; `private` has what each was made as."""

    def __init__(self) -> None:
        self.files: dict[str, dict[str, bytes]] = {}
        self.private: dict[str, bool] = {}
        self.requests: list[str] = []
        self.refuse = False
        self.endpoint = ""

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        self.requests.append(f"{method} {path}")
        if self.refuse:
            return 403, {"error": "you may not write here"}
        path = path.partition("?")[0]
        if path == "/api/whoami-v2":
            return 200, {"type": "user", "name": "me", "auth": {"accessToken": {"role": "write"}}}
        if path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked.get('type', 'model')}/{asked.get('organization', 'me')}/{asked['name']}"
            if name in self.files:
                return 409, {"error": "exists", "url": self._page(name)}
            self.files[name] = {}
            self.private[name] = asked.get("visibility") == "private" or bool(asked.get("private"))
            return 200, {"url": self._page(name), "id": name}
        if path == "/api/validate-yaml":
            return 200, {"errors": [], "warnings": []}
        found = re.fullmatch(r"/api/(model|dataset)s/([^/]+/[^/]+)/(preupload|commit)/main", path)
        if found is None:
            return 404, {"error": f"no such thing: {path}"}
        name = f"{found[1]}/{found[2]}"
        if found[3] == "preupload":
            asked = json.loads(body)
            files = [
                {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False, "oid": None}
                for file in asked["files"]
            ]
            return 200, {"files": files}
        for line in body.splitlines():
            entry = json.loads(line)
            if entry["key"] == "file":
                assert entry["value"]["encoding"] == "base64"
                self.files[name][entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
        return 200, {"commitUrl": f"{self._page(name)}/commit/{SHA}", "commitOid": SHA, "hookOutput": ""}

    def _page(self, name: str) -> str:
        kind, _, rest = name.partition("/")
        return f"{self.endpoint}/{'' if kind == 'model' else kind + 's/'}{rest}"


@contextmanager
def serving() -> Iterator[FakeHub]:
    """A Hub that answers until the block is left."""
    hub = FakeHub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.headers.get("Transfer-Encoding") == "chunked":
                body = b""
                while size := int(self.rfile.readline(), 16):
                    body += self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
            status, answer = hub.answer(self.command, self.path, body)
            text = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_HEAD = _answer

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
