"""Models of this process as agents of `pettingllms bench`: transformers here, vLLM in `vllm_agents.py`.

    pettingllms bench sokoban --agents transformers:Qwen/Qwen3-1.7B
    pettingllms bench sokoban --agents drafter=vllm:base,adapter=out/drafter planner=vllm:base,adapter=out/planner

`pettingllms_envs` finds both by the entry-point group `pettingllms.agents`; neither package imports the other.
Episodes ask from threads of their own; whoever samples gathers what waits and answers it together. Each reply has a
seed, and its random numbers are its own: it does not depend on what it is sampled beside, but for rounding.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import peft
import torch
import transformers
from peft import PeftModel
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LogitsProcessor,
    LogitsProcessorList,
    PreTrainedTokenizerBase,
    StoppingCriteria,
    StoppingCriteriaList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from pettingllms_trl.voices import check_chat_template, eos_token_ids


SAMPLED = ("temperature", "top_p", "top_k", "max_tokens", "stop", "extra")
OPTIONS = (*SAMPLED, "adapter", "device", "dtype")
MAX_TOKENS = 4096
"""Of a reply, where nothing is said: as in arXiv:2510.11062."""

GATHERING = 0.005
"""Seconds for which whoever samples waits for another prompt."""


class Reply(NamedTuple):
    """What `pettingllms_envs.evaluation.agents.Reply` has."""

    text: str
    prompt_tokens: int
    completion_tokens: int
    finish: str
    model: str
    reasoning: str | None = None
    tries: int = 1


class PromptTooLong(ValueError):
    """The model cannot read the prompt. An error row, as from a server."""

    kind = "refused"


class Spec(Protocol):
    """As much of `pettingllms_envs.evaluation.lineup.Spec` as is used here."""

    @property
    def target(self) -> str | None:
        """The model."""
        ...

    @property
    def options(self) -> Mapping[str, Any]:
        """By name."""
        ...

    def refuse_unknown(self, known: Sequence[str], *, target: str | None) -> None:
        """Raises `ValueError` for others."""
        ...


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt that waits for its reply.

    Args:
        ids: As the model reads it.
        seed: Of the reply.
        adapter: Path of the adapter that replies, or None.
        sampling: `temperature` and the others that were given, with the model's own where they were not.
        reply: Where the answer goes.
    """

    ids: tuple[int, ...]
    seed: int
    adapter: str | None
    sampling: Mapping[str, Any]
    reply: Future[Reply] = field(default_factory=Future, compare=False)


class ChatAgent:
    """Writes prompts in a model's chat template and waits for the replies; see the `Agent` of `pettingllms_envs`.

    Args:
        spec: Its adapter and sampling.
        tokenizer: Of the model.
        ask: Takes a prompt to whoever samples.
        max_length: Most tokens of prompt and reply together.
        defaults: The model's own sampling.
    """

    def __init__(
        self,
        spec: Spec,
        tokenizer: PreTrainedTokenizerBase,
        ask: Callable[[Prompt], None],
        *,
        max_length: int,
        defaults: Mapping[str, Any],
    ) -> None:
        given = {
            name: spec.options[name] for name in ("temperature", "top_p", "top_k", "stop") if name in spec.options
        }
        extra = spec.options.get("extra", {})
        if unknown := set(extra) - {"chat_template_kwargs"}:
            raise ValueError(
                f"extra has {', '.join(sorted(unknown))}; expected chat_template_kwargs alone, for a model of this "
                "process. Leave the others out."
            )
        self._tokenizer, self._ask, self._max_length = tokenizer, ask, max_length
        self._adapter: str | None = spec.options.get("adapter")
        self._sampling = {"temperature": 1.0, **defaults, **given}
        self._max_tokens: int = spec.options.get("max_tokens", MAX_TOKENS)
        self._template: Mapping[str, Any] = extra.get("chat_template_kwargs", {})

    def reply(self, asked: Any) -> Reply:
        """The reply to `asked.messages`.

        Raises:
            PromptTooLong: There is no room for a reply.
        """
        messages = [dict(message) for message in asked.messages]
        ids = self._tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_dict=False, **self._template
        )
        room = self._max_length - len(ids)
        if room < 1:
            raise PromptTooLong(f"the prompt has {len(ids)} tokens; expected less than {self._max_length}.")
        sampling = {**self._sampling, "max_tokens": min(self._max_tokens, room)}
        prompt = Prompt(tuple(ids), asked.seed, self._adapter, sampling)
        self._ask(prompt)
        return prompt.reply.result()


class Gathering:
    """A thread that takes prompts together, as many as there are, and answers them.

    Args:
        answer: Answers some prompts, in whatever order; each gets its reply or an error. Once the event is set nobody
            waits for them any more.
        most: So many at once.
    """

    def __init__(self, answer: Callable[[Sequence[Prompt], threading.Event], None], most: int) -> None:
        self._answer, self._most = answer, most
        self._stopped = threading.Event()
        self._waiting: queue.SimpleQueue[Prompt | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="sampling", daemon=True)
        self._thread.start()

    def ask(self, prompt: Prompt) -> None:
        """Take a prompt."""
        self._waiting.put(prompt)

    def close(self) -> None:
        """Answer nobody any more."""
        self._stopped.set()
        self._waiting.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (first := self._waiting.get()) is not None:
            prompts, going = [first], True
            while len(prompts) < self._most:
                try:
                    following = self._waiting.get(timeout=GATHERING)
                except queue.Empty:
                    break
                if following is None:
                    going = False
                    break
                prompts.append(following)
            try:
                self._answer(prompts, self._stopped)
            except Exception as error:  # noqa: BLE001  # raised where the reply is waited for
                for prompt in prompts:
                    if not prompt.reply.done():
                        prompt.reply.set_exception(error)
            if not going:
                return


@dataclass(frozen=True, slots=True)
class Models:
    """Agents, and the models that answer for them; see `Opened` of `pettingllms_envs.evaluation.lineup`."""

    agents: Mapping[str, ChatAgent]
    versions: Mapping[str, str]
    threads: Sequence[Any]

    def close(self) -> None:
        """End the threads; the models go with the last reference."""
        for thread in self.threads:
            thread.close()


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


def by_model(specs: Mapping[str, Spec], options: Sequence[str]) -> list[dict[str, Spec]]:
    """The specs that one model can answer for, together: those of the same target and the same of some options."""
    groups: dict[tuple[Any, ...], dict[str, Spec]] = {}
    for agent, spec in specs.items():
        key = (spec.target, *(spec.options.get(option) for option in options))
        groups.setdefault(key, {})[agent] = spec
    return list(groups.values())


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
