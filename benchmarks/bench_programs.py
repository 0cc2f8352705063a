"""What programs cost: processor time a call, memory a run, lost calls, the order of a fan-out, trees by replay.

    python benchmarks/bench_programs.py                 # 1, 64 and 512 runs at once; 20,000 calls; a fan-out of 8
    python benchmarks/bench_programs.py --calls 2000 --fan-outs 20

The clients are in a process of their own, so that this one's processor time is that of the endpoint, the environments
and the rollout. A native environment with the same prompts and replies is played beside it; the difference is the
endpoint's. The wait for the thread that holds the interpreter's lock is in the wall time alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import random
import threading
import time
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from gymnasium import spaces
from machine import process_memory
from pettingzoo import AECEnv

from pettingllms_envs.programs import ProgramMaker, program
from pettingllms_trl.engines.batched import BatchedEngine
from pettingllms_trl.records import Completion, Prompt, Request, RolloutOptions, Sampled
from pettingllms_trl.rollout.play import play


AGENTS = ("writer", "critic")
SESSIONS = (1, 64, 512)


class Clients:
    """A process that makes the calls of all runs, and says what each was answered."""

    def __init__(self) -> None:
        self._here, there = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("spawn").Process(target=_serve, args=(there,), daemon=True)
        self._process.start()
        self._lock, self._waiting = threading.Lock(), dict[int, tuple[threading.Event, list[Any]]]()
        threading.Thread(target=self._receive, daemon=True).start()

    def run(self, base_url: str, seed: int, calls: int) -> list[str]:
        """Make the calls of one run, one after the other. Returns the replies."""
        done, found = threading.Event(), list[Any]()
        with self._lock:
            self._waiting[seed] = done, found
            self._here.send((base_url, seed, calls))
        done.wait()
        return found[0]

    def _receive(self) -> None:
        with suppress(EOFError):  # this process ends, and the clients' with it
            while True:
                seed, replies = self._here.recv()
                with self._lock:
                    done, found = self._waiting.pop(seed)
                found.append(replies)
                done.set()


def _serve(pipe: Any) -> None:
    """The clients' process: a coroutine for each run, each with a connection of its own."""

    async def one(base_url: str, seed: int, calls: int) -> None:
        url = urllib.parse.urlsplit(base_url)
        reader, writer = await asyncio.open_connection(url.hostname, url.port)
        replies = []
        for number in range(calls):
            message = {"role": "user", "content": f"run {seed}, call {number}"}
            body = json.dumps({"model": AGENTS[number % 2], "messages": [message]}).encode()
            head = f"POST {url.path}/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            fields = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("content-length: ")[1]
            answer = json.loads(await reader.readexactly(int(fields.split("\r\n")[0])))
            replies.append(answer["choices"][0]["message"]["content"] if "choices" in answer else str(answer))
        writer.close()
        pipe.send((seed, replies))

    async def main() -> None:
        tasks = set()
        while True:
            given = await asyncio.to_thread(pipe.recv)
            tasks.add(asyncio.create_task(one(*given)))

    asyncio.run(main())


class Native(AECEnv):  # type: ignore[misc]  # pettingzoo ships no types
    """The same prompts without an endpoint."""

    metadata = {"name": "native_v0", "branching": "none"}  # noqa: RUF012

    def __init__(self, calls: int) -> None:
        self.possible_agents, self._calls = list(AGENTS), calls

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Text(100)

    action_space = observation_space

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self._seed, self._number = seed, 0
        self.agents, self.agent_selection = list(AGENTS), AGENTS[0]
        self.rewards = dict.fromkeys(AGENTS, 0.0)
        self._cumulative_rewards = dict(self.rewards)
        self.terminations, self.truncations = dict.fromkeys(AGENTS, False), dict.fromkeys(AGENTS, False)
        self.infos = {agent: {} for agent in AGENTS}

    def observe(self, agent: str) -> dict[str, Any]:
        return {"messages": [{"role": "user", "content": f"run {self._seed}, call {self._number}"}]}

    def step(self, action: str | None) -> None:
        if action is None:
            self._was_dead_step(action)
            return
        self._number += 1
        self.agent_selection = AGENTS[self._number % 2]
        if self._number == self._calls:
            self.rewards, self.terminations = dict.fromkeys(AGENTS, 1.0), dict.fromkeys(AGENTS, True)


def echo(requests: Sequence[Request]) -> list[Sampled]:
    """Answer every prompt with itself."""
    return [
        Sampled(request.prompt, (Completion(ids=(1,), text=request.prompt.messages[-1]["content"]),))
        for request in requests
    ]


def play_all(make_env: Callable[[], AECEnv], runs: int) -> tuple[float, float, Any]:
    """Play as many runs at once. Returns this process's processor time, the wall time, and the rollout."""
    options = RolloutOptions(sampling="parallel", num_candidates=1, num_threads=8)
    cpu, wall = time.process_time(), time.perf_counter()
    rows = [{"seed": seed} for seed in range(runs)]
    rollout = play(rows, BatchedEngine(echo), options, make_env=make_env, seed="0")
    return time.process_time() - cpu, time.perf_counter() - wall, rollout


