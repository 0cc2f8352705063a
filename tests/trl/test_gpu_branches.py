"""What a GPU changes in this package, on fakes: each branch has its test, here or where `BRANCHES` says."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.integrations import deepspeed

from pettingllms_trl import MultiAgentGRPOConfig, MultiAgentGRPOTrainer, Policy
from pettingllms_trl.checkpoints import checkpointer
from pettingllms_trl.cli import transformers_agents
from pettingllms_trl.cli.local_agents import codec_of
from pettingllms_trl.credit import reward_models
from pettingllms_trl.engines.vllm import kind
from pettingllms_trl.engines.vllm.weight_transfer import NcclTransfer
from pettingllms_trl.policies import weights
from pettingllms_trl.policies.multi_model import MultiPolicyModel
from pettingllms_trl.policies.team import Team
from pettingllms_trl.processes import distributed
from pettingllms_trl.research.study.machine import machine_facts
from pettingllms_trl.trainer import setup
from pettingllms_trl.trainer import trainer as trainer_module
from pettingllms_trl.update import packed_logprobs
from pettingllms_trl.update.packed_logprobs import PackedScorer
from pettingllms_trl.update.packing.cost import DEAR, token_price_of
from short_runs import settings


ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "pettingllms_trl"
HERE = "tests/trl/test_gpu_branches.py"

DEPENDS = re.compile(r'\bcuda\.|"cuda"|is_cpu\(\)|\.type == "cpu"|\.type != "cpu"|_can_sleep\b|"MULTI_GPU"')
"""What a line says that behaves otherwise on a GPU."""

BRANCHES = {
    "engines/vllm/colocated.py": HERE,  # sleep mode, memory by share, eager execution
    "engines/vllm/kind.py": "tests/trl/engines/vllm/test_training_with_vllm.py",  # weights over NCCL
    "engines/vllm/weight_transfer.py": HERE,  # what is sent is whole before
    "update/packed_logprobs.py": HERE,  # TensorFloat-32 is not float32
    "update/packing/segment_attention.py": "tests/trl/update/test_segment_attention.py",  # FlashAttention's kernel
    "update/packing/cost.py": HERE,  # a token costs less beside its attention
    "checkpoints/checkpointer.py": HERE,  # a checkpoint is loaded to the process's own GPU
    "policies/weights.py": HERE,  # a model per process is not spread over all GPUs
    "cli/vllm_agents.py": HERE,  # graphs are captured
    "cli/transformers_agents.py": HERE,  # the GPU is taken where there is one
    "research/study/machine.py": HERE,  # its name is noted
}
"""Files with such lines, and the file that tests them."""


def test_every_file_with_a_branch_for_gpus_is_in_the_table_with_a_test_file_that_exists() -> None:
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if "estimate" not in path.parts and DEPENDS.search(path.read_text("utf-8"))
    }
    assert found <= set(BRANCHES)
    for path, test in BRANCHES.items():
        assert (PACKAGE / path).is_file()
        assert (ROOT / test).is_file()


def test_a_token_costs_as_on_a_gpu_on_every_device_that_has_no_price() -> None:
    assert token_price_of("cuda", 100) == 600
    assert token_price_of("xpu", 100) == 600
    assert token_price_of("cpu", 100) == 800


@pytest.mark.parametrize(
    ("precision", "own", "expected"),
    [("bf16", "float32", DEAR), ("no", "bfloat16", DEAR), ("no", "float32", 6 * 32), ("fp16", "float32", 6 * 32)],
)
def test_tokens_alone_count_where_attention_is_one_kernel_in_the_precision_of_a_pass(
    precision: str, own: str, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed_logprobs, "is_for", lambda device, dtype: dtype == torch.bfloat16)
    model: Any = torch.nn.Linear(2, 2, dtype=getattr(torch, own))
    model.config = SimpleNamespace(get_text_config=lambda: SimpleNamespace(hidden_size=32))
    scorer: Any = SimpleNamespace(
        _team=SimpleNamespace(active="a", weights_of={"a": model}.__getitem__),
        _accelerator=SimpleNamespace(device=torch.device("cuda"), mixed_precision=precision),
    )
    assert PackedScorer.token_price(scorer) == expected


def test_a_result_names_the_gpu_that_it_was_made_on(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "gpu" not in machine_facts()["machine"] or torch.cuda.is_available()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H100")
    assert machine_facts()["machine"]["gpu"] == "NVIDIA H100"


# ---- vLLM in the trainer's process ----------------------------------------------------------------------------------


class Engine:
    """`vllm.LLMEngine`, of which only what it is told is kept."""

    def __init__(self, arguments: dict[str, Any], said: list[str]) -> None:
        self.arguments, self.said, self.asleep = arguments, said, False
        self.given: list[str] = []
        self.vllm_config = SimpleNamespace(
            model_config=SimpleNamespace(max_model_len=64),
            parallel_config=SimpleNamespace(tensor_parallel_size=arguments.get("tensor_parallel_size", 1)),
        )
        self.engine_core = SimpleNamespace(_finalizer=SimpleNamespace(atexit=True))

    def sleep(self, level: int) -> None:
        self.said.append(f"sleep {level}")
        self.asleep = True

    def wake_up(self) -> None:
        self.said.append("wake up")
        self.asleep = False

    def is_sleeping(self) -> bool:
        return self.asleep

    def collective_rpc(self, method: str, kwargs: dict[str, Any]) -> None:
        assert not self.asleep, "weights are given to an engine that has none in its memory"
        self.said.append(method)
        self.given = list(kwargs)

    def reset_encoder_cache(self) -> None: ...

    def reset_prefix_cache(self) -> bool:
        return True

    def abort_request(self, names: list[str]) -> None:
        self.said.append(f"abort {names}")


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the engine and torch's allocator are told, in order."""
    calls: list[str] = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: calls.append("empty cache"))
    return calls


