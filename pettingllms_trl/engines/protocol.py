"""What a rollout asks of whatever samples tokens, and which version of the weights it has.

Requests go in with tickets, answers come out as they are ready. With `generate` as with vLLM, prompt and completion
share the model's context: a prompt that leaves no room for a single token raises ValueError, and one that leaves less
than `max_completion_length` gets completions of as many tokens as there is room for.

A `WeightsVersion` counts every change of the trainer's weights. The number of optimizer steps is no such version: the
best checkpoint is loaded after the last step, a second `train()` counts from 0 again, and a user may change weights
between two steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from peft import get_peft_model_state_dict
from torch import Tensor
from transformers import TrainerCallback

from pettingllms_trl.policies.routing import Policy
from pettingllms_trl.records import POLL_SECONDS, PolicyEngine, Request, Sample, Sampled


class BatchedEngine:
    """An engine that answers all requests together by one call of a function: plain `generate`, or a test's fake."""

    is_batched, is_remote = True, False

    def __init__(self, sample: Sample) -> None:
        self._sample = sample
        self._waiting: list[tuple[int, Request]] = []

    def rollout(self, name: str) -> AbstractContextManager[None]:
        """See `Engine`. Nothing is left when it ends but after an error."""
        self._waiting = []
        return nullcontext()

    def submit(self, ticket: int, request: Request) -> None:
        """See `Engine`."""
        self._waiting.append((ticket, request))

    def step(self, timeout: float = POLL_SECONDS) -> Sequence[tuple[int, Sampled]]:
        """Sample for all requests, in the order in which they came."""
        batch, self._waiting = self._waiting, []
        answers = self._sample([request for _, request in batch])
        return [(ticket, sampled) for (ticket, _), sampled in zip(batch, answers, strict=True)]


Generated = tuple[Sequence[Sequence[int]], Sequence[Sequence[float]] | None]
"""Generated ids of each prompt, and their log-probabilities where the generator gives them."""
NOT_STRETCHED = ("default", "longrope", "su", "llama3")
"""Kinds of rotary embeddings whose factor is in `max_position_embeddings` already."""


def context_of(config: Any) -> int | None:
    """Most tokens of prompt and completion together, as vLLM reads it from a text model's configuration.

    `None`: the model names no bound.
    """
    length = getattr(config, "max_position_embeddings", None)
    if length is None:
        return None
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    kinds = [rope, *rope.values()]  # of models with several kinds of layers, one for each
    return max(length, *(_stretched(length, each) for each in kinds if isinstance(each, Mapping)))


def _stretched(length: int, rope: Mapping[str, Any]) -> int:
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind in NOT_STRETCHED:
        return length
    return int(rope.get("original_max_position_embeddings", length) * (rope.get("factor") or 1.0))


def check_length(prompt_ids: Sequence[int], request: Request, context: int) -> None:
    """
    Raises:
        ValueError: The prompt leaves no room for a completion.
    """
    if len(prompt_ids) >= context:
        raise ValueError(
            f"the prompt of agent {request.agent!r} has {len(prompt_ids)} tokens, but the context holds {context}, "
            "the completion's included. Show less, choose a model with a longer context, or, where vLLM was started "
            "for less than the model's, raise vllm_max_model_length (on a server --max-model-len). The prompt ends "
            f"with {request.prompt[-1]['content'][-200:]!r}."
        )


def sample_within(
    prompts: Sequence[Sequence[int]],
    sample: Callable[[list[Sequence[int]], int | None], Generated],
    *,
    context: int,
    most: int | None,
) -> Generated:
    """Sample each prompt's completion, none longer than there is room for. Together, where there is room for all.

    Args:
        prompts: Each shorter than the context.
        sample: Prompts, and the most tokens of their completions (`None`: as configured), to what was sampled.
        context: Most tokens of prompt and completion.
        most: Tokens of a completion, as configured.
    """
    rooms = [context - len(ids) for ids in prompts]
    limits = [None if most is not None and room >= most else room for room in rooms]
    ids: list[Sequence[int]] = [()] * len(prompts)
    logprobs: list[Sequence[float]] | None = None
    for limit in dict.fromkeys(limits):
        own = [i for i, other in enumerate(limits) if other == limit]
        sampled, scores = sample([prompts[i] for i in own], limit)
        for i, each in zip(own, sampled, strict=True):
            ids[i] = each
        if scores is not None:
            logprobs = [()] * len(prompts) if logprobs is None else logprobs
            for i, score in zip(own, scores, strict=True):
                logprobs[i] = score
    return ids, logprobs


Decode = Callable[[Sequence[int]], str]


