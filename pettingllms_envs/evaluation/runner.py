"""Plays many episodes concurrently, writes each row as its episode ends, and resumes runs that were killed.

Each thread has its own environment. The rows go through one queue to the caller's thread, which writes them as they
come; at the end they are sorted. A row depends on the plan alone and not on the number of threads, so a run that was
killed and resumed has the same rows as an uninterrupted one.
"""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import json
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pettingllms_envs.agents.base import Agent, AgentRefused
from pettingllms_envs.episodes.difference import differing
from pettingllms_envs.episodes.episode import Instance, RunLimits, Stopped, episode
from pettingllms_envs.episodes.files import EPISODES, REPORT, RUN, place, read_header, tidy, write_json, write_line
from pettingllms_envs.episodes.media import remove_images, write_image
from pettingllms_envs.episodes.schema import EpisodeRow
from pettingllms_envs.failures import Unavailable
from pettingllms_envs.observations import Image
from pettingllms_envs.settings import STRICT_FORMAT


MOST_ERRORS_IN_A_ROW = 20
"""A run is stopped after this many errors in a row, or as many as episodes are played concurrently, if that is more:
its server is gone, or its environment is broken."""

LOCK = ".lock"
SECONDS_TO_END = 1.0
"""For threads in the middle of an episode when a run ends. One that waits for a server is left behind."""

ERRORS_OF_ONE_PROMPT = ("refused", "diverged")
"""Kinds of errors that concern one prompt and do not suggest that the next episode will fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The episodes of a run.

    Args:
        make_env: Makes an environment; called once for each thread.
        chosen: The problem and the number of each episode; None: `samples` on each problem, from 0.
    """

    make_env: Callable[[], Any]
    instances: Sequence[Instance]
    samples: int = 1
    rules: RunLimits = RunLimits()  # noqa: RUF009  # frozen
    chosen: Sequence[tuple[Instance, int]] | None = None

    @property
    def places(self) -> Sequence[tuple[Instance, int]]:
        """The problem and the number of each episode."""
        return list(itertools.product(self.instances, range(self.samples))) if self.chosen is None else self.chosen

    @property
    def num_episodes(self) -> int:
        return len(self.places)