@pytest.fixture
def colocated(said: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """`pettingllms_trl.engines.vllm.colocated` on a fake vLLM on a GPU."""

    def module(name: str, **names: Any) -> None:
        made = ModuleType(name)
        vars(made).update(names)
        monkeypatch.setitem(sys.modules, name, made)

    def from_engine_args(arguments: Any, usage_context: Any) -> Engine:
        return Engine(vars(arguments), said)

    module(
        "vllm",
        EngineArgs=SimpleNamespace,
        LLMEngine=SimpleNamespace(from_engine_args=from_engine_args),
        RequestOutput=object,
        SamplingParams=SimpleNamespace,
    )
    module("vllm.lora")
    module("vllm.lora.request", LoRARequest=Mock)
    module("vllm.platforms", current_platform=SimpleNamespace(is_cpu=lambda: False))
    module("vllm.sampling_params", RequestOutputKind=Mock())
    module("vllm.usage")
    module("vllm.usage.usage_lib", UsageContext=Mock())
    monkeypatch.delitem(sys.modules, "pettingllms_trl.engines.vllm.colocated", raising=False)
    yield importlib.import_module("pettingllms_trl.engines.vllm.colocated")
    sys.modules.pop("pettingllms_trl.engines.vllm.colocated", None)


def engine_of(colocated: ModuleType, folder: Path, **arguments: Any) -> Any:
    return colocated.ColocatedVllm(arguments, of_agent={"a_0": "base"}, adapters={}, params=Mock(), folder=folder)


def test_an_engine_that_can_sleep_is_awake_in_rollouts_alone(
    colocated: ModuleType, said: list[str], tmp_path: Path
) -> None:
    engine = engine_of(colocated, tmp_path, model="m", enable_sleep_mode=True)
    assert said == ["sleep 1"]  # level 2 would drop the weights that adapters are on
    del said[:]
    with engine.rollout("first"):
        assert said == ["empty cache", "wake up"]  # what torch has kept of the update is free before vLLM allocates
    assert said[2:] == ["abort []", "sleep 1"]


@pytest.mark.parametrize(
    ("size", "backend", "ended"), [(1, "uni", False), (2, "external_launcher", False), (2, "mp", True)]
)
def test_vllm_ends_at_exit_what_is_a_process_of_its_own_but_no_process_group_that_the_trainer_has_ended(
    size: int, backend: str, ended: bool, colocated: ModuleType, tmp_path: Path
) -> None:
    arguments = {"tensor_parallel_size": size, "distributed_executor_backend": backend}
    engine = engine_of(colocated, tmp_path, model="m", **arguments)
    assert engine._engine.engine_core._finalizer.atexit == ended


@pytest.mark.parametrize(
    ("backend", "given"),
    [({"distributed_executor_backend": "external_launcher"}, "weights_iterator"), ({}, "weights_path")],
)
def test_an_engine_over_the_trainers_processes_takes_a_model_without_files(
    backend: dict[str, str], given: str, colocated: ModuleType, tmp_path: Path
) -> None:
    engine = engine_of(colocated, tmp_path, model="m", tensor_parallel_size=2, **backend)
    engine.load("base", [("weight", torch.zeros(2))], 1)
    assert engine._engine.given == [given]  # each of the processes would write a copy of the whole model


def test_weights_are_given_to_an_engine_that_is_awake(colocated: ModuleType, said: list[str], tmp_path: Path) -> None:
    engine = engine_of(colocated, tmp_path, model="m", enable_sleep_mode=True)
    del said[:]
    engine.load("base", [("weight", torch.zeros(2))], 1)
    assert said == ["empty cache", "wake up", "reload_weights"]
    with engine.rollout("second"):
        assert said == ["empty cache", "wake up", "reload_weights"]  # awake already


def test_an_engine_without_sleep_mode_keeps_its_memory(colocated: ModuleType, said: list[str], tmp_path: Path) -> None:
    with engine_of(colocated, tmp_path, model="m", enable_sleep_mode=False).rollout("first"):
        pass
    assert said == ["abort []"]


def test_on_a_gpu_the_engine_gets_its_share_of_memory_and_captures_graphs(
    colocated: ModuleType, tmp_path: Path
) -> None:
    args = MultiAgentGRPOConfig(
        str(tmp_path), use_cpu=True, bf16=False, vllm_gpu_memory_utilization=0.6, vllm_enable_sleep_mode=True
    )
    found = colocated.engine_arguments(args, memory_share=0.25)
    assert found["gpu_memory_utilization"] == pytest.approx(0.15)
    assert (found["enable_sleep_mode"], found["max_num_batched_tokens"]) == (True, 4096)
    assert "enforce_eager" not in found
    assert "kv_cache_memory_bytes" not in found
    on_cpu = colocated.engine_arguments(args, memory_share=0.25, on_cpu=True)
    assert (on_cpu["enforce_eager"], on_cpu["kv_cache_memory_bytes"]) == (True, 2**28)


@pytest.mark.parametrize(("is_cpu", "expected"), [(False, None), (True, True)])
def test_bench_captures_graphs_on_a_gpu(
    is_cpu: bool,
    expected: bool | None,
    colocated: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys.modules["vllm.platforms"].current_platform, "is_cpu", lambda: is_cpu)
    monkeypatch.delitem(sys.modules, "pettingllms_trl.cli.vllm_agents", raising=False)
    agents = importlib.import_module("pettingllms_trl.cli.vllm_agents")
    made: dict[str, Any] = {}
    monkeypatch.setattr(agents, "ColocatedVllm", lambda arguments, **_: made.update(arguments))
    config = SimpleNamespace(get_diff_sampling_param=dict)
    monkeypatch.setattr(agents, "EngineArgs", lambda **_: SimpleNamespace(create_model_config=lambda: config))
    monkeypatch.setattr(agents, "sampling_of", lambda spec, defaults: None)
    agents._engine({"a_0": SimpleNamespace(target="m", options={})}, {"a_0": Mock()}, 4)
    assert made.get("enforce_eager") is expected
    sys.modules.pop("pettingllms_trl.cli.vllm_agents", None)


@pytest.mark.parametrize("commit", [None, "0f1e2d"])
def test_an_engine_loads_the_commit_of_the_hub_that_the_trainer_has(
    commit: str | None, colocated: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: dict[str, Any] = {}
    monkeypatch.setattr(colocated, "ColocatedVllm", lambda arguments: made.update(arguments))
    model = torch.nn.Linear(1, 1)
    text = SimpleNamespace(max_position_embeddings=None)
    config: Any = SimpleNamespace(_name_or_path="me/model", _commit_hash=commit, get_text_config=lambda: text)
    args = MultiAgentGRPOConfig(str(tmp_path), use_cpu=True, bf16=False)
    monkeypatch.setattr(model, "config", config, raising=False)
    kind._colocated(Mock(), model, args, None, memory_share=1.0, images=None, options={})
    assert (made["model"], made.get("revision"), made.get("tokenizer_revision")) == ("me/model", commit, commit)


def test_a_tensor_is_whole_before_another_stream_packs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    stream = SimpleNamespace(synchronize=lambda: order.append("waited"))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)
    there = SimpleNamespace(is_cuda=True, device="cuda:0")
    tensor: Any = SimpleNamespace(to=lambda device: order.append("gathered") or there)
    transfer: Any = SimpleNamespace(_device="cuda:0")
    assert NcclTransfer._on_device(transfer, tensor) is there
    assert order == ["gathered", "waited"]


# ---- The trainer ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sharding", "device"),
    [
        ({}, "meta"),
        ({"deepspeed_plugin": SimpleNamespace(zero_stage=2)}, "meta"),  # transformers moves it when training begins
        ({"deepspeed_plugin": SimpleNamespace(zero_stage=3)}, "cpu"),
        ({"fsdp_plugin": SimpleNamespace()}, "cpu"),
    ],
)
def test_a_model_is_on_its_device_before_anything_is_scored(sharding: dict[str, Any], device: str) -> None:
    accelerator: Any = SimpleNamespace(device=torch.device("meta"), state=SimpleNamespace(**sharding))
    model = torch.nn.Linear(2, 2)
    distributed.place(model, accelerator)
    assert model.weight.device.type == device


