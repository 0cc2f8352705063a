"""Runs the jobs of a study in worker processes: what a job needs first, then in the given order, as many as allowed.

A `Schedule` decides which job is next; each worker process has a thread here, which hands it one job after another.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
"""Of each worker process, however many there are: sums of several threads are rounded differently."""
Answer = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Something that a worker does, once the jobs that it needs are done."""

    name: str
    needs: tuple[str, ...]
    request: Callable[[], Mapping[str, Any]] = field(repr=False)


class Schedule:
    """Which job is next. Its methods may be called on several threads.

    Args:
        jobs: In the order in which they are started.
        done: Names of those that are done, and of other jobs that these may need.
        seconds: After which no further job is started; `None`: no limit.
    """

    def __init__(self, jobs: Sequence[Job], done: Collection[str], *, seconds: float | None = None) -> None:
        self._waiting = [job for job in jobs if job.name not in done]
        self._done, self._running = set(done), set[str]()
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._changed = threading.Condition()
        self._is_stopped = False

    def next(self) -> Job | None:
        """The next job, once one is ready; `None` if none will be, or no more are to be started."""
        with self._changed:
            while not self._is_over():
                for job in self._waiting:
                    if self._done.issuperset(job.needs):
                        self._waiting.remove(job)
                        self._running.add(job.name)
                        return job
                if not self._running:
                    return None
                self._changed.wait()
            return None

    def _is_over(self) -> bool:
        return self._is_stopped or (self._deadline is not None and time.monotonic() >= self._deadline)

    def finish(self, job: Job, *, is_done: bool) -> None:
        """A job has ended; if it is not done, what needs it is not started."""
        with self._changed:
            self._running.discard(job.name)
            if is_done:
                self._done.add(job.name)
            self._changed.notify_all()

    def stop(self) -> None:
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    @property
    def waiting(self) -> list[Job]:
        """Jobs that were not started."""
        with self._changed:
            return list(self._waiting)


class Worker:
    """A worker process with further environment variables, started when it is first needed."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._process: subprocess.Popen[str] | None = None
        self._lock, self._is_stopped = threading.Lock(), False

    def ask(self, request: Mapping[str, Any]) -> Answer:
        """Hand it a request and wait for the answer."""
        with self._lock:
            if self._is_stopped:
                return {"status": "stopped"}
            process = self._started()
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            self.close()
            status = process.returncode
            own = "stopped" if status in (143, -signal.SIGTERM) else "failed"
            return {"status": own, "error": f"the worker process ended with status {status}"}
        answer: Answer = json.loads(line)
        return answer

    def _started(self) -> subprocess.Popen[str]:
        """The process; a new one if there is none, or if it has ended."""
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "pettingllms_trl.research.study.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, **self._environ},
                start_new_session=True,  # Ctrl-C reaches this process alone, which tells the workers
            )
        return self._process

    def stop(self) -> None:
        with self._lock:
            self._is_stopped = True
            if self._process is not None and self._process.poll() is None:
                self._process.terminate()

    def close(self) -> None:
        """Let it end, if it is idle, and wait until it has."""
        if self._process is not None:
            with self._process:  # closes the pipes, and waits
                pass


def run(schedule: Schedule, *, num_workers: int, report: Callable[[Job, Answer, float], None]) -> bool:
    """Run jobs until none is left, and return whether a signal ended it.

    SIGINT and SIGTERM end it once the running jobs have saved a checkpoint.

    Args:
        num_workers: Processes at once, each with one thread.
        report: Called with each answer, and the seconds that it took.
    """
    workers = [Worker(ONE_THREAD) for _ in range(num_workers)]
    stopped = threading.Event()

    def serve(worker: Worker) -> None:
        while (job := schedule.next()) is not None:
            began = time.monotonic()
            answer = _answer(worker, job)
            schedule.finish(job, is_done=answer["status"] == "done")
            report(job, answer, time.monotonic() - began)
        worker.close()

    threads = [threading.Thread(target=serve, args=(worker,), daemon=True) for worker in workers]
    with _on_signals(stopped.set):
        for thread in threads:
            thread.start()
        told = False
        while any(thread.is_alive() for thread in threads):
            if stopped.is_set() and not told:
                told = True
                schedule.stop()
                for worker in workers:
                    worker.stop()
            next((thread for thread in threads if thread.is_alive()), threads[0]).join(0.2)
    return stopped.is_set()


def _answer(worker: Worker, job: Job) -> Answer:
    try:
        return worker.ask(job.request())
    except (ValueError, OSError) as error:  # of making the request: a result on disk is damaged, or of another study
        return {"status": "failed", "error": str(error)}


@contextmanager
def _on_signals(do: Callable[[], None]) -> Iterator[None]:
    """Call a function on SIGINT and SIGTERM, in the place of what they did before."""
    before = {number: signal.signal(number, lambda *_: do()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
