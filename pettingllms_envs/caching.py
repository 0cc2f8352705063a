"""What was found before: a bounded dictionary that forgets what was used longest ago. For threads and forks."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import wraps
from typing import Generic, ParamSpec, TypeVar


K = TypeVar("K")
P = ParamSpec("P")
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
        _forget_oldest(self._values, self._size)

    def __len__(self) -> int:
        return len(self._values)


class _Call(Generic[V]):
    """A call that is under way, or what it gave."""

    __slots__ = ("given", "over", "pid")

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.over = threading.Event()
        self.given: tuple[V] | None = None


def remembered(size: int) -> Callable[[Callable[P, V]], Callable[P, V]]:
    """`functools.lru_cache` for threads: a call that another thread is computing waits for its result.

    Arguments are positional. Exceptions are not cached: a thread that waited for a call that raised makes the call
    itself. In a fork, calls that were running in the parent are repeated, since the thread that computed them is not
    there.
    """

    def of(function: Callable[P, V]) -> Callable[P, V]:
        calls: dict[object, _Call[V]] = {}

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> V:
            assert not kwargs, "arguments that are remembered are positional"
            while True:
                mine: _Call[V] = _Call()
                known = calls.setdefault(args, mine)
                if known is not mine:
                    if known.pid == os.getpid():
                        known.over.wait()
                    if known.given is not None:
                        return known.given[0]
                    if calls.get(args) is known:
                        calls.pop(args, None)
                    continue
                try:
                    mine.given = (function(*args, **kwargs),)
                finally:
                    if mine.given is None:
                        calls.pop(args, None)
                    mine.over.set()
                _forget_oldest(calls, size)
                return mine.given[0]

        return call

    return of


def _forget_oldest(values: dict[K, V], size: int) -> None:
    while len(values) > size:
        try:
            values.pop(next(iter(values)), None)
        except (StopIteration, RuntimeError):  # another thread was quicker
            return
