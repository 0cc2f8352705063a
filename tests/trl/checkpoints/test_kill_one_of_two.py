"""kill -9 of one of two processes with a vLLM engine each: the other one ends, and a new run goes on from there."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from contextlib import suppress
from importlib.util import find_spec
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import pytest
import torch

from launches import free_port
from mortal import fork
from mortal_ranks import STEPS, live


SECONDS = 30.0
"""Within which the other process has ended."""

NEEDS_VLLM = pytest.mark.skipif(find_spec("vllm") is None, reason="needs vllm")

pytestmark = [pytest.mark.slow, pytest.mark.vllm, NEEDS_VLLM]


class Lives:
    """Two processes of a run, from its newest checkpoint to its end or their death."""

    def __init__(self, model: str, path: Path, *, slowly: bool = False) -> None:
        path.mkdir(exist_ok=True)
        port = free_port()
        pipes = [multiprocessing.Pipe(duplex=False) for _ in range(2)]
        self._hears: list[Connection] = [hears for hears, _ in pipes]
        self._processes = [
            fork(live, model, path, port, i, says, slowly, preload=("pettingllms_trl.engines.vllm.colocated",))
            for i, (_, says) in enumerate(pipes)
        ]
        for process, (_, says) in zip(self._processes, pipes, strict=True):
            process.start()
            says.close()
        self.last_words = ["", ""]

    def says(self, process: int, word: str) -> bool:
        """Wait until one of them says a word, once more if it did before; False where it ends without."""
        with suppress(EOFError):
            while True:
                self.last_words[process] = self._hears[process].recv()
                if self.last_words[process] == word:
                    return True
        return False

    def kill(self, process: int) -> None:
        with suppress(ProcessLookupError):  # it may have come to its end
            os.kill(self._processes[process].pid, signal.SIGKILL)

    def end(self) -> tuple[list[int], float]:
        """Wait for the end of both: their exit statuses, and the seconds from the first end to the second."""
        wait([process.sentinel for process in self._processes])
        began = time.monotonic()
        for process in self._processes:
            process.join(SECONDS)
        seconds = time.monotonic() - began
        late = [process for process in self._processes if process.is_alive()]
        for process in late:
            process.kill()
        assert not late, f"a process was still there {seconds:.0f} s after the other one's end"
        for process in range(2):
            self.says(process, "nothing more")
        return [process.exitcode for process in self._processes], seconds


def ids(path: Path) -> dict[str, Any]:
    """The token ids of all candidates, by generation and by who wrote them down."""
    return {
        file.stem: {place: [ids for ids, _ in candidates] for place, (_, candidates) in torch.load(file).items()}
        for file in (path / "sampled").iterdir()
    }


@pytest.fixture(scope="module")
def whole(base_path: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing interrupts."""
    path = tmp_path_factory.mktemp("whole")
    lives = Lives(base_path, path)
    statuses, _ = lives.end()
    assert statuses == [0, 0]
    return path


def killed(life: Lives, process: int, words: list[str], seconds: float) -> bool:
    """Kill a process some seconds after it has said the words. False where the run came to its end before."""
    if not all(life.says(process, word) for word in words):
        return False
    time.sleep(seconds)
    life.kill(process)
    return True


@pytest.mark.parametrize("seed", range(5))
def test_a_run_killed_in_a_save_and_between_saves_samples_what_one_does_that_is_not_and_nobody_hangs(
    seed: int, whole: Path, base_path: str, tmp_path: Path
) -> None:
    rng = random.Random(seed)
    path, waits = tmp_path / "run", []
    for in_a_save, words in ((True, ["saving"] * rng.randint(1, 2)), (False, ["training", "saved"])):
        process = rng.randrange(2)
        life = Lives(base_path, path, slowly=in_a_save)
        assert killed(life, process, words, rng.uniform(0, 0.05 if in_a_save else 1.0))
        statuses, seconds = life.end()
        assert statuses[process] == -signal.SIGKILL
        assert statuses[1 - process] != 0
        assert (life.last_words[process] == "saving") >= in_a_save
        waits.append(seconds)
    statuses, _ = Lives(base_path, path).end()
    assert statuses == [0, 0]
    expected = {name.partition(".")[0]: sampled for name, sampled in ids(whole).items()}
    found = ids(path)
    assert {name.partition(".")[0] for name in found} == expected.keys()
    assert len(expected) == STEPS // 2
    for name, sampled in found.items():
        assert sampled == expected[name.partition(".")[0]], name
    one, other = (torch.load(run / "weights.pt") for run in (whole, path))
    largest = max(float((one[name] - other[name]).abs().max()) for name in one)
    print(
        f"\n{len(found)} generations, weights within {largest:.1e}, the other ended after {max(waits):.1f} s at most"
    )
    assert largest <= 1e-6
