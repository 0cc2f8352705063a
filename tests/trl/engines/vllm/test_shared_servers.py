"""`vllm serve` shared by two processes: the main one gives the weights, each sends its own requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx2
import pytest
import torch

from fake_vllm import ADAPTER, HELLO, LORA, WHOLE, FakeVLLM, answers_of, engine_on, fakes
from pettingllms_trl.engines.vllm.server import VllmServer
from pettingllms_trl.processes.on_all import entered_on_all
from pettingllms_trl.records import Prompt, Request, Sampled
from two_processes import FORKS, in_two_processes


pytestmark = FORKS
SOLVER = {"solver_0": "shared"}


@pytest.fixture
def fake() -> Iterator[Callable[..., FakeVLLM]]:
    with fakes() as start:
        yield start


def ask(engine: VllmServer, process: int, agent: str = "opener_0", num_requests: int = 8) -> dict[int, Sampled]:
    """Play a rollout, of which each process has every second ticket."""
    with entered_on_all(engine.rollout("test")):
        return answers_of(engine, {2 * i + process: Request(agent, Prompt(HELLO), 2) for i in range(num_requests)})


def said(work: Callable[[], Any]) -> str:
    """The words in which it fails."""
    with pytest.raises((RuntimeError, ValueError, OSError)) as failed:
        work()
    return f"{failed.type.__name__}: {failed.value}"


def test_each_version_is_loaded_once_on_each_replica(fake: Callable[..., FakeVLLM], tmp_path: Path) -> None:
    servers = [fake(), fake()]
    urls = [server.url for server in servers]

    def work(process: int) -> tuple[dict[str, int], list[int]]:
        engine = engine_on(urls, tmp_path, {"opener_0": "opener", "partner_0": "frozen"}, {"opener": LORA})
        for version in (1, 2, 3):
            engine.load("opener", ADAPTER.items(), version)
            ask(engine, process)
        return dict(engine.versions), sorted(ask(engine, process, "partner_0"))

    first, second = in_two_processes(work, tmp_path)
    assert first == ({"opener": 3}, [0, 2, 4, 6, 8, 10, 12, 14])
    assert second == ({"opener": 3}, [1, 3, 5, 7, 9, 11, 13, 15])
    for server in servers:
        assert server.loaded == {"opener-v1": 1, "opener-v2": 1, "opener-v3": 1, "frozen-zero": 1}
        assert [path.name for path in server.folder.parent.glob("adapters-*")] == [server.folder.name]  # one writes
        assert {Path(body["model"]).name for body in server.completions[-8:]} == {"frozen-zero"}
    # An even ticket is the first replica's.
    assert [len(server.completions) for server in servers] == [32, 32]


def test_a_text_is_scored_by_the_main_process_alone_once_on_each_replica(
    fake: Callable[..., FakeVLLM], tmp_path: Path
) -> None:
    servers = [fake(), fake()]
    urls = [server.url for server in servers]

    def work(process: int) -> list[str]:
        engine = engine_on(urls, tmp_path)
        engine.load("opener", ADAPTER.items(), 1)
        return [scored.place for scored in engine.score("opener", Prompt([], (97, 98, 99)))]

    assert in_two_processes(work, tmp_path) == [urls, []]


def test_a_replica_that_restarts_under_a_rollout_is_given_its_adapter_once(
    fake: Callable[..., FakeVLLM], tmp_path: Path
) -> None:
    server = fake(restarts_after=5)

    def work(process: int) -> dict[int, Sampled]:
        engine = engine_on([server.url], tmp_path)
        for policy in ("opener", "closer"):
            engine.load(policy, ADAPTER.items(), 1)
        return ask(engine, process, num_requests=16)

    first, second = in_two_processes(work, tmp_path)
    assert len(first | second) == 32
    assert server.loaded == {"opener-v1": 2, "closer-v1": 1}  # of which nothing was asked after the restart
    # Once at first, and once by each process at most, however many of its requests missed it.
    assert 2 <= [Path(name).name for _, name in server.log].count("opener-v1") <= 3


def test_a_replica_that_lost_a_whole_model_gets_it_again_once_before_either_process_asks(
    fake: Callable[..., FakeVLLM], tmp_path: Path
) -> None:
    servers = [fake(), fake()]
    urls = [server.url for server in servers]

    def work(process: int) -> int:
        engine = engine_on(urls, tmp_path, SOLVER, {})
        engine.load("shared", WHOLE.items(), 1)
        ask(engine, process, "solver_0")
        if process == 0:
            httpx2.post(f"{urls[1]}/restart", json={})
        return len(ask(engine, process, "solver_0"))

    assert in_two_processes(work, tmp_path) == [8, 8]
    assert [server.weights for server in servers] == [["shared-v1"], ["shared-v1", "shared-v1"]]
    assert {server.weight_version for server in servers} == {f"{servers[0].folder.name}/shared-v1"}


def test_a_whole_model_that_is_lost_under_a_rollout_raises_on_both(
    fake: Callable[..., FakeVLLM], tmp_path: Path
) -> None:
    server = fake(restarts_after=3)

    def work(process: int) -> str:
        engine = engine_on([server.url], tmp_path, SOLVER, {})
        engine.load("shared", WHOLE.items(), 1)
        return said(lambda: ask(engine, process, "solver_0"))

    first, second = in_two_processes(work, tmp_path)
    assert first.startswith(f"StaleWeights: {server.url} has the weights 'default', expected ")
    assert second.startswith(f"RuntimeError: process 0 of 2 failed: {first}")


def test_what_a_replica_refuses_raises_on_both_which_may_try_again(
    fake: Callable[..., FakeVLLM], tmp_path: Path
) -> None:
    server = fake()
    server.refuses_loads = 1

    def work(process: int) -> tuple[str, Mapping[str, int], int]:
        engine = engine_on([server.url], tmp_path)
        failed = said(lambda: engine.load("opener", ADAPTER.items(), 1))
        before = dict(engine.versions)
        engine.load("opener", ADAPTER.items(), 1)
        return failed, before, len(ask(engine, process))

    first, second = in_two_processes(work, tmp_path)
    assert first[0].startswith(f"ValueError: {server.url}/v1/load_lora_adapter refused (400): No adapter found. Expec")
    assert second[0].startswith(f"RuntimeError: process 0 of 2 failed: {first[0]}")
    assert first[1:] == second[1:] == ({}, 8)
    assert server.loaded == {"opener-v1": 1}


def test_a_server_that_one_process_cannot_reach_raises_on_both(fake: Callable[..., FakeVLLM], tmp_path: Path) -> None:
    server = fake()

    def work(process: int) -> str:
        url = server.url if process == 0 else "http://127.0.0.1:9"
        return said(lambda: engine_on([url], tmp_path, vllm_server_timeout=0.5))

    first, second = in_two_processes(work, tmp_path)
    assert first.startswith("RuntimeError: process 1 of 2 failed: ServerUnreachable: http://127.0.0.1:9/v1/models did")
    assert second.startswith("ServerUnreachable: http://127.0.0.1:9/v1/models did not answer in ")


def test_a_version_is_not_removed_while_a_process_has_requests_of_it(
    fake: Callable[..., FakeVLLM], tmp_path: Path
) -> None:
    server = fake()

    def work(process: int) -> str:
        engine = engine_on([server.url], tmp_path)
        engine.load("opener", ADAPTER.items(), 1)
        with entered_on_all(engine.rollout("under way")):
            if process == 1:
                engine.submit(1, Request("opener_0", Prompt(HELLO), 1))
            return said(lambda: engine.load("opener", ADAPTER.items(), 2))

    first, second = in_two_processes(work, tmp_path)
    assert first.startswith(
        "RuntimeError: process 1 of 2 failed: StaleWeights: new weights of policy 'opener' while 1"
    )
    assert second.startswith("StaleWeights: new weights of policy 'opener' while 1 requests are in flight, expected n")
    assert [Path(name).name for name in server.adapters] == ["opener-v1"]


@pytest.mark.parametrize("fails", [0, 1])
def test_a_tensor_that_cannot_be_made_whole_on_one_process_raises_on_both(
    fails: int, fake: Callable[..., FakeVLLM], tmp_path: Path
) -> None:
    server = fake()

    def work(process: int) -> str:
        engine = engine_on([server.url], tmp_path)

        def whole() -> Iterator[tuple[str, torch.Tensor]]:
            yield from ADAPTER.items()
            if process == fails:
                raise RuntimeError("out of memory")

        return said(lambda: engine.load("opener", whole(), 1))

    answers = in_two_processes(work, tmp_path)
    assert answers[fails] == "RuntimeError: out of memory"
    assert answers[1 - fails].startswith(f"RuntimeError: process {fails} of 2 failed: RuntimeError: out of memory")


def test_all_take_every_tensor_also_where_the_main_process_fails_to_write(
    fake: Callable[..., FakeVLLM], tmp_path: Path
) -> None:
    """Where weights are sharded, each tensor is gathered from all processes, and who stops early holds up the rest."""
    server = fake()

    def work(process: int) -> tuple[str, list[str]]:
        engine, taken = engine_on([server.url], tmp_path, SOLVER, {}), []

        def whole() -> Iterator[tuple[str, torch.Tensor]]:
            for name, tensor in WHOLE.items():
                taken.append(name)
                yield name, tensor

        if process == 0:
            engine._store.folder.rmdir()
        return said(lambda: engine.load("shared", whole(), 1)), taken

    first, second = in_two_processes(work, tmp_path)
    assert first[0].startswith("FileNotFoundError: ")
    assert second[0].startswith("RuntimeError: process 0 of 2 failed: FileNotFoundError: ")
    assert first[1] == second[1] == list(WHOLE)


def test_requests_in_flight_are_divided_over_the_processes(fake: Callable[..., FakeVLLM], tmp_path: Path) -> None:
    server = fake()

    def work(process: int) -> int:
        engine = engine_on([server.url], tmp_path, SOLVER, {}, max_requests=5)
        return engine._threads.executor._max_workers

    assert in_two_processes(work, tmp_path) == [2, 2]
