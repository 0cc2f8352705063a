"""Text tasks for teams of language-model agents, as PettingZoo AEC environments.

    >>> import pettingllms_envs
    >>> env = pettingllms_envs.make("plan_path", size=6)
    >>> env.reset(seed=7, options={"split": "test"})
    >>> env.agent_selection
    'drafter_0'

Importing this package registers every environment with PettingZoo and Gymnasium, `"pettingllms/plan_path-v0"` (the
latter's has one agent), by name only: its module is imported when it is made.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from pettingllms_envs.doors import register


if TYPE_CHECKING:
    from pettingllms_envs.from_rows import conversation, function
    from pettingllms_envs.published import test_set
    from pettingllms_envs.registry import find, list_environments, make, recorded_settings
    from pettingllms_envs.single_agent import seat

__all__ = ["conversation", "find", "function", "list_environments", "make", "recorded_settings", "seat", "test_set"]

_MODULES = {"conversation": "from_rows", "function": "from_rows", "seat": "single_agent", "test_set": "published"}

register()

if not TYPE_CHECKING:  # a type checker that sees it takes every misspelt name for an Any

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}. It has: {', '.join(__all__)}.")
        return getattr(importlib.import_module(f"{__name__}.{_MODULES.get(name, 'registry')}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
