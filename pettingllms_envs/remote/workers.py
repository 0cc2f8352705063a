"""What `env_workers` says: where environments are played, checked before Ray starts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any


OPTIONS: dict[str, Any] = {"max_restarts": -1, "max_concurrency": 128, "scheduling_strategy": "SPREAD"}  # of an actor


def options_of(workers: Any) -> dict[str, Any]:
    """The mapping that it says; `ValueError` if it is none, or its `address` or `actors` have other types."""
    given = workers
    with suppress(ValueError, RecursionError):
        given = json.loads(workers) if isinstance(workers, str) and workers.startswith("{") else workers
    given = {"address": given} if isinstance(given, str) and not given.startswith("{") else given
    if isinstance(given, Mapping):
        address, num = given.get("address", "ray"), given.get("actors", 1)
        if isinstance(address, str) and address and type(num) is int and num > 0:
            return OPTIONS | dict(given)
    raise ValueError(
        f"env_workers is {workers!r}; expected 'ray', the address of a cluster, or a mapping (JSON on a command line) "
        'with a text and a number from 1, such as {"address": "auto", "actors": 16}.'
    )
