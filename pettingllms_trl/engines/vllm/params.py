"""Sampling parameters of vLLM requests, which have the same names for the engine in this process and on a server.

Everything that shapes the sampling distribution is set explicitly, even at its default: a server takes missing values
from the model's `generation_config.json`, and the log-probabilities would be those of another distribution.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Self

from trl import GRPOConfig

from pettingllms_envs.agents.answers import ending
from pettingllms_trl.engines.batched import before_stop, check_lengths
from pettingllms_trl.engines.kinds import PromptCodec
from pettingllms_trl.pixels import ImageInputs
from pettingllms_trl.records import Completion, Finish, Prompt, Request
from pettingllms_trl.role_sampling import SamplingOverrides


OURS = ("n", "seed", "logprobs", "prompt_logprobs", "detokenize", "stream", "echo", "model", "prompt")
NAMES = {"max_completion_length": "max_tokens"}  # vLLM's name where it is another


@dataclass(frozen=True, slots=True)
class VllmRequest:
    """A request to vLLM: its ticket as in `Engine`, the prompt with its token ids, and arguments of vLLM's
    `SamplingParams`, or fields of its completions endpoint."""

    ticket: int
    agent: str
    prompt: Prompt
    parameters: Mapping[str, Any]


class VllmParams:
    """The parameters of every request: those of its agent, and a unique seed.

    Args:
        parameters: Sampling parameters of each agent without its overrides, by vLLM's names.
        seed: Name of the rollout before the first one.
    """

    def __init__(
        self, codecs: Mapping[str, PromptCodec], parameters: Mapping[str, Mapping[str, Any]], *, seed: str
    ) -> None:
        self._codecs, self._of_agent, self._rollout = codecs, parameters, seed
        self._asked: Counter[int] = Counter()
        self._unknown: set[str] = set()  # words for the end of a completion

    @classmethod
    def of_config(cls, args: GRPOConfig, codecs: Mapping[str, PromptCodec]) -> Self:
        _check(args)
        common = {
            "temperature": args.temperature,
            "top_p": args.top_p,
            "top_k": args.top_k,
            "min_p": args.min_p or 0.0,
            "repetition_penalty": args.repetition_penalty,
            "max_tokens": args.max_completion_length,
            "stop": [],
            "logprobs": 0,  # of the sampled token, and of no other
            **(args.generation_kwargs or {}),
        }
        parameters = {
            agent: {**common, "stop_token_ids": list(codec.stop_token_ids), **_no_places(codec, common)}
            for agent, codec in codecs.items()
        }
        return cls(codecs, parameters, seed=str(args.seed))

    def begin(self, rollout: str) -> None:
        """Derive request seeds from this name, so that a rollout repeated in the same order is identical."""
        self._rollout = rollout
        self._asked.clear()

    def of(self, agent: str, ticket: int, num_candidates: int) -> dict[str, Any]:
        """Parameters of the agent's next request under this ticket. vLLM seeds the i-th candidate with `seed + i`."""
        place = f"{self._rollout}/{ticket}/{self._asked[ticket]}"
        self._asked[ticket] += 1
        seed = int.from_bytes(blake2b(place.encode(), digest_size=7).digest())  # vLLM keeps it in 64 bits, signed
        overrides = _own(self._codecs[agent].overrides())  # that apply at present
        return {**self._of_agent[agent], **overrides, "n": num_candidates, "seed": seed}

    def ask(self, ticket: int, request: Request, max_model_len: int) -> VllmRequest:
        """Convert a request; `ValueError` if the prompt leaves no room for a completion."""
        prompt = request.prompt
        if not prompt.ids:
            prompt = replace(prompt, ids=tuple(self._codecs[request.agent].tokenize(prompt)))
        check_lengths([prompt.ids], [request], max_model_len)
        parameters = self.of(request.agent, ticket, request.num_candidates)
        if request.seed is not None:
            parameters["seed"] = request.seed
        limits = request.limits
        if limits.max_tokens is not None:
            parameters["max_tokens"] = min(parameters["max_tokens"], limits.max_tokens)
        stop = parameters["stop"] or ()  # vLLM takes one word, too
        parameters["stop"] = [*((stop,) if isinstance(stop, str) else stop), *limits.stop]
        return VllmRequest(ticket, request.agent, prompt, parameters)

    def given_ids(self, agent: str, prompt: Prompt) -> list[int]:
        """A prompt's ids as vLLM is given them: it adds the places of a picture itself, after the first."""
        if not prompt.images:
            return list(prompt.ids)
        return self._images(agent).with_one_place(prompt.ids, prompt.images)

    def check_ids(self, agent: str, prompt: Prompt, found: Sequence[int], limits: str) -> None:
        """Check that vLLM made of a prompt with pictures the very ids that the trainer has.

        `limits`, for the error: how large vLLM takes pictures to be, and where that is set.
        """
        if tuple(found) != tuple(prompt.ids):
            images = self._images(agent)
            raise ValueError(
                f"a prompt of agent {agent!r} has {len(prompt.ids)} tokens with {images.num_tokens(prompt.images)} of "
                f"its pictures, and vLLM read {len(found)}; expected the same. Pictures are bounded by {images.size} "
                f"here, and there by {limits}. Set equal bounds."
            )

    def _images(self, agent: str) -> ImageInputs:
        images = self._codecs[agent].images
        assert images is not None, f"a prompt of agent {agent!r} with images that its codec does not read"
        return images

    def completion(
        self, asked: VllmRequest, ids: Sequence[int], logprobs: Sequence[float] | None, finish: str | None = None
    ) -> Completion:
        """A request's completion. The text ends before a stop word; the ids, which were sampled, include it."""
        text = before_stop(self._codecs[asked.agent].decode(ids), asked.parameters["stop"])
        kind = ending(finish)
        if finish and kind is None and finish not in self._unknown:
            self._unknown.add(finish)
            warnings.warn(f"vLLM ends completions with {finish!r}, which is read as finished.", stacklevel=2)
        known: Finish | None = None if not finish else "length" if kind == "cut" else "stop"
        return Completion(
            ids=tuple(ids), text=text, logprobs=None if logprobs is None else tuple(logprobs), finish=known
        )


def _no_places(codec: PromptCodec, common: Mapping[str, Any]) -> dict[str, Any]:
    """No place of a picture is sampled: a sequence has one for each token of the prompt's pictures, and no other."""
    if codec.images is None:
        return {}
    return {"logit_bias": {**(common.get("logit_bias") or {}), **dict.fromkeys(codec.images.place_ids, -100.0)}}


def _own(override: SamplingOverrides) -> dict[str, Any]:
    given = {NAMES.get(name, name): value for name, value in override.given().items()}
    return {**given, "stop": list(override.stop)} if override.stop else given


def _check(args: GRPOConfig) -> None:
    taken = sorted({*OURS} & {*(args.generation_kwargs or {})})
    if taken:
        raise ValueError(
            f"generation_kwargs has {', '.join(taken)}, which the trainer sets for each request. Leave it out: the "
            "number of candidates is num_generations, and seeds follow from args.seed."
        )
    if args.vllm_structured_outputs_regex is not None:
        raise ValueError(
            f"vllm_structured_outputs_regex={args.vllm_structured_outputs_regex!r} is not supported with several "
            "agents. Leave it None; what an agent writes is read by its environment."
        )
