"""The environments of this package. Each has a door, `<name>_v<N>.py`, which is imported when it is made."""

from __future__ import annotations

import os
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
    found = (VERSIONED.fullmatch(file.removesuffix(".py")) for file in sorted(os.listdir(Path(__file__).parent)))
    return tuple((door[1], int(door[2]), f"{__package__}.{door[0]}") for door in found if door)


def register() -> None:
    """Register them with `pettingzoo.make` and `gymnasium.make`, without importing them."""
    for registered, module in ((f"pettingllms/{name}-v{version}", module) for name, version, module in doors()):
        pettingzoo.register("aec", registered, f"{module}:env")
        pettingzoo.register("parallel", registered, f"{module}:parallel_env")
        gymnasium.register(registered, f"{__package__}.single_agent:make_single", kwargs={"env": registered})
