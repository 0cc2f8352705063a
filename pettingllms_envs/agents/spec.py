"""Parses the specification of an agent, as written on a command line, and assigns agents to roles.

    oracle                                  every role
    drafter=oracle planner=api              a role each
    player_0=api player_1=bot:piers         one of several agents of a role
    planner=api:MODEL,temperature=0.2,stop=</plan>
    planner=transformers:path/to/model,adapter=path/to/adapter
    drafter=scripted:replies.txt  drafter=recorded:outputs/my_run
    team:plan-path-team                     a trained team, each role by its own policy

`[ROLE=]KIND[:TARGET][,OPTION=VALUE]...`; a comma or a backslash in a value is escaped by a backslash.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from pettingllms_envs.agents import file_digest
from pettingllms_envs.agents.base import Agent
from pettingllms_envs.agents.options import NUMBERS
from pettingllms_envs.suggestions import did_you_mean


_ROLE, _KIND = re.compile(r"([A-Za-z]\w*)=(?=[A-Za-z])"), re.compile(r"[A-Za-z]\w*")
_PART, _ESCAPED = re.compile(r"(?:^|(?<=,))((?:\\.|[^,\\])*)(?:,|$)"), re.compile(r"\\(.)")

NON_IDENTITY_OPTIONS = ("timeout", "patience")
"""Options that change how long the client waits, but not the replies."""


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """The specification of an agent.

    Args:
        kind: Kind of agent, such as `"oracle"` or `"api"`.
        target: What follows the colon: a model, a file.
        options: Options by name; numbers are parsed, `stop` is a list of strings, `extra` a mapping.
    """

    kind: str
    target: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that determines its replies, as plain JSON data; `from_identity` reads it."""
        said = {name: value for name, value in sorted(self.options.items()) if name not in NON_IDENTITY_OPTIONS}
        whole = {"kind": self.kind, "target": self.target, **said}
        if self.kind == "scripted" and self.target is not None:
            whole["sha256"] = hashlib.sha256(Path(self.target).read_bytes()).hexdigest()
        if "team" in self.options:  # which may have been trained further
            folder = Path(self.options.get("adapter") or self.target or "")
            whole["sha256"] = file_digest.of_model(folder) if folder.is_dir() else None
        return whole

    def with_defaults(self, defaults: Mapping[str, Any]) -> AgentSpec:
        """A copy with these options added, except those that it has itself."""
        return replace(self, options={**defaults, **self.options})

    def refuse_unknown(self, known: Iterable[str], *, target: str | None) -> None:
        """Raise `ValueError` for an option that its kind does not have."""
        known = tuple(known)
        for name in self.options:
            if name not in known:
                hint = did_you_mean(name, known)
                expected = ", ".join(known) or "none"
                raise ValueError(f"{self.kind} got the option {name!r}; expected one of: {expected}.{hint}")
        if (target is None) != (self.target is None):
            expected = "no target" if target is None else f"{self.kind}:{target}"
            given = self.kind if self.target is None else f"{self.kind}:{self.target}"
            raise ValueError(f"the agent is {given!r}; expected {expected}. Write it so.")


class AgentPool(Protocol):
    """Agents that are ready to reply, and the resources that they hold."""

    @property
    def agents(self) -> Mapping[str, Agent]:
        """The agents, by the names that were requested."""

    @property
    def versions(self) -> Mapping[str, str]:
        """Versions of the libraries that produce the replies."""

    def close(self) -> None:
        """Release their resources."""


AgentFactory = Callable[[Mapping[str, AgentSpec], int], AgentPool]
"""Makes agents from the specs of one kind, by agent, and the number of concurrent requests. May raise `ValueError`.

All specs of a kind are passed together, so that two roles on one model load it once."""


@dataclass(frozen=True, slots=True)
class StatelessAgents:
    """Agents without resources."""

    agents: Mapping[str, Agent]
    versions: Mapping[str, str] = field(default_factory=dict)

    def close(self) -> None:
        """There is nothing to release."""


def parse(text: str) -> tuple[str | None, AgentSpec]:
    """Parse an agent's specification. Returns its role, or None for all roles, and the spec."""
    role = None
    if named := _ROLE.match(text):
        role, text = named[1], text[named.end() :]
    head, *rest = [_ESCAPED.sub(r"\1", part) for part in _PART.findall(text)]
    kind, colon, target = head.partition(":")
    if not _KIND.fullmatch(kind) or (colon and not target):
        raise ValueError(
            f"the agent {text!r} cannot be read; expected [ROLE=]KIND[:TARGET][,OPTION=VALUE]..., such as "
            "planner=api:my-model,temperature=0.2. See `pettingllms bench --help`."
        )
    options: dict[str, Any] = {}
    for part in rest:
        name, equals, value = part.partition("=")
        if not equals:
            raise ValueError(
                f"the agent's option {part!r} has no value; expected OPTION=VALUE. Write a \\ before a "
                "comma that belongs to a value."
            )
        if name == "stop":
            options.setdefault("stop", []).append(value)
        else:
            options[name] = option(name, value)
    return role, AgentSpec(kind, target or None, options)


def option(name: str, value: str) -> Any:
    """Parse the value of an option; `ValueError` if it must be a number or a JSON object, and is not."""
    if name in NUMBERS:
        try:
            number = NUMBERS[name](value)
            if math.isfinite(number):
                return number
            raise ValueError
        except ValueError:
            what = "a whole number" if NUMBERS[name] is int else "a number"
            example = "7" if NUMBERS[name] is int else "0.7"
            raise ValueError(f"{name} is {value!r}; expected {what}. Write {name}={example}.") from None
    if name == "extra":
        try:
            found = json.loads(value)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise ValueError(
                f"extra is {value!r}; expected a JSON object of further fields of the request, such as "
                '{"chat_template_kwargs": {"enable_thinking": false}}.'
            )
        return found
    return value


def from_identity(identity: Mapping[str, Any]) -> AgentSpec:
    """The spec with this `AgentSpec.identity`."""
    options = {name: value for name, value in identity.items() if name not in ("kind", "target", "sha256")}
    return AgentSpec(identity["kind"], identity["target"], options)


def assign(texts: Sequence[str], roles: Mapping[str, str]) -> dict[str, AgentSpec]:
    """The agent that plays each of an environment's agents, from what is written on the command line.

    Args:
        texts: The specifications; one without a role is for all roles that no other names.
        roles: The role of each agent, `{"planner_0": "planner"}`.
    """
    general: AgentSpec | None = None
    own: dict[str, AgentSpec] = {}
    for text in texts:
        role, spec = parse(text)
        if role is None:
            if general is not None:
                raise ValueError(
                    f"the agents {' '.join(texts)} have two for every role; expected one. Name the roles."
                )
            general = spec
            continue
        if role not in {*roles, *roles.values()}:
            known = ", ".join(roles.values())
            raise ValueError(f"there is no role {role!r}; expected one of: {known}. See `pettingllms info ENV`.")
        if role in own:
            raise ValueError(f"the role {role!r} has two agents; expected one. Leave one out.")
        own[role] = spec
    found: dict[str, AgentSpec] = {}
    for agent, role in roles.items():
        played = own.get(agent) or own.get(role) or general
        if played is None:
            raise ValueError(f"no agent plays the role {role!r}; expected an agent for it. Add {role}=oracle, say.")
        found[agent] = played
    return found
