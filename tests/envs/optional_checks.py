"""Which checks of the conformance suite do not apply to an environment of this package."""

from __future__ import annotations

from typing import Any

from pettingllms_envs.features import HasChannel
from pettingllms_envs.teams.functions import FunctionWorkflow


def skipped_checks(env: Any) -> list[str]:
    """Names of the checks of features that it does not have, in alphabetical order."""
    does_not_apply = {
        "channel": not isinstance(env.unwrapped.workflow, HasChannel) or env.unwrapped.workflow.channel is None,
        "cooperation": "cooperation" not in env.metadata,
        "images": True,
        "parallel": len(env.possible_agents) > 1,  # they act one after another
        "questions": not isinstance(env.unwrapped.workflow, FunctionWorkflow),
        "tools": getattr(env.unwrapped.workflow, "executor", None) is None,
        "zero sum": env.metadata["competitive"] != "zero_sum",
    }
    return [name for name, is_so in does_not_apply.items() if is_so]
