"""Native commands: which of the machine's binaries may be run, with which files, and what comes of a run. Pure values.

gcc = Command("gcc", reads=("/usr/libexec/gcc", "/usr/include", "/usr/bin/as", "/usr/bin/ld"))
with Sandbox(commands=(gcc,)) as sandbox:
    built = sandbox.run_command(["gcc", "main.c", "-o", "main"], files={"main.c": source}, outputs=["main"])
    sandbox.run_command(["./main"], files={"main": built.files["main"]}, stdin="3").stdout
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from pettingllms_envs.sandbox.inside.command import CommandMeta
from pettingllms_envs.sandbox.inside.scratch import MOST_FILES, TOO_LARGE
from pettingllms_envs.sandbox.inside.wire import Job
from pettingllms_envs.sandbox.slot import Done
from pettingllms_envs.sandbox.values import Limits, ProgramResult, Verdict, as_bytes, check_limits
from pettingllms_envs.sandbox.verdicts import job_of, judge


_BLOCK = 4096
"""Bytes that the least file takes."""
_NEVER_READ = ("/proc", "/sys", "/dev")


@dataclass(frozen=True, slots=True)
class Command:
    """A binary of this machine that `Sandbox.run_command` may run, and what else it needs.

    It reads and executes its own file, the system's libraries (`/lib`, `/usr/lib`, without Python's packages) and
    `reads`; no other file of the machine, and nothing that another `Command` of the same `Sandbox` reads.

    Args:
        name: What stands first in `argv`, such as `"gcc"`; found on `PATH` unless `path` is given.
        reads: Absolute paths of further files and directories that it may read and execute: the programs that it
            starts, headers, data. Links among them may lead anywhere.
        path: Absolute path of the binary.

    Raises:
        ValueError: The binary or a path is not there, or a path would give away more than a command may see.
    """

    name: str
    reads: tuple[str, ...] = ()
    path: str = ""

    def __post_init__(self) -> None:
        if not self.name or "/" in self.name or "\0" in self.name:
            raise ValueError(f"the command's name is {self.name!r}; expected a name without '/'. Use path for a path.")
        path = self.path or shutil.which(self.name) or ""
        if not (os.path.isabs(path) and os.path.isfile(path) and os.access(path, os.X_OK)):
            where = f"at {self.path}" if self.path else "on PATH"
            raise ValueError(
                f"there is no executable {self.name!r} {where}; expected one. Install it, such as by"
                f" `apt-get install {self.name}`, or give its absolute path: Command({self.name!r}, path=...)."
            )
        object.__setattr__(self, "path", path)
        object.__setattr__(self, "reads", tuple(_readable(self.name, each) for each in self.reads))


def _readable(name: str, path: str) -> str:
    """A path of `reads`, without a slash at its end."""
    if not os.path.isabs(path) or not os.path.exists(path):
        raise ValueError(
            f"{name!r} reads {path!r}; expected the absolute path of a file or directory that exists. Leave it out, or"
            " install what it belongs to."
        )
    plain = os.path.normpath(path)
    real = os.path.realpath(plain)
    if real == "/" or any(f"{each}/".startswith(f"{place}/") for each in (plain, real) for place in _NEVER_READ):
        raise ValueError(
            f"{name!r} reads {path!r}; expected no path in {', '.join(_NEVER_READ)}, and not all of the machine. Name"
            " the directories that it needs."
        )
    return plain


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult(ProgramResult):
    """One run of a native command; the verdict is `FINISHED` if its exit code is 0, and never `PASSED` or `WRONG`.

    `files` are those that were asked for and are there, by their relative names.
    """

    files: Mapping[str, bytes] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRequest:
    """A validated run of a command, or of a given file if `command` is None."""

    command: Command | None
    job: Job
    meta: CommandMeta
    stdin: bytes
    contents: tuple[bytes, ...]

    def result(self, done: Done, sizes: Sequence[int], contents: Sequence[bytes], isolation: str) -> CommandResult:
        """The result of the run.

        Args:
            sizes: Of each file that was asked for, or why it was not copied; see `inside/scratch.py`.
            contents: What is in those that were copied.
        """
        result = judge(self.job, done.record, done.before, done.output, done.errors, None, isolation)
        verdict, detail = result.verdict, result.detail
        if verdict == Verdict.RUNTIME_ERROR and result.exit_code == 1:
            detail = "exit code 1"
        if verdict == Verdict.FINISHED and TOO_LARGE in sizes:
            name = self.meta["outputs"][list(sizes).index(TOO_LARGE)]
            verdict, detail = Verdict.OUTPUT_LIMIT, f"the file {name!r} is larger than the scratch directory"
        there = [name for name, size in zip(self.meta["outputs"], sizes, strict=True) if size >= 0]
        fields = {name: getattr(result, name) for name in ProgramResult.__slots__}
        files = dict(zip(there, contents, strict=True))
        return CommandResult(**fields | {"verdict": verdict, "detail": detail}, files=files)


def request_command(
    argv: Sequence[str],
    commands: Sequence[Command],
    *,
    files: Mapping[str, str | bytes],
    stdin: str | bytes,
    outputs: Sequence[str],
    limits: Limits,
    scratch: int,
) -> CommandRequest:
    """Validate the arguments of `Sandbox.run_command`.

    Raises:
        ValueError: The command is not declared, a name leads out of the scratch directory, or the files do not fit.
    """
    check_limits(limits)
    command = _command_of(argv, commands, files)
    for name in (*files, *outputs):
        _check_name(name)
    contents = tuple(as_bytes(content) for content in files.values())
    _check_room(files, contents, scratch)
    meta = CommandMeta(
        path=argv[0] if command is None else command.path,
        argv=list(argv),
        environment=_environment(command),
        files=[(name, len(content)) for name, content in zip(files, contents, strict=True)],
        outputs=list(outputs),
    )
    of_all = replace(limits, total=limits.cpu)
    job = job_of(of_all, limits.output, 1, in_process=False, stop_at_timeout=True)
    return CommandRequest(command=command, job=job, meta=meta, stdin=as_bytes(stdin), contents=contents)


def _command_of(argv: Sequence[str], commands: Sequence[Command], files: Mapping[str, str | bytes]) -> Command | None:
    """The command to run; None for one of the files."""
    if isinstance(argv, str | bytes):
        raise TypeError(f"argv is {argv!r}; expected a list of words, since no shell reads it. Use argv=[{argv!r}].")
    if not argv or any("\0" in word for word in argv):
        raise ValueError(f"argv is {list(argv)!r}; expected at least one word, and none with a null character.")
    first = argv[0]
    if first.startswith("./") and first[2:] in files:
        return None
    by_name = {command.name: command for command in commands}
    if first not in by_name:
        known = ", ".join([*(repr(name) for name in by_name), *(repr(f"./{name}") for name in files)]) or "none"
        raise ValueError(
            f"there is no command {first!r}; expected one of this sandbox's, or './NAME' of one of the files: {known}."
            f" Declare it: Sandbox(commands=(Command({first!r}),))."
        )
    return by_name[first]


def _check_name(name: str) -> None:
    parts = name.split("/")
    if any(part in ("", ".", "..") or len(os.fsencode(part)) > 255 for part in parts) or "\0" in name:
        raise ValueError(
            f"a file is named {name!r}; expected a relative name such as 'main.c' or 'src/main.c', without '..'."
        )


def _check_room(names: Collection[str], contents: Sequence[bytes], scratch: int) -> None:
    """That the files fit into the scratch directory, beside each other."""
    folders = {str(folder) for name in names for folder in PurePosixPath(name).parents[:-1]}
    if both := sorted(folders & set(names)):
        raise ValueError(f"the files have a file {both[0]!r} and one below it; expected either. Rename one of them.")
    room = sum(-(-len(content) // _BLOCK) * _BLOCK for content in contents)
    if room > scratch or len(names) + len(folders) >= MOST_FILES:
        raise ValueError(
            f"{len(names)} files in {len(folders)} folders need {room} bytes; expected fewer than {MOST_FILES} of both"
            f" together, and at most {scratch} bytes. Give fewer, or make room: Sandbox(scratch=...)."
        )


def _environment(command: Command | None) -> dict[str, str]:
    """The variables of a command: nothing of the trainer's own environment."""
    own = [] if command is None else [os.path.dirname(command.path)]
    path = ":".join(dict.fromkeys([*own, "/usr/bin", "/bin"]))
    return {"PATH": path, "HOME": ".", "TMPDIR": ".", "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1"}


def check_commands(commands: Sequence[Command], scratch: int) -> tuple[Command, ...]:
    """Validate what a `Sandbox` is created with."""
    names = [command.name for command in commands]
    if len(set(names)) < len(names):
        raise ValueError(f"the commands are {names}; expected each name once. Give one of them another name.")
    if not 1 << 16 <= scratch <= 1 << 40:
        raise ValueError(
            f"scratch is {scratch}; expected bytes, from {1 << 16} to {1 << 40}. The default is {SCRATCH}."
        )
    return tuple(commands)


SCRATCH = 1 << 26
"""Bytes of files that a command may hold, unless a `Sandbox` says otherwise."""