def measure_calls(clients: Clients, runs: int, calls: int) -> None:
    """Print the cost of a call with so many runs at once, and whether each was answered once, with its own reply."""
    wrong = Counter[str]()
    highest = 0

    def team(base_url: str, row: Any) -> float:
        nonlocal highest
        replies = clients.run(base_url, row["seed"], calls)
        wrong.update("wrong" for k, text in enumerate(replies) if text != f"run {row['seed']}, call {k}")
        highest = max(highest, process_memory("VmRSS"))
        return 1.0

    make: ProgramMaker = program(team, agents=AGENTS)
    before = process_memory("VmRSS")
    cpu, wall, rollout = play_all(make, runs)
    native, _, beside = play_all(lambda: Native(calls), runs)
    made = [len(episode.decisions) for episode in rollout.episodes]
    assert sum(made) == runs * calls == sum(len(episode.decisions) for episode in beside.episodes)
    print(
        f"{runs} runs of {calls} calls: {1e3 * cpu / sum(made):.2f} ms of processor time a call, of a native "
        f"environment {1e3 * native / sum(made):.2f} ms; the endpoint's {1e3 * (cpu - native) / sum(made):.2f} ms. "
        f"{wall:.1f} s; {wrong.total()} wrong, {len(rollout.dropped)} dropped, {rollout.retried} restarted; "
        f"{max(0, highest - before) / 1e6 / runs:.2f} MB a run",
        flush=True,
    )


def ask(base_url: str, agent: str, text: str) -> str:
    """A call."""
    body = json.dumps({"model": agent, "messages": [{"role": "user", "content": text}]}).encode()
    request = urllib.request.Request(f"{base_url}/chat/completions", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        content: str = json.load(answer)["choices"][0]["message"]["content"]
    return content


def fan_out(base_url: str, row: Any) -> float:
    """Eight calls at once, then one."""
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda k: ask(base_url, f"worker_{k}", f"{row['seed']}: {7 - k}"), range(8)))
    return float(ask(base_url, "judge", " ".join(replies)) != "")


def busy() -> None:
    """A process that takes a core."""
    while True:
        pass


def measure_fan_out(times: int) -> None:
    """Print the orders in which a fan-out's calls were taken beside two busy processes, and the restarts."""
    others = [multiprocessing.get_context("spawn").Process(target=busy, daemon=True) for _ in range(2)]
    for other in others:
        other.start()
    make = program(fan_out, agents=(*(f"worker_{k}" for k in range(8)), "judge"))
    _, wall, rollout = play_all(make, times)
    for other in others:
        other.kill()
    orders = Counter(tuple(decision.agent for decision in episode.decisions) for episode in rollout.episodes)
    print(
        f"fan-out of 8, {times} times beside two busy processes: {len(rollout.dropped)} dropped, {len(orders)} "
        f"order(s), {rollout.retried} restarts; {wall:.1f} s; the wait is "
        f"{1e3 * make.program.state.wait:.0f} ms",
        flush=True,
    )


def slow_team(base_url: str, row: Any, start: float) -> None:
    """After `start` seconds six calls, 0.2 s of which 20 ms are processor time, and a reward posted after each."""
    time.sleep(start)
    text = ""
    for number in range(6):
        until = time.thread_time() + 0.02 / 6
        while time.thread_time() < until:
            pass
        time.sleep(0.18 / 6)
        text += ask(base_url, AGENTS[number % 2], f"{row['seed']}.{number} {text}")[:1]
        body = json.dumps({"reward": {AGENTS[number % 2]: ord(text[-1])}}).encode()
        urllib.request.urlopen(urllib.request.Request(f"{base_url}/reward", body)).close()


def measure_tree(start: float, max_envs: int | None = None, num_candidates: int = 4) -> None:
    """Print what a tree takes beside parallel episodes, with an engine that takes a second for each answer.

    Args:
        start: Seconds that the program takes before its first call.
        max_envs: Of both; `None`: `num_candidates`.
        num_candidates: K.
    """
    runs = 0

    def counted(base_url: str, row: Any) -> None:
        nonlocal runs
        runs += 1
        slow_team(base_url, row, start)

    def sample(requests: Sequence[Request]) -> list[Sampled]:
        time.sleep(1.0)
        answers = []
        for request in requests:
            rng = random.Random(repr(request.prompt.messages))
            texts = [rng.choice("0123456789abcdef") for _ in range(request.num_candidates)]
            completions = tuple(Completion(ids=(1,), text=text) for text in texts)
            answers.append(Sampled(Prompt(request.prompt.messages, ids=(1,)), completions))
        return answers

    make = program(counted, agents=AGENTS, rewards="by step")
    found = {}
    for sampling in ("parallel", "tree"):
        runs, begun = 0, time.perf_counter()
        options = RolloutOptions(sampling=sampling, num_candidates=num_candidates, num_threads=8, max_envs=max_envs)
        rollout = play([{"seed": 0}], BatchedEngine(sample), options, make_env=make, seed="0")
        assert len(rollout.episodes[-1].decisions) == 6
        found[sampling] = time.perf_counter() - begun
        print(f"{sampling} of {num_candidates}, six decisions: {found[sampling]:.2f} s, {runs} runs", flush=True)
    room = "" if max_envs is None else f" and max_envs={max_envs}"
    print(f"with a start of {start:g} s{room} the tree takes {found['tree'] / found['parallel']:.2f} times as long")


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=20_000, help="calls of the largest number of runs (20000)")
    parser.add_argument("--fan-outs", type=int, default=200, help="times that the fan-out is played (200)")
    args = parser.parse_args()
    clients = Clients()
    measure_calls(clients, 1, 20)  # so that nothing is imported or opened below
    for runs in SESSIONS:
        measure_calls(clients, runs, max(1, -(-args.calls // max(runs, 64))))
    measure_fan_out(args.fan_outs)
    measure_tree(start=0.0)
    measure_tree(start=2.0)
    measure_tree(start=2.0, max_envs=8)


if __name__ == "__main__":
    main()
