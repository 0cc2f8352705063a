"""vLLM in the trainer's own process: one engine samples for all policies, whose requests share its batches.

A policy is the engine's own weights, or a LoRA adapter on them, chosen request by request. What it serves is what
`sync` last gave it:

| policy       | `sync` writes                                              | seconds (tiny model, CPU) |
|--------------|------------------------------------------------------------|---------------------------|
| adapter      | a new version to a folder, and loads it under a new name   | 0.01                      |
| base weights | over the engine's own, then forgets the keys and values    | 0.01                      |

Token ids are never decoded and encoded again, and log-probabilities are those of the distribution sampled from
(`processed_logprobs`: after temperature, top-k and the rest), the sampled token's included.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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

from pettingllms_trl.engines.vllm_params import Sampling, VllmRequest
from pettingllms_trl.engines.weight_store import AdapterVersion, StaleWeights, WeightStore, check_adapters
from pettingllms_trl.records import Request, Sampled, Scored


SHARED_MEMORY = Path("/dev/shm")


class ColocatedVllm:
    """Samples for every agent of a team; see `pettingllms_trl.engines.protocol.Engine`.

    What vLLM does to the process: starting an engine seeds the global random numbers anew, and on a CPU fixes torch's
    number of threads for good; an engine that is forgotten takes the process groups of every other along.

    Args:
        model: Path or id of the base model, as on disk.
        args: `vllm_*` and sampling fields of the trainer's configuration.
        of_agent: Name of the policy of each agent that it samples for.
        adapters: Of each policy that is an adapter, its configuration as PEFT resolved it. Any other policy is the
            base model.
        sampling: What is asked of vLLM for a request, and how its answer is read.
        dtype: Of the engine's weights: `"auto"` is as on disk.
        memory_share: Of the memory that the configuration grants to vLLM, where there are several engines.
        engine_args: Further arguments of `vllm.EngineArgs`, for instance `{"quantization": "bitsandbytes"}`.

    Raises:
        ValueError: An adapter that vLLM cannot serve, sampling options that cannot be met, or tensor parallelism over
            the trainer's processes.
    """

    in_waves = False

    def __init__(
        self,
        model: str,
        *,
        args: GRPOConfig,
        of_agent: Mapping[str, str],
        adapters: Mapping[str, PeftConfig],
        sampling: Sampling,
        dtype: str = "auto",
        memory_share: float = 1.0,
        engine_args: Mapping[str, Any] | None = None,
    ) -> None:
        self._of_agent = of_agent
        self._adapters = adapters
        self._bases = tuple(policy for policy in dict.fromkeys(of_agent.values()) if policy not in adapters)
        self._sampling = sampling
        on_cpu = current_platform.is_cpu()
        arguments = {
            "model": model,
            "dtype": dtype,
            **engine_arguments(args, on_cpu=on_cpu, memory_share=memory_share),
            **lora_arguments(adapters, num_bases=len(self._bases)),
            **(engine_args or {}),
        }
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # in this process: read by vLLM when the engine is made
        # As what it is to vLLM, a job done offline, it takes batches as large as the device is for.
        self._engine = LLMEngine.from_engine_args(EngineArgs(**arguments), usage_context=UsageContext.LLM_CLASS)
        self._max_model_len: int = self._engine.vllm_config.model_config.max_model_len
        self._tensor_parallel: bool = self._engine.vllm_config.parallel_config.tensor_parallel_size > 1
        self._store = WeightStore(SHARED_MEMORY if SHARED_MEMORY.is_dir() else Path(args.output_dir))
        self._serving: dict[str, _Served] = {}
        self._versions: Counter[str] = Counter()
        self._adapter_ids = itertools.count(1)
        self._names = itertools.count()
        self._waiting: dict[str, VllmRequest] = {}
        self._can_sleep = args.vllm_enable_sleep_mode and not on_cpu
        self._sleep()

    @property
    def versions(self) -> Mapping[str, int]:
        """How often each policy's weights were given. 0: a base model as it is on disk."""
        return {policy: self._versions[policy] for policy in dict.fromkeys(self._of_agent.values())}

    # ---- Weights --------------------------------------------------------------------------------------------------

    def sync(self, policy: str, state: Mapping[str, torch.Tensor]) -> int:
        """Serve these weights from now on as a policy's.

        Args:
            policy: Its name.
            state: Of an adapter `peft.get_peft_model_state_dict(model, adapter_name=...)`; of a base model
                `model.state_dict()`, where tied weights stand under each of their names; else vLLM's head stays old.

        Returns:
            The number of the policy's version.

        Raises:
            StaleWeights: Requests are in flight; their answers would be of the old weights, or of both.
            ValueError: A base model that several policies share.
        """
        self._check_idle(f"policy {policy!r}")
        if policy in self._adapters:
            self._wake()
            self._serve(self._store.write(policy, self._adapters[policy], state))
            for base in self._bases:
                if base not in self._serving:
                    self._serve(self._store.write_zero(base, self._adapters[policy], state))
        else:
            if self._bases != (policy,):
                raise ValueError(
                    f"weights of policy {policy!r}, but the engine's own are those of {self._bases}: one set can be "
                    "trained for one policy. Give each an adapter, or an engine of its own."
                )
            self.rebase(state)
        self._versions[policy] += 1
        return self._versions[policy]

    def _serve(self, version: AdapterVersion) -> None:
        """Load a version in the place of the one before, which nobody uses any more."""
        before = self._serving.pop(version.policy, None)
        if before is not None:
            self._engine.remove_lora(before.request.lora_int_id)
            self._store.remove(before.version)
        served = _Served(version, LoRARequest(version.name, next(self._adapter_ids), str(version.path)))
        self._engine.add_lora(served.request)
        self._serving[version.policy] = served

    def rebase(self, state: Mapping[str, torch.Tensor]) -> None:
        """Replace the engine's own weights, on which all its policies stand.

        Args:
            state: As of a base model in `sync`.
        """
        self._check_idle("the model")
        self._wake()
        # Adapters are forgotten over it, and read from their folders again when they are next asked for.
        if self._tensor_parallel:  # its workers are processes of their own
            version = self._store.write_whole("base", state)
            self._engine.collective_rpc("reload_weights", kwargs={"weights_path": str(version.path)})
            self._store.remove(version)
        else:
            self._engine.collective_rpc("reload_weights", kwargs={"weights_iterator": iter(state.items())})
        if not self._engine.reset_prefix_cache():
            raise StaleWeights("vLLM keeps what it computed with old weights: some request still holds on to it")

    def _check_idle(self, whose: str) -> None:
        if self._waiting:
            raise StaleWeights(
                f"new weights of {whose} while {len(self._waiting)} requests are in flight, expected none: their "
                "tokens would come from the old ones. Sync before the rollout or after it."
            )

    # ---- Sampling -------------------------------------------------------------------------------------------------

    @contextmanager
    def rollout(self, name: str) -> Iterator[None]:
        """Requests are sampled between these two ends only: what is left when it ends is dropped.

        Args:
            name: Seeds every request, together with its ticket. Equal requests in an equal order are answered alike.
        """
        self._wake()
        self._sampling.begin(name)
        try:
            yield
        finally:
            self._engine.abort_request(list(self._waiting))
            self._waiting.clear()
            self._sleep()

    def submit(self, ticket: int, request: Request) -> None:
        """See `Engine`.

        Raises:
            StaleWeights: The policy was never given its weights.
            ValueError: The prompt leaves no room for a completion.
        """
        policy = self._of_agent[request.agent]
        if self._adapters and policy not in self._serving:
            raise StaleWeights(f"a request of policy {policy!r}, whose weights were never given. Call sync first.")
        asked = self._sampling.ask(ticket, request, self._max_model_len)
        name = str(next(self._names))
        self._waiting[name] = asked
        self._engine.add_request(
            name,
            {"prompt_token_ids": list(asked.prompt_ids)},
            SamplingParams(
                **asked.parameters,
                output_kind=RequestOutputKind.FINAL_ONLY,
                flat_logprobs=True,
                detokenize=bool(asked.parameters["stop"]),  # it looks for them in the text
            ),
            lora_request=self._serving[policy].request if self._adapters else None,
        )

    def step(self) -> Sequence[tuple[int, Sampled]]:
        """One forward pass for all that are in flight: see `Engine`."""
        return [self._answer(output) for output in self._engine.step() if output.finished]

    def _answer(self, output: RequestOutput) -> tuple[int, Sampled]:
        asked = self._waiting.pop(output.request_id)
        policy = self._of_agent[asked.agent]
        served = self._serving[policy].version.name if self._adapters else None
        sampled_by = output.lora_request.lora_name if output.lora_request else None
        if sampled_by != served:
            raise StaleWeights(f"an answer of {sampled_by} for policy {policy!r}, expected one of {served}")
        completions = []
        for choice in output.outputs:
            ids, logprobs = choice.token_ids, choice.logprobs.logprobs
            assert len(ids) == len(logprobs) > 0, f"{len(ids)} ids, {len(logprobs)} log-probabilities"
            completions.append(self._sampling.completion(asked.agent, ids, logprobs))
        return asked.ticket, Sampled(asked.prompt_ids, tuple(completions))

    def score(self, policy: str, ids: Sequence[int]) -> Sequence[Scored]:
        """What a policy thinks of a text, with the weights that it samples from. Only while no request is in flight.

        vLLM computes a scored prompt from its first token on: keys and values that it has kept are not read
        (`SamplingParams.skip_reading_prefix_cache`), and log-probabilities are of the logits as they are, whatever
        the temperature.

        Args:
            policy: Its name.
            ids: Token ids; they are cut where the model's context ends.

        Raises:
            StaleWeights: Requests are in flight, or the engine used other weights than the policy's.
        """
        self._check_idle(f"policy {policy!r}")
        served = self._serving[policy] if self._adapters else None
        name = str(next(self._names))
        self._engine.add_request(
            name,
            {"prompt_token_ids": list(ids[: self._max_model_len - 1])},
            SamplingParams(
                temperature=0.0,
                max_tokens=1,
                prompt_logprobs=0,
                output_kind=RequestOutputKind.FINAL_ONLY,
                flat_logprobs=True,
                detokenize=False,
            ),
            lora_request=served.request if served else None,
        )
        outputs: list[RequestOutput] = []
        while not outputs:
            outputs = self._engine.step()
        (output,) = outputs
        used = output.lora_request.lora_name if output.lora_request else f"{policy}-v{self._versions[policy]}"
        if served is not None and used != served.version.name:
            raise StaleWeights(f"the engine scored with {used} for policy {policy!r}, expected {served.version.name}")
        return (Scored("this process", used, tuple(output.prompt_logprobs.logprobs)),)

    # ---- Memory ---------------------------------------------------------------------------------------------------

    def _sleep(self) -> None:
        """Give the GPU to the update: keys and values are dropped, weights wait in the host's memory."""
        if self._can_sleep:
            self._engine.sleep(level=1)  # level 2 would drop the weights, and adapters hang on them

    def _wake(self) -> None:
        if self._can_sleep and self._engine.is_sleeping():
            torch.cuda.empty_cache()  # what the update has let go, torch still holds
            self._engine.wake_up()


@dataclass(frozen=True, slots=True)
class _Served:
    """An adapter in the engine."""

    version: AdapterVersion
    request: LoRARequest


def engine_arguments(args: GRPOConfig, *, on_cpu: bool, memory_share: float = 1.0) -> dict[str, Any]:
    """What the configuration says of the engine, as arguments of `vllm.EngineArgs`.

    Raises:
        ValueError: Tensor parallelism over the trainer's processes.
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
        if args.vllm_tensor_parallel_size > 1:
            raise ValueError(
                f"vllm_tensor_parallel_size={args.vllm_tensor_parallel_size} with {args.world_size} processes: each "
                "plays its own instances at its own pace, so each needs an engine of its own. Set it to 1, or use "
                "vllm_mode='server'."
            )
        arguments["distributed_executor_backend"] = "external_launcher"  # joins the trainer's process group
    if on_cpu:
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
