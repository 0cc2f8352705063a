"""Two processes that share `vllm serve` train as one: the same tokens and weights, each version loaded once.

`pytest -s` prints a row of the figures for each layout and kind of sharding. The processes themselves need no vLLM.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from transformers import Qwen3ForCausalLM

from launches import KINDS, accelerated, launched, report, two
from pettingllms_envs.agents.server import Server
from pettingllms_trl.engines.weight_store import WeightStore
from real_vllm import served
from vllm_teams import check_same, team


pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning"),
]

OPTIONS = (
    "--max-model-len 256 --logprobs-mode processed_logprobs --enable-lora --max-loras 2 --max-cpu-loras 4 "
    "--max-lora-rank 8 --no-enable-chunked-prefill"  # see `engine_arguments`
)


@dataclass(frozen=True, slots=True)
class Replica:
    """A server, and the log in which it has a line for each request."""

    url: str
    log: Path

    def count(self, path: str) -> int:
        """How often it was asked for this."""
        return self.log.read_text().count(f"POST {path} ")

    def reset(self, base: str) -> None:
        """Give it the weights that it was started with, under vLLM's name for them.

        Args:
            base: A folder with all of them, each under all of its names: vLLM on CPUs has its own copy of a tied head.
        """
        with httpx2.Client(trust_env=False) as client:
            server = Server(url=self.url, client=client, timeout=60.0, patience=600.0)  # it may still be starting
            server.post("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": base}})
            server.post("/reset_prefix_cache", {})
            server.post("/update_weight_version", {"new_version": "default"})


@pytest.fixture(scope="module")
def replicas(base_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Replica]]:
    folder = tmp_path_factory.mktemp("serve")
    environment = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1", "VLLM_SERVER_DEV_MODE": "1"}
    with ExitStack() as running:
        logs = [folder / "first", folder / "second"]
        yield [Replica(running.enter_context(served(base_path, log, OPTIONS, **environment)), log) for log in logs]


def teams(replicas: list[Replica]) -> dict[str, dict[str, Any]]:
    """In this order: afterwards the servers have other weights than they were started with."""
    first, second = (replica.url for replica in replicas)
    on_both = {"vllm_mode": "server", "vllm_server_base_url": f"{first},{second}"}
    one_each = {"vllm_mode": "server", "vllm_server_urls": {"opener": first, "closer": second}}
    return {
        "L2, one replica": team("lora", vllm_mode="server", vllm_server_base_url=first),
        "L2": team("lora", **on_both),
        "mixture": team("mixture", **one_each),
        "L1": team("shared", **on_both),
        "L3": team("full", **one_each),
    }


@dataclass(frozen=True, slots=True)
class Launch:
    """What trainers left in a folder, and how often each replica was asked for weights in that time."""

    out: Path
    loads: list[int]
    reloads: list[int]


def launch(out: Path, replicas: list[Replica], base: str, model_path: str, *launcher: str) -> Launch:
    for replica in replicas:
        replica.reset(base)
    paths = ("/v1/load_lora_adapter", "/collective_rpc")
    before = [[replica.count(path) for replica in replicas] for path in paths]
    launched(out, teams(replicas), model_path, *launcher)
    after = [[replica.count(path) for replica in replicas] for path in paths]
    loads, reloads = (
        [now - then for now, then in zip(*pair, strict=True)] for pair in zip(after, before, strict=True)
    )
    return Launch(out, loads, reloads)


@pytest.fixture(scope="module")
def base(base_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """See `Replica.reset`."""
    store = WeightStore(tmp_path_factory.mktemp("base"))
    state = Qwen3ForCausalLM.from_pretrained(base_path).state_dict()
    yield str(store.write_whole("base", 0, state.items()).path)
    store.close()


@pytest.fixture(scope="module")
def one(replicas: list[Replica], base: str, base_path: str, tmp_path_factory: pytest.TempPathFactory) -> Launch:
    return launch(tmp_path_factory.mktemp("one"), replicas, base, base_path)


@pytest.fixture(scope="module")
def ddp(replicas: list[Replica], base: str, base_path: str, tmp_path_factory: pytest.TempPathFactory) -> Launch:
    return launch(tmp_path_factory.mktemp("ddp"), replicas, base, base_path, *two())


@pytest.fixture(scope="module", params=KINDS)
def sharded(
    request: Any, replicas: list[Replica], base: str, base_path: str, tmp_path_factory: pytest.TempPathFactory
) -> Launch:
    out = tmp_path_factory.mktemp("sharded") / request.param
    out.mkdir()
    return launch(out, replicas, base, base_path, *accelerated(request.param, out))


NAMES = ["L2, one replica", "L2", "mixture", "L1", "L3"]
# Three generations, each with new weights. Two adapters: on the first replica alone, then on both; then one of them.
LOADS = [2 * 3 + 2 * 3 + 3, 2 * 3]
RELOADS = [3 + 3, 3 + 3 + 3]
"""Of whole models: L1's on both, L3's one each, and the mixture's on the second."""


def check_loads(found: Launch) -> None:
    assert (found.loads, found.reloads) == (LOADS, RELOADS)


@pytest.mark.parametrize("name", NAMES)
def test_two_processes_that_share_servers_train_as_one(name: str, one: Launch, ddp: Launch) -> None:
    check_same(report(one.out, name), report(ddp.out, name), f"{name}, DDP, servers")


def test_each_version_is_loaded_once_on_each_replica_by_one_process_and_by_two(one: Launch, ddp: Launch) -> None:
    check_loads(one)
    check_loads(ddp)


@pytest.mark.parametrize("name", NAMES)
def test_two_processes_that_share_weights_or_optimizer_and_servers_train_as_one(
    name: str, one: Launch, sharded: Launch
) -> None:
    other = report(sharded.out, name)
    assert other["is_sharded"] or other["kind"] == "DEEPSPEED"
    check_same(report(one.out, name), other, f"{name}, {sharded.out.name}, servers")
    check_loads(sharded)


def test_one_replica_answers_as_two_do(one: Launch) -> None:
    check_same(report(one.out, "L2"), report(one.out, "L2, one replica"), "L2, one replica and two")
