"""Models of this process as agents of `pettingllms bench`: by transformers (`transformers_agents.py`) or vLLM
(`vllm_agents.py`).

    pettingllms bench sokoban --agents transformers:Qwen/Qwen3-1.7B
    pettingllms bench sokoban --agents drafter=vllm:base,adapter=out/drafter planner=vllm:base,adapter=out/planner
    pettingllms bench sokoban --team out

`pettingllms_envs` finds both by the entry-point group `pettingllms.agents`. Episodes ask from threads of their own;
one thread steps the engine that answers them all. Each reply has a seed, and its random numbers are its own: it does
not depend on what it is sampled beside, but for rounding.
"""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from transformers import AutoProcessor, AutoTokenizer, GenerationConfig, ProcessorMixin
from trl.data_utils import prepare_multimodal_messages

from pettingllms_envs.agents import AgentFailed, AgentRefused, AgentSpec, Reply
from pettingllms_envs.agents import Request as AgentRequest
from pettingllms_envs.prompts import images_of
from pettingllms_trl.pixels import ImageInputs, PixelCache, naming_torchvision
from pettingllms_trl.policies.codecs import PolicyCodec
from pettingllms_trl.policies.profiles import PolicyProfile, check_chat_template
from pettingllms_trl.records import Engine, Message, Prompt, Request, Sampled, Tools


OWN_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
"""What of a model's `generation_config.json` governs replies where an agent is told nothing, as with `vllm serve`."""
SAMPLED = (*OWN_SAMPLING, "max_tokens", "stop", "extra")
POLICY_OPTIONS = ("adapter", "tokenizer", "revision", "team")
"""Options that say what plays: a LoRA adapter, a tokenizer in place of the model's own, the commit of a model of the
Hub. `team`, the folder in which they were found, is for the records alone."""

MAX_TOKENS = 4096
"""Of a reply, where nothing is said: as in arXiv:2510.11062."""

GATHERING = 0.005
"""Seconds for which a batched engine waits for another prompt."""


def sampling_of(spec: AgentSpec, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """How an agent's replies are sampled: as it was told, else as its model's own configuration says."""
    if unknown := set(spec.options.get("extra", {})) - {"chat_template_kwargs"}:
        raise ValueError(
            f"extra has {', '.join(sorted(unknown))}; expected chat_template_kwargs alone, for a model of this "
            "process. Leave the others out."
        )
    own = {name: defaults[name] for name in OWN_SAMPLING if defaults.get(name) is not None}
    given = {name: spec.options[name] for name in (*OWN_SAMPLING, "max_tokens", "stop") if name in spec.options}
    return {"temperature": 1.0, "max_tokens": MAX_TOKENS, "stop": [], **own, **given}


def load_processing_class(spec: AgentSpec) -> tuple[Any, ImageInputs | None]:
    """The processor or tokenizer of the option `tokenizer`, or the model's own, and what makes inputs of images."""
    path = spec.options.get("tokenizer")
    options = {"padding_side": "left", **({} if path else {"revision": spec.options.get("revision") or "main"})}
    try:
        with naming_torchvision():
            loaded = AutoProcessor.from_pretrained(path or spec.target, **options)
    except OSError:  # a tokenizer alone
        loaded = AutoTokenizer.from_pretrained(path or spec.target, **options)
    check_chat_template(loaded)
    return loaded, ImageInputs(loaded, PixelCache()) if isinstance(loaded, ProcessorMixin) else None


def codec_of(spec: AgentSpec, processing_class: Any, images: ImageInputs | None = None) -> PolicyCodec:
    """What writes an agent's prompts, as in its training."""
    tokenizer = processing_class if images is None else processing_class.tokenizer
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    profile = PolicyProfile(
        processing_class=processing_class,
        tokenizer=tokenizer,
        eos_token_ids=[tokenizer.eos_token_id],
        generation_config=GenerationConfig(),
        reads_images=images is not None,
    )
    of_template = spec.options.get("extra", {}).get("chat_template_kwargs", {})
    return PolicyCodec(profile, tokenize=_encode, chat_template=None, chat_template_kwargs=of_template, images=images)


def _encode(
    profile: PolicyProfile, prompts: Sequence[Sequence[Message]], tools: Tools, template_kwargs: Mapping[str, Any]
) -> Sequence[Sequence[int]]:
    written = [prepare_multimodal_messages([*each]) if profile.reads_images else [*each] for each in prompts]
    ids: Sequence[Sequence[int]] = profile.processing_class.apply_chat_template(
        written,
        tools=list(tools) or None,
        add_generation_prompt=True,
        return_dict=True,
        tokenize=True,
        **template_kwargs,
    )["input_ids"]
    return ids


class ChatAgent:
    """Writes prompts in a model's chat template and waits for the replies; see `pettingllms_envs.agents.Agent`.

    `max_length` is of prompt and reply together, in tokens.
    """

    carries = ("images", "tools")

    def __init__(
        self, name: str, spec: AgentSpec, codec: PolicyCodec, ask: Callable[[Request], Sampled], *, max_length: int
    ) -> None:
        self._name, self._codec, self._ask, self._max_length = name, codec, ask, max_length
        adapter = spec.options.get("adapter")
        self._model = (spec.target or "") if adapter is None else f"{spec.target} + {adapter}"

    def reply(self, request: AgentRequest) -> Reply:
        """See `Agent`.

        Raises:
            AgentFailed: There is no room for a reply.
            AgentRefused: The prompt has tools or images, and its policy cannot be shown them.
        """
        messages, images = [dict(message) for message in request.messages], tuple(images_of(request.messages))
        prompt = Prompt(messages, images=images, tools=request.tools)
        try:
            ids = tuple(self._codec.encode([prompt])[0])
        except ValueError as error:
            raise AgentRefused(f"{self._model} cannot play {request.agent}: {error}") from error
        if len(ids) >= self._max_length:
            of_images = f", {self._codec.image_tokens(images)} of its {len(images)} images" if images else ""
            raise AgentFailed(
                "refused",
                f"the prompt has {len(ids)} tokens{of_images}; expected fewer than {self._max_length}, the context.",
            )
        asked = Request(self._name, replace(prompt, ids=ids), 1, request.seed, request.limits)
        (completion,) = self._ask(asked).completions
        return Reply(
            text=completion.text,
            prompt_tokens=len(ids),
            completion_tokens=len(completion.ids),
            finish=completion.finish,
            model=self._model,
        )


class EngineThread:
    """A thread that steps an engine while it has requests, for agents that wait for its answers on threads of theirs.

    Args:
        stopped: Set when nobody waits for answers any more.
    """

    def __init__(self, engine: Engine, concurrency: int, stopped: threading.Event | None = None) -> None:
        self._engine, self._concurrency = engine, concurrency
        self._stopped = threading.Event() if stopped is None else stopped
        self._tickets = itertools.count()
        self._waiting: queue.SimpleQueue[tuple[Request, Future[Sampled]] | None] = queue.SimpleQueue()
        self._asked: dict[int, Future[Sampled]] = {}
        self._broken: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="sampling", daemon=True)
        self._thread.start()

    def ask(self, request: Request) -> Sampled:
        """Wait for the answer to a request. Raises what the engine raised."""
        future: Future[Sampled] = Future()
        self._waiting.put((request, future))
        return future.result()

    def close(self) -> None:
        """Answer nobody any more."""
        self._stopped.set()
        self._waiting.put(None)
        self._thread.join()

    def _work(self) -> None:
        with self._engine.rollout("bench"):
            while self._take():
                try:
                    if self._broken is not None:
                        raise self._broken
                    answers = self._engine.step()
                except Exception as error:  # noqa: BLE001  # raised where the answers are waited for
                    self._broken = None if self._engine.is_batched else error  # a batch may fail by itself
                    for future in self._asked.values():
                        future.set_exception(error)
                    self._asked.clear()
                else:
                    for ticket, answer in answers:
                        future = self._asked.pop(ticket)
                        if isinstance(answer, Sampled):
                            future.set_result(answer)
                        else:
                            future.set_exception(answer)
        for future in self._asked.values():
            future.cancel()

    def _take(self) -> bool:
        """Give the engine what waits; where it has nothing to do, wait for something. False: there is no more."""
        pause = GATHERING if self._engine.is_batched else 0.0
        while len(self._asked) < self._concurrency:
            try:
                asked = self._waiting.get(timeout=pause if self._asked else None)
            except queue.Empty:
                break
            if asked is None:
                return False
            ticket, (request, future) = next(self._tickets), asked
            try:
                self._engine.submit(ticket, request)
            except Exception as error:  # noqa: BLE001  # raised where the answer is waited for
                future.set_exception(error)
            else:
                self._asked[ticket] = future
        return True


