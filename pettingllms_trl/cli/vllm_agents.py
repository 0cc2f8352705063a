"""vLLM in this process as an agent of `pettingllms bench`: one engine a model, an adapter a role. See `agents.py`."""

from __future__ import annotations

import itertools
import os
import queue
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import vllm
from peft import PeftConfig
from transformers import AutoTokenizer
from vllm import EngineArgs, LLMEngine, SamplingParams
from vllm.lora.request import LoRARequest
from vllm.platforms import current_platform
from vllm.usage.usage_lib import UsageContext

from pettingllms_trl.cli.local_agents import OF_POLICY, SAMPLED, ChatAgent, Models, Prompt, Reply, Spec, by_model
from pettingllms_trl.engines.weight_store import check_adapters
from pettingllms_trl.policies.profiles import check_chat_template


ENGINE = ("dtype", "max_model_len", "gpu_memory_utilization", "max_lora_rank", "tensor_parallel_size")
OPTIONS = (*SAMPLED, "repetition_penalty", *OF_POLICY, *ENGINE)


def open_vllm(specs: Mapping[str, Spec], concurrency: int) -> Models:
    """The agents of the kind `vllm`, one engine for all that share a model.

    Raises:
        ValueError: An option that there is not, a model without a chat template, or roles with and without adapter on
            one model on a CPU, where vLLM would give them each other's.
    """
    for spec in specs.values():
        spec.refuse_unknown(OPTIONS, target="PATH")
    agents: dict[str, ChatAgent] = {}
    engines: list[Engine] = []
    for own in by_model(specs, (*ENGINE, "revision")):
        adapters = [spec.options.get("adapter") for spec in own.values()]
        if None in adapters and any(adapters) and current_platform.is_cpu():
            raise ValueError(
                f"{', '.join(own)} play with and without an adapter on one model; expected either, on a CPU, where "
                "vLLM mixes them up (vllm-project/vllm#48421). Use transformers: for one of them."
            )
        engine = Engine(next(iter(own.values())), adapters, concurrency)
        engines.append(engine)
        for agent, spec in own.items():
            path = spec.options.get("tokenizer")
            tokenizer = engine.tokenizer if path is None else AutoTokenizer.from_pretrained(path)
            check_chat_template(tokenizer)
            agents[agent] = ChatAgent(
                spec, tokenizer, engine.ask, max_length=engine.max_length, defaults=engine.defaults
            )
    return Models(agents, {"vllm": vllm.__version__}, engines)


class Engine:
    """A thread that steps a vLLM engine while it has requests.

    Args:
        spec: The model and the engine's arguments.
        adapters: Paths, None for the model itself.
        concurrency: Requests at once.
    """

    def __init__(self, spec: Spec, adapters: Sequence[str | None], concurrency: int) -> None:
        self._name = spec.target or ""
        revision = spec.options.get("revision") or "main"
        self.tokenizer = AutoTokenizer.from_pretrained(self._name, revision=revision)
        paths = list(dict.fromkeys(filter(None, adapters)))
        self._adapters = {path: LoRARequest(f"adapter_{i}", i, path) for i, path in enumerate(paths, 1)}
        numbers = {"max_model_len": int, "max_lora_rank": int, "tensor_parallel_size": int}
        arguments = {
            name: numbers.get(name, float if name == "gpu_memory_utilization" else str)(spec.options[name])
            for name in ENGINE
            if name in spec.options
        }
        if paths:
            rank = check_adapters({path: PeftConfig.from_pretrained(path) for path in paths})
            arguments = {"max_lora_rank": rank, **arguments, "enable_lora": True, "max_loras": len(paths)}
        if current_platform.is_cpu():
            arguments |= {"enforce_eager": True}
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # in this process: read by vLLM when the engine is made
        self._engine = LLMEngine.from_engine_args(
            EngineArgs(model=self._name, revision=revision, max_num_seqs=concurrency, **arguments),
            usage_context=UsageContext.LLM_CLASS,
        )
        config = self._engine.vllm_config.model_config
        self.max_length: int = config.max_model_len
        known = ("temperature", "top_p", "top_k")
        self.defaults = {name: value for name, value in config.get_diff_sampling_param().items() if name in known}
        self._names = itertools.count()
        self._waiting: queue.SimpleQueue[Prompt | None] = queue.SimpleQueue()
        self._asked: dict[str, Prompt] = {}
        self._broken: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="vllm", daemon=True)
        self._thread.start()

    def ask(self, prompt: Prompt) -> None:
        """Take a prompt."""
        self._waiting.put(prompt)
        if self._broken is not None:
            self._refuse(self._broken)

    def close(self) -> None:
        """Answer nobody any more."""
        self._waiting.put(None)
        self._thread.join()

    def _work(self) -> None:
        try:
            while self._take():
                for output in self._engine.step():
                    if output.finished:
                        self._answered(output)
        except Exception as error:  # noqa: BLE001  # raised where the replies are waited for
            self._broken = error
            for prompt in self._asked.values():
                prompt.reply.set_exception(error)
            self._refuse(error)

    def _refuse(self, error: Exception) -> None:
        """Tell all that wait that the engine has failed."""
        with suppress(queue.Empty):
            while True:
                prompt = self._waiting.get_nowait()
                if prompt is not None:
                    prompt.reply.set_exception(error)

    def _take(self) -> bool:
        """Give the engine all that waits; where it has nothing to do, wait for something. False: there is no more."""
        while not self._waiting.empty() or not self._asked:
            prompt = self._waiting.get()
            if prompt is None:
                return False
            self._add(prompt)
        return True

    def _add(self, prompt: Prompt) -> None:
        name = str(next(self._names))
        self._engine.add_request(
            name,
            {"prompt_token_ids": list(prompt.ids)},
            SamplingParams(seed=prompt.seed, **prompt.sampling),
            lora_request=None if prompt.adapter is None else self._adapters[prompt.adapter],
        )
        self._asked[name] = prompt

    def _answered(self, output: Any) -> None:
        prompt, completion = self._asked.pop(output.request_id), output.outputs[0]
        prompt.reply.set_result(
            Reply(
                text=completion.text,
                prompt_tokens=len(prompt.ids),
                completion_tokens=len(completion.token_ids),
                finish=completion.finish_reason,
                model=self._name if prompt.adapter is None else f"{self._name} + {prompt.adapter}",
            )
        )
