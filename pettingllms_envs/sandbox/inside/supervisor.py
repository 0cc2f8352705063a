"""Where the other side starts: set everything up, fork the server, and clear up when the server is gone.

    python -s -S -P -B -X utf8 -c "..." FD    see `slot.py`

The supervisor stays behind as the parent of the server. When the server ends, because the trainer is gone or because
it was killed, no process of a job's may live on: with namespaces they die with it, without them the supervisor kills
them.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import gc
import importlib
import importlib.machinery
import json
import os
import resource
import signal
import socket
import sys
import threading
import types
from typing import Any, NoReturn

from . import cgroup, kernel, program
from .confine import STACK, Confinement, become, leave_namespaces, new_root, readable
from .server import serve
from .watch import Watch, answer, children_by_parent
from .wire import receive_frame, send_frame


def main(argv: list[str]) -> NoReturn:
    """Become the supervisor of a server that talks to the socket with this descriptor."""
    # The kernel lays out an address space by the stack's limit at `exec`; later it would be too late to be deep.
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    wanted = STACK if hard == resource.RLIM_INFINITY else min(STACK, hard)
    if soft != wanted:
        resource.setrlimit(resource.RLIMIT_STACK, (wanted, hard))
        os.execv(sys.executable, sys.orig_argv)
    _usual_signals()
    sock = socket.socket(fileno=int(argv[-1]))
    sock.set_inheritable(False)
    settings = json.loads(receive_frame(sock))
    try:
        _supervise(sock, settings)
    except OSError as error:
        _report_failure(sock, error)
    os._exit(1)


def _usual_signals() -> None:
    """What the trainer ignores or blocks is inherited, and would be lost on programs and on us."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:  # these two Python ignores by itself
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def confinement_from(settings: dict[str, Any]) -> Confinement:
    """The confinement as it was sent."""
    fields = dict(settings)
    for name in ("job_filter", "process_filter", "test_filter"):
        fields[name] = base64.b64decode(fields[name])
    for name in ("dirs", "files", "hidden"):
        fields[name] = tuple(fields[name])
    return Confinement(**fields)


def _supervise(sock: socket.socket, settings: dict[str, Any]) -> None:
    confinement = confinement_from(settings["confinement"])
    _die_before_the_trainer()
    os.chdir(confinement.base)
    sys.path.extend(settings["path"])
    for name in settings["imports"]:
        importlib.import_module(name)
    for name in settings["hoped_for"]:
        with contextlib.suppress(ImportError):  # an interpreter may have been built without some
            importlib.import_module(name)
    if settings["resident"]:
        _make_resident(settings["resident"])
    kernel.adopt_orphans()
    if confinement.become_early and confinement.uid is not None:
        become(confinement.uid)
        kernel.dumpable(True)  # a change of user makes it False, and the maps of a namespace unwritable
    group = _memory_group(settings["memory"])
    if confinement.namespaces:
        leave_namespaces(confinement)
    # An unprivileged server has its programs' user; without this they could open its descriptors in /proc.
    kernel.dumpable(False)
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server = os.fork()
    if server == 0:
        here.close()
        try:
            _become_server(sock, confinement, Watch(there), group)
        except OSError as error:
            _report_failure(sock, error)
        finally:
            os._exit(1)
    sock.close()
    there.close()
    signal.signal(signal.SIGTERM, lambda *_: os.kill(server, signal.SIGKILL))
    answer(here, server)
    os.waitpid(server, 0)
    _kill_children()
    if group is not None:
        group.remove()
    os._exit(0)


def _make_resident(source: str) -> None:
    """Run the trainer's own module here, once, for all the processes that will be forked."""
    module = types.ModuleType("resident")
    sys.modules["resident"] = module
    exec(compile(source, "resident.py", "exec", dont_inherit=True), module.__dict__)  # noqa: S102  # the trainer's own


def _memory_group(wanted: str) -> cgroup.Group | None:
    """The cgroup that bounds the memory of jobs; None where `watch.py` is to."""
    group = None if wanted == "polling" else cgroup.make()
    if wanted == "cgroup" and group is None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "making a memory cgroup")
    return group


def _become_server(
    sock: socket.socket, confinement: Confinement, watch: Watch, group: cgroup.Group | None
) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    kernel.die_with_parent()
    kernel.adopt_orphans()
    address_space = _address_space()  # before there is no /proc
    threading.stack_size(program.THREAD_STACK)  # else a thread's stack is as large as the main one may become
    if confinement.namespaces:
        new_root(confinement)
        sys.path_importer_cache.clear()
    else:
        _find_files_from_base(confinement)
    kernel.no_new_privileges()
    if confinement.landlock:
        kernel.landlock(readable(confinement))
    program.settle()
    gc.collect()
    gc.freeze()
    memory = "polling" if group is None else f"cgroup v{group.version}"
    message = {"ready": os.getpid(), "python": sys.version.split()[0], "memory": memory}
    send_frame(sock, json.dumps(message).encode())
    serve(sock, confinement, address_space, watch, group)


def _address_space() -> int:
    """Bytes of address space of this process, which a job has before it runs anything."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def _report_failure(sock: socket.socket, error: OSError) -> None:
    message = {"failed": str(error.filename or error.strerror), "errno": error.errno or 0}
    send_frame(sock, json.dumps(message).encode())


def _die_before_the_trainer() -> None:
    """When memory runs out, the kernel is to kill a program and not the trainer."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("800")
    except OSError:
        pass  # no /proc, or a container that forbids it


def _find_files_from_base(confinement: Confinement) -> None:
    """Look for modules by paths relative to the interpreter's prefix; see `confine.from_base`."""
    prefix = confinement.base.rstrip("/") + "/"

    class Extension(importlib.machinery.ExtensionFileLoader):
        def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
            spec.origin = str(spec.origin).removeprefix(prefix)  # made absolute on the way here
            return super().create_module(spec)

    loaders = (
        (Extension, importlib.machinery.EXTENSION_SUFFIXES),
        (importlib.machinery.SourceFileLoader, importlib.machinery.SOURCE_SUFFIXES),
        (importlib.machinery.SourcelessFileLoader, importlib.machinery.BYTECODE_SUFFIXES),
    )

    def finder(path: str) -> importlib.machinery.FileFinder:
        found = importlib.machinery.FileFinder(path, *loaders)
        found.path = path.removeprefix(prefix)
        return found

    sys.path_hooks[:] = [finder]
    sys.path_importer_cache.clear()


def _kill_children() -> None:
    """Kill every process below this one, which adopts all that were orphaned."""
    me = os.getpid()
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0]:
                continue
        except ChildProcessError:
            return
        for pid in children_by_parent(me):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(os.getpgid(pid), signal.SIGKILL)
