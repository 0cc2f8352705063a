"""The seccomp filter, run by an interpreter of BPF that is written here, against the table that it was made from."""

from __future__ import annotations

import ctypes
import ctypes.util
import errno
import struct

import pytest

from pettingllms_envs.sandbox import filters, syscalls


ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
OTHER = {"x86_64": 0x40000003, "aarch64": 0x40000028}  # i386, arm
ALLOW, KILL = "allow", "kill"
MACHINES = ("x86_64", "aarch64")


def verdict(program: bytes, architecture: int, number: int, *arguments: int) -> str | int:
    """What the kernel does with a call: allow, kill, or the errno that it returns. See linux/filter.h."""
    data = struct.pack("<IIQ6Q", number & 0xFFFFFFFF, architecture, 0, *(*arguments, *[0] * 6)[:6])
    code = list(struct.iter_unpack("<HBBI", program))
    accumulator, at = 0, 0
    while True:
        operation, if_true, if_false, value = code[at]
        at += 1
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, value)
        elif operation == 0x54:
            accumulator &= value
        elif operation == 0x05:
            at += value
        elif operation == 0x06:
            action = value & 0xFFFF0000
            return {0x7FFF0000: ALLOW, 0x80000000: KILL}.get(action, value & 0xFFFF)
        else:
            holds = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}[
                operation
            ]
            at += if_true if holds else if_false


def number(machine: str, numbers: syscalls.Numbers) -> int | None:
    return numbers[MACHINES.index(machine)]


VARIANTS = [(machine, fork, opens) for machine in MACHINES for fork in (True, False) for opens in (True, False)]


@pytest.mark.parametrize(("machine", "fork", "opens"), VARIANTS)
def test_a_call_without_conditions_gets_the_answer_of_the_table_and_any_other_is_refused(machine, fork, opens):
    program = filters.program(machine, fork=fork, open_files=opens)
    expected: dict[int, str | int] = dict.fromkeys(range(syscalls.NEWER_THAN_WE_KNOW), errno.EPERM)
    groups: list[tuple[dict[str, syscalls.Numbers], str | int]] = [
        (syscalls.ALLOWED, ALLOW),
        (syscalls.NOT_THERE, errno.ENOSYS),
        (syscalls.FORK, ALLOW if fork else errno.EPERM),
        (syscalls.ABOUT_FILES, ALLOW if opens else errno.ENOENT),
    ]
    for calls, answer in groups:
        for numbers in calls.values():
            expected[number(machine, numbers)] = answer
    checked = {
        number(machine, call.numbers)
        for call in syscalls.checked(fork=fork, open_files=opens, set_filter=False).values()
    }
    files = {number(machine, numbers) for numbers, _ in (*syscalls.OPEN.values(), *syscalls.STAT.values())}
    for call, answer in expected.items():
        if call is not None and call not in checked | files:
            assert verdict(program, ARCHITECTURE[machine], call) == answer, call


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("call", [457, 500, 100_000, 0x40000000, 0x40000000 + 59, 0x7FFFFFFF, -1])
def test_calls_that_are_newer_or_of_x32_are_not_there(machine, call):
    assert verdict(filters.program(machine, fork=True, open_files=True), ARCHITECTURE[machine], call) == errno.ENOSYS


@pytest.mark.parametrize("machine", MACHINES)
def test_calls_of_another_architecture_kill(machine):
    for fork in (True, False):
        program = filters.program(machine, fork=fork, open_files=True)
        assert verdict(program, OTHER[machine], 0) == KILL


O_RDONLY, O_WRONLY, O_RDWR, O_CREAT, O_TRUNC, O_TMPFILE, O_CLOEXEC = 0, 1, 2, 0o100, 0o1000, 0o20200000, 0o2000000
HIGH = 1 << 32

