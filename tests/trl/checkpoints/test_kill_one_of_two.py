"""kill -9 of one of two processes with a vLLM engine each: the other one ends, and a new run goes on from there."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import pytest
import torch

from launches import free_port
from mortal_ranks import STEPS, live


NUM_KILLS = 10
SECONDS = 30.0
"""Within which the other process has ended."""
# A clean process imports torch, TRL and vLLM once; each run is forked from it.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["pettingllms_trl.trainer.trainer", "pettingllms_trl.engines.vllm_colocated"])

pytestmark = [pytest.mark.slow, pytest.mark.vllm]


class Lives:
    """Two processes of a run, from its newest checkpoint to its end or their death."""

    def __init__(self, model: str, path: Path, *, slowly: bool = False) -> None:
        path.mkdir(exist_ok=True)
        port = free_port()
        pipes = [CONTEXT.Pipe(duplex=False) for _ in range(2)]
        self._hears: list[Connection] = [hears for hears, _ in pipes]
        self._processes = [
            CONTEXT.Process(target=live, args=(model, path, port, i, says, slowly))
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


def test_runs_of_which_a_process_is_killed_sample_what_one_does_that_is_not_and_nobody_hangs(
    whole: Path, base_path: str, tmp_path: Path
) -> None:
    rng = random.Random(3)
    expected = {name.partition(".")[0]: sampled for name, sampled in ids(whole).items()}
    num_kills = num_in_a_save = num_runs = num_resumed = num_generations = 0
    waits: list[float] = []
    while num_kills < NUM_KILLS:
        path, statuses = tmp_path / f"run {num_runs}", [1, 1]
        while statuses != [0, 0]:
            num_resumed += any(path.glob("run/checkpoint-*"))
            in_a_save = num_in_a_save < NUM_KILLS // 2
            lives = Lives(base_path, path, slowly=in_a_save)
            killed = rng.randrange(2)
            words = ["saving"] * rng.randint(1, 3) if in_a_save else ["training", *["saved"] * rng.randint(1, 2)]
            if num_kills < NUM_KILLS and all(lives.says(killed, word) for word in words):
                time.sleep(rng.uniform(0, 0.1 if in_a_save else 1.0))
                lives.kill(killed)
            statuses, seconds = lives.end()
            if statuses != [0, 0]:
                assert statuses[killed] == -signal.SIGKILL
                waits.append(seconds)
                num_kills += 1
                num_in_a_save += lives.last_words[killed] == "saving"
        for name, sampled in ids(path).items():
            assert sampled == expected[name.partition(".")[0]], name
            num_generations += 1
        one, other = (torch.load(run / "weights.pt") for run in (whole, path))
        assert max(float((one[name] - other[name]).abs().max()) for name in one) <= 1e-6
        assert len({name.partition(".")[0] for name in ids(path)}) == STEPS // 2
        num_runs += 1
    print(
        f"\n{num_kills} kills, {num_in_a_save} in a save, {num_resumed} resumptions, {num_runs} runs; all "
        f"{num_generations} generations have the ids of a run never killed; the other process ended after at most "
        f"{max(waits):.1f} s"
    )
    assert num_in_a_save >= NUM_KILLS // 2
