"""Work on every process at once: if it fails on one it raises on all, so that none waits for it in a collective."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, TypeVar, cast

from accelerate import PartialState
from accelerate.utils import gather_object


T = TypeVar("T")


def on_all(work: Callable[[], T]) -> list[T]:
    """Run work on each process and return all results, in the order of the processes. With one process, just run it.

    All processes must call it at the same point. The work must not wait for other processes where it may fail on one.
    With several, its results are copies, its own included; one that cannot be pickled is a failure.

    Raises:
        RuntimeError: It failed on another process. Where it failed itself, it raises what it raised.
    """
    state = PartialState()
    if state.num_processes == 1:
        return [work()]
    packed, error = b"", None
    try:
        packed = pickle.dumps(work())  # here, since it may fail, too: an environment's outcome may be any object
    except Exception as failed:  # noqa: BLE001  # a third-party environment may raise anything; raised again below
        error = failed
    reports = gather_object([(packed, error and f"{type(error).__name__}: {error}")])
    if error is not None:
        raise error
    for process, (_, why) in enumerate(reports):
        if why is not None:
            raise RuntimeError(
                f"process {process} of {state.num_processes} failed: {why}. What it said is in its log."
            )
    return [pickle.loads(packed) for packed, _ in reports]  # of this run's own processes


def on_main(work: Callable[[], T], shared: Iterable[Any] = ()) -> T:
    """Run work on the main process alone, and return its result on all. With one process, just run it.

    Args:
        shared: An iterator that every process has, and of which each takes what is left: to take the next may be
            collective, as where a sharded tensor is gathered.

    Raises:
        RuntimeError: It failed on the main process, which raises what it raised, or `shared` failed on another one.
    """

    def own() -> T | None:
        try:
            return work() if PartialState().is_main_process else None
        finally:  # also where the work failed: the others wait for this process in each of the rest
            for _ in shared:
                pass

    return cast(T, on_all(own)[0])


@contextmanager
def entered_on_all(context: AbstractContextManager[T]) -> Iterator[T]:
    """A context that every process enters and leaves; if one cannot, it raises on all, and those that have leave it.

    What the block raises, it must raise on all.
    """
    entered: list[T] = []
    try:
        on_all(lambda: entered.append(context.__enter__()))
    except BaseException as error:
        if entered:
            context.__exit__(type(error), error, error.__traceback__)
        raise
    try:
        yield entered[0]
    except BaseException as error:
        if not context.__exit__(type(error), error, error.__traceback__):
            raise
    else:
        on_all(partial(context.__exit__, None, None, None))