CASES = [
    ("openat", (0, 0, O_RDONLY | O_CLOEXEC), ALLOW),
    ("openat", (0, 0, O_WRONLY), errno.EACCES),
    ("openat", (0, 0, O_RDWR), errno.EACCES),
    ("openat", (0, 0, O_CREAT), errno.EACCES),
    ("openat", (0, 0, O_TRUNC), errno.EACCES),
    ("openat", (0, 0, O_TMPFILE), errno.EACCES),
    ("openat", (0, 0, HIGH | O_RDONLY), ALLOW),  # the kernel reads an int
    ("openat", (0, 0, HIGH | O_WRONLY), errno.EACCES),
    ("clone", (0x11,), ALLOW),
    ("clone", (0x003D0F00,), ALLOW),  # a thread, as glibc makes one
    ("clone", (0x10000000 | 0x11,), errno.EPERM),
    ("clone", (0x00020000 | 0x11,), errno.EPERM),
    ("clone", (0x02000000 | 0x11,), errno.EPERM),
    ("clone", (0x40000000 | 0x11,), errno.EPERM),
    ("clone", (0x00008000 | 0x11,), errno.EPERM),  # CLONE_PARENT
    ("ioctl", (0, 0x5401), ALLOW),
    ("ioctl", (0, 0x5412), errno.ENOTTY),  # TIOCSTI types on a terminal
    ("ioctl", (0, HIGH | 0x5412), errno.ENOTTY),
    ("fcntl", (0, 4), ALLOW),
    ("fcntl", (0, 8), errno.EPERM),  # F_SETOWN
    ("fcntl", (0, 10), errno.EPERM),  # F_SETSIG
    ("fcntl", (0, 1033), errno.EPERM),  # F_ADD_SEALS
    ("prctl", (15,), ALLOW),
    ("prctl", (1,), errno.EPERM),  # PR_SET_PDEATHSIG
    ("prctl", (4,), errno.EPERM),  # PR_SET_DUMPABLE
    ("prctl", (22,), errno.EPERM),  # PR_SET_SECCOMP
    ("prctl", (36,), errno.EPERM),  # PR_SET_CHILD_SUBREAPER
    ("prlimit64", (0,), ALLOW),
    ("prlimit64", (1,), errno.EPERM),
    ("sendto", (3, 1, 1, 0, 0), ALLOW),
    ("sendto", (3, 1, 1, 0, 1), errno.EPERM),
    ("sendto", (3, 1, 1, 0, HIGH), errno.EPERM),  # a pointer has 64 bits
    ("sendto", (3, 1, 1, 0x4000, 0), ALLOW),  # MSG_NOSIGNAL
    ("sendto", (3, 1, 1, 1, 0), errno.EPERM),  # MSG_OOB
    ("recvfrom", (3, 1, 1, 0x40), ALLOW),  # MSG_DONTWAIT
    ("recvfrom", (3, 1, 1, 0x41), errno.EPERM),
    ("recvmsg", (3, 1, 0), ALLOW),
    ("recvmsg", (3, 1, 1), errno.EPERM),
    ("rt_sigaction", (14, 1, 1, 8), ALLOW),  # SIGALRM
    ("rt_sigaction", (16, 1, 1, 8), ALLOW),
    ("rt_sigaction", (17, 1, 1, 8), errno.EPERM),  # SIGCHLD: ignored, the children's time would not be counted
    ("rt_sigaction", (HIGH | 17, 1, 1, 8), errno.EPERM),
    ("rt_sigaction", (18, 1, 1, 8), ALLOW),
    ("socketpair", (1, 1), ALLOW),
    ("socketpair", (1, 1 | O_CLOEXEC | 0o4000), ALLOW),
    ("socketpair", (1, 2), errno.EPERM),
    ("socketpair", (2, 1), errno.EPERM),
]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("call", "arguments", "answer"), CASES)
def test_arguments_decide(machine, call, arguments, answer):
    calls = syscalls.checked(fork=True, open_files=True, set_filter=False)
    program = filters.program(machine, fork=True, open_files=True)
    assert verdict(program, ARCHITECTURE[machine], number(machine, calls[call].numbers), *arguments) == answer


MAP_SHARED, MAP_PRIVATE, MAP_SHARED_VALIDATE, MAP_FIXED, MAP_ANONYMOUS = 1, 2, 3, 0x10, 0x20


@pytest.mark.parametrize("machine", MACHINES)
def test_without_forks_only_threads_can_be_cloned(machine):
    clone = number(machine, syscalls.CLONE)
    for program in (filters.program(machine, fork=False, open_files=True), filters.no_more_processes(machine)):
        assert verdict(program, ARCHITECTURE[machine], clone, 0x11) == errno.EPERM
        assert verdict(program, ARCHITECTURE[machine], clone, 0x4111) == errno.EPERM  # as vfork does
        assert verdict(program, ARCHITECTURE[machine], clone, 0x003D0F00) == ALLOW


@pytest.mark.parametrize("machine", MACHINES)
def test_in_no_open_mode_no_path_is_opened_and_only_descriptors_are_looked_at(machine):
    program = filters.program(machine, fork=True, open_files=False)
    calls = syscalls.checked(fork=True, open_files=False, set_filter=False)
    for numbers, _ in syscalls.OPEN.values():
        if (call := number(machine, numbers)) is not None:
            assert verdict(program, ARCHITECTURE[machine], call, 0, 0, O_RDONLY) == errno.ENOENT
    stat = number(machine, calls["newfstatat"].numbers)
    assert verdict(program, ARCHITECTURE[machine], stat, 1, 0, 0, 0x1000) == ALLOW
    assert verdict(program, ARCHITECTURE[machine], stat, 1, 0, 0, 0) == errno.ENOENT


def test_a_machine_that_we_have_no_numbers_for_is_refused():
    with pytest.raises(ValueError, match="'riscv64'; expected one of x86_64, aarch64"):
        filters.program("riscv64", fork=True, open_files=True)


def test_the_numbers_are_those_of_libseccomp():
    name = ctypes.util.find_library("seccomp")
    if name is None:
        pytest.skip("libseccomp is not installed")
    library = ctypes.CDLL(name)
    tables = (syscalls.ALLOWED, syscalls.ABOUT_FILES, syscalls.NOT_THERE, syscalls.FORK)
    calls = {name: numbers for table in tables for name, numbers in table.items()}
    calls |= {name: numbers for name, (numbers, _) in (syscalls.OPEN | syscalls.STAT).items()}
    checked = syscalls.checked(fork=True, open_files=True, set_filter=False)
    calls |= {name: call.numbers for name, call in checked.items()}
    resolved = 0
    for call, numbers in calls.items():
        for machine in MACHINES:
            theirs = library.seccomp_syscall_resolve_name_arch(ARCHITECTURE[machine], call.encode())
            if theirs != -1:  # a call that this version of the library does not know
                assert (number(machine, numbers) if theirs >= 0 else None) == (theirs if theirs >= 0 else None), call
                assert (number(machine, numbers) is None) == (theirs < 0), (call, machine)
                resolved += 1
    assert resolved > 200
