"""vLLM in the trainer's own process: one engine samples for all policies, whose requests share its batches.

How a policy's weights are renewed (see `engine.py`):

| policy       | `load`                                                     | seconds (tiny model, CPU) |
|--------------|------------------------------------------------------------|---------------------------|
| adapter      | writes a new version to a folder, loads it by a new name   | 0.01                      |
| whole model  | over the engine's own, then forgets the keys and values    | 0.01                      |

Token ids are never decoded and encoded again, and log-probabilities are those of the distribution sampled from
(`processed_logprobs`: after temperature, top-k and the rest), the sampled token's included.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from peft import PeftConfig
from trl import GRPOConfig
from vllm import EngineArgs, LLMEngine, RequestOutput, SamplingParams
from vllm.lora.request import LoRARequest
from vllm.platforms import current_platform
from vllm.sampling_params import RequestOutputKind
from vllm.usage.usage_lib import UsageContext

from pettingllms_envs.agents.answers import ending
from pettingllms_envs.pictures import opened
from pettingllms_trl.engines.vllm.adapters import check_adapters
from pettingllms_trl.engines.vllm.engine import VllmEngine
from pettingllms_trl.engines.vllm.params import VllmParams, VllmRequest
from pettingllms_trl.engines.weight_store import AdapterVersion, StaleWeights
from pettingllms_trl.pixels import ImageInputs
from pettingllms_trl.records import POLL_SECONDS, Answer, NamedTensors, Prompt, Sampled, SamplingFailure, Scored


SHARED_MEMORY = Path("/dev/shm")


class ColocatedVllm(VllmEngine):
    """Samples for every agent of a team; see `pettingllms_trl.records.PolicyEngine`.

    What vLLM does to the process: starting an engine seeds the global random numbers again, and on a CPU fixes torch's
    number of threads for good; when an engine is collected, the process groups of all others are destroyed.

    Args:
        arguments: Of `vllm.EngineArgs`, the model included; see `engine_arguments`.
        of_agent, adapters, params: As of `VllmEngine`.
        folder: Where weights are written, where the machine has no memory to share.
    """

    is_remote = False

    def __init__(
        self,
        arguments: Mapping[str, Any],
        *,
        of_agent: Mapping[str, str],
        adapters: Mapping[str, PeftConfig],
        params: VllmParams,
        folder: Path,
    ) -> None:
        folder = SHARED_MEMORY if SHARED_MEMORY.is_dir() else folder
        super().__init__(of_agent=of_agent, adapters=adapters, params=params, folder=folder)
        arguments = {**lora_arguments(adapters, num_bases=len(self._bases)), **arguments}
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # in this process: read by vLLM when the engine is made
        # As what it is to vLLM, a job done offline, it takes batches as large as the device is for.
        self._engine = LLMEngine.from_engine_args(EngineArgs(**arguments), usage_context=UsageContext.LLM_CLASS)
        size = self._engine.vllm_config.parallel_config.tensor_parallel_size
        self._has_workers = size > 1 and arguments.get("distributed_executor_backend") != "external_launcher"
        if not self._has_workers:
            # At exit it would end process groups that the trainer may have ended before, with an error.
            self._engine.engine_core._finalizer.atexit = False
        self.max_model_len = self._engine.vllm_config.model_config.max_model_len
        self.can_load_base = arguments.get("quantization") is None
        self._loras: dict[str, LoRARequest] = {}
        self._adapter_ids = itertools.count(1)
        self._names = itertools.count()
        self._waiting: dict[str, VllmRequest] = {}
        self._can_sleep = bool(arguments.get("enable_sleep_mode"))
        self._pixels = arguments.get("mm_processor_kwargs")
        self._sleep()

    @property
    def num_in_flight(self) -> int:
        return len(self._waiting)

    # ---- Weights --------------------------------------------------------------------------------------------------

    def _exchange(self, before: AdapterVersion | None, version: AdapterVersion) -> None:
        self._wake()
        if before is not None:
            self._engine.remove_lora(self._loras.pop(before.policy).lora_int_id)
        lora = LoRARequest(version.name, next(self._adapter_ids), str(version.path))
        self._engine.add_lora(lora)
        self._loras[version.policy] = lora

    def _replace_model(self, name: str, state: NamedTensors, version: int) -> None:
        self._wake()
        # Adapters are forgotten over it, and read from their folders again when they are next asked for.
        if self._has_workers:  # processes of their own
            written = self._store.write_whole(name, version, state)
            self._engine.collective_rpc("reload_weights", kwargs={"weights_path": str(written.path)})
            self._store.remove(written)
        else:
            self._engine.collective_rpc("reload_weights", kwargs={"weights_iterator": iter(state)})
        self._engine.reset_encoder_cache()  # of pictures, which the scheduler takes for computed
        if not self._engine.reset_prefix_cache():
            raise StaleWeights("vLLM keeps what it computed with old weights: some request still holds on to it")

    # ---- Sampling -------------------------------------------------------------------------------------------------

    @contextmanager
    def rollout(self, name: str) -> Iterator[None]:
        """See `Engine`. Its name and a ticket seed a request: equal ones in equal order are answered alike."""
        self._wake()
        self._params.begin(name)
        try:
            yield
        finally:
            self._engine.abort_request(list(self._waiting))
            self._waiting.clear()
            self._sleep()

    def _send(self, asked: VllmRequest, served: AdapterVersion | None) -> None:
        detokenize = bool(asked.parameters["stop"])  # it looks for them in the text
        name = self._add(asked.agent, asked.prompt, served, **asked.parameters, detokenize=detokenize)
        self._waiting[name] = asked

    def _add(self, agent: str, prompt: Prompt, served: AdapterVersion | None, **parameters: Any) -> str:
        name = str(next(self._names))
        pictures = [opened(image) for image in prompt.images]
        self._engine.add_request(
            name,
            {
                "prompt_token_ids": self._params.given_ids(agent, prompt),
                **({"multi_modal_data": {"image": pictures}} if pictures else {}),
            },
            SamplingParams(**parameters, output_kind=RequestOutputKind.FINAL_ONLY, flat_logprobs=True),
            lora_request=None if served is None else self._loras[served.policy],
        )
        return name

    def step(self, timeout: float = POLL_SECONDS) -> Sequence[tuple[int, Answer]]:
        """One forward pass for all that are in flight: see `Engine`."""
        return [self._answer(output) for output in self._engine.step() if output.finished]

    def _answer(self, output: RequestOutput) -> tuple[int, Answer]:
        asked = self._waiting.pop(output.request_id)
        self._check_sampled_by(output, self._of_agent[asked.agent])
        self._check_ids(asked.agent, asked.prompt, output)
        completions = []
        for choice in output.outputs:
            if ending(choice.finish_reason) == "failed":
                return asked.ticket, SamplingFailure(f"vLLM ended a completion with {choice.finish_reason!r}")
            ids, logprobs = choice.token_ids, choice.logprobs and choice.logprobs.logprobs  # None: not asked for
            assert logprobs is None or len(ids) == len(logprobs) > 0, f"{len(ids)} ids, {len(logprobs)} log-probs"
            completions.append(self._params.completion(asked, ids, logprobs, choice.finish_reason))
        return asked.ticket, Sampled(asked.prompt, tuple(completions))

    def _check_sampled_by(self, output: RequestOutput, policy: str) -> None:
        served = self._serving[policy].name if self._adapters else None
        found = output.lora_request.lora_name if output.lora_request else None
        if found != served:
            raise StaleWeights(f"an answer of {found} for policy {policy!r}, expected one of {served}")

    def _check_ids(self, agent: str, prompt: Prompt, output: RequestOutput) -> None:
        if prompt.images:
            self._params.check_ids(agent, prompt, output.prompt_token_ids, f"mm_processor_kwargs={self._pixels}")

    def score(self, policy: str, prompt: Prompt) -> Sequence[Scored]:
        """See `WeightSync`.

        vLLM computes a scored prompt from its first token on: keys and values that it has kept are not read
        (`SamplingParams.skip_reading_prefix_cache`), and log-probabilities are of the logits at any temperature.

        Raises:
            StaleWeights: Requests are in flight, or the engine used other weights than the policy's.
            ValueError: Its ids of a prompt with pictures are others than the trainer's.
        """
        self._check_idle(f"a text to be scored by policy {policy!r}")
        served = self._serving[policy] if self._adapters else None
        one_token = {"temperature": 0.0, "max_tokens": 1, "prompt_logprobs": 0, "detokenize": False}
        prompt, agent = replace(prompt, ids=prompt.ids[: self.max_model_len - 1]), self._agent_of(policy)
        self._add(agent, prompt, served, **one_token)
        outputs: list[RequestOutput] = []
        while not outputs:
            outputs = self._engine.step()
        (output,) = outputs
        self._check_sampled_by(output, policy)
        self._check_ids(agent, prompt, output)
        weights = served.name if served else f"{policy}-v{self._versions.get(policy, 0)}"
        return (Scored("this process", weights, tuple(output.prompt_logprobs.logprobs)),)

    # ---- Memory ---------------------------------------------------------------------------------------------------

    def _sleep(self) -> None:
        """Give the GPU to the update: keys and values are dropped, weights wait in the host's memory."""
        if self._can_sleep:
            self._engine.sleep(level=1)  # level 2 would drop the weights, and adapters hang on them

    def _wake(self) -> None:
        if self._can_sleep and self._engine.is_sleeping():
            torch.cuda.empty_cache()  # what the update has let go, torch still holds
            self._engine.wake_up()


