"""Starts a program, a function on a thread or a command line as a process, and reports how it ended."""

from __future__ import annotations

import asyncio
import atexit
import inspect
import json
import os
import shlex
import signal
import subprocess
import threading
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from pettingllms_envs.programs.rewards import read_rewards
from pettingllms_envs.programs.session import Ended, Session


Target = Callable[[str, Mapping[str, Any]], Any] | str | Sequence[str]

PASSED = (
    *("PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "VIRTUAL_ENV", "PYTHONPATH", "PYTHONHASHSEED"),
    *("LD_LIBRARY_PATH", "OMP_NUM_THREADS", "NO_PROXY", "no_proxy"),
)
"""Variables of the environment that a command line is given, if they are set, beside those of the endpoint."""

REWARD = "reward:"
LAST_LINES, LAST_CHARACTERS = 12, 300
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
        return _read(asyncio.run(given) if inspect.iscoroutine(given) else given, session)

    _start_thread(session, run)
    return lambda: None  # a thread cannot be ended; its next call gets an error


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
    process = subprocess.Popen(
        shlex.split(command) if isinstance(command, str) else list(command),
        env=given,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        errors="replace",
        start_new_session=True,
    )

    rewards, last = list[str](), deque[str](maxlen=LAST_LINES)

    def read() -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in iter(lambda: lines.readline(2**16), ""):
                last.append(line.rstrip("\n"))
                if line.startswith(REWARD):
                    rewards.append(line.removeprefix(REWARD))

    def run() -> Ended:
        assert process.stdin is not None
        reader = threading.Thread(target=read, name="program's output", daemon=True)
        reader.start()
        with suppress(OSError), process.stdin:  # it need not read its row
            process.stdin.write(line)
        status = process.wait()
        atexit.unregister(stop)
        stop()  # what it has left behind, which may hold its output open
        reader.join(LAST_OUTPUT)  # a process of another group may hold it open
        return _ended(status, list(rewards), list(last), session)

    def stop() -> None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    atexit.register(stop)
    _start_thread(session, run)
    return lambda: None if process.returncode is not None else stop()


def _ended(status: int, rewards: Sequence[str], last: Sequence[str], session: Session) -> Ended:
    """How a command line ended: its one line `reward: JSON`, or why it has none."""
    wrote = f"\n{_last(last)}" if last else " nothing"
    if status:
        how = f"exited with status {status}" if status > 0 else f"was ended by signal {-status}"
        return Ended(failure=f"it {how}; it wrote last:{wrote}")
    if len(rewards) > 1:
        return Ended(failure=f"it printed {len(rewards)} lines that begin with {REWARD!r}; expected one.{wrote}")
    try:
        return _read(json.loads(rewards[0]) if rewards else None, session)._replace(wrote=f" It wrote last:{wrote}")
    except ValueError:
        return Ended(failure=f"its line with the reward is no JSON; expected 'reward: 0.5'. It wrote last:{wrote}")


def _read(given: Any, session: Session) -> Ended:
    """A reward that was returned; `None` is none, for programs that post theirs."""
    try:
        return Ended(None if given is None else read_rewards(given, set(session.agents.values())))
    except ValueError as error:
        return Ended(failure=str(error))


def _last(lines: Sequence[str]) -> str:
    """What a program wrote last."""
    return "\n".join(line[:LAST_CHARACTERS] for line in lines[-LAST_LINES:])