def before_stop(text: str, stop: Sequence[str]) -> str:
    """A completion's text without the first stop word and what follows it."""
    return text[: min([len(text), *(place for word in stop if (place := text.find(word)) >= 0)])]


def up_to_stop(ids: Sequence[int], stop: Sequence[str], decode: Decode) -> Sequence[int]:
    """The ids up to and including the first after which the text contains a stop word: where a sampler that checks
    after every token would have stopped."""

    def stops(number: int) -> bool:
        text = decode(ids[:number])
        return any(word in text for word in stop)

    if not stop or not stops(len(ids)):
        return ids
    least, most = 1, len(ids)
    while least < most:
        middle = (least + most) // 2
        if stops(middle):
            most = middle
        else:
            least = middle + 1
    return ids[:least]


@dataclass(frozen=True, slots=True)
class WeightsVersion:
    """How often a trainer's weights have changed, counted for those that a change can concern.

    | what changes them                                     | `trained` | `frozen` | `base` |
    |-------------------------------------------------------|-----------|----------|--------|
    | an optimizer step, the beginning of `train()`         | + 1       |          |        |
    | a checkpoint that is loaded                           | + 1       | + 1      |        |
    | by hand (`MultiAgentGRPOTrainer.weights_changed`)     | + 1       | + 1      | + 1    |

    Args:
        trained: Of the policies that are trained.
        frozen: Of frozen adapters, and of frozen models that were given as objects.
        base: Of frozen models that were loaded by name, as an engine loads them itself. No checkpoint holds them.
    """

    trained: int = 0
    frozen: int = 0
    base: int = 0

    def after_step(self) -> WeightsVersion:
        """The version after an optimizer step."""
        return replace(self, trained=self.trained + 1)

    def after_load(self) -> WeightsVersion:
        """The version after a checkpoint was loaded."""
        return replace(self, trained=self.trained + 1, frozen=self.frozen + 1)

    def after_change_by_hand(self) -> WeightsVersion:
        """The version after anything may have changed."""
        return WeightsVersion(self.trained + 1, self.frozen + 1, self.base + 1)

    def of(self, policy: Policy) -> int:
        """The version of one policy's own weights: of its adapter, or of its model."""
        if policy.is_trained:
            return self.trained
        return self.base if policy.adapter is None else self.frozen


class ServedPolicies:
    """Policies of one engine, whose weights follow the trainer's.

    Args:
        policies: A full model, or all that stand on the trainer's.
        engine: Samples for them.
        adapters: Per policy that is an adapter, its name in the trainer's model.
        is_in_memory: The model was given to the trainer as an object, which may be another than the engine loads by
            its name.
    """

    def __init__(
        self, policies: tuple[Policy, ...], engine: PolicyEngine, adapters: Mapping[str, str], *, is_in_memory: bool
    ) -> None:
        self.policies, self.engine = policies, engine
        self._adapters, self._is_in_memory = adapters, is_in_memory
        trains_base = any(policy.is_trained and policy.name not in adapters for policy in policies)
        self._follows_base = engine.can_load_base and not trains_base
        self._base_version = None if is_in_memory else 0  # what is loaded by name the engine has loaded itself

    def version_of(self, policy: str) -> int:
        """The version of a policy's weights that the engine has. 0: at most what it loaded itself."""
        return self.engine.versions.get(policy, self._base_version or 0)

    def sync_weights(self, weights: Any, version: WeightsVersion) -> None:
        """Give the engine what it has another version of.

        Args:
            weights: The model of the trainer that the policies are.
            version: Of the trainer's weights.
        """
        base_version = version.frozen if self._is_in_memory else version.base
        if self._follows_base and self._base_version != base_version:
            self.engine.load_base(_base_state(weights), base_version)
            self._base_version = base_version
        for policy in self.policies:
            number, adapter = version.of(policy), self._adapters.get(policy.name)
            if self.engine.versions.get(policy.name) == number:
                continue
            if adapter is not None:
                self.engine.load(policy.name, get_peft_model_state_dict(weights, adapter_name=adapter), number)
            elif policy.is_trained:
                self.engine.load(policy.name, weights.state_dict(), number)


def _base_state(weights: Any) -> dict[str, Tensor]:
    """A model's weights without its adapters, by the names that they have on disk."""
    return {
        name.removeprefix("base_model.model.").replace(".base_layer", ""): tensor
        for name, tensor in weights.state_dict().items()
        if ".lora_" not in name
    }


class CountsSteps(TrainerCallback):
    """Calls a function after each optimizer step, before any other callback can sample."""

    def __init__(self, count: Callable[[], None]) -> None:
        self._count = count

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """See `TrainerCallback`."""
        self._count()
