"""Run a program as Python would, for one test: standard input, exit codes, threads, `atexit`, tracebacks.

This is the last of our code in a test's process, and the program may change any of it: nothing here is trusted. What
comes out is an exit code and bytes, and it is the trainer that compares.
"""

from __future__ import annotations

import _sitebuiltins
import atexit
import builtins
import contextlib
import io
import json
import linecache
import os
import sys
import threading
import traceback
import types
from types import CodeType
from typing import Any


if sys.platform != "win32":
    import resource


RESULT_FD = 3
NAME = "solution.py"
THREAD_STACK = 8 << 20

_STDIN = ("/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
_open = io.open


def stdin_test(code: CodeType, prelude: CodeType) -> int:
    """Run the program as a script. Returns the exit code, before `finish`."""
    module = _module("__main__")

    def script() -> None:
        exec(prelude, module.__dict__)  # noqa: S102  # this is what the sandbox is for
        exec(code, module.__dict__)  # noqa: S102

    return _guarded(script)


def call_test(code: CodeType, prelude: CodeType, fn_name: str, arguments: str) -> int:
    """Import the program, call its function (or the method of its `Solution`), and write what it returns as JSON."""
    module = _module("solution")

    def call() -> None:
        exec(prelude, module.__dict__)  # noqa: S102
        exec(code, module.__dict__)  # noqa: S102
        result = _function(module, fn_name)(*json.loads(arguments))
        with _open(RESULT_FD, "w", encoding="utf-8", closefd=False) as results:
            results.write(json.dumps(result))

    return _guarded(call)


def _function(module: types.ModuleType, name: str) -> Any:
    if name in module.__dict__:
        return module.__dict__[name]
    if "Solution" in module.__dict__:
        return getattr(module.__dict__["Solution"](), name)
    raise NameError(f"the program has neither a function {name!r} nor a class 'Solution'")


def compiled(text: str, name: str) -> CodeType:
    """The program's code; no flag of this file's leaks into it."""
    return compile(text, name, "exec", dont_inherit=True)


def remember_source(text: str) -> None:
    """Let tracebacks show the program's lines."""
    linecache.cache[NAME] = (len(text), None, text.splitlines(keepends=True), NAME)


def unconfined(arguments: list[str]) -> int:
    """Run one test in a plain process, for the unsafe mode: the settings as JSON, and the folder of its files."""
    settings = json.loads(arguments[0])
    folder = arguments[1]
    seconds, output = settings["cpu"], settings["output"]
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_FSIZE, (output + 1, output + 1))
    with _open(f"{folder}/program", encoding="utf-8", errors="surrogatepass", newline="") as file:
        text = file.read()
    with _open(f"{folder}/prelude", encoding="utf-8", newline="") as file:
        prelude = file.read()
    settle()
    remember_source(text)
    try:
        code, before = compiled(text.removeprefix("\ufeff"), NAME), compiled(prelude, "prelude.py")
    except BaseException as error:  # noqa: BLE001
        print_error(error)
        return 1
    if settings["fn_name"] is None:
        return finish(stdin_test(code, before))
    given = sys.stdin.read()
    os.dup2(1, RESULT_FD)
    os.dup2(2, 1)
    return finish(call_test(code, before, settings["fn_name"], given))


def settle() -> None:
    """What `site` would do for a script, and files that need no file system. Once, before the programs."""
    for name in ("exit", "quit"):
        setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D (i.e. EOF)"))
    builtins.open = io.open = _open_file
    sys.argv = [NAME]


def forget_module() -> None:
    """Take down the program's module, with the files that it opened on descriptors that the next run will have."""
    for name in _modules():
        vars(sys.modules.pop(name)).clear()


def _modules() -> list[str]:
    """The names of the program's module."""
    return [name for name in ("__main__", "solution") if vars(sys.modules.get(name, types)).get("__file__") == NAME]


