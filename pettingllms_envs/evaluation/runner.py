"""Many episodes at once, written down as they end, and taken up again where a run was killed.

An episode is played on a thread, in an environment of that thread's own. The rows go through one queue to the caller's
thread, which writes each as it comes; at the end they are sorted. What a row says depends on the plan alone and not on
the number of threads, so that a run that was killed and taken up again leaves the same rows as one that was not.
"""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import json
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pettingllms_envs.agents.base import Agent, AgentRefused
from pettingllms_envs.episodes.episode import Instance, RunLimits, Stopped, episode
from pettingllms_envs.episodes.files import EPISODES, REPORT, RUN, place, read_header, tidy, write_json, write_line
from pettingllms_envs.episodes.schema import EpisodeRow


MOST_ERRORS_IN_A_ROW = 20
"""A run is stopped after this many errors in a row, or as many as episodes are played concurrently, if that is more:
its server is gone, or its environment is broken."""

LOCK = ".lock"

ERRORS_OF_ONE_PROMPT = ("refused", "diverged")
"""Kinds of errors that say nothing of the next episode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The episodes of a run.

    Args:
        make_env: Makes an environment; called once for each thread.
        instances: The problems, by index.
        samples: Episodes on each.
        rules: What holds for every episode.
    """

    make_env: Callable[[], Any]
    instances: Sequence[Instance]
    samples: int = 1
    rules: RunLimits = RunLimits()  # noqa: RUF009  # frozen

    @property
    def num_episodes(self) -> int:
        """All of them."""
        return len(self.instances) * self.samples


class Folder:
    """The files of a run, which nobody else writes meanwhile.

    Args:
        path: Of the folder; made where there is none.
        header: What `run.json` says of the run.

    Raises:
        ValueError: There is a run of another configuration in it, or one that is going on.
        OSError: It cannot be made or written.
    """

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        self._made = [each for each in (path, *path.parents) if not each.exists()]
        path.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.is_new = not (path / RUN).exists()
        """Whether the run begins here; otherwise it is one that goes on."""
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
            elif self._file.exists():
                raise ValueError(f"{path} has {EPISODES} without {RUN}; expected a run of ours. Name another folder.")
            else:
                write_json(path / RUN, header)
        except BaseException:
            self.close()
            raise

    def taken_up(self) -> list[dict[str, Any]]:
        """The rows that are done, light; those that ended with an error leave the file, to be played again."""
        if not self._file.exists():
            return []
        return tidy(self._file, keep=lambda row: row["error"] is None)

    def put_in_order(self) -> list[dict[str, Any]]:
        """All rows, light, as they are now in the file."""
        return tidy(self._file)

    @contextmanager
    def writing(self) -> Iterator[Callable[[Mapping[str, Any]], None]]:
        """A function that adds a row; a kill loses none that was added."""
        with open(self._file, "ab", buffering=0) as stream:

            def write(row: Mapping[str, Any]) -> None:
                left = memoryview(write_line(row).encode("ascii"))
                try:
                    while left:
                        left = left[stream.write(left) :]
                except OSError as error:  # which does not say of which file
                    raise OSError(error.errno, error.strerror, str(self._file)) from error

            yield write

    def discard(self) -> None:
        """Remove the run's files, and the folders that were made for them."""
        for name in (EPISODES, RUN, REPORT, LOCK):
            (self.path / name).unlink(missing_ok=True)
        with suppress(OSError):  # somebody else has put something there
            for folder in self._made:
                folder.rmdir()

    def close(self) -> None:
        """Let others write."""
        self._stream.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What a run left.

    Args:
        rows: Of all episodes that ended, earlier ones of the same folder too, in order; without prompts and replies,
            which are in the file.
        num_missing: Episodes without a row.
        why: Why some are missing; empty if none are.
        interrupted: Whether by Ctrl-C.
        refused: Whether because an agent cannot be had at all: a wrong key, an unknown model.
    """

    rows: list[dict[str, Any]]
    num_missing: int
    why: str = ""
    interrupted: bool = False
    refused: bool = False


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
        plan: What to play.
        agents: The player of each agent, by the agent's name.
        folder: Where rows are kept.
        concurrency: Episodes at once.
        on_row: Told of each row, those that were there first.

    Raises:
        Exception: Whatever an agent raised that is no failure of its own kind, or an environment when it was made.
    """
    done = set()
    for earlier in folder.taken_up():
        done.add(place(earlier))
        on_row(earlier)
    waiting = [
        (instance, sample)
        for instance, sample in itertools.product(plan.instances, range(plan.samples))
        if (instance.index, sample) not in done
    ]
    table = _Table(plan, agents, waiting, min(concurrency, len(waiting)))
    why, interrupted, hopeless, in_a_row = "", False, False, 0
    with folder.writing() as write:
        try:
            for row in table.rows():
                write(row)
                on_row(row)
                if (error := row["error"]) is None:
                    in_a_row = 0
                elif error["kind"] not in ERRORS_OF_ONE_PROMPT:
                    in_a_row += 1
                if error is not None and in_a_row >= max(MOST_ERRORS_IN_A_ROW, concurrency):
                    why = f"the last {in_a_row} episodes were all errors, the last: {error['message']}"
                    break
        except AgentRefused as refused:
            why, hopeless = str(refused), True
        except KeyboardInterrupt:
            why, interrupted = "interrupted", True
        finally:
            table.stop()
    rows = folder.put_in_order()
    return RunResult(
        rows=rows,
        num_missing=plan.num_episodes - len(rows),
        why=why,
        interrupted=interrupted,
        refused=hopeless,
    )


