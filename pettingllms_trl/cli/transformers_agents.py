"""Models of transformers as agents of `pettingllms bench`: one model, an adapter a role. See `local_agents.py`."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import peft
import torch
import transformers
from peft import PeftModel
from torch import nn
from trl.trainer.utils import create_model_from_path

from pettingllms_envs.agents import AgentSpec
from pettingllms_trl.cli.local_agents import POLICY_OPTIONS, SAMPLED, LocalModel, Models, open_models, sampling_of
from pettingllms_trl.engines.batched import BatchedEngine, before_stop
from pettingllms_trl.engines.folder_sampling import without_folder_sampling
from pettingllms_trl.engines.prefix_cache import MAX_BYTES, PrefixCache
from pettingllms_trl.engines.transformers import Decode
from pettingllms_trl.policies.adapters import check_base_is_kept, several, unchanged
from pettingllms_trl.policies.codecs import PolicyCodec
from pettingllms_trl.policies.profiles import eos_token_ids
from pettingllms_trl.records import Completion, Request, Sampled


OPTIONS = (*SAMPLED, *POLICY_OPTIONS, "device", "dtype", "shared_prefix")


def open_transformers(specs: Mapping[str, AgentSpec], concurrency: int) -> Models:
    """The agents of the kind `transformers`, one model for all that share one."""

    def make(own: Mapping[str, AgentSpec], codecs: Mapping[str, PolicyCodec]) -> LocalModel:
        model = _Model(own, codecs, stopped := threading.Event())
        return LocalModel(BatchedEngine(model.sample), model.max_length, stopped)

    of_model = ("device", "dtype", "revision", "shared_prefix")
    agents, threads = open_models(specs, concurrency, make, options=OPTIONS, of_model=of_model)
    versions = {each.__name__: each.__version__ for each in (torch, transformers, peft)}
    return Models(agents, versions, threads)


class _Model:
    """A model of transformers with some adapters on it, for agents which differ in adapter, tokenizer and sampling
    alone.

    Once `stopped` is set, no further token is sampled.
    """

    def __init__(
        self, of_agent: Mapping[str, AgentSpec], codecs: Mapping[str, PolicyCodec], stopped: threading.Event
    ) -> None:
        specs = list(of_agent.values())
        options, name = specs[0].options, specs[0].target or ""
        if (shares := str(options.get("shared_prefix", True)).lower()) not in ("true", "false"):
            raise ValueError(f"shared_prefix is {options['shared_prefix']!r}; expected true or false.")
        device = options.get("device", "cuda" if torch.cuda.is_available() else "cpu")
        model = create_model_from_path(
            name, dtype=options.get("dtype", "auto"), revision=options.get("revision") or "main", device_map=None
        )
        config = model.config.get_text_config()
        self.max_length: int = getattr(config, "max_position_embeddings", None) or 2**31
        defaults = model.generation_config.to_diff_dict()
        self._sampling = {agent: sampling_of(spec, defaults) for agent, spec in of_agent.items()}
        self._codecs = codecs
        self._eos = {agent: eos_token_ids(model, codec.tokenizer) for agent, codec in codecs.items()}
        paths = dict.fromkeys(filter(None, (spec.options.get("adapter") for spec in specs)))
        self._adapters = {path: f"adapter_{i}" for i, path in enumerate(paths)}
        is_bare = any(spec.options.get("adapter") is None for spec in specs)
        also = "other agents play the base without it" if is_bare else several(self._adapters)
        check_base_is_kept({path: peft.PeftConfig.from_pretrained(path) for path in self._adapters}, also)
        with unchanged(model) if also else nullcontext():
            for path, name in self._adapters.items():
                if isinstance(model, PeftModel):
                    model.load_adapter(path, adapter_name=name)
                else:
                    model = PeftModel.from_pretrained(model, path, adapter_name=name)
        self._model = model.to(device).eval()
        self._of_agent, self._stopped = of_agent, stopped
        self._prefixes = PrefixCache(MAX_BYTES if shares == "true" else 0)

    def sample(self, requests: Sequence[Request]) -> Sequence[Sampled]:
        """Replies in the order of the requests, sampled in batches of one adapter, tokenizer and sampling."""
        batches: dict[str, list[int]] = {}
        for i, request in enumerate(requests):
            options = self._of_agent[request.agent].options
            sampling = {**self._sampling[request.agent], "max_tokens": None}  # may differ within a batch
            kind = (options.get("adapter"), options.get("tokenizer"), sampling, request.limits.stop)
            batches.setdefault(repr(kind), []).append(i)
        answers: dict[int, Sampled] = {}
        for batch in batches.values():
            own = [requests[i] for i in batch]
            adapter = self._of_agent[own[0].agent].options.get("adapter")
            if adapter is not None:
                self._model.set_adapter(self._adapters[adapter])
            is_bare = adapter is None and isinstance(self._model, PeftModel)
            bare = self._model.disable_adapter() if is_bare else nullcontext()
            with bare, without_folder_sampling(self._model), self._prefixes.used_by(self._model, adapter or ""):
                answers.update(zip(batch, self._sample_alike(own), strict=True))
        return [answers[i] for i in range(len(requests))]

    @torch.no_grad()
    def _sample_alike(self, requests: Sequence[Request]) -> list[Sampled]:
        """One batch. (B, T)"""
        device, agent = self._model.device, requests[0].agent
        eos, tokenizer, images = self._eos[agent], self._codecs[agent].tokenizer, self._codecs[agent].images
        batch = tokenizer.pad({"input_ids": [list(request.prompt.ids) for request in requests]}, return_tensors="pt")
        batch, shown = batch.to(device), [request.prompt.images for request in requests]
        if images is not None and any(shown):
            batch.update(images.of_batch(batch["input_ids"], shown, 0))
            del batch["num_images"]
        sampling = self._sampling[agent]
        stop = [*sampling["stop"], *requests[0].limits.stop]
        lengths = [
            min(
                self._sampling[request.agent]["max_tokens"],
                request.limits.max_tokens or self.max_length,
                self.max_length - len(request.prompt.ids),
            )
            for request in requests
        ]
        sampled = self._model.generate(
            **batch,
            max_new_tokens=max(lengths),
            do_sample=False,  # the noise of `_Seeded` makes the most likely token a sampled one
            num_beams=1,
            eos_token_id=eos,
            pad_token_id=tokenizer.pad_token_id,
            stopping_criteria=transformers.StoppingCriteriaList([_Unless(self._stopped)]),
            logits_processor=_processors(
                sampling, [request.seed or 0 for request in requests], batch["attention_mask"], device
            ),
            **({"stop_strings": stop, "tokenizer": tokenizer} if stop else {}),
            **({"suppress_tokens": images.place_ids} if images is not None else {}),
        )
        rows = sampled[:, batch["input_ids"].shape[1] :].tolist()
        return [
            Sampled(request.prompt, (_completion(row[:length], eos, self._codecs[agent].decode, stop),))
            for request, row, length in zip(requests, rows, lengths, strict=True)
        ]


def _completion(row: Sequence[int], eos: Sequence[int], decode: Decode, stop: Sequence[str]) -> Completion:
    """A row of sampled ids up to the first that ends it."""
    ended = next((i for i, token in enumerate(row) if token in eos), None)
    whole = decode([row[:ended]])[0]
    text = before_stop(whole, stop)
    return Completion(
        ids=tuple(row if ended is None else row[: ended + 1]),
        text=text,
        finish="length" if ended is None and text == whole else "stop",
    )


def _processors(
    sampling: Mapping[str, Any], seeds: Sequence[int], attended: torch.Tensor, device: Any
) -> transformers.LogitsProcessorList:
    """What makes of logits a choice: transformers' penalty, temperature, top-k, top-p and min-p; the seeded draw."""
    processors = transformers.LogitsProcessorList()
    if (penalty := sampling.get("repetition_penalty", 1.0)) != 1:
        processors.append(_Penalty(penalty, attended))
    if sampling["temperature"] == 0:
        return processors
    processors.append(transformers.TemperatureLogitsWarper(float(sampling["temperature"])))
    if sampling.get("top_k"):
        processors.append(transformers.TopKLogitsWarper(sampling["top_k"]))
    if sampling.get("top_p", 1.0) < 1:
        processors.append(transformers.TopPLogitsWarper(sampling["top_p"]))
    if sampling.get("min_p"):
        processors.append(transformers.MinPLogitsWarper(sampling["min_p"]))
    processors.append(_Seeded(seeds, device))
    return processors


class _Unless(transformers.StoppingCriteria):
    """Ends all rows once an event is set."""

    def __init__(self, stopped: threading.Event) -> None:
        self._stopped = stopped

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **kwargs: Any) -> torch.Tensor:  # (B, T), (B, V)
        return torch.full((len(input_ids),), self._stopped.is_set(), device=input_ids.device)


class _Penalty(transformers.LogitsProcessor):
    """The repetition penalty, as in vLLM: not of padding, which transformers' penalises in the shorter rows."""

    def __init__(self, penalty: float, attended: torch.Tensor) -> None:  # (B, T) of the prompts
        self._penalty, self._attended = penalty, attended

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:  # (B, T), (B, V)
        num_sampled = input_ids.shape[1] - self._attended.shape[1]
        counts = nn.functional.pad(self._attended, (0, num_sampled), value=1).to(scores.dtype)
        seen = torch.zeros_like(scores).scatter_add_(1, input_ids, counts) > 0
        return torch.where(seen, torch.where(scores < 0, scores * self._penalty, scores / self._penalty), scores)


class _Seeded(transformers.LogitsProcessor):
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