class Folder:
    """The locked folder of a run, so that no other process writes its files.

    Raises:
        ValueError: The folder has a run of another configuration, or one that is in progress.
    """

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        self._made = [each for each in (path, *path.parents) if not each.exists()]
        path.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.is_new = not (path / RUN).exists()
        """Whether the run is new; otherwise it is resumed."""
        self._file = path / EPISODES
        self._stream = open(path / LOCK, "a")  # noqa: SIM115  # held as long as the run goes on
        try:
            fcntl.flock(self._stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._stream.close()
            raise ValueError(f"another process writes {path}; expected to be alone. Wait, or name another.") from None
        try:
            if (path / RUN).exists():
                there = read_header(path)
                _check_same(there, header, path)
                if "data" not in there and "data" in header:  # an earlier version did not say what the problems are
                    write_json(path / RUN, {**there, "data": header["data"]})
            elif found := [name for name in (EPISODES, REPORT) if (path / name).exists()]:
                raise ValueError(f"{path} has {found[0]} without {RUN}; expected a run of ours. Name another folder.")
            else:
                write_json(path / RUN, header)
        except BaseException:
            self.close()
            raise

    def taken_up(self) -> list[dict[str, Any]]:
        """The finished rows, light; rows that ended with an error are removed from the file, to be played again."""
        if not self._file.exists():
            return []
        return tidy(self._file, keep=lambda row: row["error"] is None)

    def put_in_order(self) -> list[dict[str, Any]]:
        """Sort the file. Returns all rows, light."""
        return tidy(self._file)

    @contextmanager
    def writing(self) -> Iterator[Callable[[Mapping[str, Any]], None]]:
        """Yield a function that appends a row; a kill loses no appended row."""
        with open(self._file, "ab", buffering=0) as stream:

            def write(row: Mapping[str, Any]) -> None:
                left = memoryview(write_line(row).encode("ascii"))
                try:
                    while left:
                        left = left[stream.write(left) :]
                except OSError as error:  # which does not say of which file
                    raise OSError(error.errno, error.strerror, str(self._file)) from error

            yield write

    def keep(self, image: Image) -> None:
        """Write an image of a prompt; the row that shows it is appended later. Thread-safe."""
        write_image(self.path, image)

    def discard(self) -> None:
        """Remove the run's files, and the folders that were created for them."""
        remove_images(self.path)
        for name in (EPISODES, RUN, REPORT, LOCK):
            (self.path / name).unlink(missing_ok=True)
        with suppress(OSError):  # somebody else has put something there
            for folder in self._made:
                folder.rmdir()

    def close(self) -> None:
        self._stream.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """The result of a run.

    Args:
        rows: Rows of all finished episodes, including earlier ones of the same folder, in order; without prompts and
            replies, which are in the file.
        refused: Whether trying again is useless: an agent can never reply (a wrong key, an unknown model), or the
            environment lacks what it needs on this machine.
    """

    rows: list[dict[str, Any]]
    num_missing: int
    why: str = ""
    interrupted: bool = False
    refused: bool = False
    num_earlier: int = 0


def run(
    plan: Plan,
    agents: Mapping[str, Agent],
    folder: Folder,
    *,
    concurrency: int,
    on_row: Callable[[Mapping[str, Any]], None] = lambda row: None,
) -> RunResult:
    """Play all episodes of a plan that the folder does not have yet.

    Args:
        on_row: Called with each row; existing rows come first.

    Raises:
        Exception: An agent raised something other than `AgentFailed`, or making an environment failed.
    """
    done = set()
    for earlier in folder.taken_up():
        done.add(place(earlier))
        on_row(earlier)
    waiting = [(instance, sample) for instance, sample in plan.places if (instance.index, sample) not in done]
    threads = _EpisodeThreads(plan, agents, waiting, min(concurrency, len(waiting)), folder.keep)
    why, interrupted, hopeless, in_a_row = "", False, False, 0
    with folder.writing() as write:
        try:
            for row in threads.rows():
                write(row)
                on_row(row)
                if (error := row["error"]) is None:
                    in_a_row = 0
                elif error["kind"] not in ERRORS_OF_ONE_PROMPT:
                    in_a_row += 1
                if error is not None and in_a_row >= max(MOST_ERRORS_IN_A_ROW, concurrency):
                    why = f"the last {in_a_row} episodes were all errors, the last: {error['message']}"
                    break
        except (AgentRefused, Unavailable) as refused:
            why, hopeless = " ".join(str(refused).split()), True
        except KeyboardInterrupt:
            why, interrupted = "interrupted", True
        finally:
            threads.stop()
    rows = folder.put_in_order()
    return RunResult(
        rows=rows,
        num_missing=plan.num_episodes - len(rows),
        why=why,
        interrupted=interrupted,
        refused=hopeless,
        num_earlier=len(done),
    )


class _EpisodeThreads:
    """Threads that play the waiting episodes. They are daemons, so that one waiting for a server cannot block exit."""

    def __init__(
        self,
        plan: Plan,
        agents: Mapping[str, Agent],
        waiting: Sequence[tuple[Instance, int]],
        num_threads: int,
        keep: Callable[[Image], None],
    ) -> None:
        self._plan, self._agents, self._num, self._keep = plan, agents, len(waiting), keep
        self._waiting: queue.SimpleQueue[tuple[Instance, int]] = queue.SimpleQueue()
        for each in waiting:
            self._waiting.put(each)
        self._done: queue.SimpleQueue[EpisodeRow | BaseException] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, name=f"episodes-{number}", daemon=True)
            for number in range(num_threads)
        ]

    def rows(self) -> Iterator[EpisodeRow]:
        """Start the threads, and yield rows as episodes end; errors of a thread are raised here."""
        for thread in self._threads:
            thread.start()
        for _ in range(self._num):
            done = self._done.get()
            if isinstance(done, BaseException):
                raise done
            yield done

    def stop(self) -> None:
        """Start no further episodes or requests, and wait shortly for those that are about to end."""
        self._stop.set()
        ends = time.monotonic() + SECONDS_TO_END
        for thread in filter(threading.Thread.is_alive, self._threads):
            thread.join(max(0.0, ends - time.monotonic()))

    def _work(self) -> None:
        env = None
        try:
            env = self._plan.make_env()
            while not self._stop.is_set():
                instance, sample = self._waiting.get_nowait()
                played = episode(
                    env, instance, sample, self._agents, self._plan.rules, stopped=self._stop.is_set, keep=self._keep
                )
                self._done.put(played)
        except (queue.Empty, Stopped):
            pass
        except BaseException as error:  # noqa: BLE001  # raised again on the caller's thread
            self._done.put(error)
        finally:
            if env is not None:
                env.close()


def instances_digest(instances: Sequence[Instance]) -> str:
    """SHA-256 of the seeds and options, 64 hex digits."""
    whole = json.dumps([[each.seed, dict(each.options)] for each in instances], sort_keys=True)
    return hashlib.sha256(whole.encode("ascii")).hexdigest()


def _check_same(there: Mapping[str, Any], header: Mapping[str, Any], path: Path) -> None:
    """Raise ValueError unless the existing run has the same configuration as the one to resume."""
    # As JSON has them, where a tuple is a list.
    wanted = json.loads(json.dumps(header))
    # Earlier versions did not write the problems' content, nor that replies were read strictly.
    found = [
        f"{name} is {now!r}, was {was!r}"
        for name, was, now in differing(there["config"], wanted["config"])
        if was is not None or (name != "instances.content" and (name, now) != (f"settings.{STRICT_FORMAT}", True))
    ]
    version = "pettingllms"
    if there["versions"].get(version) != wanted["versions"].get(version):
        found.append(f"pettingllms is {wanted['versions'].get(version)}, was {there['versions'].get(version)}")
    if found:
        raise ValueError(
            f"{path} has a run of another configuration: {'; '.join(found)}; expected the same, to resume it. Give "
            "another --output."
        )
