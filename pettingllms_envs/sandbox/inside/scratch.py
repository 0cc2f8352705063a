"""The scratch directory of native commands: the only place that they may write to, empty before each of them.

With namespaces it is a memory file system of its own, whose size and number of files the kernel limits. Else it is a
folder of the machine's temporary directory, and `watch.py` ends a command that writes too much.

A command may have given its files any names, nested to any depth, with any modes; links and devices it cannot make.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import stat
import sys
import time
from collections.abc import Iterator
from itertools import islice

from . import kernel, wire


if sys.platform != "win32":  # which has neither the module nor a sandbox, but imports ours
    import fcntl


MOST_FILES = 4096
"""Files and directories in a scratch directory."""
IN_NAMESPACE = "/scratch"
PREFIX = "pettingllms-scratch-"

ABSENT, TOO_LARGE = -1, -2
"""Instead of the size of a file that is asked for: it is not there, or is no file; it does not fit."""


STALE_SECONDS = 1.0
"""That a server's start may spend on what others left."""


def make_folder(parent: str, uid: int | None) -> tuple[str, int]:
    """A folder of the machine's, which belongs to the user and group `uid`, if that is not None, and a descriptor that
    holds a lock on it, for as long as it is in use."""
    _remove_stale(parent)
    path = f"{parent}/{PREFIX}{os.urandom(8).hex()}"
    os.mkdir(path, 0o700)
    if uid is not None:
        os.chown(path, uid, uid)
    return path, _lock(path)


def _lock(path: str) -> int:
    """An open descriptor of a folder that nobody else has locked."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise
    return fd


def remove_folder(path: str, fd: int, seconds: float = math.inf) -> bool:
    """Remove a folder and what is in it, whose commands have ended, and close the descriptor.

    Returns whether there was time for it; if not, the folder stays locked.
    """
    with contextlib.suppress(OSError):  # a file that cannot be removed must not keep the supervisor from ending
        if not _clear_as_owner(fd, seconds):
            return False
        os.rmdir(path)
    os.close(fd)
    return True


def _clear_as_owner(fd: int, seconds: float) -> bool:
    """Clear a folder with the rights of whom it belongs to: another user's may hold links that change meanwhile."""
    me, owner = os.geteuid(), os.fstat(fd).st_uid
    if me != owner and me != 0:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
    if me == owner:
        return clear(fd, seconds)
    kernel.act_on_files_as(owner)
    try:
        return clear(fd, seconds)
    finally:
        kernel.act_on_files_as(me)


def _remove_stale(parent: str) -> None:
    """Remove the folders of supervisors that were killed: their locks ended with them. The working directory stays."""
    deadline = time.monotonic() + STALE_SECONDS
    here = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    for name in os.listdir(parent):
        path = f"{parent}/{name}"
        if name.startswith(PREFIX):
            with contextlib.suppress(OSError):  # in use, or another user's
                fd = _lock(path)
                if not remove_folder(path, fd, deadline - time.monotonic()):
                    os.close(fd)  # the next server goes on with it
    os.fchdir(here)
    os.close(here)


def clear(fd: int, seconds: float = math.inf) -> bool:
    """Remove all that is in a directory, which becomes the working directory. No process may be alive that uses it.

    Returns whether there was time for it; if not, the working directory is any below it. By steps from a directory to
    the next, so that no depth needs a deep recursion, many descriptors or a long path.
    """
    deadline = time.monotonic() + seconds
    os.fchdir(fd)
    names: list[str] = []
    waiting = [_remove_files(deadline)]
    while waiting:
        if time.monotonic() > deadline:
            return False
        if waiting[-1]:
            names.append(waiting[-1].pop())
            os.chmod(names[-1], 0o700)  # it may have been made closed to everybody
            os.chdir(names[-1])
            waiting.append(_remove_files(deadline))
        else:
            waiting.pop()
            if names:
                os.chdir("..")
                os.rmdir(names.pop())
    return True


def _remove_files(deadline: float) -> list[str]:
    """Remove the files of the working directory, until a time; the names of the directories in it."""
    folders = []
    for name in os.listdir():
        if time.monotonic() > deadline:
            break
        if stat.S_ISDIR(os.stat(name, follow_symlinks=False).st_mode):
            folders.append(name)
        else:
            os.unlink(name)
    return folders


def num_entries(folder: str, most: int) -> int:
    """How many files and directories a folder has in all, or `most` if there are more or they cannot be counted."""
    number, waiting = 0, [folder]
    while waiting and number < most:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in islice(entries, most - number):
                    number += 1
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except FileNotFoundError:  # removed meanwhile
            continue
        except OSError:  # closed to its owner, or nested deeper than a path can be long
            return most
    return number


def copy_out(fd: int, names: list[str], target: int, most: int) -> Iterator[int]:
    """Append files to another, at most `most` bytes together; yields the size of each, or `ABSENT` or `TOO_LARGE`."""
    os.lseek(target, 0, os.SEEK_END)
    for name in names:
        source = _open(fd, name)
        if source is None:
            yield ABSENT
            continue
        try:
            size = os.fstat(source).st_size
            if size > most:
                yield TOO_LARGE
                continue
            wire.copy(target, source, 0, size)
            most -= size
            yield size
        finally:
            os.close(source)


def _open(fd: int, name: str) -> int | None:
    """A regular file below a directory, by a path without links; None where there is none that can be read."""
    *folders, last = name.split("/")
    opened = [fd]
    try:
        for folder in folders:
            opened.append(
                os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=opened[-1])
            )
        found = os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=opened[-1])
    except OSError:  # absent, closed to its owner, or no path of directories: all of it the command's doing
        return None
    finally:
        for each in opened[1:]:
            os.close(each)
    if stat.S_ISREG(os.fstat(found).st_mode):
        return found
    os.close(found)
    return None
