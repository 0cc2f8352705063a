"""Resolves the user's `policies=` to a policy for each agent. Holds no weights: see `weights.py`.

| `policies=`                                    | meaning                                                           |
|------------------------------------------------|-------------------------------------------------------------------|
| `"shared"` (L1)                                | the model itself plays every agent                                |
| `"lora"` (L2)                                  | a LoRA adapter per role on a frozen base; role = name less `_<n>` |
| `"full"` (L3)                                  | a full copy of the model per role                                 |
| `{"drafter": "d", "planner_0": Policy(...)}`   | any mixture, by agent or role; a string names an adapter          |

    policies={
        "planner": Policy(model="Qwen/Qwen3-4B", learning_rate=1e-6),  # a full model of its own
        "coder": Policy(adapter="coder", beta=0.04),                   # an adapter on the trainer's model
        "tester": Policy(trainable=False),                             # the trainer's model as it is
        "user": Policy(api=ask_somebody),                              # text in, text out
    }
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from numbers import Real
from typing import TYPE_CHECKING

from torch import nn

from pettingllms_envs.suggestions import did_you_mean
from pettingllms_trl.records import role_of


if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

BASE = "base"
"""Name of the policy that is the trainer's model itself."""
REFERENCE = "ref-"
"""Begins the name of the frozen copy of an adapter, to which its KL divergence is taken."""
PARTS = ("weight", "base_layer", "modules_to_save", "original_module")
"""Words in the names of PEFT's parameters: given the state dict of several adapters, it would tell them by these."""
_NAME, _BIAS_OR_NORM = re.compile("[A-Za-z0-9_-]+"), re.compile("bias|layernorm|rmsnorm|(^|_)norm$")

Api = Callable[..., str]
"""Chat messages to a reply: `api(messages)`, and `api(messages, tools=[...])` for a prompt with tools. One that takes
`max_tokens` is given those of a prompt that limits its reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A policy of one or several agents. With neither `adapter`, `model` nor `api` it is the trainer's model itself.

    Args:
        adapter: Name of a LoRA adapter on the trainer's model; also the policy's name.
        model: Id, path or object of a full model of its own, possibly of another architecture. An object that is given
            to several policies is copied for each.
        api: A function from messages to a reply, such as an OpenAI-compatible client (`engines/api.py`). Up to
            `args.num_threads` calls run concurrently. An exception ends the run, so retry inside. Never trained.
        name: Of the policy in metrics and of its folder, but for an adapter. Empty: the agent or role it first plays.
        tokenizer: The policy's tokenizer, with its chat template: an object, id or path. `None`: that of its model.
        trainable: `False` freezes the policy: it has no gradient and no optimizer state, plays without dropout, and
            its decisions are never trained on.
        learning_rate: Peak learning rate. `None`: `args.learning_rate`. The scheduler acts on both.
        max_grad_norm: Largest gradient norm. `None`: `args.max_grad_norm`.
        beta: Weight of the KL divergence from the weights it starts with. `None`: `args.beta`.
    """

    adapter: str | None = None
    model: str | PreTrainedModel | None = None
    api: Api | None = None
    name: str = ""
    tokenizer: PreTrainedTokenizerBase | str | None = None
    trainable: bool = True
    learning_rate: float | None = None
    max_grad_norm: float | None = None
    beta: float | None = None

    def __post_init__(self) -> None:
        kinds = [kind for kind in ("adapter", "model", "api") if getattr(self, kind) is not None]
        if len(kinds) > 1:
            raise ValueError(
                f"a Policy has {' and '.join(kinds)}, expected one at most: an adapter is on the trainer's model, a "
                "model is full and its own, an api has no weights here. Leave out all but one."
            )
        if self.name and self.model is None and self.api is None:
            raise ValueError(
                f"a Policy has name={self.name!r}, but neither model nor api; an adapter's policy bears its name, and "
                f"the trainer's model itself is {BASE!r}. Leave name out."
            )
        if not isinstance(self.trainable, bool):
            raise ValueError(f"a Policy has trainable={self.trainable!r}, expected a boolean. Write true or false.")
        for setting in ("learning_rate", "max_grad_norm", "beta"):
            value = getattr(self, setting)
            if value is None:
                continue
            if not self.is_trained:
                why = "trainable=False" if self.api is None else "an api"
                raise ValueError(
                    f"a Policy has {setting}={value} and {why}, but only a policy that is trained has a {setting}. "
                    "Leave one of them out."
                )
            is_number = isinstance(value, Real) and not isinstance(value, bool)
            if not is_number or not value >= 0 or (setting == "max_grad_norm" and value == 0):
                raise ValueError(
                    f"a Policy has {setting}={value!r}, expected a positive number. Change it, or leave it out for "
                    f"args.{setting}."
                )
        if self.api is not None and self.tokenizer is not None:
            raise ValueError("a Policy has an api and a tokenizer, but an api is given text. Leave the tokenizer out.")
        if not self.name and self.model is None and self.api is None:
            object.__setattr__(self, "name", BASE if self.adapter is None else self.adapter)

    @property
    def is_trained(self) -> bool:
        return self.trainable and self.api is None

    @property
    def is_base(self) -> bool:
        """Whether it is the trainer's model itself, without an adapter."""
        return self.adapter is None and self.model is None and self.api is None


