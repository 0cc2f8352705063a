"""Names the player of a run: a model, a team, or an agent for each role. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


Identity = Mapping[str, Any]
"""What `run.json` says of an agent: `AgentSpec.identity`."""

WHO = ("kind", "target", "adapter", "team", "base_url", "sha256")
"""What plays, of an agent's identity; the rest are options."""


def player_of(config: Mapping[str, Any], *, brief: bool = False) -> str:
    """The player's name, such as `"Qwen/Qwen3-1.7B"`, `"oracle"`, a team's folder or `"drafter=oracle planner=big"`.

    With `brief` it is without the owner of a model, and without roles.
    """
    if (agents := _identities(config)) is None:
        return "-"
    roles = config.get("roles") or {}
    named: dict[str, str] = {}
    for agent, identity in agents.items():
        role = str(roles.get(agent, agent))
        alike = [other for other in agents if roles.get(other, other) == role]
        same = all(agents[other] == identity for other in alike)
        named[role if same else agent] = _name(identity, brief=brief)
    names = list(dict.fromkeys(named.values()))
    if len(names) == 1:
        return names[0]
    return "+".join(names) if brief else " ".join(f"{role}={name}" for role, name in named.items())


def _identities(config: Mapping[str, Any]) -> Mapping[str, Identity] | None:
    """The agents, if a configuration has them as `pettingllms bench` writes them."""
    agents = config.get("agents")
    known = isinstance(agents, Mapping) and all(isinstance(each, Mapping) for each in agents.values())
    return agents if known else None


def _name(identity: Identity, *, brief: bool) -> str:
    if team := identity.get("team"):
        return _last(str(team))
    target = identity.get("target")
    if target is None or identity.get("kind") in ("scripted", "recorded", "bot"):
        return str(identity.get("kind")) if target is None or brief else f"{identity['kind']}:{target}"
    model = _last(str(target)) if brief or str(target).count("/") > 1 else str(target)
    return f"{model}+{_last(str(identity['adapter']))}" if identity.get("adapter") else model


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2] or path


def is_same_player(
    config: Mapping[str, Any], other: Mapping[str, Any], *, may_differ_in_options: bool = False
) -> bool:
    """Whether two runs have the same agents: in the roles that both have, and else all of them together.

    Args:
        may_differ_in_options: Whether only what plays counts, and no option such as the temperature.
    """
    ours, theirs = (_by_role(each, WHO if may_differ_in_options else None) for each in (config, other))
    if any(ours[role] != theirs[role] for role in ours.keys() & theirs.keys()):
        return False
    of_team = ("target", "adapter", "sha256")  # which differ by role
    sets = [
        {
            json.dumps({key: value for key, value in agent.items() if not (agent.get("team") and key in of_team)})
            for own in found.values()
            for agent in own
        }
        for found in (ours, theirs)
    ]
    return sets[0] == sets[1]


def _by_role(config: Mapping[str, Any], keys: Sequence[str] | None) -> dict[str, list[dict[str, Any]]]:
    """The identities of each role's agents, or these keys of them."""
    found: dict[str, list[dict[str, Any]]] = {}
    roles = config.get("roles") or {}
    for name, agent in (_identities(config) or {}).items():
        kept = {key: agent[key] for key in sorted(agent) if keys is None or key in keys}
        found.setdefault(str(roles.get(name, name)), []).append(kept)
    return found


def labels(groups: Sequence[Sequence[Mapping[str, Any]]]) -> list[list[str]]:
    """A name for the player of each run, such that in each group two that differ have different names.

    Where a model played twice in a group, as with another temperature or on another server, the options in which it
    differs there are added to its name in all groups.
    """
    options: dict[str, dict[str, None]] = {}
    for group in groups:
        alike: dict[str, list[dict[str, str]]] = {}
        for config in group:
            alike.setdefault(player_of(config), []).append(options_of(config))
        for name, flats in alike.items():
            keys = dict.fromkeys(key for flat in flats for key in flat)
            differing = [key for key in keys if len({flat.get(key) for flat in flats}) > 1]
            options.setdefault(name, {}).update(dict.fromkeys(differing))
    return [[_with_options(config, options[player_of(config)]) for config in group] for group in groups]


def _with_options(config: Mapping[str, Any], options: Mapping[str, None]) -> str:
    own = options_of(config)
    said = ", ".join(f"{key}={own[key]}" for key in options if key in own)
    return f"{player_of(config)} ({said})" if said else player_of(config)


def options_of(config: Mapping[str, Any]) -> dict[str, str]:
    """The seed, and the agents' options: `temperature` where all agents agree, else `planner_0.temperature`."""
    agents = _identities(config) or {}
    found = {"seed": str(config.get("seed"))}
    for option in dict.fromkeys(key for identity in agents.values() for key in identity):
        values = {agent: _text(identity.get(option)) for agent, identity in agents.items()}
        if len(set(values.values())) == 1:
            found[option] = next(iter(values.values()))
        else:
            found |= {f"{agent}.{option}": value for agent, value in values.items()}
    return found


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
