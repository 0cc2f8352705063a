"""Starts a program, a function on a thread or a command line as a process, and reports how it ended."""

from __future__ import annotations

import asyncio
import atexit
import inspect
import io
import json
import logging
import os
import shlex
import signal
import subprocess
import threading
import traceback
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pettingllms_envs.programs.rewards import CHANNEL, PRINTED, read_rewards
from pettingllms_envs.programs.session import Ended, Session


Target = Callable[[str, Mapping[str, Any]], Any] | str | Sequence[str]

PASSED = (
    *("PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "VIRTUAL_ENV", "PYTHONPATH", "PYTHONHASHSEED"),
    *("LD_LIBRARY_PATH", "OMP_NUM_THREADS", "NO_PROXY", "no_proxy"),
)
"""Variables of the environment that a command line is given, if they are set, beside those of the endpoint."""

logger = logging.getLogger(__name__)

LAST_LINES, LAST_CHARACTERS, LAST_BYTES = 12, 300, 2**16
MOST_GENERATIONS = 20
"""Times that processes which others start meanwhile are searched for."""
LAST_OUTPUT = 2.0
"""Most seconds from the end of a command line to that of its output."""


def start(
    target: Target, session: Session, base_url: str, row: Mapping[str, Any], variables: Sequence[str]
) -> Callable[[], None]:
    """Start a program; `session.end` is told how it ended. Returns a function that ends it, or abandons it."""
    if not callable(target):
        return _start_command(target, session, base_url, row, variables)

    def run() -> Ended:
        given = target(base_url, row)
        return _read(_awaited(given) if inspect.iscoroutine(given) else given, session)

    _start_thread(session, run)
    return lambda: None  # a thread cannot be ended; its next call gets an error


def _awaited(given: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine returns. A task of its that nobody waits for any more ends with a line and no traceback."""

    def note(_: Any, context: Mapping[str, Any]) -> None:
        error = context.get("exception")
        logger.warning("%s", f"{context['message']}: {error!r}".partition("\n")[0][:LAST_CHARACTERS])

    with asyncio.Runner() as runner:
        runner.get_loop().set_exception_handler(note)
        return runner.run(given)


def _start_thread(session: Session, run: Callable[[], Ended]) -> None:
    """End the session with what `run` returns, or with what it raises."""

    def end() -> None:
        try:
            ended = run()
        except BaseException as error:  # noqa: BLE001  # the program is not ours; its end is what is reported
            what = traceback.format_exception_only(error)[0].partition("\n")[0][:LAST_CHARACTERS]
            ended = Ended(failure=f"it raised: {what}\n{_last(traceback.format_exc().splitlines())}")
        session.end(ended)

    threading.Thread(target=end, name="program", daemon=True).start()


def _start_command(
    command: str | Sequence[str], session: Session, base_url: str, row: Mapping[str, Any], variables: Sequence[str]
) -> Callable[[], None]:
    line = json.dumps(row) + "\n"
    given = {name: os.environ[name] for name in (*PASSED, *variables) if name in os.environ}
    given |= {"OPENAI_BASE_URL": base_url, "OPENAI_API_KEY": "none"}
    output = _Output()

    def run() -> Ended:
        assert process.stdin is not None
        reader = threading.Thread(target=output.read, args=(process.stdout,), name="program's output", daemon=True)
        reader.start()
        with suppress(OSError), process.stdin:  # it need not read its row
            process.stdin.write(line.encode())
        status = process.wait()
        atexit.unregister(stop)
        stop()  # what it has left behind, which may hold its output open
        reader.join(LAST_OUTPUT)  # a process of another group may hold it open
        return _ended(status, output, session)

    def stop() -> None:
        with suppress(ProcessLookupError, NameError):  # it is not known yet
            os.killpg(process.pid, signal.SIGKILL)
        _end_all_with(base_url)

    atexit.register(stop)  # before it starts: a signal may come as soon as it runs
    try:
        process = subprocess.Popen(
            shlex.split(command) if isinstance(command, str) else list(command),
            env=given,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError:
        atexit.unregister(stop)
        raise
    _start_thread(session, run)
    return lambda: None if process.returncode is not None else stop()


def _end_all_with(base_url: str) -> None:
    """End the processes that a command line has started in sessions of their own: they have inherited its base URL.

    Elsewhere than on Linux nothing tells which they are, and they are left.
    """
    own = f"OPENAI_BASE_URL={base_url}".encode()
    for _ in range(MOST_GENERATIONS):
        found = [int(each.name) for each in Path("/proc").glob("[0-9]*") if own in _variables_of(each)]
        for each in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(each, signal.SIGKILL)
        if not found:
            return


def _variables_of(process: Path) -> list[bytes]:
    try:
        return (process / "environ").read_bytes().split(b"\0")
    except OSError:  # it has ended, or is another user's
        return []


class _Output:
    """What a command line has printed: its end, and how often a reward's mark is in all of it."""

    def __init__(self) -> None:
        self.end, self.num_marks = b"", 0

    def read(self, stream: io.BufferedReader) -> None:
        """Read the stream to its end, of which a line may have any length."""
        mark = PRINTED.encode()
        with stream:
            for piece in iter(lambda: stream.read1(2**16), b""):
                self.num_marks += (self.end[1 - len(mark) :] + piece).count(mark)
                self.end = (self.end + piece)[-LAST_BYTES:]


def _ended(status: int, output: _Output, session: Session) -> Ended:
    """How a command line ended: its last line `reward: JSON`, unless its rewards were posted, or why it has none."""
    text = output.end.decode("utf-8", "replace")
    lines = text.splitlines()
    wrote = f"\n{_last(lines)}" if lines else " nothing"
    if status:
        how = f"exited with status {status}" if status > 0 else f"was ended by signal {-status}"
        return Ended(failure=f"it {how}; it wrote last:{wrote}")
    if session.has_posted or not output.num_marks:
        return Ended(wrote=f" It wrote last:{wrote}")
    last = text.rstrip().rpartition("\n")[2]
    if output.num_marks > 1 or session.has_marked_reply or not last.startswith(PRINTED):
        return Ended(failure=f"it is not sure what it was paid. {CHANNEL} It wrote last:{wrote}")
    session.found.prints_reward = True
    try:
        return _read(json.loads(last.removeprefix(PRINTED)), session)
    except (ValueError, RecursionError):
        return Ended(failure=f"its line with the reward is no JSON; expected 'reward: 0.5'. It wrote last:{wrote}")


def _read(given: Any, session: Session) -> Ended:
    """A reward that was returned; `None` is none, for programs that post theirs."""
    try:
        return Ended(None if given is None else read_rewards(given, set(session.agents.values())))
    except ValueError as error:
        return Ended(failure=str(error))


def _last(lines: Sequence[str]) -> str:
    return "\n".join(line[:LAST_CHARACTERS] for line in lines[-LAST_LINES:])
