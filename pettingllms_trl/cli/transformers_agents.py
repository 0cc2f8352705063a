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
    MinPLogitsWarper,
    PreTrainedTokenizerBase,
    StoppingCriteria,
    StoppingCriteriaList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from pettingllms_trl.cli.local_agents import (
    OF_POLICY,
    SAMPLED,
    ChatAgent,
    Gathering,
    Models,
    Prompt,
    Reply,
    Spec,
    by_model,
)
from pettingllms_trl.policies.profiles import check_chat_template, eos_token_ids


OPTIONS = (*SAMPLED, *OF_POLICY, "device", "dtype")


def open_transformers(specs: Mapping[str, Spec], concurrency: int) -> Models:
    """The agents of the kind `transformers`, one model for all that share one.

    Raises:
        ValueError: An option that there is not, or a model without a chat template.
    """
    for spec in specs.values():
        spec.refuse_unknown(OPTIONS, target="PATH")
    agents: dict[str, ChatAgent] = {}
    threads: list[Gathering] = []
    for own in by_model(specs, ("device", "dtype", "revision")):
        served = _Served(list(own.values()))
        thread = Gathering(served.answer, concurrency)
        threads.append(thread)
        for agent, spec in own.items():
            tokenizer = served.tokenizers[spec.options.get("tokenizer")]
            agents[agent] = ChatAgent(
                spec, tokenizer, thread.ask, max_length=served.max_length, defaults=served.defaults
            )
    versions = {each.__name__: each.__version__ for each in (torch, transformers, peft)}
    return Models(agents, versions, threads)


class _Served:
    """A model of transformers with some adapters on it.

    Args:
        specs: Of those that it plays, which differ in adapter, tokenizer and sampling alone.
    """

    def __init__(self, specs: Sequence[Spec]) -> None:
        options, self._name = specs[0].options, specs[0].target or ""
        device = options.get("device", "cuda" if torch.cuda.is_available() else "cpu")
        revision = options.get("revision")
        self.tokenizers = {path: _tokenizer(path, self._name, revision) for path in _paths(specs, "tokenizer")}
        model = AutoModelForCausalLM.from_pretrained(
            self._name, dtype=options.get("dtype", "auto"), revision=revision or "main"
        )
        config = model.config.get_text_config()
        self.max_length: int = getattr(config, "max_position_embeddings", None) or 2**31
        own = model.generation_config.to_diff_dict()
        self.defaults = {name: own[name] for name in ("temperature", "top_p", "top_k") if own.get(name) is not None}
        self._eos = {path: eos_token_ids(model, each) for path, each in self.tokenizers.items()}
        self._adapters = {path: f"adapter_{i}" for i, path in enumerate(filter(None, _paths(specs, "adapter")))}
        for path, name in self._adapters.items():
            if isinstance(model, PeftModel):
                model.load_adapter(path, adapter_name=name)
            else:
                model = PeftModel.from_pretrained(model, path, adapter_name=name)
        self._model = model.to(device).eval()

    def answer(self, prompts: Sequence[Prompt], stopped: threading.Event) -> None:
        """Sample the replies, in batches of one adapter, tokenizer and sampling; once stopped, no token more."""
        groups: dict[str, list[Prompt]] = {}
        for prompt in prompts:
            alike = {name: value for name, value in prompt.sampling.items() if name != "max_tokens"}
            groups.setdefault(repr((prompt.adapter, prompt.tokenizer, alike)), []).append(prompt)
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
        device, path = self._model.device, prompts[0].tokenizer
        tokenizer = self.tokenizers[path]
        batch = tokenizer.pad({"input_ids": [list(prompt.ids) for prompt in prompts]}, return_tensors="pt")
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
            eos_token_id=self._eos[path],
            pad_token_id=tokenizer.pad_token_id,
            stopping_criteria=StoppingCriteriaList([_Unless(stopped)]),
            logits_processor=_processors(sampling, [prompt.seed for prompt in prompts], device),
            **({"stop_strings": stop, "tokenizer": tokenizer} if stop else {}),
        )
        width = batch["input_ids"].shape[1]
        for prompt, row in zip(prompts, sampled[:, width:].tolist(), strict=True):
            prompt.reply.set_result(self._read(prompt, row, stop))

    def _read(self, prompt: Prompt, row: Sequence[int], stop: Sequence[str]) -> Reply:
        """A row of sampled ids as a reply: up to the first token that ends it, or its last allowed one."""
        eos, tokenizer = self._eos[prompt.tokenizer], self.tokenizers[prompt.tokenizer]
        ended = next((i for i, token in enumerate(row) if token in eos), None)
        most = prompt.sampling["max_tokens"]
        ids = list(row[:most] if ended is None else row[: min(ended, most)])
        text = str(tokenizer.decode(ids, skip_special_tokens=True))
        cut = min((at for word in stop if (at := text.find(word)) >= 0), default=None)
        ends = cut is not None or (ended is not None and ended < most)
        return Reply(
            text=text if cut is None else text[:cut],
            prompt_tokens=len(prompt.ids),
            completion_tokens=len(ids) + (ended is not None and ended < most),
            finish="stop" if ends else "length",
            model=self._name if prompt.adapter is None else f"{self._name} + {prompt.adapter}",
        )


def _paths(specs: Sequence[Spec], option: str) -> list[str | None]:
    """The values of an option, each once."""
    return list(dict.fromkeys(spec.options.get(option) for spec in specs))


def _tokenizer(path: str | None, model: str, revision: str | None) -> PreTrainedTokenizerBase:
    """That of the path, or the model's own, with a chat template and something to pad with."""
    own = {"revision": revision or "main"} if path is None else {}
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(path or model, padding_side="left", **own)
    check_chat_template(tokenizer)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def _processors(sampling: Mapping[str, Any], seeds: Sequence[int], device: Any) -> LogitsProcessorList:
    """What makes of logits a choice: temperature, top-k, top-p and min-p of transformers, then the seeded draw."""
    processors = LogitsProcessorList()
    if sampling["temperature"] == 0:
        return processors
    processors.append(TemperatureLogitsWarper(float(sampling["temperature"])))
    if sampling.get("top_k"):
        processors.append(TopKLogitsWarper(sampling["top_k"]))
    if sampling.get("top_p", 1.0) < 1:
        processors.append(TopPLogitsWarper(sampling["top_p"]))
    if sampling.get("min_p"):
        processors.append(MinPLogitsWarper(sampling["min_p"]))
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
