"""Models of this process as agents of `pettingllms bench`: by transformers (`transformers_agents.py`) or vLLM
(`vllm_agents.py`).

    pettingllms bench sokoban --agents transformers:Qwen/Qwen3-1.7B
    pettingllms bench sokoban --agents drafter=vllm:base,adapter=out/drafter planner=vllm:base,adapter=out/planner
    pettingllms bench sokoban --team out

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

from transformers import PreTrainedTokenizerBase

from pettingllms_trl.policies.escaping import escape_of


SAMPLED = ("temperature", "top_p", "top_k", "min_p", "max_tokens", "stop", "extra")
OF_POLICY = ("adapter", "tokenizer", "revision", "team")
"""Options that say what plays: a LoRA adapter, a tokenizer in place of the model's own, the commit of a model of the
Hub. `team`, the folder in which they were found, is for the records alone."""

MAX_TOKENS = 4096
"""Of a reply, where nothing is said: as in arXiv:2510.11062."""

GATHERING = 0.005
"""Seconds for which whoever samples waits for another prompt."""


class Reply(NamedTuple):
    """What `pettingllms_envs.agents.base.Reply` has."""

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
    """As much of `pettingllms_envs.agents.spec.Spec` as is used here."""

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
        tokenizer: Path of the tokenizer that wrote the ids, or None for the model's own.
        reply: Where the answer goes.
    """

    ids: tuple[int, ...]
    seed: int
    adapter: str | None
    sampling: Mapping[str, Any]
    tokenizer: str | None = None
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
            name: spec.options[name]
            for name in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "stop")
            if name in spec.options
        }
        extra = spec.options.get("extra", {})
        if unknown := set(extra) - {"chat_template_kwargs"}:
            raise ValueError(
                f"extra has {', '.join(sorted(unknown))}; expected chat_template_kwargs alone, for a model of this "
                "process. Leave the others out."
            )
        self._tokenizer, self._ask, self._max_length = tokenizer, ask, max_length
        self._escape = escape_of(tokenizer)
        self._adapter: str | None = spec.options.get("adapter")
        self._tokenizer_path: str | None = spec.options.get("tokenizer")
        self._sampling = {"temperature": 1.0, **defaults, **given}
        self._max_tokens: int = spec.options.get("max_tokens", MAX_TOKENS)
        self._template: Mapping[str, Any] = extra.get("chat_template_kwargs", {})

    def reply(self, asked: Any) -> Reply:
        """The reply to `asked.messages`.

        Raises:
            PromptTooLong: There is no room for a reply.
        """
        messages = self._escape([dict(message) for message in asked.messages])
        ids = self._tokenizer.apply_chat_template(
            list(messages), add_generation_prompt=True, return_dict=False, **self._template
        )
        room = self._max_length - len(ids)
        if room < 1:
            raise PromptTooLong(f"the prompt has {len(ids)} tokens; expected less than {self._max_length}.")
        sampling = {**self._sampling, "max_tokens": min(self._max_tokens, room)}
        prompt = Prompt(tuple(ids), asked.seed, self._adapter, sampling, self._tokenizer_path)
        self._ask(prompt)
        return prompt.reply.result()


class Gathering:
    """A thread that takes prompts together, as many as there are, and answers them.

    Args:
        answer: Answers some prompts, in whatever order; each gets its reply or an error. Once the event is set nobody
            waits for them any more.
        most: Most prompts in a batch.
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
    """Agents, and the models that answer for them; see `AgentPool` of `pettingllms_envs.agents.spec`."""

    agents: Mapping[str, ChatAgent]
    versions: Mapping[str, str]
    threads: Sequence[Any]

    def close(self) -> None:
        """End the threads; the models go with the last reference."""
        for thread in self.threads:
            thread.close()


def by_model(specs: Mapping[str, Spec], options: Sequence[str]) -> list[dict[str, Spec]]:
    """The specs that one model can answer for, together: those of the same target and the same of some options."""
    groups: dict[tuple[Any, ...], dict[str, Spec]] = {}
    for agent, spec in specs.items():
        key = (spec.target, *(spec.options.get(option) for option in options))
        groups.setdefault(key, {})[agent] = spec
    return list(groups.values())
