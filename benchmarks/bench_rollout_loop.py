"""What a rollout and an optimizer step cost in this checkout and at another commit, in one interleaved run.

    python benchmarks/bench_rollout_loop.py COMMIT [--pairs 20] [--only rollout] [--json loop.json] [--strict]

Each version runs in processes of its own and the two take turns, so that a busy machine meets both alike. The table
gives, of this checkout over the commit, the median ratio of the pairs with an interval of 95% from resampled pairs:

* rollout: CPU seconds of five rollouts of 24 trees of Plan-Path, K = 4, of an engine that answers at once;
* memory: what Python allocated at the peak of a rollout of 512 rows, in a process of its own each;
* env: CPU seconds of 2,000 steps of its environment;
* step: CPU seconds of an optimizer step of two LoRA adapters of the quickstart's model;
* branch, with `--only branch`: CPU seconds of four candidates in the states of the last turn of 4 and of 12, of eight
  teams, where the episode came to these states in play.

Then the functions that a rollout (without threads, and on two) and a step with its checkpoint enter, and the moves
from one file to another, as `architecture.py` counts them.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import random
import subprocess
import sys
import tarfile
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np


HERE = Path(__file__).resolve().parent
LIMITS: Mapping[str, float] = {"rollout": 1.03, "memory": 1.05, "env": 1.03, "step": 1.03}
"""Largest ratio: of the interval's end for CPU seconds of a rollout and a step, of the median for the others."""
MOST: Mapping[str, tuple[int, int]] = {"rollout": (6000, 55), "step": (1250, 450)}
"""Most moves and functions."""
COUNTED = ("rollout", "rollout, 2 threads", "step")
REPLIES = ("Moves: U", "Moves: R R", "Moves: D L", "", "I do not know")
MAX_STEPS = 1000


class Instant:
    """An engine that answers at once, by the agent, the prompt and the candidate alone."""

    is_batched, is_remote = True, False

    def __init__(self) -> None:
        self._open: list[tuple[int, Any]] = []

    def submit(self, ticket: int, request: Any) -> None:
        self._open.append((ticket, request))

    def step(self, timeout: float = 0.0) -> Sequence[tuple[int, Any]]:
        requests, self._open = self._open, []
        return [(ticket, self._answer(request)) for ticket, request in requests]

    def _answer(self, request: Any) -> Any:
        from pettingllms_trl.records import Completion, Sampled

        prompt, ids = request.prompt, (1, 2)
        shown = getattr(prompt, "messages", prompt)  # a list of messages at earlier commits
        answer = ids if shown is prompt else replace(prompt, ids=ids)
        place = f"{request.agent}/{shown[-1]['content']}"
        draws = (random.Random(hashlib.md5(f"{place}/{k}".encode()).digest()) for k in range(request.num_candidates))
        texts = [draw.choice(REPLIES) for draw in draws]
        return Sampled(answer, tuple(Completion(ids=(k, len(text)), text=text) for k, text in enumerate(texts)))


def rollout(num_rows: int, *, num_threads: int = 0) -> Callable[[], Any]:
    """A function that plays trees of Plan-Path."""
    from pettingllms_envs import plan_path_v0

    module: Any = import_module("pettingllms_trl.rollout.play")

    def make() -> Any:
        return plan_path_v0.env(size=4, num_turns=3)

    source = module.EnvironmentSource(make_env=make, pool={"": []})
    options = module.RolloutOptions(sampling="tree", num_candidates=4, num_threads=num_threads)
    rows = [{"seed": seed} for seed in range(num_rows)]
    return lambda: source.play(rows, Instant(), options, seed="s")


def env_steps() -> Callable[[], Any]:
    """A function that steps an environment."""
    from pettingllms_envs import plan_path_v0

    env = plan_path_v0.env(size=8, num_turns=200)

    def run() -> None:
        env.reset(seed=1)
        for i in range(400):
            env.step(REPLIES[i % 2])

    return run


