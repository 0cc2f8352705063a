"""What is asked of vLLM for a request, in the engine of this process or on a server: the two take the same names.

Everything that shapes the sampling distribution is said outright, also what is at its default: a server fills what is
left out from the model's `generation_config.json`, and the log-probabilities would be those of another distribution.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Any

from trl import GRPOConfig

from pettingllms_trl.records import role_of


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingOverrides:
    """How the requests of one role differ from the configuration. `None`: as the configuration says.

    The loss divides logits by `args.temperature`. A role that samples at another one is trained on log-probabilities
    of a distribution that it did not sample from, unless the trainer's temperature is switched along.

    Args:
        temperature: Above 0.
        top_p: Mass of the nucleus, in (0, 1].
        top_k: Number of tokens kept, 0 for all.
        min_p: Least probability as a share of the greatest, in [0, 1].
        repetition_penalty: 1 for none.
        max_completion_length: Most tokens of a completion.
        stop: Words that end a completion. They stay in its text and its ids, for they were sampled.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    max_completion_length: int | None = None
    stop: tuple[str, ...] | None = None


OURS = ("n", "seed", "logprobs", "prompt_logprobs", "detokenize", "stream", "echo", "model", "prompt")
NAMES = {"max_completion_length": "max_tokens"}  # vLLM's name where it is another


class Sampling:
    """The parameters of every request: the configuration's, a role's own, and a seed that no other request has.

    Args:
        args: Sampling fields and `generation_kwargs` of TRL's configuration.
        agents: Who asks.
        overrides: By agent or role; an agent's own come first.
        stop_token_ids: Tokens that end a completion, beside those in the model's `generation_config.json`.

    Raises:
        ValueError: An override for nobody, a key of `generation_kwargs` that is set here, or structured output.
    """

    def __init__(
        self,
        args: GRPOConfig,
        agents: Sequence[str],
        overrides: Mapping[str, SamplingOverrides] | None = None,
        stop_token_ids: Sequence[int] = (),
    ) -> None:
        _check(args, agents, overrides or {})
        common = {
            "temperature": args.temperature,
            "top_p": args.top_p,
            "top_k": args.top_k,
            "min_p": args.min_p or 0.0,
            "repetition_penalty": args.repetition_penalty,
            "max_tokens": args.max_completion_length,
            "stop": [],
            "stop_token_ids": list(stop_token_ids),
            "logprobs": 0,  # of the sampled token, and of no other
            **(args.generation_kwargs or {}),
        }
        self._of_agent = {agent: common | _own(agent, overrides or {}) for agent in agents}
        self._rollout = str(args.seed)
        self._asked: Counter[int] = Counter()

    def begin(self, rollout: str) -> None:
        """Seeds are drawn anew from this name: the same rollout asked for in the same order is the same rollout."""
        self._rollout = rollout
        self._asked.clear()

    def of(self, agent: str, ticket: int, num_candidates: int) -> dict[str, Any]:
        """Parameters of the agent's next request under this ticket. vLLM seeds the i-th candidate with `seed + i`."""
        place = f"{self._rollout}/{ticket}/{self._asked[ticket]}"
        self._asked[ticket] += 1
        seed = int.from_bytes(blake2b(place.encode(), digest_size=7).digest())  # vLLM keeps it in 64 bits, signed
        return {**self._of_agent[agent], "n": num_candidates, "seed": seed}


def check_length(prompt_ids: Sequence[int], agent: str, max_model_len: int) -> None:
    """
    Raises:
        ValueError: The prompt leaves no room for a completion.
    """
    if len(prompt_ids) >= max_model_len:
        raise ValueError(
            f"the prompt of agent {agent!r} has {len(prompt_ids)} tokens, and vLLM was started for {max_model_len}, "
            "the completion's included. Raise vllm_max_model_length (on a server --max-model-len), or show less."
        )


def _own(agent: str, overrides: Mapping[str, SamplingOverrides]) -> dict[str, Any]:
    own = overrides.get(agent, overrides.get(role_of(agent), SamplingOverrides()))
    given = {NAMES.get(name, name): value for name, value in asdict(own).items() if value is not None}
    return given if own.stop is None else {**given, "stop": list(own.stop)}


def _check(args: GRPOConfig, agents: Sequence[str], overrides: Mapping[str, SamplingOverrides]) -> None:
    known = {*agents, *map(role_of, agents)}
    for name in overrides:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(
                f"sampling is overridden for {name!r}, but the environment has the agents {', '.join(agents)}.{hint} "
                "Name an agent, or a role (the agent's name without its number)."
            )
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
