"""vLLM in this process as an agent of `pettingllms bench`: one engine a model, an adapter a role. The engine is the
trainer's, see `pettingllms_trl.engines.vllm.colocated`; `local_agents.py` steps it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import vllm
from peft import PeftConfig, load_peft_weights
from vllm import EngineArgs
from vllm.platforms import current_platform

from pettingllms_envs.agents import AgentSpec
from pettingllms_trl.cli.local_agents import POLICY_OPTIONS, SAMPLED, LocalModel, Models, open_models, sampling_of
from pettingllms_trl.engines.kinds import PromptCodec
from pettingllms_trl.engines.vllm.colocated import ColocatedVllm, image_arguments
from pettingllms_trl.engines.vllm.params import VllmParams
from pettingllms_trl.policies.codecs import PolicyCodec


ENGINE: Mapping[str, type] = {
    "dtype": str,
    "max_model_len": int,
    "gpu_memory_utilization": float,
    "max_lora_rank": int,
    "tensor_parallel_size": int,
}
OPTIONS = (*SAMPLED, *POLICY_OPTIONS, *ENGINE)


def open_vllm(specs: Mapping[str, AgentSpec], concurrency: int) -> Models:
    """The agents of the kind `vllm`, one engine for all that share a model."""

    def make(own: Mapping[str, AgentSpec], codecs: Mapping[str, PolicyCodec]) -> LocalModel:
        engine = _engine(own, codecs, concurrency)
        return LocalModel(engine, engine.max_model_len)

    agents, threads = open_models(specs, concurrency, make, options=OPTIONS, of_model=(*ENGINE, "revision"))
    return Models(agents, {"vllm": vllm.__version__}, threads)


def _engine(specs: Mapping[str, AgentSpec], codecs: Mapping[str, PolicyCodec], concurrency: int) -> ColocatedVllm:
    """An engine of one model, with the adapters on disk that its agents play by."""
    first = next(iter(specs.values()))
    arguments: dict[str, Any] = {
        "model": first.target or "",
        "revision": first.options.get("revision") or "main",
        **{name: kind(first.options[name]) for name, kind in ENGINE.items() if name in first.options},
    }
    paths = {agent: spec.options.get("adapter") for agent, spec in specs.items()}
    names = {path: "model" if path is None else f"adapter_{i}" for i, path in enumerate(dict.fromkeys(paths.values()))}
    images = next((codec.images for codec in codecs.values() if codec.images is not None), None)
    if images is not None:
        arguments |= image_arguments(images, adapts_vision=True)
    defaults = EngineArgs(**arguments).create_model_config().get_diff_sampling_param()
    engine = ColocatedVllm(
        {**arguments, "max_num_seqs": concurrency, **({"enforce_eager": True} if current_platform.is_cpu() else {})},
        of_agent={agent: names[path] for agent, path in paths.items()},
        adapters={name: PeftConfig.from_pretrained(path) for path, name in names.items() if path is not None},
        params=VllmParams(
            {agent: _codec(codec) for agent, codec in codecs.items()},
            {agent: sampling_of(spec, defaults) for agent, spec in specs.items()},
            seed="bench",
        ),
        folder=Path(tempfile.gettempdir()),
    )
    for path, name in names.items():
        if path is not None:
            engine.load(name, load_peft_weights(path, device="cpu").items(), 1)
    return engine


def _codec(codec: PolicyCodec) -> PromptCodec:
    return PromptCodec(
        tokenize=lambda prompt: codec.encode([prompt])[0],
        decode=lambda ids: codec.decode([ids])[0],
        images=codec.images,
    )
