"""The environments of this package. Each has a door, `<name>_v<N>.py`, which is imported when it is made."""

from __future__ import annotations

import pkgutil
import re
from functools import cache
from pathlib import Path

import gymnasium
import pettingzoo


VERSIONED = re.compile(r"([a-z]\w*)_v(\d+)", re.ASCII)
"""The form of an environment's name with its version, and of its door's."""


@cache
def doors() -> tuple[tuple[str, int, str], ...]:
    """Name, version and module of each, found by listing: a new environment needs no line elsewhere."""
    found = (VERSIONED.fullmatch(module.name) for module in pkgutil.iter_modules([str(Path(__file__).parent)]))
    return tuple((door[1], int(door[2]), f"{__package__}.{door[0]}") for door in found if door)


def register() -> None:
    """Register them with `pettingzoo.make` and `gymnasium.make`, without importing them."""
    for name, version, module in doors():
        pettingzoo.register("aec", f"pettingllms/{name}-v{version}", f"{module}:env")
        pettingzoo.register("parallel", f"pettingllms/{name}-v{version}", f"{module}:parallel_env")
        # Also those without a form for one agent, since making them says so.
        made_by = f"{__package__}.single_agent:make_single"
        gymnasium.register(f"pettingllms/{name}-v{version}", made_by, kwargs={"env": f"{name}_v{version}"})
