"""The sandboxes that a process shares: one for each set of packages, started at the first use."""

from __future__ import annotations

from functools import cache

from pettingllms_envs.sandbox.sandbox import Sandbox


def default(imports: tuple[str, ...] = ()) -> Sandbox:
    """The process's shared sandbox whose programs may import these packages, with a slot for each core."""
    return _shared(tuple(imports))


@cache
def _shared(imports: tuple[str, ...]) -> Sandbox:
    return Sandbox(imports=imports)
