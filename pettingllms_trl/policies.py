"""Which policy decides for which agent, and where that policy's weights are.

| `policies=`                                  | meaning                                                             |
|----------------------------------------------|---------------------------------------------------------------------|
| `"shared"` (L1)                              | one set of weights plays every agent                                |
| `"lora"` (L2)                                | one LoRA adapter per role on a frozen base; role = name less `_<n>` |
| `{"drafter": "d", "planner_0": Policy(...)}` | an adapter for each agent or role, with its own rate and clipping   |

Routing is by `set_adapter`, which also freezes every other adapter; PEFT would then leave them out of the optimizer
and drop their gradients without a word (huggingface/peft#2763), so gradients are switched on again at once.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from peft import LoraConfig, PeftConfig, PeftModel, get_peft_model
from torch import nn
from transformers import PreTrainedModel


SHARED = "shared"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Weights that decide for one or several agents.

    Args:
        adapter: Name of the LoRA adapter, which is also the policy's name in metrics and its folder on disk.
            `None`: the model itself, shared by all.
        learning_rate: Peak learning rate of this policy. `None`: `args.learning_rate`. The scheduler acts on both.
        max_grad_norm: Largest gradient norm of this policy. `None`: `args.max_grad_norm`.
    """

    adapter: str | None = None
    learning_rate: float | None = None
    max_grad_norm: float | None = None

    @property
    def name(self) -> str:
        return self.adapter or SHARED


@dataclass(frozen=True, slots=True)
class Routing:
    """Who is played by what.

    Args:
        policies: The distinct policies, in the order of the agents that first use them.
        of_agent: Name of the policy of each agent.
    """

    policies: tuple[Policy, ...]
    of_agent: Mapping[str, str]

    @property
    def adapters(self) -> tuple[str, ...]:
        return tuple(policy.adapter for policy in self.policies if policy.adapter is not None)


def role_of(agent: str) -> str:
    """`"planner_0"` -> `"planner"`; a name without a number is its own role."""
    return re.sub(r"_\d+$", "", agent)


def route(policies: str | Mapping[str, str | Policy], agents: Sequence[str]) -> Routing:
    """Resolve the user's `policies=` for the environment's agents.

    Raises:
        ValueError: An unknown layout, an agent or role that the environment does not have, an agent left out, one
            adapter with two different settings, or a name that PEFT cannot carry.
    """
    if isinstance(policies, str):
        if policies == SHARED:
            return Routing((Policy(),), dict.fromkeys(agents, SHARED))
        if policies == "lora":
            return route({role: role for role in map(role_of, agents)}, agents)
        raise ValueError(
            f"policies={policies!r}, expected 'shared', 'lora', or a dict from agents or roles to adapters"
        )
    known = {*agents, *map(role_of, agents)}
    for key in policies:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(
                f"policies names {key!r}, but the environment has the agents {', '.join(agents)}.{hint} "
                "Name an agent, or a role (the agent's name without its number)."
            )
    by_name: dict[str, Policy] = {}
    of_agent: dict[str, str] = {}
    for agent in agents:
        given = policies.get(agent, policies.get(role_of(agent)))
        if given is None:
            raise ValueError(f"policies leaves out the agent {agent!r}. Give every agent, or its role, an adapter.")
        policy = Policy(adapter=given) if isinstance(given, str) else given
        if policy.adapter is None:
            raise ValueError(
                f"policies gives {agent!r} no adapter. A mixture of adapters and full models is not supported yet: "
                "name an adapter for every agent, or use policies='shared'."
            )
        # PEFT keys its module dicts by the name and finds adapters in a state dict by '.<name>.'; one whose name is a
        # part of 'lora_', as 'a' is, it may initialise again when it loads.
        name = policy.adapter
        if not re.fullmatch(r"[A-Za-z0-9_-]+", name) or name.startswith("lora") or name in "lora_":
            raise ValueError(
                f"adapter name {name!r} of agent {agent!r}: use letters, digits, '_' and '-', do not begin with "
                "'lora' and take no part of 'lora_'. Choose another: policies={role: name, ...}."
            )
        if by_name.setdefault(policy.name, policy) != policy:
            raise ValueError(
                f"adapter {policy.adapter!r} is given two different settings: {by_name[policy.name]}, {policy}"
            )
        of_agent[agent] = policy.name
    return Routing(tuple(by_name.values()), of_agent)


def attach_adapters(
    model: PreTrainedModel | PeftModel, adapters: Sequence[str], config: PeftConfig | None
) -> PeftModel:
    """The model with an adapter of each name: those that a given `PeftModel` already carries are kept and trained on.

    Args:
        model: A base model, or a `PeftModel` whose adapters bear these names.
        adapters: At least one name.
        config: Of the adapters to be made. `None`: rank 16, alpha 32, every linear layer but the head.
    """
    config = config or LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    if not isinstance(model, PeftModel):
        model = get_peft_model(model, config, adapter_name=adapters[0])
    for name in adapters:
        if name not in model.peft_config:
            model.add_adapter(name, config)
    activate(model, adapters[0], adapters)
    return model


def activate(model: PeftModel, adapter: str, adapters: Sequence[str]) -> None:
    """Route the next forward pass through `adapter`, and keep every trained adapter's gradients switched on."""
    model.set_adapter(adapter)
    model.set_requires_grad(list(adapters), True)


def parameters_of(model: nn.Module, policy: Policy, adapters: Sequence[str]) -> list[nn.Parameter]:
    """The trainable parameters that belong to a policy: its adapter's, or all of them where it has none."""
    parameters = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    if policy.adapter is None:
        return [p for _, p in parameters]
    return [p for name, p in parameters if f".{policy.adapter}." in f"{name}."]
