"""`LocalSampler`: answers requests with `generate` on the trainer's own models, one policy after another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from pettingllms_trl.engines.protocol import context_of, sample_within
from pettingllms_trl.engines.transformers import sample
from pettingllms_trl.policies.codecs import PolicyCodec
from pettingllms_trl.policies.team import Team
from pettingllms_trl.records import Request, Sampled
from pettingllms_trl.role_sampling import SamplingOverrides


Generate = Callable[[list[Sequence[int]], SamplingOverrides], Any]
"""Prompts' ids and a role's own settings to sampled ids and their log-probabilities, by the active policy."""


def context_length(team: Team, policy: str) -> int | None:
    """Most tokens of prompt and completion together in a policy's model; `None`: it names no bound."""
    return context_of(team.weights_of(policy).config.get_text_config())


class LocalSampler:
    """See the head of this file. Called with requests, it returns their answers.

    Args:
        team: The policies.
        codecs: Of each policy with weights here.
        activate: Makes a policy active.
        generate: Samples with the active policy.
    """

    def __init__(
        self,
        team: Team,
        codecs: Mapping[str, PolicyCodec],
        *,
        activate: Callable[[str], None],
        generate: Generate,
    ) -> None:
        self._team, self._codecs, self._activate, self._generate = team, codecs, activate, generate

    def __call__(self, requests: Sequence[Request]) -> list[Sampled]:
        """Every request answered by its agent's policy, one policy and one setting of the generator after another."""
        answers: dict[int, Sampled] = {}
        of_agent, overrides = self._team.routing.of_agent, self._team.overrides
        kinds = [(of_agent[request.agent], overrides[request.agent]) for request in requests]
        for kind in dict.fromkeys(kinds):
            name, override = kind
            own = [i for i, other in enumerate(kinds) if other == kind]
            policy = self._team.policies[name]
            with nullcontext() if policy.is_trained else self._team.as_frozen(policy):
                self._activate(name)
                sampled = self._sample(name, [requests[i] for i in own], override)
            answers.update(zip(own, sampled, strict=True))
        return [answers[i] for i in range(len(requests))]

    def _sample(self, name: str, requests: Sequence[Request], override: SamplingOverrides) -> Sequence[Sampled]:
        codec, context = self._codecs[name], context_length(self._team, name)
        most = override.max_completion_length or self._team.profiles[name].generation_config.max_new_tokens

        def generate(prompts: list[Sequence[int]]) -> Any:
            if context is None:
                return self._generate(prompts, override)
            return sample_within(prompts, generate_up_to, context=context, most=most)

        def generate_up_to(prompts: list[Sequence[int]], limit: int | None) -> Any:
            bounded = override if limit is None else replace(override, max_completion_length=limit)
            return self._generate(prompts, bounded)

        return sample(
            requests,
            tokenize=codec.encode,
            generate=generate,
            context=context,
            decode=codec.decode,
            stop=override.stop or (),
        )