def image_arguments(images: ImageInputs, *, adapts_vision: bool) -> dict[str, Any]:
    """Arguments of `vllm.EngineArgs` for prompts with images, whose adapters may be on more than the language part."""
    return {
        "mm_processor_kwargs": {"size": images.size},  # the policy's, whatever the folder of its base says
        "limit_mm_per_prompt": {"video": 0},  # none is shown, and what would be reserved for one is large
        "enable_tower_connector_lora": adapts_vision,  # else vLLM drops those parts of an adapter
    }


def engine_arguments(args: GRPOConfig, *, memory_share: float = 1.0, on_cpu: bool | None = None) -> dict[str, Any]:
    """What the configuration says of the engine, as arguments of `vllm.EngineArgs`.

    Args:
        memory_share: Of the memory that it grants to vLLM, where there are several engines.
        on_cpu: Whether the engine runs on a CPU. `None`: as vLLM finds the machine.
    """
    arguments = {
        "max_model_len": args.vllm_max_model_length,
        "model_impl": args.vllm_model_impl,
        "trust_remote_code": args.trust_remote_code,
        "logprobs_mode": "processed_logprobs",
        "seed": args.seed,
        "disable_log_stats": True,
    }
    if args.world_size > 1:
        arguments["tensor_parallel_size"] = args.vllm_tensor_parallel_size  # over processes, see tensor_parallel.py
        arguments["distributed_executor_backend"] = "external_launcher"  # joins the trainer's process group
    if current_platform.is_cpu() if on_cpu is None else on_cpu:
        return arguments | {
            "enforce_eager": True,  # compiling takes longer than any test
            "kv_cache_memory_bytes": int(2**30 * memory_share),
            "enable_chunked_prefill": False,  # a seeded request that is cut raises "CPU Generator does not use offset"
        }
    return arguments | {
        "gpu_memory_utilization": args.vllm_gpu_memory_utilization * memory_share,
        "tensor_parallel_size": args.vllm_tensor_parallel_size,
        "enable_sleep_mode": args.vllm_enable_sleep_mode,
        "max_num_batched_tokens": 4096,  # as TRL: with vLLM's default its profiler finds no memory left
    }


def lora_arguments(adapters: Mapping[str, PeftConfig], *, num_bases: int) -> dict[str, Any]:
    """What the adapters say of the engine. Beside them, a base policy is an adapter too, of zeros."""
    if not adapters:
        return {}
    return {"enable_lora": True, "max_loras": len(adapters) + num_bases, "max_lora_rank": check_adapters(adapters)}