@dataclass(frozen=True, slots=True)
class Models:
    """Agents, and the engines that answer for them; see `pettingllms_envs.agents.spec.AgentPool`."""

    agents: Mapping[str, ChatAgent]
    versions: Mapping[str, str]
    threads: Sequence[EngineThread]

    def close(self) -> None:
        """End the threads; the models go with the last reference."""
        for thread in self.threads:
            thread.close()


class LocalModel(NamedTuple):
    """A model that answers for some agents, with at most `max_length` tokens of prompt and reply together.

    `stopped` is set when nobody waits for answers any more.
    """

    engine: Engine
    max_length: int
    stopped: threading.Event | None = None


def open_models(
    specs: Mapping[str, AgentSpec],
    concurrency: int,
    make: Callable[[Mapping[str, AgentSpec], Mapping[str, PolicyCodec]], LocalModel],
    *,
    options: Sequence[str],
    of_model: Sequence[str],
) -> tuple[dict[str, ChatAgent], list[EngineThread]]:
    """The agents of a kind, one model for all that share one, and the threads that step the models.

    Args:
        concurrency: Requests that an engine has at once.
        make: Makes the model of some agents, from their specs and codecs.
        of_model: Those of them that agents which share a model have in common.
    """
    groups: dict[tuple[Any, ...], dict[str, AgentSpec]] = {}
    for agent, spec in specs.items():
        spec.refuse_unknown(options, target="PATH")
        key = (spec.target, *(spec.options.get(option) for option in of_model))
        groups.setdefault(key, {})[agent] = spec
    agents: dict[str, ChatAgent] = {}
    threads: list[EngineThread] = []
    for own in groups.values():
        of_path = {spec.options.get("tokenizer"): spec for spec in own.values()}
        made = {path: load_processing_class(spec) for path, spec in of_path.items()}
        codecs = {agent: codec_of(spec, *made[spec.options.get("tokenizer")]) for agent, spec in own.items()}
        model = make(own, codecs)
        threads.append(EngineThread(model.engine, concurrency, model.stopped))
        for agent, spec in own.items():
            ask = threads[-1].ask
            agents[agent] = ChatAgent(agent, spec, codecs[agent], ask, max_length=model.max_length)
    return agents, threads
