"""Runs `pettingllms` as on macOS or Windows, as far as that can be simulated on Linux: `platforms.py win32 list`.

What the standard library and other packages do by the platform is theirs, and imported before. Then `sys.platform` is
the other's, and the modules and functions that Python lacks there are removed.
"""

import ctypes
import multiprocessing.connection
import os
import select
import signal
import sys
from importlib import import_module
from importlib.abc import MetaPathFinder


IMPORTED = ("asyncio", "concurrent.futures.process", "gymnasium", "httpx2", "numpy", "pettingzoo", "rich.progress")
MODULES = {"darwin": (), "win32": ("fcntl", "grp", "pwd", "resource", "termios", "tty")}
NAMES = {
    "darwin": ((os, "O_PATH memfd_create pipe2 sched_getaffinity"), (select, "epoll")),
    "win32": (
        (
            os,
            "O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK O_PATH WNOHANG fork geteuid getgid getpgid getuid killpg"
            " memfd_create mkfifo pipe2 register_at_fork sched_getaffinity setsid wait4",
        ),
        (signal, "SIGALRM SIGCHLD SIGHUP SIGKILL SIGSTOP SIGUSR1 SIGXCPU pthread_sigmask setitimer"),
        (select, "epoll poll"),
    ),
}


class Lacking(MetaPathFinder):
    def __init__(self, modules):
        self.modules = modules

    def find_spec(self, name, path=None, target=None):
        if name in self.modules:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


class NoLibrary:
    def __call__(self, name, *args, **settings):
        raise TypeError("ctypes.CDLL(None) is POSIX's")


def become(name):
    """Make this process look like one of the platform."""
    assert multiprocessing.connection
    for module in IMPORTED:
        import_module(module)
    sys.platform = name
    for module in MODULES[name]:
        sys.modules.pop(module, None)
    sys.meta_path.insert(0, Lacking(MODULES[name]))
    for module, names in NAMES[name]:
        for each in names.split():
            delattr(module, each)
    if name == "win32":
        ctypes.CDLL = NoLibrary()


if __name__ == "__main__":
    become(sys.argv[1])
    from pettingllms_envs import cli

    status = 0
    for command in " ".join(sys.argv[2:]).split(" ; "):
        print(f"$ {command}", flush=True)
        print(f"status {cli.main(command.split())}", flush=True)