@dataclass(frozen=True)
class Routing:
    """The policies of a run, and which agent uses which.

    Args:
        policies: The distinct policies, each with its name, in the order of the agents that first use them.
    """

    policies: tuple[Policy, ...]
    of_agent: Mapping[str, str]

    @cached_property
    def trained(self) -> tuple[Policy, ...]:
        return tuple(policy for policy in self.policies if policy.is_trained)

    @property
    def partners(self) -> tuple[str, ...]:
        """Agents whose policy is frozen or an API."""
        trained = {policy.name for policy in self.trained}
        return tuple(agent for agent, name in self.of_agent.items() if name not in trained)

    @property
    def full(self) -> tuple[Policy, ...]:
        """Those with a model of their own."""
        return tuple(policy for policy in self.policies if policy.model is not None)

    @property
    def adapters(self) -> tuple[str, ...]:
        return tuple(policy.adapter for policy in self.policies if policy.adapter is not None)

    @cached_property
    def trained_adapters(self) -> tuple[str, ...]:
        return tuple(policy.adapter for policy in self.trained if policy.adapter is not None)

    @property
    def base(self) -> Policy | None:
        """The policy that is the trainer's model itself."""
        return next((policy for policy in self.policies if policy.is_base), None)

    @property
    def uses_model(self) -> bool:
        """Whether any policy is the trainer's model or an adapter on it."""
        return bool(self.adapters) or self.base is not None


def route(
    policies: str | Mapping[str, str | Policy],
    agents: Sequence[str],
    *,
    model: str | PreTrainedModel | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
) -> Routing:
    """Resolve the user's `policies=` for the environment's agents.

    Several agents have one policy where they are given the same adapter, the same name, or the same object. Two
    `Policy` objects without a name are two policies, even if their settings are equal.

    Args:
        policies: The name of a layout, or a mapping by agent or role.
    """
    table = _table(policies, agents, model, tokenizer)
    check_names(table, agents, "policies names")
    names: dict[int, str] = {}
    by_name: dict[str, Policy] = {}
    of_agent: dict[str, str] = {}
    for agent in agents:
        key = agent if agent in table else role_of(agent)
        if key not in table:
            raise ValueError(f"policies leaves out the agent {agent!r}. Give every agent, or its role, an adapter.")
        given = table[key]
        if given == "":
            raise ValueError(f"policies gives {agent!r} an adapter without a name. Name it: policies={{role: name}}.")
        policy = Policy(adapter=given) if isinstance(given, str) else given
        if not policy.name:
            policy = replace(policy, name=names.setdefault(id(given), key))
        _check_name(policy, agent)
        if by_name.setdefault(policy.name, policy) != policy:
            differ = [
                f.name for f in fields(Policy) if getattr(policy, f.name) != getattr(by_name[policy.name], f.name)
            ]
            raise ValueError(
                f"the name {policy.name!r} is given to two policies that differ in {', '.join(differ)}, expected one "
                "policy for one name. Name one otherwise, or give both the same settings."
            )
        of_agent[agent] = policy.name
    routing = Routing(tuple(by_name.values()), of_agent)
    if routing.base is not None and routing.base.is_trained and routing.adapters:
        raise ValueError(
            f"policies gives {_agents_of(BASE, of_agent)} the model itself to train, and "
            f"{_agents_of(routing.adapters[0], of_agent)} the adapter {routing.adapters[0]!r} on it; an adapter is "
            "trained for a base that stands still. Freeze the base (Policy(trainable=False)), name an adapter for "
            "every agent, or use policies='shared'."
        )
    return routing


