"""Environments in actors of Ray: the same episodes as here, and killed actors whose rows are played again."""

from __future__ import annotations

import builtins
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

import pettingllms_envs
from pettingllms_envs.cli import main
from pettingllms_envs.episodes.files import read
from pettingllms_envs.failures import ServiceFailed
from pettingllms_envs.remote import ray_envs
from pettingllms_trl import MultiAgentGRPOTrainer
from pettingllms_trl.engines.batched import BatchedEngine
from pettingllms_trl.records import Completion, Request, Rollout, Sampled
from pettingllms_trl.trainer.setup import on_workers
from plays import play
from short_runs import adapter, settings
from third_party import Relay


ray = pytest.importorskip("ray")
WORKERS = {"actors": 2, "num_cpus": 0}
ROWS = [{"seed": seed} for seed in range(4)]
MOVES = ("Moves: R", "Moves: D", "Moves: L", "[UP]", "what?", "Answer: 7")
Make = Callable[[], Any]


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """One for all tests of this file, whose actors find what tests import."""
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def make(cluster: None) -> Make:
    """Makes a game in two actors."""
    return on_workers(CASES["a game"], WORKERS)  # type: ignore[return-value]


def process(env: Any) -> int:
    """Of the actor that holds an environment."""
    return int(ray.get(env._actor.__ray_call__.remote(lambda actor: os.getpid())))


def sampled(requests: Sequence[Request]) -> list[Sampled]:
    """Replies that depend on the prompt and on the number of the candidate."""
    answers = []
    for request in requests:
        drawn = random.Random(repr(request.prompt.messages)).choices(MOVES, k=request.num_candidates)
        completions = tuple(Completion(ids=(len(text), 1), text=text, finish="stop") for text in drawn)
        answers.append(Sampled(request.prompt.__class__(request.prompt.messages, ids=(1, 2, 3)), completions))
    return answers


def rollout(make: Make, sample: Any = sampled, rows: Any = ROWS, **options: Any) -> Rollout:
    tree = {"sampling": "tree", "num_candidates": 4, "max_turns": 4, "seed": "s", **options}
    return play(rows, engine=BatchedEngine(sample), make_env=make, **tree)


CASES: dict[str, Make] = {
    "a game": partial(pettingllms_envs.make, "plan_path", size=5),
    "with pictures": partial(pettingllms_envs.make, "sokoban", view="image"),
    "a conversation": partial(pettingllms_envs.make, "kuhn_poker"),
    "third-party, which is copied here": Relay,
}


def test_episodes_are_those_that_are_played_here(make: Make) -> None:
    found = rollout(make, num_threads=3)
    assert found.episodes == rollout(CASES["a game"]).episodes
    assert (found.retried, found.dropped) == (0, {})


def test_rows_of_a_killed_actor_are_played_again(make: Make) -> None:
    victim, calls = make(), list[int]()

    def sample(requests: Sequence[Request]) -> list[Sampled]:
        calls.append(len(requests))
        if len(calls) == 2:
            os.kill(process(victim), signal.SIGKILL)
        return sampled(requests)

    found = rollout(make, sample)
    assert 0 < found.retried <= 2  # of four rows in two actors
    assert not found.dropped
    assert found.episodes == rollout(CASES["a game"]).episodes  # the engine's replies depend on prompts alone


@pytest.mark.slow
def test_a_lost_environment_fails_and_is_made_again_by_reset(make: Make) -> None:
    env = make()
    env.reset(seed=3)
    before = env.state_hash()
    os.kill(process(env), signal.SIGKILL)
    for _ in range(2):  # while the actor is gone, and when it is back
        with pytest.raises(ServiceFailed, match="actor"):
            env.step("Moves: R")
    env.reset(seed=3)
    assert env.state_hash() == before
    env.close()
    env.close()


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("case", [case for case in CASES if case != "a game"])
def test_so_are_those_of_other_environments(case: str) -> None:
    found = rollout(on_workers(CASES[case], WORKERS), num_threads=3)
    assert found.episodes == rollout(CASES[case]).episodes