class _Table:
    """Threads that play what is waiting. They are daemons: one that waits for a server holds up nobody's leaving."""

    def __init__(
        self, plan: Plan, agents: Mapping[str, Agent], waiting: Sequence[tuple[Instance, int]], num_threads: int
    ) -> None:
        self._plan, self._agents, self._num = plan, agents, len(waiting)
        self._waiting: queue.SimpleQueue[tuple[Instance, int]] = queue.SimpleQueue()
        for each in waiting:
            self._waiting.put(each)
        self._done: queue.SimpleQueue[EpisodeRow | BaseException] = queue.SimpleQueue()
        self._stop = threading.Event()
        for number in range(num_threads):
            threading.Thread(target=self._work, name=f"episodes-{number}", daemon=True).start()

    def rows(self) -> Iterator[EpisodeRow]:
        """Rows as episodes end; what a thread raised is raised here."""
        for _ in range(self._num):
            done = self._done.get()
            if isinstance(done, BaseException):
                raise done
            yield done

    def stop(self) -> None:
        """Ask nobody any more."""
        self._stop.set()

    def _work(self) -> None:
        env = None
        try:
            env = self._plan.make_env()
            while not self._stop.is_set():
                instance, sample = self._waiting.get_nowait()
                self._done.put(
                    episode(env, instance, sample, self._agents, self._plan.rules, stopped=self._stop.is_set)
                )
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
    """Raise ValueError unless a run that was begun is the one that is to be taken up."""
    # As JSON has them, where a tuple is a list.
    wanted = json.loads(json.dumps(header))
    found = _told_apart(there["config"], wanted["config"])
    version = "pettingllms"
    if there["versions"].get(version) != wanted["versions"].get(version):
        found.append(f"pettingllms is {wanted['versions'].get(version)}, was {there['versions'].get(version)}")
    if found:
        raise ValueError(
            f"{path} has a run of another configuration: {'; '.join(found)}; expected the same, to take it up. Give "
            "another --output."
        )


def _told_apart(was: Any, now: Any, name: str = "") -> list[str]:
    """The fields in which two configurations differ, in words."""
    if isinstance(was, dict) and isinstance(now, dict):
        names = list(dict.fromkeys([*was, *now]))
        return [
            words
            for each in names
            for words in _told_apart(was.get(each), now.get(each), f"{name}.{each}" if name else each)
        ]
    return [] if was == now else [f"{name} is {now!r}, was {was!r}"]
