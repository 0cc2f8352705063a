"""A pool of slots that a `Sandbox` lends to threads: started on demand, restarted when they die, ended at exit."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from pettingllms_envs.sandbox.slot import NotStarted, Slot


S = TypeVar("S", bound=Slot)
T = TypeVar("T")


class Pool(Generic[S]):
    """At most `num_slots` slots, each lent to one thread at a time. In a fork of this process the pool is empty."""

    def __init__(self, num_slots: int, make: Callable[[], S]) -> None:
        self.num_slots = num_slots
        self._make = make
        self._slots: set[S] = set()
        self._over = threading.Event()
        self._empty()
        weakref.finalize(self, _stop_all, self._slots, self._over, os.getpid())
        after_fork(self, Pool.forget)

    def _empty(self) -> None:
        self._free = threading.Semaphore(self.num_slots)
        self._lock = threading.Lock()
        self._idle: list[S] = []

    @contextmanager
    def lend(self) -> Iterator[S]:
        """A running slot, once one is free.

        Raises:
            NotStarted: It could not be started.
        """
        with self._free:
            if self._over.is_set():
                raise NotStarted("the interpreter is ending")  # a daemon thread may not have noticed
            with self._lock:
                slot = self._idle.pop() if self._idle else self._make()
                self._slots.add(slot)
            try:
                if not slot.running:
                    slot.start()
                yield slot
            finally:
                with self._lock:
                    self._idle.append(slot)

    def close(self) -> None:
        """Stop all slots. A later call of `lend` starts new ones."""
        with self._lock:
            slots = list(self._idle)
        for slot in slots:
            slot.stop()

    def pids(self) -> list[int]:
        with self._lock:
            return [slot.pid for slot in self._slots if slot.running]

    def forget(self) -> None:
        """Forget all slots in the child of a fork, since they belong to the parent."""
        for slot in self._slots:
            slot.forget()
        self._slots.clear()
        self._empty()


def _stop_all(slots: set[Any], over: threading.Event, owner: int) -> None:
    if os.getpid() == owner:
        over.set()
        for slot in list(slots):
            slot.stop()


def after_fork(owner: T, renew: Callable[[T], None]) -> None:
    """Have a function called with an object in each process that is forked, as long as the object is there."""
    owned = weakref.ref(owner)
    if sys.platform != "win32":  # which has no forks
        os.register_at_fork(after_in_child=lambda: None if (alive := owned()) is None else renew(alive))
