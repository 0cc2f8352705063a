"""`team.json`: the policies of a saved team and their agents, read by `pettingllms bench --team FOLDER`.

    {"format": 1, "environment": "plan_path_v0", "step": 200,
     "agents": {"drafter_0": {"policy": "drafter", "history": "none", "sampling": {"temperature": 1.0, ...}}, ...},
     "policies": {"drafter": {"kind": "adapter", "folder": "drafter", "base": "Qwen/Qwen3-1.7B", "revision": null},
                  ...}}

`folder` is relative to the team's; null if the weights are not in it. `base` is the base model of an adapter, or a
model that is used but not saved.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pettingllms_trl.policies.routing import Policy, Routing
from pettingllms_trl.role_sampling import SamplingOverrides


TEAM = "team.json"
FORMAT = 1


def team_facts(
    *,
    environment: str,
    step: int,
    routing: Routing,
    bases: Mapping[str, tuple[str, str | None]],
    sampling: Mapping[str, Mapping[str, Any]],
    histories: Mapping[str, str],
    root: str | None = None,
) -> dict[str, Any]:
    """The content of `team.json`.

    Args:
        environment: Name of the environment that the team was trained on.
        step: Number of optimizer steps done.
        routing: The policy of each agent.
        bases: For each policy with weights, the id or path and the revision of its model or of its adapter's base.
        sampling: Sampling settings of each agent, see `sampling_of`.
        histories: `history` of the agents that have one.
        root: `"model"` or `"adapter"` if the trainer's model is saved in the team's folder itself, else None.
    """
    return {
        "format": FORMAT,
        "environment": environment,
        "step": step,
        "agents": {
            agent: {
                "policy": policy,
                "history": histories.get(agent, "none"),
                "sampling": dict(sampling.get(agent, {})),
            }
            for agent, policy in routing.of_agent.items()
        },
        "policies": {
            policy.name: _policy(policy, bases.get(policy.name, ("", None)), root) for policy in routing.policies
        },
    }


def _policy(policy: Policy, base: tuple[str, str | None], root: str | None) -> dict[str, Any]:
    if policy.api is not None:
        return {"kind": "api", "folder": None, "base": None, "revision": None}
    at_root = policy.is_base and root is not None
    folder = "." if at_root else policy.name if policy.is_trained else None
    is_adapter = policy.adapter is not None or (at_root and root == "adapter")
    saved_whole = folder is not None and not is_adapter
    source, revision = ("", None) if saved_whole else base
    return {
        "kind": "adapter" if is_adapter else "model",
        "folder": folder,
        "base": source or None,
        "revision": revision,
    }


def sampling_of(args: Any, override: SamplingOverrides, chat_template_kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The sampling settings of an agent in training, under the names of `pettingllms bench`.

    Args:
        args: The trainer's.
        override: The agent's sampling overrides.
        chat_template_kwargs: Arguments of every chat template.
    """
    names = {"max_completion_length": "max_tokens"}
    fields = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_completion_length")
    given = {name: getattr(args, name, None) for name in fields}
    given |= {name: value for name, value in (args.generation_kwargs or {}).items() if name in given}
    given |= override.given()
    found = {names.get(name, name): value for name, value in given.items() if value is not None}
    if not found.get("min_p"):
        found.pop("min_p", None)
    if found.get("repetition_penalty") == 1.0:
        del found["repetition_penalty"]
    if "stop" in found:
        found["stop"] = list(found["stop"])
    if chat_template_kwargs:
        found["extra"] = {"chat_template_kwargs": dict(chat_template_kwargs)}
    return found
