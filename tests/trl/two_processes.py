"""Runs a function in two processes that can talk to each other over gloo, for tests of what processes do together."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import PartialState
from torch import distributed


FORKS = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
"""Marks a test that forks: the processes start in a moment, with torch imported."""
SECONDS = 30.0


def in_two_processes(work: Callable[[int], Any], folder: Path, *, seconds: float = SECONDS) -> list[Any]:
    """What `work(process)` returned in each process, or the exception that it raised.

    Args:
        work: Called in each with its number.
        folder: An empty folder.
        seconds: Within which both must have ended, also where one of them fails.
    """
    context = torch.multiprocessing.get_context("fork")
    processes = [context.Process(target=_run, args=(i, folder, work)) for i in range(2)]
    for process in processes:
        process.start()
    end = time.monotonic() + seconds
    for process in processes:
        process.join(max(0.0, end - time.monotonic()))
    late = [i for i, process in enumerate(processes) if process.is_alive()]
    for process in processes:
        process.kill()
        process.join()
    assert not late, f"processes {late} were still at work after {seconds} s"
    return [torch.load(folder / f"{i}.pt", weights_only=False) for i in range(2)]


def _run(process: int, folder: Path, work: Callable[[int], Any]) -> None:
    os.environ |= {"RANK": str(process), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    os.environ |= {"LOCAL_RANK": str(process), "LOCAL_WORLD_SIZE": "2"}
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=process, world_size=2)
    PartialState._reset_state()
    PartialState(cpu=True)
    try:
        result = work(process)
    except Exception as error:  # noqa: BLE001  # which the test looks at
        result = error
    torch.save(result, folder / f"{process}.pt")
    # Not before the other is through with what they do together; and not by way of Python's end, where the tests' own
    # threads and those of gloo, of which a fork has only memories, are waited for.
    distributed.barrier()
    os._exit(0)
