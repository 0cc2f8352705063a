"""Programs in rollouts: parallel and as trees, restarts that are no failures, failures that are counted."""

from __future__ import annotations

import json
import random
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from pettingllms_envs.programs import ProgramMaker, program
from pettingllms_trl.engines.batched import BatchedEngine
from pettingllms_trl.records import Completion, EnvironmentFailure, Request, Rollout, RolloutOptions, Sampled
from pettingllms_trl.rollout.play import play


AGENTS = ("writer", "critic")


def chat(base_url: str, agent: str, text: str) -> dict[str, Any]:
    body = json.dumps({"model": agent, "messages": [{"role": "user", "content": text}]}).encode()
    request = urllib.request.Request(f"{base_url}/chat/completions", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def ask(base_url: str, agent: str, text: str) -> str:
    content: str = chat(base_url, agent, text)["choices"][0]["message"]["content"]
    return content


def sample(requests: Sequence[Request]) -> list[Sampled]:
    """Digits that depend on the prompt and the number of the candidate."""
    answers = []
    for request in requests:
        rng = random.Random(repr(request.prompt.messages))
        texts = [str(rng.randrange(10)) for _ in range(request.num_candidates)]
        completions = tuple(Completion(ids=(ord(text), 1), text=text, finish="stop") for text in texts)
        answers.append(Sampled(request.prompt.__class__(request.prompt.messages, ids=(1, 2, 3)), completions))
    return answers


def played(make_env: Any, rows: int = 4, **options: Any) -> Rollout:
    settings: dict[str, Any] = {"sampling": "parallel", "num_candidates": 2, "num_threads": 4, **options}
    return play(
        [{"seed": s} for s in range(rows)],
        BatchedEngine(sample),
        RolloutOptions(**settings),
        make_env=make_env,
        seed="0",
    )


def team(base_url: str, row: Any) -> float:
    """A writer and a critic, twice."""
    text = ""
    for number in range(2):
        text += ask(base_url, "writer", f"{row['seed']}.{number}: {text}")
        text = text.upper() if int(ask(base_url, "critic", f"Shall {text} stay?")) % 2 else text[:-1]
    return len(text) / 2


TREE = {"sampling": "tree", "num_continuations": 1, "choose": "value"}


@pytest.mark.parametrize("options", [{}, TREE])
def test_a_program_is_played_the_same_with_and_without_threads(options: dict[str, Any]) -> None:
    make = program(team, agents=AGENTS)
    with_threads, without = (played(make, **options, num_threads=number) for number in (4, 0))
    assert with_threads.episodes == without.episodes
    assert (with_threads.dropped, with_threads.retried) == ({}, 0)
    decisions = [decision for episode in without.episodes for decision in episode.decisions]
    assert len(decisions) == (16 if options else 32)
    assert {len(decision.candidates) for decision in decisions} == {2 if options else 1}


def test_a_program_is_told_the_numbers_of_tokens() -> None:
    usages = list[Any]()

    def counting(base_url: str, row: Any) -> float:
        usages.append(chat(base_url, "writer", "?")["usage"])
        return 1.0

    played(program(counting, agents=("writer",)), rows=1, num_candidates=1)
    assert usages == [{"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}]


def test_calls_at_the_same_time_restart_episodes_but_drop_none() -> None:
    def fan_out(base_url: str, row: Any) -> float:
        order = random.sample(range(4), 4)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda k: ask(base_url, f"worker_{k}", f"{row['seed']}: {k}"), order))
        return 1.0

    make = program(fan_out, agents=tuple(f"worker_{k}" for k in range(4)))
    rollout = played(make, rows=12, num_candidates=1)
    orders = Counter(tuple(decision.agent for decision in episode.decisions) for episode in rollout.episodes)
    assert orders == {("worker_0", "worker_1", "worker_2", "worker_3"): 12}
    assert rollout.dropped == {}


def raises(base_url: str, row: Any) -> float:
    ask(base_url, "writer", "?")
    raise RuntimeError("no paper")


def hangs(base_url: str, row: Any) -> float:
    ask(base_url, "writer", "?")
    threading.Event().wait(3)
    return 1.0


def mute(base_url: str, row: Any) -> float:
    return 1.0


def endless(base_url: str, row: Any) -> float:
    for number in range(1000):
        ask(base_url, "writer", str(number))
    return 1.0


def calls_a_stranger(base_url: str, row: Any) -> float:
    return float(ask(base_url, "editor", "?"))


ROWS = [
    (raises, "RuntimeError: no paper"),
    (calls_a_stranger, "HTTP Error 404"),
    (mute, "expected that it asks its agents at the base URL"),
    (hangs, "it took longer than 0.2 s"),
]


@pytest.mark.parametrize(("target", "expected"), ROWS)
def test_a_program_that_fails_drops_its_rows_with_the_reason_and_scores_none(target: Any, expected: str) -> None:
    def sometimes(base_url: str, row: Any) -> float:
        return float((target if row["seed"] == 3 else team)(base_url, row))

    rollout = played(program(sometimes, agents=AGENTS), rows=8, env_timeout=0.2 if target is hangs else None)
    assert list(rollout.dropped) == [3]
    assert expected in rollout.dropped[3]
    assert [episode.instance for episode in rollout.episodes] == [k for k in range(8) if k != 3 for _ in range(2)]


def test_abandoned_programs_give_their_threads_back() -> None:
    for _ in range(14):  # three attempts each: more than the most that may be abandoned
        with pytest.raises(EnvironmentFailure, match=r"longer than 0\.03 s"):
            played(program(hangs, agents=AGENTS, parallel=True), rows=1, num_candidates=1, env_timeout=0.03)


def test_most_turns_end_a_program_that_calls_without_end() -> None:
    rollout = played(program(endless, agents=("writer",)), rows=2, num_candidates=1, max_turns=3)
    assert [len(episode.decisions) for episode in rollout.episodes] == [3, 3]


def test_what_differs_in_a_tree_drops_the_row_with_both_requests() -> None:
    numbers = iter(range(10_000))

    def forgetful(base_url: str, row: Any) -> float:
        ask(base_url, "writer", "Write.")
        return float(int(ask(base_url, "critic", f"Request {next(numbers)}: good?")) % 2)

    make: ProgramMaker = program(forgetful, agents=AGENTS)
    with pytest.raises(EnvironmentFailure, match=r"(?s)Request >>>\d+<<<.*Request >>>\d+<<<.*normalize="):
        played(partial(make), rows=1, **TREE)