def _table(
    policies: str | Mapping[str, str | Policy],
    agents: Sequence[str],
    model: str | PreTrainedModel | None,
    tokenizer: PreTrainedTokenizerBase | None,
) -> Mapping[str, str | Policy]:
    roles = dict.fromkeys(map(role_of, agents))
    if not isinstance(policies, str):
        return policies
    if policies == "shared":
        return dict.fromkeys(roles, Policy())
    if policies == "lora":
        return {role: role for role in roles}
    if policies == "full":
        if model is None:
            raise ValueError(
                "policies='full' trains a copy of the model for each role, but model is None. Set "
                "model='Qwen/Qwen3-0.6B', say."
            )
        return {role: Policy(name=role, model=model, tokenizer=tokenizer) for role in roles}
    raise ValueError(
        f"policies={policies!r}, expected 'shared', 'lora', 'full', or a dict from agents or roles to adapters or "
        "policies. Choose one."
    )


def check_names(given: Iterable[str], agents: Sequence[str], what: str) -> None:
    """Raise `ValueError` for a name that no agent or role has; `what` begins the error."""
    known = {*agents, *map(role_of, agents)}
    for name in given:
        if name not in known:
            raise ValueError(
                f"{what} {name!r}, but the environment has the agents {', '.join(agents)}.{did_you_mean(name, known)} "
                "Name an agent, or a role (the agent's name without its number)."
            )


def _check_name(policy: Policy, agent: str) -> None:
    name = policy.name
    what, cure = "policy", "Policy(name=...)"
    allowed = _NAME.fullmatch(name) is not None
    also = ""
    if policy.adapter is not None:
        # PEFT keys its module dicts by the name and finds adapters in a state dict by '.<name>.'; one whose name is a
        # part of 'lora_', as 'a' is, it may initialise again when it loads.
        what, cure = "adapter", "policies={role: name, ...}"
        allowed = allowed and not name.startswith(("lora", REFERENCE)) and name not in "lora_" and name not in PARTS
        also = (
            f", do not begin with 'lora' or {REFERENCE!r} and take no part of 'lora_', nor a word of PEFT's parameter "
            f"names ({', '.join(PARTS)})"
        )
    if not policy.is_base:
        allowed = allowed and name != BASE
    holds = policy.model is not None or policy.adapter is not None
    if holds and hasattr(nn.ModuleDict(), name):  # the key under which `multi_model.py` or PEFT holds it
        allowed, also = False, f", but no attribute of nn.ModuleDict as {name!r} is"
    # transformers takes weight decay off parameters by their names.
    allowed = allowed and not _BIAS_OR_NORM.search(name)
    if not allowed:
        raise ValueError(
            f"{what} name {name!r} of agent {agent!r}: use letters, digits, '_' and '-'{also}; not {BASE!r}, nor what "
            f"transformers takes for a bias or a norm. Choose another: {cure}."
        )


def _agents_of(name: str, of_agent: Mapping[str, str]) -> str:
    return ", ".join(repr(agent) for agent, policy in of_agent.items() if policy == name)