def test_the_trainer_places_its_model_before_it_compares_packed_rows(
    model_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    monkeypatch.setattr(trainer_module, "place", lambda model, accelerator: order.append("placed"))
    monkeypatch.setattr(Team, "check_start", lambda team, *, is_sharded: order.append(f"start, {is_sharded=}"))
    monkeypatch.setattr(PackedScorer, "try_all", lambda scorer: order.append("packed rows"))
    MultiAgentGRPOTrainer(
        model=model_path,
        env="plan_path",
        args=MultiAgentGRPOConfig(str(tmp_path), use_cpu=True, bf16=False, num_generations=2, report_to="none"),
        train_dataset=Dataset.from_dict({"seed": range(8)}),
    )
    assert order == ["placed", "start, is_sharded=False", "packed rows"]


def test_models_of_a_team_are_placed_one_by_one(model_path: str) -> None:
    accelerator: Any = SimpleNamespace(device=torch.device("meta"), state=SimpleNamespace())
    loaded = {name: AutoModelForCausalLM.from_pretrained(model_path) for name in ("a", "b")}
    loaded["a"].to("meta")  # as one in 4 bits is on its device when it is loaded
    distributed.place(MultiPolicyModel(loaded), accelerator)
    assert next(loaded["b"].parameters()).device.type == "meta"


def test_a_model_of_the_hub_is_known_by_the_commit_that_was_loaded(
    model_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = tmp_path / "models--me--model" / "snapshots" / "0f1e2d"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    (tmp_path / "models--me--model" / "refs").mkdir()
    (tmp_path / "models--me--model" / "refs" / "v2").write_text("0f1e2d")
    assert weights.commit_of("me/model", "v2", str(tmp_path)) == "0f1e2d"
    assert weights.commit_of("me/model", None, str(tmp_path)) is None  # `main` was not loaded
    assert weights.commit_of(model_path) is None

    asked: list[Any] = []
    monkeypatch.setattr(weights, "commit_of", lambda *about: asked.append(about))
    MultiAgentGRPOTrainer(
        model=model_path,
        env="plan_path",
        policies={"drafter": "drafter", "planner": Policy(model=f"{model_path}/", trainable=False)},
        args=settings(tmp_path, model_init_kwargs={"revision": "v2"}),
    )
    assert asked == [(model_path, "v2", None), (f"{model_path}/", None, None)]


def test_a_token_has_one_price_on_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_logprobs, "gather_object", lambda own: [*own, (None, 600)])
    model = SimpleNamespace(config=SimpleNamespace(get_text_config=dict))
    scorer: Any = SimpleNamespace(
        packable={},
        token_prices={"a": 192},
        _activate=lambda name: None,
        _team=SimpleNamespace(weights_of=lambda name: model),
        _args=SimpleNamespace(max_completion_length=8),
        _reason_not_packable=lambda: None,
    )
    monkeypatch.setattr(packed_logprobs, "rope_switch", lambda config: None)
    monkeypatch.setattr(packed_logprobs, "base_of", lambda weights: weights)
    assert PackedScorer.is_packable(scorer, "a")
    assert scorer.token_prices == {"a": 600}


def test_a_reward_model_is_whole_where_zero_3_shards_what_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    config, seen = object(), list[Any]()

    def from_pretrained(*_: Any, **__: Any) -> None:
        seen.append(deepspeed._hf_deepspeed_config_weak_ref)
        raise NotADirectoryError

    monkeypatch.setattr(deepspeed, "_hf_deepspeed_config_weak_ref", lambda: config)
    monkeypatch.setattr(reward_models, "AutoModelForSequenceClassification", Mock(from_pretrained=from_pretrained))
    with pytest.raises(NotADirectoryError):
        reward_models.load_reward_model("judge", None, args=Mock(model_init_kwargs=None), device=torch.device("cpu"))
    assert (seen, deepspeed._hf_deepspeed_config_weak_ref()) == ([None], config)


@pytest.mark.parametrize(
    ("given", "model"), [({}, "m"), ({"device_map": "auto"}, "m"), ({}, SimpleNamespace(hf_device_map={"": 0}))]
)
def test_one_process_that_sees_several_gpus_is_told_how_to_use_one_or_all(
    given: dict[str, Any], model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    args = MultiAgentGRPOConfig(str(tmp_path), use_cpu=True, bf16=False, model_init_kwargs=given)
    monkeypatch.setattr(MultiAgentGRPOConfig, "n_gpu", property(lambda self: 2))
    if given or model != "m":
        assert setup._config(args, model) is args
        return
    with pytest.raises(ValueError, match=r"sees 2 GPUs.*CUDA_VISIBLE_DEVICES to one, or .* --num_processes 2\."):
        setup._config(args, model)


@pytest.mark.parametrize("kind_of_processes", ["MULTI_GPU", "DEEPSPEED", "NO"])
def test_adapters_that_are_loaded_stand_on_a_model_of_this_process(
    kind_of_processes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: dict[str, Any] = {}
    monkeypatch.setattr(weights, "create_model_from_path", lambda source, **kwargs: made.update(kwargs))
    weights.load_in_process(SimpleNamespace(distributed_type=kind_of_processes), "own", dtype="auto")  # type: ignore[arg-type]
    assert made == {"dtype": "auto", **({} if kind_of_processes == "NO" else {"device_map": None})}


@pytest.mark.parametrize(
    ("device", "allow_tf32", "expected"),
    [("cpu", True, True), ("cuda", True, False), ("cuda", False, True)],
)
def test_products_in_tensor_float_32_are_not_held_to_the_tolerance_of_float32(
    device: str, allow_tf32: bool, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        torch.backends, "cuda", SimpleNamespace(matmul=SimpleNamespace(allow_tf32=allow_tf32)), raising=False
    )
    accelerator = SimpleNamespace(device=torch.device(device), mixed_precision="no")
    scorer: Any = SimpleNamespace(_accelerator=accelerator)
    assert PackedScorer._is_in_float32(scorer, torch.nn.Linear(2, 2)) is expected


@pytest.mark.parametrize(
    ("kind", "several", "expected"),
    [
        ("MULTI_GPU", False, None),  # a process, a GPU
        ("DEEPSPEED", False, None),
        ("NO", True, None),  # several models: the first would take all GPUs
        ("NO", False, "absent"),  # one model, one process: TRL spreads it over the GPUs that there are
    ],
)
def test_only_the_one_model_of_one_process_may_be_spread_over_gpus(
    kind: str, several: bool, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: dict[str, Any] = {}
    monkeypatch.setattr(weights, "create_model_from_path", lambda source, **kwargs: made.update(kwargs))
    args: Any = SimpleNamespace(
        trust_remote_code=False, model_init_kwargs={}, distributed_state=SimpleNamespace(distributed_type=kind)
    )
    weights.load_model(args, "own", None, "own", True, several=several)
    assert made.get("device_map", "absent") == expected


@pytest.mark.parametrize("device", ["cpu", "cuda:1"])
def test_a_checkpoint_is_loaded_to_the_device_of_the_process(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "place_0.pt").touch()
    asked: list[Any] = []

    def load(path: Path, map_location: Any, weights_only: bool) -> dict[str, Any]:
        asked.append(map_location)
        return {"format": checkpointer.FORMAT, "generation": None, "micro_step": 3}

    monkeypatch.setattr(checkpointer.torch, "load", load)
    own: Any = SimpleNamespace(
        _args=SimpleNamespace(process_index=0, steps_per_generation=1, imitate=None),
        _accelerator=SimpleNamespace(device=torch.device(device), num_processes=1),
        _parts={},
    )
    assert checkpointer.Checkpointer.load_state(own, tmp_path) == (3, None)
    assert asked == ["cpu" if device == "cpu" else torch.device("cuda:1")]


@pytest.mark.parametrize(("available", "expected"), [(True, "cuda"), (False, "cpu")])
def test_bench_takes_the_gpu_where_there_is_one(
    available: bool, expected: str, model_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def to(self: torch.nn.Module, device: str) -> torch.nn.Module:
        asked.append(device)
        return self

    monkeypatch.setattr(torch.cuda, "is_available", lambda: available)
    monkeypatch.setattr(torch.nn.Module, "to", to)
    spec: Any = SimpleNamespace(target=model_path, options={})
    monkeypatch.setattr(transformers_agents, "sampling_of", lambda spec, defaults: None)
    codec = codec_of(spec, AutoTokenizer.from_pretrained(model_path))
    transformers_agents._Model({"a_0": spec}, {"a_0": codec}, Mock())
    assert asked == [expected]
