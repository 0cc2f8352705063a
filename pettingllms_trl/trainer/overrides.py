"""`override_args`: attributes that are other for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def override_args(args: Any, **values: Any) -> Iterator[None]:
    """Temporarily change attributes, such as arguments that are handled here and hidden from TRL's constructor."""
    before = {name: getattr(args, name) for name in values}
    for name, value in values.items():
        setattr(args, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(args, name, value)