def fresh_streams() -> None:
    """New text streams over the descriptors 0, 1 and 2, for the next of several programs in one process."""
    stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, "r", closefd=False)), "utf-8")
    stdin.mode = "r"  # type: ignore[misc]  # as the interpreter's own; contest programs ask for it
    vars(sys).update(stdin=stdin, __stdin__=stdin)
    for fd, name, errors in ((1, "stdout", "strict"), (2, "stderr", "backslashreplace")):
        raw = io.FileIO(fd, "w", closefd=False)
        stream = io.TextIOWrapper(io.BufferedWriter(raw), "utf-8", errors, write_through=fd == 2)
        stream.mode = "w"  # type: ignore[misc]
        vars(sys).update({name: stream, f"__{name}__": stream})


def _open_file(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
    if type(file) is not int:
        name = os.fspath(file)
        if name in _STDIN:  # links into /proc, which is not there, or not to be opened
            file = os.dup(0)
        elif name == os.devnull:  # no file may be opened to be written, not even this one
            raw = _Null()
            return raw if "b" in mode else io.TextIOWrapper(io.BufferedRWPair(raw, raw), "utf-8", write_through=True)
    return _open(file, mode, *args, **kwargs)


class _Null(io.RawIOBase):
    """/dev/null: reads nothing, swallows everything."""

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return 0

    def write(self, data: Any) -> int:
        return memoryview(data).nbytes


def _module(name: str) -> types.ModuleType:
    module = types.ModuleType(name)
    module.__dict__.update(__builtins__=builtins, __file__=NAME)
    sys.modules[name] = module
    return module


def _guarded(run: Any) -> int:
    try:
        run()
    except SystemExit as error:
        return _exit_code(error.code)
    except BaseException as error:  # noqa: BLE001  # untrusted code: whatever it raised is reported to its author
        _print_traceback(error)
        return 1
    return 0


def has_threads() -> bool:
    """Whether threads run besides this one, or have just ended and may not have given their large stacks back.

    Waiting for them is done once in an interpreter's life.
    """
    # `stack_size()` without an argument would set it, to the C library's default.
    return threading.active_count() > 1 or threading.stack_size(THREAD_STACK) != THREAD_STACK


def finish(status: int, *, threads: bool = True) -> int:
    """What the interpreter does at its end: wait for threads, call what is registered, flush; the exit code."""
    end_of_threads = [threading._shutdown] if threads else []  # type: ignore[attr-defined]
    for end in (*end_of_threads, atexit._run_exitfuncs):
        try:
            end()
        except BaseException as error:  # noqa: BLE001
            _print_traceback(error)
    _flush_streams_of_its_own()
    for stream in {id(stream): stream for stream in (sys.stdout, sys.__stdout__, sys.stderr, sys.__stderr__)}.values():
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except BaseException:  # noqa: BLE001
            status = status or 120  # as the interpreter does
    return status


def _flush_streams_of_its_own() -> None:
    """Flush what the program opened on a descriptor, as the interpreter would when it takes the module down."""
    for name in _modules():
        for value in list(vars(sys.modules[name]).values()):
            try:
                if isinstance(value, io.IOBase) and not value.closed:
                    value.flush()
            except BaseException:  # noqa: BLE001  # nobody would hear of it there either
                pass


def print_error(error: BaseException) -> None:
    """The error of a program that cannot be compiled; there may be no memory left to say it."""
    try:
        sys.stderr.writelines(traceback.format_exception_only(error))
        sys.stderr.flush()
    except BaseException:  # noqa: BLE001
        os.write(2, b"\n" + type(error).__name__.encode() + b"\n")


def _exit_code(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)  # noqa: T201
    return 1


def _print_traceback(error: BaseException) -> None:
    """The end of the traceback from the program's first frame on."""
    with contextlib.suppress(BaseException):  # as the interpreter does: a called function prints to the same place
        sys.stdout.flush()
    try:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        sys.__stderr__.writelines(traceback.format_exception(type(error), error, trace, limit=-8))  # type: ignore[union-attr]
    except BaseException:  # noqa: BLE001  # its __str__ may do anything
        os.write(2, f"{type(error).__name__}\n".encode("utf-8", "replace"))
