"""A Hub with data sets of a test's own making, on 127.0.0.1: those requests that reading a public data set makes."""

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class FakeHub:
    """Data sets at one commit each.

    Args:
        sets: By id, the files' contents by path.
        commit: Where `main` of all of them is; 40 hex digits.
    """

    sets: Mapping[str, Mapping[str, bytes]]
    commit: str
    requests: list[str] = field(default_factory=list)
    url: str = ""

    def answer(self, path: str) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of what is at a path."""
        for id, files in self.sets.items():
            for revision in (self.commit, "main"):
                if path in (f"/api/datasets/{id}", f"/api/datasets/{id}/revision/{revision}"):
                    siblings = [{"rfilename": name} for name in files]
                    return 200, {}, json.dumps({"id": id, "sha": self.commit, "siblings": siblings}).encode()
                if path == f"/api/datasets/{id}/tree/{revision}":
                    tree = [
                        {"type": "file", "path": name, "size": len(body), "oid": "0" * 40}
                        for name, body in files.items()
                    ]
                    return 200, {}, json.dumps(tree).encode()
                stem = f"/datasets/{id}/resolve/{revision}/"
                if path.startswith(stem) and path.removeprefix(stem) in files:
                    body = files[path.removeprefix(stem)]
                    headers = {"X-Repo-Commit": self.commit, "ETag": f'"{hashlib.sha256(body).hexdigest()}"'}
                    return 200, headers, body
        return 404, {"X-Error-Code": "RepoNotFound"}, b"{}"


@contextmanager
def serving(hub: FakeHub) -> Iterator[FakeHub]:
    """The hub with its `url`, until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            hub.requests.append(f"{self.command} {path}")
            status, headers, body = hub.answer(path)
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