BRANCHED: Mapping[str, tuple[str, Mapping[str, Any], tuple[str, str]]] = {
    "plan_path draft_plan": ("plan_path_v0", {"size": 8}, ("Moves: U", "Moves: L")),
    "plan_path single": ("plan_path_v0", {"size": 8, "workflow": "single"}, ("Moves: U", "Moves: L")),
    "sokoban draft_plan": ("sokoban_v0", {}, ("Moves: U", "Moves: L")),
    "sokoban single": ("sokoban_v0", {"workflow": "single"}, ("Moves: U", "Moves: L")),
    "sudoku draft_plan": ("sudoku_v0", {}, ("Fill: r1c1=1", "Fill: r1c2=2")),
    "archives team": ("archives_v0", {}, ("Search: Bela", "Answer: Bela")),
    "search team": ("search_v0", {}, ("Search: river", "Ask: river")),
    "math debate": ("math_v0", {"workflow": "debate"}, ("I think \\boxed{3}", "so \\boxed{4}")),
}


def branches(team: str, num_turns: int) -> Iterator[float]:
    """CPU seconds of the branches of 20 episodes, which are played as long as the one of 20 seeds that is longest."""
    name, settings, replies = BRANCHED[team]
    env: Any = import_module(f"pettingllms_envs.{name}").env(num_turns=num_turns, **settings)

    def course(seed: int) -> int:
        env.reset(seed=seed)
        for number in range(1000):
            if env.last(observe=False)[2] or env.last(observe=False)[3]:
                return number
            env.step(replies[number % 2])
        raise AssertionError(team)

    length, seed = max((course(seed), -seed) for seed in range(20))
    core, first = env.unwrapped, length - len(env.possible_agents)
    while True:
        spent = 0.0
        for _ in range(20):
            env.reset(seed=-seed)
            for number in range(length):
                here = core.snapshot()
                if number >= first:
                    begin = time.process_time()
                    for candidate in range(4):
                        core.restore(here)
                        core.step(replies[candidate % 2])
                    spent += time.process_time() - begin
                    core.restore(here)
                core.step(replies[number % 2])
        yield spent


def cpu_seconds(run: Callable[[], Any]) -> Iterator[float]:
    """CPU seconds of five calls, and of the next five."""
    while True:
        begin = time.process_time()
        for _ in range(5):
            run()
        yield time.process_time() - begin


def peak_bytes() -> Iterator[float]:
    """Of one rollout of 512 rows."""
    run = rollout(512)
    tracemalloc.start()
    run()
    yield float(tracemalloc.get_traced_memory()[1])


def counts(what: str) -> dict[str, Any]:
    """The figures of `architecture.Trace`."""
    import architecture

    if what == "step":
        return dict(architecture.one_step()["step"])
    trace = architecture.Trace()
    trace.of(rollout(24, num_threads=2 if "threads" in what else 0))
    return trace.figures()


def serve_steps() -> None:
    """Train, and write the CPU seconds of a step for each line of input."""
    import architecture
    from transformers import TrainerCallback

    class Turns(TrainerCallback):
        """Waits for its turn before each step."""

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.begin = time.process_time()

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """Of the optimizer; the rollout of the next one has not begun."""
            now = time.process_time()
            say(now - getattr(self, "begin", now))
            control.should_training_stop = not sys.stdin.readline()
            self.begin = time.process_time()

    with tempfile.TemporaryDirectory() as folder:
        architecture.save_tiny_model(folder)
        trainer = architecture.tiny_trainer(folder, max_steps=MAX_STEPS)
        turns = Turns()
        turns.begin = time.process_time()
        trainer.add_callback(turns)
        trainer.train()


OUT = sys.stdout


def say(value: Any) -> None:
    """Write a line for the process that asked."""
    print(json.dumps(value), file=OUT, flush=True)


def serve(what: str) -> None:
    """Write a measured value for each line of input; the first one, of a warm-up, without being asked."""
    sys.stdout = sys.stderr  # what a training prints is no value
    if what == "step":
        serve_steps()
    elif what.startswith("count "):
        say(counts(what.removeprefix("count ")))
    else:
        kinds: Mapping[str, Callable[[], Iterator[float]]] = {
            "rollout": lambda: cpu_seconds(rollout(24)),
            "env": lambda: cpu_seconds(env_steps()),
            "memory": peak_bytes,
            **{f"branch {team}, {n}": partial(branches, team, n) for team in BRANCHED for n in (4, 12)},
        }
        for value in kinds[what]():
            say(value)
            if not sys.stdin.readline():
                break


