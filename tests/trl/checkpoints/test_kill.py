"""kill -9 again and again: every run goes on from what was saved, to the very weights of a run never interrupted."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from mortal import LIVE, fork, live


NUM_KILLS = 50
KILLS = 10  # in one test
LAST = f"checkpoint-{LIVE['steps']}"

pytestmark = pytest.mark.slow


class Life:
    """A run in a process of its own, from the newest checkpoint to its end or its death."""

    def __init__(self, model_path: str, path: Path, *, slowly: bool = False) -> None:
        self._hears, says = multiprocessing.Pipe(duplex=False)
        self._process = fork(live, model_path, path, says, slowly)
        self._process.start()
        says.close()
        self.last_word = ""

    def says(self, word: str) -> bool:
        """Wait until it says a word, once more if it did before; False where it ends without."""
        try:
            self.last_word = self._hears.recv()
            while self.last_word != word:
                self.last_word = self._hears.recv()
        except EOFError:
            return False
        return True

    def get(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):  # it may have come to its end
            os.kill(self._process.pid, number)

    def end(self) -> int:
        """Wait for its end. Returns its exit status; `last_word` is what it said last."""
        self._process.join()
        self.says("nothing more")
        return self._process.exitcode


def weights(path: Path) -> dict[str, bytes]:
    return {role: (path / LAST / role / "adapter_model.safetensors").read_bytes() for role in ("opener", "closer")}


@dataclass(frozen=True)
class Whole:
    """A run that nothing interrupts, and how long its parts take."""

    weights: dict[str, bytes]
    step_seconds: float
    slow_save_seconds: float


@pytest.fixture(scope="module")
def whole(model_path: str, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    path = tmp_path_factory.mktemp("whole")
    plain = Life(model_path, path / "plain")
    assert plain.says("saved")
    began = time.perf_counter()
    assert plain.says("saved")
    step_seconds = time.perf_counter() - began
    assert plain.end() == 0
    slow = Life(model_path, path / "slow", slowly=True)
    assert slow.says("saving")
    began = time.perf_counter()
    assert slow.says("saved")
    save_seconds = time.perf_counter() - began
    assert slow.end() == 0
    assert weights(path / "slow") == weights(path / "plain")
    return Whole(weights(path / "plain"), step_seconds, save_seconds)


@pytest.mark.parametrize("seed", range(NUM_KILLS // KILLS))
def test_a_run_killed_at_random_moments_half_of_them_in_a_save_ends_with_the_weights_of_one_never_killed(
    seed: int, whole: Whole, model_path: str, tmp_path: Path
) -> None:
    rng = random.Random(seed)
    num_kills = num_in_a_save = num_runs = num_resumed = 0
    while num_kills < KILLS:
        path, status = tmp_path / f"run {num_runs}", -signal.SIGKILL
        while status != 0:
            num_resumed += path.is_dir() and any(path.glob("checkpoint-*"))
            aimed = num_in_a_save <= num_kills / 2
            life = Life(model_path, path, slowly=aimed)
            words = ["saving"] * rng.randint(1, 3) if aimed else ["training"] + ["saved"] * rng.randint(0, 3)
            if all(life.says(word) for word in words):
                time.sleep(rng.uniform(0, whole.slow_save_seconds if aimed else whole.step_seconds))
            life.get(signal.SIGKILL)
            status = life.end()
            assert status in (0, -signal.SIGKILL)
            num_kills += status != 0
            num_in_a_save += status != 0 and life.last_word == "saving"
        assert weights(path) == whole.weights
        assert not list(path.glob("*.corrupt*"))
        num_runs += 1
    print(
        f"{num_kills} kills, {num_in_a_save} in a save, {num_resumed} resumptions, {num_runs} runs to the same weights"
    )
    assert num_in_a_save >= KILLS // 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_process_with_status_0_and_the_next_one_goes_on(
    number: signal.Signals, whole: Whole, model_path: str, tmp_path: Path
) -> None:
    stopped = Life(model_path, tmp_path / "stopped")
    assert stopped.says("saved")
    stopped.get(number)
    assert stopped.end() == 0
    assert not (tmp_path / "stopped" / LAST).exists()
    assert Life(model_path, tmp_path / "stopped").end() == 0
    assert weights(tmp_path / "stopped") == whole.weights
