"""The kernel's calls that Python's standard library does not have, through ctypes.

Only numbers and structs are here; which calls are made, and in which order, is in the other files. Call numbers below
424 differ between machines, later ones do not.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
from collections.abc import Iterable


MACHINES = ("x86_64", "aarch64")

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x40000
MS_REMOUNT = 0x20
MS_RDONLY = 0x1
MS_NOSUID = 0x2
MS_NODEV = 0x4
MNT_DETACH = 0x2

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_SECCOMP = 22
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP_MODE_FILTER = 2
_CAPABILITIES_V3 = 0x20080522
_MOUNT_SETATTR = 442
_LANDLOCK_CREATE_RULESET = 444
_LANDLOCK_ADD_RULE = 445
_LANDLOCK_RESTRICT_SELF = 446
_AT_RECURSIVE = 0x8000
_AT_FDCWD = -100

if sys.platform != "win32":
    _libc = ctypes.CDLL(None, use_errno=True)
    _libc.syscall.restype = ctypes.c_long


class Refused(OSError):
    """A kernel's call failed; `filename` says which."""


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise Refused(number, os.strerror(number), what)
    return result


def _number(x86_64: int, aarch64: int) -> int:
    return x86_64 if platform.machine() == "x86_64" else aarch64


def _syscall(what: str, number: int, *args: int | bytes | None) -> int:
    # Every integer as a long: the variadic `syscall` reads whole registers.
    longs = [ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args]
    return _check(_libc.syscall(ctypes.c_long(number), *longs), what)


def die_with_parent() -> None:
    """Be killed when the parent's thread ends. Lost by a change of uid, so call it after."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(9), 0, 0, 0), "prctl(PR_SET_PDEATHSIG)")


def dumpable(yes: bool) -> None:
    """Whether the files of this process in /proc are its user's own, and others of that user may trace it."""
    _check(_libc.prctl(_PR_SET_DUMPABLE, ctypes.c_ulong(yes), 0, 0, 0), "prctl(PR_SET_DUMPABLE)")


def adopt_orphans() -> None:
    """Become the parent of all descendants whose own parent dies."""
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0), "prctl(PR_SET_CHILD_SUBREAPER)")


def no_new_privileges() -> None:
    """Make set-uid programs powerless for this process and all that it starts."""
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), 0, 0, 0), "prctl(PR_SET_NO_NEW_PRIVS)")


def drop_capabilities() -> None:
    """Give up every capability."""
    header = struct.pack("<Ii", _CAPABILITIES_V3, 0)
    _syscall("capset", _number(126, 91), header, bytes(24))


def install_filter(program: bytes) -> None:
    """Install a seccomp filter, for good; needs `no_new_privileges`."""
    code = ctypes.create_string_buffer(program, len(program))
    # struct sock_fprog: the number of instructions (8 bytes each), and where they are
    prog = ctypes.create_string_buffer(struct.pack("@HP", len(program) // 8, ctypes.addressof(code)))
    mode = ctypes.c_ulong(_SECCOMP_MODE_FILTER)
    _check(_libc.prctl(_PR_SET_SECCOMP, mode, ctypes.byref(prog), 0, 0), "prctl(PR_SET_SECCOMP)")


def unshare(flags: int) -> None:
    """Leave the namespaces that the flags name for new ones."""
    _check(_libc.unshare(ctypes.c_int(flags)), "unshare")


def mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    """mount(2)."""
    fields = [None if field is None else os.fsencode(field) for field in (source, target, kind, options)]
    what = f"mount({target})"
    _check(_libc.mount(fields[0], fields[1], fields[2], ctypes.c_ulong(flags), fields[3]), what)


def make_read_only(path: str, *, devices: bool = False) -> None:
    """Make a mount read-only, without set-uid programs or devices, and from Linux 5.12 on all mounts below it."""
    flags = MS_RDONLY | MS_NOSUID | (0 if devices else MS_NODEV)  # mount_setattr has them with the same values
    attributes = struct.pack("<QQQQ", flags, 0, 0, 0)
    try:
        _syscall(
            f"mount_setattr({path})",
            _MOUNT_SETATTR,
            _AT_FDCWD,
            os.fsencode(path),
            _AT_RECURSIVE,
            attributes,
            len(attributes),
        )
    except Refused:
        mount("none", path, None, MS_BIND | MS_REMOUNT | flags)


def pivot_root_here() -> None:
    """Make the working directory the root, and let go of the old one."""
    _syscall("pivot_root", _number(155, 41), b".", b".")
    _check(_libc.umount2(b".", MNT_DETACH), "umount2")
    os.chdir("/")


def landlock_abi() -> int:
    """The version of Landlock.

    Raises:
        Refused: The kernel has none, or it is not switched on.
    """
    return _syscall("landlock_create_ruleset", _LANDLOCK_CREATE_RULESET, None, 0, 1)


READ, LIST = 1 | 1 << 2, 1 << 3
"""Rights in Landlock: to read a file and execute it; to list a directory."""


def landlock(allowed: Iterable[tuple[str, int]]) -> None:
    """Forbid all of the file system but these paths with their rights, and all below; TCP; signals to others."""
    abi = landlock_abi()
    rights = (1 << 13) - 1  # all of ABI 1
    rights |= (abi >= 2) << 13 | (abi >= 3) << 14 | (abi >= 5) << 15  # to link across, truncate, device ioctl
    fields = struct.pack("<QQQ", rights, 3 if abi >= 4 else 0, 3 if abi >= 6 else 0)  # bind, connect; abstract, signal
    size = 8 if abi < 4 else 16 if abi < 6 else 24
    ruleset = _syscall("landlock_create_ruleset", _LANDLOCK_CREATE_RULESET, fields, size, 0)
    try:
        for path, remaining in allowed:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
            try:
                rule = struct.pack("<Qi", remaining & rights, fd)
                _syscall("landlock_add_rule", _LANDLOCK_ADD_RULE, ruleset, 1, rule, 0)
            finally:
                os.close(fd)
        _syscall("landlock_restrict_self", _LANDLOCK_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)