class Worker:
    """A process that measures in one checkout whenever it is told to."""

    def __init__(self, root: Path, what: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-P", str(HERE / "bench_rollout_loop.py"), "--serve", what],
            env={
                "PYTHONPATH": f"{root}:{HERE}",
                "PATH": "/usr/bin:/bin",
                "OMP_NUM_THREADS": "1",
                "HF_HUB_OFFLINE": "1",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=root,
        )

    def read(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def ask(self) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self.read()

    def end(self) -> None:
        self._process.terminate()
        self._process.communicate()


@contextlib.contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """A folder with the files of a commit of this repository."""
    archive = subprocess.run(
        ["git", "-C", str(HERE.parent), "archive", commit], check=True, capture_output=True
    ).stdout
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(folder, filter="data")
        yield Path(folder)


def pairs_of(roots: Sequence[Path], what: str, number: int) -> list[tuple[float, float]]:
    """Values of the two checkouts, which take turns in who begins."""
    if what == "memory":
        return [tuple(_of_one(root, what) for root in roots)]  # type: ignore[list-item]
    workers = [Worker(root, what) for root in roots]
    for worker in workers:
        worker.read()
    found = []
    for i in range(number):
        order = (0, 1) if i % 2 else (1, 0)
        values = {k: workers[k].ask() for k in order}
        found.append((values[0], values[1]))
    for worker in workers:
        worker.end()
    return found


def _of_one(root: Path, what: str) -> Any:
    worker = Worker(root, what)
    value = worker.read()
    worker.end()
    return value


def ratio(pairs: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """The median ratio of the second values over the first, and an interval of 95% from resampled pairs."""
    ratios = np.array([now / before for before, now in pairs])
    medians = np.median(np.random.default_rng(0).choice(ratios, (10_000, len(ratios))), axis=1)
    low, high = np.quantile(medians, (0.025, 0.975))
    return float(np.median(ratios)), float(low), float(high)


def is_met(what: str, median: float, low: float, high: float) -> bool:
    """Whether a ratio is within its limit: of CPU seconds at most 1, or not to be told from it and surely below."""
    if what in ("rollout", "step"):
        return median <= 1.0 or (low <= 1.0 and high < LIMITS[what])
    return median <= LIMITS[what]


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables; with `--strict` 1 if a limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", help="another commit of this repository")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--only", nargs="*", default=[*LIMITS, "counts"], choices=[*LIMITS, "counts", "branch"])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--strict", action="store_true")
    args = parser.parse_args(argv)
    found: dict[str, Any] = {}
    with checkout(args.commit) as other:
        roots = (other, HERE.parent)
        for what in (each for each in LIMITS if each in args.only):
            pairs = pairs_of(roots, what, args.pairs)
            median, low, high = ratio(pairs)
            met = is_met(what, median, low, high)
            found[what] = {"pairs": pairs, "ratio": median, "interval": [low, high], "met": met}
            print(f"{what:20} {median:.3f} [{low:.3f}, {high:.3f}]{'' if met else '  MISSED'}", flush=True)
        for what in [f"branch {team}, {n}" for team in BRANCHED for n in (4, 12)] if "branch" in args.only else ():
            median, low, high = ratio(pairs_of(roots, what, args.pairs))
            found[what] = {"ratio": median, "interval": [low, high], "met": median <= 3 or what.endswith("12")}
            print(f"{what:32} {median:.2f} [{low:.2f}, {high:.2f}]", flush=True)
        for what in COUNTED if "counts" in args.only else ():
            before, now = (_of_one(root, f"count {what}") for root in roots)
            values = [(each["moves between files"], each["functions"]) for each in (before, now)]
            met = all(value <= most for value, most in zip(values[1], MOST.get(what, values[1]), strict=True))
            found[f"count {what}"] = {"before": values[0], "now": values[1], "met": met}
            print(
                f"{what:20} moves {values[0][0]} -> {values[1][0]}, functions {values[0][1]} -> {values[1][1]}"
                f"{'' if met else '  MISSED'}",
                flush=True,
            )
    if args.json is not None:
        args.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return int(args.strict and not all(each["met"] for each in found.values()))


if __name__ == "__main__":
    sys.exit(serve(sys.argv[2]) if sys.argv[1:2] == ["--serve"] else main())
