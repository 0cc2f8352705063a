"""The system calls that a program may make, with their numbers on the supported machines.

This is an allow-list: other calls fail with EPERM, and calls newer than the list with ENOSYS, so that the C library
falls back to an older call. The numbers are the kernel's and never change; tests/sandbox compares them with
libseccomp's. Each is (x86_64, aarch64), with None if the machine has no such call. `filters.py` compiles the filter.
"""

from __future__ import annotations

import errno
from typing import Literal, NamedTuple


Numbers = tuple[int | None, int | None]


class Condition(NamedTuple):
    """A condition on an argument; of all but `zero` the kernel reads the low 32 bits only, and so do we.

    `in`: one of the values. `not in`: none of them. `clear`: none of the bits is set. `set`: all of them are. `zero`:
    all 64 bits are zero.
    """

    argument: int
    test: Literal["in", "not in", "clear", "set", "zero"]
    values: tuple[int, ...] = ()


class Checked(NamedTuple):
    """A call that is allowed when all conditions hold, and fails with `refusal` otherwise."""

    numbers: Numbers
    conditions: tuple[Condition, ...]
    refusal: int = errno.EPERM


def _table(rows: str) -> dict[str, Numbers]:
    """A call in each row, up to a comma: its name, and its two numbers, `-` for none."""
    cells = (row.split() for row in rows.split(","))
    return {name: (int(x86), None if arm == "-" else int(arm)) for name, x86, arm in cells}


ALLOWED = _table(
    """
    read 0 63, write 1 64, readv 19 65, writev 20 66, pread64 17 67, pwrite64 18 68, close 3 57, close_range 436 436,
    fstat 5 80, lseek 8 62,
    mmap 9 222, mprotect 10 226, munmap 11 215, mremap 25 216, madvise 28 233, brk 12 214, msync 26 227,
    rt_sigprocmask 14 135, rt_sigreturn 15 139, rt_sigpending 127 136, rt_sigtimedwait 128 137,
    rt_sigsuspend 130 133, sigaltstack 131 132, pause 34 -, alarm 37 -, setitimer 38 103, getitimer 36 102,
    dup 32 23, dup2 33 -, dup3 292 24, pipe 22 -, pipe2 293 59,
    select 23 -, pselect6 270 72, poll 7 -, ppoll 271 73, epoll_create 213 -, epoll_create1 291 20, epoll_ctl 233 21,
    epoll_wait 232 -, epoll_pwait 281 22, eventfd 284 -, eventfd2 290 19,
    sendfile 40 71, ftruncate 77 46, fsync 74 82, fdatasync 75 83, fadvise64 221 223,
    nanosleep 35 101, clock_nanosleep 230 115, clock_gettime 228 113, clock_getres 229 114, gettimeofday 96 169,
    time 201 -, times 100 153,
    getpid 39 172, gettid 186 178, getppid 110 173, getpgid 121 155, getpgrp 111 -, getsid 124 156, getuid 102 174,
    geteuid 107 175, getgid 104 176, getegid 108 177, getresuid 118 148, getresgid 120 150, getgroups 115 158,
    uname 63 160, sysinfo 99 179, getrusage 98 165, getrlimit 97 163, setrlimit 160 164, sched_yield 24 124,
    sched_getaffinity 204 123, sched_getparam 143 121, sched_getscheduler 145 120, getpriority 140 141,
    getcpu 309 168,
    capget 125 90, futex 202 98, set_robust_list 273 99, set_tid_address 218 96, rseq 334 293, membarrier 324 283,
    restart_syscall 219 128,
    exit 60 93, exit_group 231 94, wait4 61 260, waitid 247 95, arch_prctl 158 -,
    getrandom 318 278, umask 95 166, getcwd 79 17, shutdown 48 210, getsockname 51 204, getpeername 52 205,
    getsockopt 55 209
    """
)

# They read names, sizes and directories, never the inside of a file. Refused where nothing else hides files.
ABOUT_FILES = _table(
    """
    stat 4 -, lstat 6 -, access 21 -, faccessat 269 48, faccessat2 439 439, readlink 89 -, readlinkat 267 78,
    getdents 78 -, getdents64 217 61
    """
)
STAT: dict[str, tuple[Numbers, int]] = {  # and which argument has the flags
    "newfstatat": ((262, 79), 3),
    "statx": ((332, 291), 2),
}

