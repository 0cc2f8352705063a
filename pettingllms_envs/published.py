"""Published test sets: instances of games that never change, with their digests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

from pettingllms_envs.doors import VERSIONED


_ENDING = "_test.jsonl"


def test_set(name: str) -> list[dict[str, Any]]:
    """The published test set of a game, 200 instances at its default settings, as rows for `reset` or a data set.

    Each row has `seed`, `split` (`"test"`) and `level`; `env.reset(seed=row["seed"], options=row)` without the seed in
    the options plays it. `published` has the instances themselves.
    """
    return [{field: row[field] for field in ("seed", "split", "level")} for row in published(name)]


@cache
def published(name: str) -> tuple[Mapping[str, Any], ...]:
    """The rows of a published test set with their instances: seed, split, level, board, optimal, digest.

    Args:
        name: With or without the version, such as `"sokoban_v0"`; without it the first one.
    """
    name = name if "_v" in name else f"{name}_v0"
    known = published_files()
    if name not in known:
        raise ValueError(f"no published test set of {name!r}; there are those of {', '.join(known)}.")
    file, digest = known[name]
    body = file.read_bytes()
    if hashlib.sha256(body).hexdigest() != digest:
        raise ValueError(f"{file.name} is not the file that was published. Install the package anew.")
    return tuple(json.loads(line) for line in body.decode("ascii").splitlines())


def published_files() -> dict[str, tuple[Traversable, str]]:
    """The published test sets, each with its SHA-256, by the name of the environment with its version."""
    found: dict[str, tuple[Traversable, str]] = {}
    for folder in sorted((resources.files(__package__) / "environments").iterdir(), key=lambda each: each.name):
        sums = folder / "data" / "SHA256SUMS"
        for line in sums.read_text("ascii").splitlines() if sums.is_file() else ():
            digest, name = line.split()
            if VERSIONED.fullmatch(name.removesuffix(_ENDING)):
                found[name.removesuffix(_ENDING)] = (folder / "data" / name, digest)
    return found
