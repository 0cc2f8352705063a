"""How seeds become instances: seeded random numbers, splits that symmetry cannot cross, published test sets."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from pettingllms_envs.core import SPLITS


def seeded(*parts: object) -> random.Random:
    """Random numbers that the parts decide (task, version, settings, split, level, seed), in every process alike."""
    return random.Random(" ".join(map(str, parts)))


def split_of(form: bytes) -> str:
    """The split of an instance, 80/10/10 by SHA-256.

    Args:
        form: Something that all symmetric copies of the instance have in common, such as its canonical form; then
            no instance of one split has a copy in another.
    """
    bucket = int.from_bytes(hashlib.sha256(form).digest()[:8], "big") % 10
    return SPLITS[0] if bucket < 8 else SPLITS[bucket - 7]


def test_set(name: str) -> list[dict[str, Any]]:
    """The published test set of a game, 200 instances at its default settings, as rows for `reset` or a data set.

    Each row has `seed`, `split` (`"test"`) and `level`; `env.reset(seed=row["seed"], options=row)` without the seed in
    the options plays it. `published` has the instances themselves.

    Raises:
        ValueError: The task has no published test set, or the file was modified.
    """
    return [{field: row[field] for field in ("seed", "split", "level")} for row in published(name)]


@cache
def published(name: str) -> tuple[Mapping[str, Any], ...]:
    """The rows of a published test set with their instances: seed, split, level, board, optimal, digest.

    Args:
        name: With or without the version, such as `"sokoban_v0"`; without it the first one.
    """
    name = name if "_v" in name else f"{name}_v0"
    folder = resources.files(__package__) / "data"
    sums = [line.split() for line in (folder / "SHA256SUMS").read_text("ascii").splitlines()]
    digests = {file: digest for digest, file in sums}
    file = f"{name}_test.jsonl"
    if file not in digests:
        known = ", ".join(known.removesuffix("_test.jsonl") for known in digests)
        raise ValueError(f"no published test set of {name!r}; there are those of {known}.")
    body = (folder / file).read_bytes()
    if hashlib.sha256(body).hexdigest() != digests[file]:
        raise ValueError(f"{file} is not the file that was published. Install the package anew.")
    return tuple(json.loads(line) for line in body.decode("ascii").splitlines())