# The C library has an older call for each of them. memfd_create is here because its pages escape RLIMIT_AS.
NOT_THERE = _table(
    """
    clone3 435 435, openat2 437 437, memfd_create 319 279, memfd_secret 447 447, io_uring_setup 425 425,
    io_uring_enter 426 426, io_uring_register 427 427, userfaultfd 323 282, pidfd_open 434 434, futex_waitv 449 449,
    epoll_pwait2 441 441
    """
)
NEWER_THAN_WE_KNOW = 457

_O_WRITING = (
    0o1 | 0o2 | 0o100 | 0o1000 | 0o20000000
)  # O_WRONLY, O_RDWR, O_CREAT, O_TRUNC, O_TMPFILE without O_DIRECTORY
_AT_EMPTY_PATH = 0x1000
_STREAM = (1, 1 | 0o2000000, 1 | 0o4000, 1 | 0o2004000)  # SOCK_STREAM, with and without CLOEXEC and NONBLOCK
CLONE_THREAD = 0x10000
_MSG_OOB = 0x1
_SIGCHLD = 17
_CLONE_NEW_ANYTHING = 0x7E020000  # namespaces: with capabilities in one of its own, a program could mount and trace
_CLONE_PARENT_OR_PTRACE = 0x8000 | 0x2000
_SET_SECCOMP = 22
_PRCTL = (15, 16, 3, 21, 0x53564D41)  # SET_NAME, GET_NAME, GET_DUMPABLE, GET_SECCOMP, SET_VMA (malloc names its heaps)
_IOCTL = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)  # TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX
_FCNTL = (*range(8), 1030, 1032, 1034)  # DUPFD to SETLKW, DUPFD_CLOEXEC, GETPIPE_SZ, GET_SEALS; never SETOWN, SETSIG

OPEN: dict[str, tuple[Numbers, int]] = {
    "open": ((2, None), 1),
    "openat": ((257, 56), 2),
}  # and which argument has the flags
FORK: dict[str, Numbers] = {"fork": (57, None)}
CLONE: Numbers = (56, 220)


def checked(*, fork: bool, open_files: bool, set_filter: bool) -> dict[str, Checked]:
    """The calls whose arguments are checked.

    Args:
        open_files: Files may be opened to be read; else no file may be opened at all.
        set_filter: A further filter may be added, which can only forbid more.
    """
    prctl = (*_PRCTL, _SET_SECCOMP) if set_filter else _PRCTL
    clone = [Condition(0, "clear", (_CLONE_NEW_ANYTHING | _CLONE_PARENT_OR_PTRACE,))]
    if not fork:
        clone.append(Condition(0, "set", (CLONE_THREAD,)))
    calls = {
        "clone": Checked(CLONE, tuple(clone)),
        "fcntl": Checked((72, 25), (Condition(1, "in", _FCNTL),)),
        "ioctl": Checked((16, 29), (Condition(1, "in", _IOCTL),), errno.ENOTTY),
        "prctl": Checked((157, 167), (Condition(0, "in", prctl),)),
        # Of this process alone.
        "prlimit64": Checked((302, 261), (Condition(0, "in", (0,)),)),
        # A datagram socket could send to an address: streams only, and no address in `sendto`.
        "sendto": Checked((44, 206), (Condition(4, "zero"), Condition(3, "clear", (_MSG_OOB,)))),
        # Nobody needs urgent bytes on a local socket, and their code in the kernel had holes (CVE-2025-38236).
        "recvfrom": Checked((45, 207), (Condition(3, "clear", (_MSG_OOB,)),)),
        "recvmsg": Checked((47, 212), (Condition(2, "clear", (_MSG_OOB,)),)),
        # Whoever ignores the end of its children is not charged for their time.
        "rt_sigaction": Checked((13, 134), (Condition(0, "not in", (_SIGCHLD,)),) if fork else ()),
        "socketpair": Checked((53, 199), (Condition(0, "in", (1,)), Condition(1, "in", _STREAM))),
    }
    for name, (numbers, flags) in OPEN.items():
        if open_files:
            calls[name] = Checked(numbers, (Condition(flags, "clear", (_O_WRITING,)),), errno.EACCES)
    for name, (numbers, flags) in STAT.items():
        if not open_files:
            calls[name] = Checked(numbers, (Condition(flags, "set", (_AT_EMPTY_PATH,)),), errno.ENOENT)
    return calls
