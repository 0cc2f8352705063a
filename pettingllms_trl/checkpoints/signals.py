"""Graceful stop on SIGTERM and Ctrl-C: the first lets the step finish and be saved, the second ends the process."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from types import FrameType
from typing import Any, Self


class StopSignals:
    """A context manager that records the first SIGTERM or SIGINT and restores the previous handlers for the second.

    It does nothing outside the main thread, where Python allows no handlers, and for signals that are ignored.
    """

    GRACE_SECONDS = 1.0
    """Seconds within which a repeated signal is ignored: a launcher may forward one that the whole group received."""

    def __init__(self) -> None:
        self.received: str | None = None
        self._at = -math.inf
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        while self._before:
            number, handler = self._before.popitem()
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _note(self, number: int, _: FrameType | None) -> None:
        if self.received is None:
            self.received, self._at = signal.Signals(number).name, time.monotonic()
            # Past Python's buffers, which the signal may have interrupted.
            os.write(2, f"\n{self.received}: ends this step, saves and stops; once more to stop at once\n".encode())
        elif time.monotonic() - self._at > self.GRACE_SECONDS:
            self.__exit__()
            signal.raise_signal(number)
