"""Models of transformers as agents of `pettingllms bench`: one model, an adapter a role. See `agents.py`."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import peft
import torch
import transformers
from peft import PeftModel
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LogitsProcessor,
    LogitsProcessorList,
    StoppingCriteria,
    StoppingCriteriaList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from pettingllms_trl.agents import SAMPLED, ChatAgent, Gathering, Models, Prompt, Reply, Spec, by_model
from pettingllms_trl.voices import check_chat_template, eos_token_ids


OPTIONS = (*SAMPLED, "adapter", "device", "dtype")


def open_transformers(specs: Mapping[str, Spec], concurrency: int) -> Models:
    """The agents of the kind `transformers`, one model for all that share one.

    Raises:
        ValueError: An option that there is not, or a model without a chat template.
    """
    for spec in specs.values():
        spec.refuse_unknown(OPTIONS, target="PATH")
    agents: dict[str, ChatAgent] = {}
    threads: list[Gathering] = []
    for own in by_model(specs, ("device", "dtype")):
        first = next(iter(own.values()))
        served = _Served(first, [spec.options.get("adapter") for spec in own.values()])
        thread = Gathering(served.answer, concurrency)
        threads.append(thread)
        for agent, spec in own.items():
            agents[agent] = ChatAgent(
                spec, served.tokenizer, thread.ask, max_length=served.max_length, defaults=served.defaults
            )
    versions = {each.__name__: each.__version__ for each in (torch, transformers, peft)}
    return Models(agents, versions, threads)


class _Served:
    """A model of transformers with some adapters on it."""

    def __init__(self, spec: Spec, adapters: Sequence[str | None]) -> None:
        device = spec.options.get("device", "cuda" if torch.cuda.is_available() else "cpu")
        self._name = spec.target or ""
        self.tokenizer = AutoTokenizer.from_pretrained(self._name, padding_side="left")
        check_chat_template(self.tokenizer)
        if self.tokenizer.pad_token is None:
            self.tokenizer.pad_token = self.tokenizer.eos_token
        model = AutoModelForCausalLM.from_pretrained(self._name, dtype=spec.options.get("dtype", "auto"))
        config = model.config.get_text_config()
        self.max_length: int = getattr(config, "max_position_embeddings", None) or 2**31
        own = model.generation_config.to_diff_dict()
        self.defaults = {name: own[name] for name in ("temperature", "top_p", "top_k") if own.get(name) is not None}
        self._eos = eos_token_ids(model, self.tokenizer)
        self._adapters = {path: f"adapter_{i}" for i, path in enumerate(dict.fromkeys(filter(None, adapters)))}
        for path, name in self._adapters.items():
            if isinstance(model, PeftModel):
                model.load_adapter(path, adapter_name=name)
            else:
                model = PeftModel.from_pretrained(model, path, adapter_name=name)
        self._model = model.to(device).eval()

    def answer(self, prompts: Sequence[Prompt], stopped: threading.Event) -> None:
        """Sample the replies, in batches of one adapter and one sampling; once stopped, no token more."""
        groups: dict[str, list[Prompt]] = {}
        for prompt in prompts:
            alike = {name: value for name, value in prompt.sampling.items() if name != "max_tokens"}
            groups.setdefault(repr((prompt.adapter, alike)), []).append(prompt)
        for group in groups.values():
            adapter = group[0].adapter
            if adapter is not None:
                self._model.set_adapter(self._adapters[adapter])
            if adapter is None and isinstance(self._model, PeftModel):
                with self._model.disable_adapter():
                    self._sample(group, stopped)
            else:
                self._sample(group, stopped)

    @torch.no_grad()
    def _sample(self, prompts: Sequence[Prompt], stopped: threading.Event) -> None:
        """One batch. (B, T)"""
        device = self._model.device
        batch = self.tokenizer.pad({"input_ids": [list(prompt.ids) for prompt in prompts]}, return_tensors="pt")
        sampling = prompts[0].sampling
        stop = list(sampling.get("stop", ()))
        sampled = self._model.generate(
            **batch.to(device),
            max_new_tokens=max(prompt.sampling["max_tokens"] for prompt in prompts),
            do_sample=False,  # the noise of `_Seeded` makes the most likely token a sampled one
            temperature=None,
            top_p=None,
            top_k=None,
            num_beams=1,
            eos_token_id=self._eos,
            pad_token_id=self.tokenizer.pad_token_id,
            stopping_criteria=StoppingCriteriaList([_Unless(stopped)]),
            logits_processor=_processors(sampling, [prompt.seed for prompt in prompts], device),
            **({"stop_strings": stop, "tokenizer": self.tokenizer} if stop else {}),
        )
        width = batch["input_ids"].shape[1]
        for prompt, row in zip(prompts, sampled[:, width:].tolist(), strict=True):
            prompt.reply.set_result(self._read(prompt, row, stop))

    def _read(self, prompt: Prompt, row: Sequence[int], stop: Sequence[str]) -> Reply:
        """A row of sampled ids as a reply: up to the first token that ends it, or its last allowed one."""
        ended = next((i for i, token in enumerate(row) if token in self._eos), None)
        most = prompt.sampling["max_tokens"]
        ids = list(row[:most] if ended is None else row[: min(ended, most)])
        text = str(self.tokenizer.decode(ids, skip_special_tokens=True))
        cut = min((at for word in stop if (at := text.find(word)) >= 0), default=None)
        ends = cut is not None or (ended is not None and ended < most)
        return Reply(
            text=text if cut is None else text[:cut],
            prompt_tokens=len(prompt.ids),
            completion_tokens=len(ids) + (ended is not None and ended < most),
            finish="stop" if ends else "length",
            model=self._name if prompt.adapter is None else f"{self._name} + {prompt.adapter}",
        )


def _processors(sampling: Mapping[str, Any], seeds: Sequence[int], device: Any) -> LogitsProcessorList:
    """What makes of logits a choice: temperature, top-k and top-p as transformers has them, then the seeded draw."""
    processors = LogitsProcessorList()
    if sampling["temperature"] == 0:
        return processors
    processors.append(TemperatureLogitsWarper(float(sampling["temperature"])))
    if sampling.get("top_k"):
        processors.append(TopKLogitsWarper(sampling["top_k"]))
    if sampling.get("top_p", 1.0) < 1:
        processors.append(TopPLogitsWarper(sampling["top_p"]))
    processors.append(_Seeded(seeds, device))
    return processors


class _Unless(StoppingCriteria):
    """Ends all rows once an event is set."""

    def __init__(self, stopped: threading.Event) -> None:
        self._stopped = stopped

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **kwargs: Any) -> torch.Tensor:  # (B, T), (B, V)
        return torch.full((len(input_ids),), self._stopped.is_set(), device=input_ids.device)


class _Seeded(LogitsProcessor):
    """Gumbel noise, of each row from a generator of its own: the largest sum is a draw from the softmax."""

    def __init__(self, seeds: Sequence[int], device: Any) -> None:
        self._generators = [torch.Generator(device).manual_seed(seed) for seed in seeds]

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:  # (B, T), (B, V)
        size = scores.shape[-1]
        noise = [
            torch.empty(size, device=scores.device).exponential_(generator=generator).log()
            for generator in self._generators
        ]
        return scores.float() - torch.stack(noise)
