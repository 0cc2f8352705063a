"""Whether `pettingllms blame` finds the call that decides, of a program with four calls.

    python benchmarks/bench_blame.py                       # 20 repetitions for each deciding call, 30 problems, K = 4
    python benchmarks/bench_blame.py --repetitions 5 --problems 12 --answers 2

The writer and the critic are asked in turn, twice each, and are shown what was replied before, by a server of random
replies. The reward is 1 if the deciding call was replied "1", as six replies of ten are, so that its effect is
0.6 * 0.4 = 0.24 and all others' is 0. A repetition is the whole command with another `--seed`, by HTTP at both ends.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from pettingllms_envs import cli


CALLS = ("writer", "critic", "writer", "critic")
CHANCE = 0.6
PROGRAM = """
import json
import urllib.request
from pettingllms_envs.programs import program

def ask(base_url, agent, text):
    body = json.dumps({{"model": agent, "messages": [{{"role": "user", "content": text}}]}}).encode()
    request = urllib.request.Request(f"{{base_url}}/chat/completions", body, {{"content-type": "application/json"}})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]

def play(base_url, row):
    replies = []
    for agent in {calls}:
        replies.append(ask(base_url, agent, f"{{row['seed']}}: {{replies}}"))
    return float(replies[{decides}] == "1")

team = program(play, agents=("writer", "critic"))
"""


class Handler(BaseHTTPRequestHandler):
    """Replies "1" or "0" by the seed of the request alone."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # the answer leaves in one packet
    disable_nagle_algorithm = True

    def log_message(self, *args: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._send({"object": "list", "data": [{"id": "coin", "object": "model"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = str(int(random.Random(body["seed"]).random() < CHANCE))
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1}
        self._send({"model": "coin", "choices": [choice], "usage": usage})

    def _send(self, answer: object) -> None:
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextlib.contextmanager
def serving() -> Iterator[str]:
    """The base URL of the server."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()


def measure(folder: Path, url: str, decides: int, repetitions: int, problems: int, answers: int) -> None:
    """Print how often the deciding call was found, and how often the intervals of the others include 0."""
    file = folder / f"team_{decides}.py"
    file.write_text(PROGRAM.format(calls=CALLS, decides=decides), encoding="utf-8")
    which = (CALLS[decides], 1 + CALLS[:decides].count(CALLS[decides]))
    found, begun = [], time.process_time()
    for seed in range(repetitions):
        path = folder / f"{decides}-{seed}"
        line = ["blame", f"program:{file}:team", "--model", "coin", "--base-url", url, "--limit", str(problems)]
        line += ["--replies", str(answers), "--seed", str(seed), "--concurrency", "8", "--output", str(path)]
        with contextlib.redirect_stdout(io.StringIO()):
            status = cli.main(line)
        assert status == 0, f"pettingllms {' '.join(line)} ended with status {status}"
        report = json.loads((path / f"blame-{answers}" / "report.json").read_text(encoding="ascii"))
        found.append(report["blame"]["calls"])
    first = [calls[0] for calls in found if (calls[0]["agent"], calls[0]["call"]) == which]
    own = [call for calls in found for call in calls if (call["agent"], call["call"]) == which]
    others = [call for calls in found for call in calls if (call["agent"], call["call"]) != which]
    true = CHANCE * (1 - CHANCE)
    print(
        f"{which[0]}'s call {which[1]} decides: its effect is the largest in {len(first)} of {repetitions} runs, "
        f"excludes 0 in {sum(call['low'] > 0 for call in own)}, includes {true:.2f} in "
        f"{sum(call['low'] <= true <= call['high'] for call in own)}, mean "
        f"{sum(call['mean'] for call in own) / len(own):.3f}; of the others' {len(others)} intervals "
        f"{sum(call['low'] <= 0 <= call['high'] for call in others)} include 0, mean "
        f"{sum(call['mean'] for call in others) / len(others):+.4f}; {time.process_time() - begun:.0f} s of processor "
        "time, with server and program",
        flush=True,
    )


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=20, help="for each deciding call (20)")
    parser.add_argument("--problems", type=int, default=30, help="problems, an episode each (30)")
    parser.add_argument("--answers", type=int, default=4, help="how often each call is answered anew (4)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, serving() as url:
        for decides in range(len(CALLS)):
            measure(Path(folder), url, decides, args.repetitions, args.problems, args.answers)


if __name__ == "__main__":
    main()
