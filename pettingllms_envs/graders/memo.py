"""What was found before: a bounded dictionary that forgets what was used longest ago. For threads and forks."""

from __future__ import annotations

from typing import Generic, TypeVar


K = TypeVar("K")
V = TypeVar("V")


class Memo(Generic[K, V]):
    """At most `size` values, by key.

    There is no lock: one that another thread holds while the process forks would never be released in the child. Each
    step is one operation of a dict; threads that race lose a value or its rank, which costs time and nothing else.
    """

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError(f"size is {size}; expected at least 1.")
        self._size = size
        self._values: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        """The value, now the last to be forgotten; None if there is none."""
        value = self._values.pop(key, None)
        if value is not None:
            self._values[key] = value
        return value

    def put(self, key: K, value: V) -> None:
        """Keep a value, and forget the one that was used longest ago if there are too many."""
        self._values[key] = value
        while len(self._values) > self._size:
            try:
                oldest = next(iter(self._values))
            except (StopIteration, RuntimeError):  # another thread was quicker
                return
            self._values.pop(oldest, None)

    def __len__(self) -> int:
        return len(self._values)
