"""Sampling overrides of single agents or roles (`role_sampling`): temperature, nucleus, length, stop words.

    MultiAgentGRPOConfig(..., role_sampling={"planner": {"temperature": 0.7, "stop": ["\\n\\n"]}})

The loss divides a policy's logits by the temperature at which its tokens were sampled; otherwise it would update
another policy than the one that played. Agents that share a trained policy therefore share the temperature, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pettingllms_trl.policies.routing import Routing, check_names
from pettingllms_trl.records import role_of
from pettingllms_trl.role_sampling import NOTHING, SamplingOverrides


def of_agents(
    overrides: Mapping[str, SamplingOverrides], agents: Sequence[str], *, option: str = "role_sampling"
) -> dict[str, SamplingOverrides]:
    """Each agent's overrides: its own, else its role's, else none; `ValueError` if one names no agent or role."""
    check_names(overrides, agents, f"{option} is given for")
    return {agent: overrides.get(agent, overrides.get(role_of(agent), NOTHING)) for agent in agents}


def temperatures(of_agent: Mapping[str, SamplingOverrides], routing: Routing, default: float) -> dict[str, float]:
    """The sampling temperature of each policy with weights here, by which the loss divides its logits.

    The agents of a trained policy must sample at one temperature.
    """
    found: dict[str, float] = {}
    for policy in routing.policies:
        own = {a: of_agent[a].temperature or default for a, name in routing.of_agent.items() if name == policy.name}
        if policy.is_trained and len({*own.values()}) > 1:
            raise ValueError(
                f"policy {policy.name!r} samples at different temperatures ({own}), but is trained at one: the loss "
                "divides its logits by it. Give these agents one temperature, or policies of their own "
                "(policies='lora')."
            )
        found[policy.name] = next(iter(own.values()))
    return found


def check(overrides: Mapping[str, SamplingOverrides], routing: Routing, temperature: float) -> None:
    """Validate the sampling overrides: of agents with weights here, and of one temperature for a trained policy."""
    own = of_agents(overrides, list(routing.of_agent))
    temperatures(own, routing, temperature)
    _check_weights(own, routing, "role_sampling")


def check_evaluation(overrides: Mapping[str, SamplingOverrides], routing: Routing) -> None:
    """Validate the sampling overrides of evaluations, where nothing is trained."""
    own = of_agents(overrides, list(routing.of_agent), option="role_sampling_eval")
    _check_weights(own, routing, "role_sampling_eval")


def _check_weights(own: Mapping[str, SamplingOverrides], routing: Routing, option: str) -> None:
    apis = {policy.name for policy in routing.policies if policy.api is not None}
    for agent, override in own.items():
        if override != NOTHING and routing.of_agent[agent] in apis:
            raise ValueError(
                f"{option} is given for {agent!r}, who is an API, expected a policy with weights here. Leave it "
                "out, and have the function ask for what it wants."
            )
