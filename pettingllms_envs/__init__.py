"""Text tasks for teams of language-model agents, as PettingZoo AEC environments.

    >>> import pettingllms_envs
    >>> env = pettingllms_envs.make("plan_path", size=6)
    >>> env.reset(seed=7, options={"split": "test"})
    >>> env.agent_selection
    'drafter_0'

Importing this package registers every environment with PettingZoo (`pettingzoo.make("aec",
"pettingllms/plan_path-v0")`) by name only: its module is imported when it is made.
"""

from __future__ import annotations

import difflib
import importlib
from typing import TYPE_CHECKING, Any

import pettingzoo


if TYPE_CHECKING:
    from pettingllms_envs.aec import OrderedTextEnv

__all__ = ["list_environments", "make"]

_NEWEST = {"plan_path": 0}


def make(name: str, **kwargs: Any) -> OrderedTextEnv:
    """The newest version of an environment.

    Args:
        name: One of `list_environments()`, such as `"plan_path"`.
        **kwargs: Settings; see `raw_env` of the environment's module, such as `pettingllms_envs.plan_path_v0`.

    Raises:
        ValueError: There is no such environment, or a setting is out of its range.
        TypeError: The environment has no such setting.
    """
    if name not in _NEWEST:
        close = difflib.get_close_matches(str(name), _NEWEST, n=1)
        hint = f"Did you mean {close[0]!r}? " if close else ""
        raise ValueError(f"no environment {name!r}. {hint}There are: {', '.join(list_environments())}.")
    module = importlib.import_module(f"{__name__}.{name}_v{_NEWEST[name]}")
    made: OrderedTextEnv = module.env(**kwargs)
    return made


def list_environments() -> tuple[str, ...]:
    """The names that `make` knows, in alphabetical order."""
    return tuple(sorted(_NEWEST))


def _register() -> None:
    for name, version in _NEWEST.items():
        module = f"{__name__}.{name}_v{version}"
        pettingzoo.register("aec", f"pettingllms/{name}-v{version}", f"{module}:env")
        pettingzoo.register("parallel", f"pettingllms/{name}-v{version}", f"{module}:parallel_env")


_register()
