"""How seeds become instances: seeded random numbers, splits that symmetry cannot cross."""

from __future__ import annotations

import hashlib
import random

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
