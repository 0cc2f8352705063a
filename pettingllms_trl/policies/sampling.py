"""How the requests of single roles differ from the configuration: in temperature, nucleus, length, stop words.

    MultiAgentGRPOConfig(..., role_sampling={"planner": {"temperature": 0.7, "stop": ["\\n\\n"]}})

The loss divides a policy's logits by one temperature: that at which its tokens were sampled, or the update would not
be of the policy that played. Agents who share a policy that is trained therefore share the temperature, too.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from pettingllms_trl.policies.routing import Routing
from pettingllms_trl.records import role_of


Decode = Callable[[Sequence[int]], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingOverrides:
    """How the requests of one role differ. `None`: as the configuration says.

    Args:
        temperature: Above 0. Of a trained policy it is also what the loss divides logits by.
        top_p: Mass of the nucleus, in (0, 1].
        top_k: Number of tokens kept, 0 for all.
        min_p: Least probability as a share of the greatest, in [0, 1].
        repetition_penalty: Above 0, 1 for none.
        max_completion_length: Most tokens of a completion.
        stop: Words that end a completion. Its ids keep them, for they were sampled and are trained on; the text that
            the environment gets ends before the first.

    Raises:
        ValueError, TypeError: A value that it cannot have.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    max_completion_length: int | None = None
    stop: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for name, (legal, words) in RANGES.items():
            value = getattr(self, name)
            if value is not None and not legal(value):
                raise ValueError(f"{name}={value!r} for a role's sampling, expected {words}. Mend role_sampling.")
        if self.stop is not None and (not self.stop or not all(isinstance(word, str) and word for word in self.stop)):
            raise ValueError(f"stop={self.stop!r} for a role's sampling, expected words. Leave stop out for none.")

    def given(self) -> dict[str, Any]:
        """The fields that differ, by name."""
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) is not None}


RANGES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "temperature": (lambda value: value > 0, "a number above 0"),
    "top_p": (lambda value: 0 < value <= 1, "a number above 0 and at most 1"),
    "top_k": (lambda value: value >= 0, "0 (all tokens) or more"),
    "min_p": (lambda value: 0 <= value <= 1, "a number from 0 to 1"),
    "repetition_penalty": (lambda value: value > 0, "a number above 0"),
    "max_completion_length": (lambda value: value >= 1, "1 or more"),
}
NOTHING = SamplingOverrides()


def parse(given: Mapping[str, Any] | str | None) -> dict[str, SamplingOverrides]:
    """`role_sampling` as overrides, by agent or role.

    Raises:
        ValueError: A field that there is none of, or a value that it cannot have.
    """
    known = [f.name for f in fields(SamplingOverrides)]
    if isinstance(given, str):
        raise ValueError(f"role_sampling is {given!r}, expected a mapping. Write it in YAML, or as JSON.")
    overrides = {}
    for who, own in (given or {}).items():
        if not isinstance(own, Mapping):
            raise ValueError(
                f"role_sampling[{who!r}] is {own!r}, expected a mapping with some of {', '.join(known)}. Write "
                f"role_sampling={{{who!r}: {{'temperature': 0.7}}}}."
            )
        for name in own:
            if name not in known:
                near = difflib.get_close_matches(str(name), known, n=1)
                hint = f"Did you mean {near[0]!r}?" if near else "Leave it out."
                raise ValueError(f"role_sampling[{who!r}] has {name!r}, expected some of {', '.join(known)}. {hint}")
        stop = own.get("stop")
        stop = None if stop is None else (stop,) if isinstance(stop, str) else tuple(stop)
        overrides[who] = SamplingOverrides(**{**own, "stop": stop})
    return overrides


def of_agents(overrides: Mapping[str, SamplingOverrides], agents: Sequence[str]) -> dict[str, SamplingOverrides]:
    """Each agent's overrides: its own, else those of its role, else none.

    Raises:
        ValueError: Overrides for nobody.
    """
    known = {*agents, *map(role_of, agents)}
    for name in overrides:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(
                f"sampling is overridden for {name!r}, but the environment has the agents {', '.join(agents)}.{hint} "
                "Name an agent, or a role (the agent's name without its number)."
            )
    return {agent: overrides.get(agent, overrides.get(role_of(agent), NOTHING)) for agent in agents}


def temperatures(of_agent: Mapping[str, SamplingOverrides], routing: Routing, default: float) -> dict[str, float]:
    """What the loss divides the logits of each policy by that has weights here.

    Raises:
        ValueError: Agents of one trained policy sample at different temperatures.
    """
    found: dict[str, float] = {}
    for policy in routing.policies:
        own = {
            agent: of_agent[agent].temperature or default
            for agent, name in routing.of_agent.items()
            if name == policy.name
        }
        if policy.is_trained and len({*own.values()}) > 1:
            raise ValueError(
                f"policy {policy.name!r} samples at different temperatures ({own}), but is trained at one: the loss "
                "divides its logits by it. Give these agents one temperature, or policies of their own "
                "(policies='lora')."
            )
        found[policy.name] = next(iter(own.values()))
    return found


def check(args: Any, overrides: Mapping[str, SamplingOverrides], routing: Routing) -> None:
    """Refuse overrides that the run cannot meet.

    Args:
        args: The trainer's.
        overrides: As `parse` gave them.
        routing: Who is played by what.

    Raises:
        ValueError: They are for nobody or for an API, ask for two temperatures of one trained policy, or have stop
            words where completions that do not end with the model's own token are left out of the loss.
    """
    own = of_agents(overrides, list(routing.of_agent))
    temperatures(own, routing, args.temperature)
    policies = {policy.name: policy for policy in routing.policies}
    for agent, override in own.items():
        if override == NOTHING:
            continue
        if policies[routing.of_agent[agent]].api is not None:
            raise ValueError(
                f"role_sampling is given for {agent!r}, who is an API, expected a policy with weights here. Leave it "
                "out, and have the function ask for what it wants."
            )
        if override.stop and args.mask_truncated_completions:
            raise ValueError(
                f"stop={list(override.stop)} for {agent!r} with mask_truncated_completions=True: TRL takes a "
                "completion for truncated that does not end with the model's own token, and all that a stop word "
                "ended would be left out of the loss. Leave one of them out."
            )


def before_stop(text: str, stop: Sequence[str]) -> str:
    """A completion's text without the first stop word and what follows it."""
    return text[: min([len(text), *(place for word in stop if (place := text.find(word)) >= 0)])]


def up_to_stop(ids: Sequence[int], stop: Sequence[str], decode: Decode) -> Sequence[int]:
    """The ids up to the first after which the text has a stop word, that one included: where a sampler that looks for
    the words after every token would have ended."""

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
