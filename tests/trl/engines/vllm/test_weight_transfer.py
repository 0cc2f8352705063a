"""A whole model by vLLM's own weight transfer: what TRL's client asks of a fake server. NCCL itself needs two GPUs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from trl.generation import vllm_client

import fake_vllm
from fake_vllm import HELLO, FakeVLLM, answers_of, engine_on, fakes
from pettingllms_trl.engines.vllm.weight_transfer import NcclTransfer
from pettingllms_trl.engines.weight_store import StaleWeights
from pettingllms_trl.records import Prompt, Request


SOLVER = {"solver_0": "shared"}
STATE = {"embed": torch.ones(3, 2, dtype=torch.bfloat16), "norm": torch.arange(2.0)}


@pytest.fixture
def fake() -> Iterator[Callable[..., FakeVLLM]]:
    with fakes() as start:
        yield start


@pytest.fixture
def broadcasts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str, torch.Tensor]]:
    """What is sent to the process group of each port, in the place of what vLLM sends over NCCL."""
    sent: list[tuple[int, str, torch.Tensor]] = []

    def join(about: dict[str, Any]) -> int:
        return int(about["master_port"])

    def send(iterator: Iterator[tuple[str, torch.Tensor]], group: int, src: int, post_iter_func: Any) -> None:
        assert src == 0
        sent.extend((group, item[0], post_iter_func(item).clone()) for item in iterator)

    of_vllm = {
        "is_vllm_available": lambda *_, **__: True,
        "get_ip": lambda: "10.0.0.1",
        "_HAS_STATEFUL_TRAINER_ENGINE": True,
        "open_trainer_endpoint": join,
        "packed_nccl_broadcast_producer": send,
    }
    for name, stand_in in of_vllm.items():
        monkeypatch.setattr(vllm_client, name, stand_in, raising=False)
    monkeypatch.setattr(vllm_client.VLLMClient, "close_communicator", lambda self: None)  # at the end of Python
    monkeypatch.setattr(NcclTransfer, "_on_device", lambda self, tensor: tensor)
    return sent


def by_nccl() -> Any:
    return partial(NcclTransfer, device=torch.device("cuda"), ports=count(51216), patience=5.0)


def test_a_whole_model_is_announced_and_sent_tensor_by_tensor_to_each_replica(
    broadcasts: list[tuple[int, str, torch.Tensor]], fake: Callable[..., FakeVLLM], tmp_path: Path
) -> None:
    servers = [fake(), fake()]
    engine = engine_on([server.url for server in servers], tmp_path, SOLVER, {}, open_transfer=by_nccl())
    for number, server in enumerate(servers):
        (init,) = [body for path, body in server.transfer if path == "/init_weight_transfer_engine"]
        address = {"master_address": "10.0.0.1", "master_port": 51216 + number}
        # The trainer is process 0 of the group, the server's only worker process 1.
        assert init == {"init_info": {**address, "rank_offset": 1, "world_size": 2, "packed": True}}
        server.transfer.clear()
    engine.load("shared", ((name, tensor) for name, tensor in STATE.items()), 4)
    for server in servers:
        assert server.transfer == [
            ("/start_weight_update", {}),
            ("/update_weights", announced("embed", "bfloat16", [3, 2])),
            ("/update_weights", announced("norm", "float32", [2])),
            ("/finish_weight_update", {}),
            ("/reset_encoder_cache", {}),
            ("/reset_prefix_cache", {}),
            ("/update_weight_version", {"new_version": server.weight_version}),
        ]
        assert re.fullmatch(r"nccl-[0-9a-f]{8}/shared-v4", server.weight_version)
    assert [(group, name) for group, name, _ in broadcasts] == [
        (51216, "embed"),
        (51217, "embed"),
        (51216, "norm"),
        (51217, "norm"),
    ]
    assert all(torch.equal(tensor, STATE[name]) for _, name, tensor in broadcasts)
    assert not list(tmp_path.glob("adapters-*/*"))
    with engine.rollout("after"):
        assert len(answers_of(engine, {0: Request("solver_0", Prompt(HELLO), 2)})) == 1


def announced(name: str, dtype: str, shape: list[int]) -> dict[str, Any]:
    return {"update_info": {"names": [name], "dtype_names": [dtype], "shapes": [shape]}}


def test_a_replica_that_restarts_has_left_the_process_group_which_raises(
    broadcasts: list[tuple[int, str, torch.Tensor]], fake: Callable[..., FakeVLLM], tmp_path: Path
) -> None:
    server = fake()
    engine = engine_on([server.url], tmp_path, SOLVER, {}, open_transfer=by_nccl())
    engine.load("shared", STATE.items(), 1)
    server.restart()
    with (
        pytest.raises(StaleWeights, match=r"no longer has the weights 'nccl-.*/shared-v1': it was restarted.*'files'"),
        engine.rollout("after"),
    ):
        pass


def test_a_server_without_a_transfer_engine_says_how_to_start_it(
    broadcasts: list[tuple[int, str, torch.Tensor]],
    fake: Callable[..., FakeVLLM],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    about = {"vllm_config": {"weight_transfer_config": None}}
    monkeypatch.setitem(fake_vllm.TRANSFER, "/server_info?config_format=json", about)
    with pytest.raises(RuntimeError, match=r"has no weight-transfer engine. Restart it with `--weight-transfer"):
        engine_on([fake().url], tmp_path, SOLVER, {}, open_transfer=by_nccl())