class Two(Exception):
    """Its message is of two arguments, so that it cannot be read where it is sent to."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(one + two)


class Illegal(Relay):
    """A reply that begins with a move is illegal."""

    def step(self, action: Any) -> None:
        if str(action).startswith("Moves"):
            raise Two("an illegal ", "move")
        super().step(action)


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_a_reply_that_crashes_is_charged_as_here_also_with_an_error_that_cannot_be_sent() -> None:
    here, there = (rollout(each, crash_reward=-1.0) for each in (Illegal, on_workers(Illegal, WORKERS)))
    assert (there.retried, there.dropped, len(there.crashed)) == (0, {}, len(here.crashed))
    assert here.crashed
    assert [episode.returns for episode in there.episodes] == [episode.returns for episode in here.episodes]


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_what_an_environment_raises_is_raised_here() -> None:
    class Own(Exception):
        def __init__(self, one: int, two: int) -> None:
            super().__init__(one + two)

    class Fails(Relay):
        def step(self, action: Any) -> None:
            if action == "known":
                raise ServiceFailed("no search today")
            raise Own(1, 2) if action == "own" else KeyError(action)

    env = on_workers(Fails, WORKERS)()
    env.reset(seed=0)
    for action, kind in {"known": ServiceFailed, "other": KeyError}.items():
        with pytest.raises(kind, match=r"no search today|other"):
            env.step(action)
    with pytest.raises(RuntimeError, match=r"an error that cannot be sent: .*Own: 3$") as raised:
        env.step("own")
    assert not isinstance(raised.value, ServiceFailed)  # so that `crash_reward` finds out whether it was the reply
    assert env.agent_selection == "opener_0"


@pytest.mark.parametrize(
    "workers", [5, [1], "", "{bad", b"ray", True, {"actors": 0}, {"actors": 2.5}, {"actors": "two"}, {"address": 5}]
)
def test_workers_of_a_wrong_type_are_an_error_before_ray_starts(workers: Any) -> None:
    with pytest.raises(ValueError, match=r"env_workers is .*; expected 'ray', the address of a cluster, or a mapping"):
        on_workers(Relay, workers)


def test_what_cannot_be_sent_is_said_with_the_remedy() -> None:
    held: Any = threading.Lock()
    with pytest.raises(ValueError, match=r"cannot pickle '_thread.lock'.*Open files inside the function"):
        on_workers(lambda: held, WORKERS)


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_a_cluster_without_the_resources_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_envs, "STARTUP", 0.5)
    with pytest.raises(ValueError, match=r"Get timed out.*expected environments"):
        on_workers(Relay, {"actors": 1, "num_cpus": 99})
    with pytest.raises(ValueError, match="workerz"):
        on_workers(Relay, {"workerz": 1})


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_another_version_of_the_package_in_the_actors_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_envs, "version", lambda name: "9.9")
    with pytest.raises(ValueError, match=r"an actor has pettingllms [\d.]+, and this process has 9.9"):
        on_workers(Relay, WORKERS)


def test_without_ray_one_sentence_says_how_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__

    def missing(name: str, *args: Any) -> Any:
        if name == "ray":
            raise ImportError(name)
        return imported(name, *args)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ImportError, match=r"ray is not installed.*pip install -e '\.\[ray\]'"):
        on_workers(Relay, "ray")


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_programs_and_the_sandbox_run_in_the_actors(tmp_path: Path) -> None:
    (tmp_path / "team.py").write_text(
        "import json, os, urllib.request\n"
        "from pettingllms_envs.programs import program\n"
        "def ask(base_url, row):\n"
        "    body = {'model': 'writer', 'messages': [{'role': 'user', 'content': f'Seed {row[\"seed\"]}'}]}\n"
        "    request = urllib.request.Request(base_url + '/chat/completions', json.dumps(body).encode(),\n"
        "                                     {'content-type': 'application/json'})\n"
        "    urllib.request.urlopen(request).read()\n"
        "    return float(os.getpid() != PARENT)\n"
        f"PARENT = {os.getpid()}\nteam = program(ask, agents=['writer'])\n"
    )
    team = on_workers(partial(pettingllms_envs.make, f"{tmp_path}/team.py:team"), WORKERS)
    found = rollout(team, num_threads=2)
    assert [episode.returns["writer"] for episode in found.episodes] == [1.0] * 4
    code = on_workers(partial(pettingllms_envs.make, "apps"), {"actors": 1})()
    code.reset(seed=0)
    while not all(code.terminations.values()):
        code.step(code.oracle())
    assert code.infos[code.agents[0]]["outcome"]["success"]


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_training_is_that_without_workers_to_the_last_bit(model_path: str, tmp_path: Path) -> None:
    def trained(**options: Any) -> dict[str, Any]:
        args = settings(tmp_path, max_steps=3, max_turns=4, generation_batch_size=16, **options)
        rows = Dataset.from_dict({"seed": range(8)})
        trainer = MultiAgentGRPOTrainer(
            model_path, CASES["a game"], args, rows, policies="lora", peft_config=adapter()
        )
        trainer.train()
        return {name: each.detach().clone() for name, each in trainer.model.named_parameters() if "lora" in name}

    here, there = trained(), trained(env_workers=WORKERS, num_threads=3)
    assert len(here) > 50
    assert all(here[name].equal(there[name]) for name in here)


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_bench_writes_the_same_rows(tmp_path: Path) -> None:
    rows = {}
    for name, more in {"here": [], "there": ["--env-workers", '{"actors": 2}', "--concurrency", "3"]}.items():
        given = ["bench", "sokoban", "--agents", "random", "--limit", "6", "--output", str(tmp_path / name), *more]
        assert main(given) == 0
        rows[name] = [{**row, "timing": 0} for row in read(tmp_path / name)]
        for row in rows[name]:
            row["steps"] = [{**step, "timing": 0} for step in row["steps"]]
    assert rows["there"] == rows["here"]
