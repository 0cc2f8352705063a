"""Compiles the seccomp filter from the table of system calls (syscalls.py) to the kernel's BPF bytes. Pure.

Why not a binding: the one on PyPI (pyseccomp 0.1.2, of January 2021) needs the machine's libseccomp.so.2, which many
images lack, and its output depends on the installed version. A filter that is not the same everywhere is not tested.
So it is compiled here, and the tests compare it with libseccomp's, where that is installed.

A filter is a binary search over ranges of call numbers with the same result. Installing it costs 1 ms of CPU time
(measured), whatever its length, and inheriting it nothing: a job installs it once.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from pettingllms_envs.sandbox import syscalls
from pettingllms_envs.sandbox.inside.kernel import MACHINES
from pettingllms_envs.sandbox.syscalls import Checked, Condition, Numbers


_LOAD, _JUMP, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN, _AND = 0x20, 0x05, 0x15, 0x35, 0x45, 0x06, 0x54
_ALLOW, _REFUSE, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


class Instruction(NamedTuple):
    """One instruction of classic BPF."""

    code: int
    value: int
    if_true: int = 0
    if_false: int = 0


Code = list[Instruction]


def program(machine: str, *, fork: bool, open_files: bool, set_filter: bool = False) -> bytes:
    """The filter of a program's process; see `syscalls.checked` for the options."""
    answers: dict[int, Code] = {}
    allowed = dict(syscalls.ALLOWED)
    if fork:
        allowed |= syscalls.FORK
    if open_files:
        allowed |= syscalls.ABOUT_FILES | {name: numbers for name, (numbers, _) in syscalls.STAT.items()}
    else:
        closed = syscalls.ABOUT_FILES | {name: numbers for name, (numbers, _) in syscalls.OPEN.items()}
        # As if there were no files: programs try whether there is an input.txt, and go on if they hear that not.
        _answer(answers, machine, closed, [_refuse(errno.ENOENT)])
    _answer(answers, machine, allowed, [Instruction(_RETURN, _ALLOW)])
    _answer(answers, machine, syscalls.NOT_THERE, [_refuse(errno.ENOSYS)])
    for name, call in syscalls.checked(fork=fork, open_files=open_files, set_filter=set_filter).items():
        _answer(answers, machine, {name: call.numbers}, _check(call))
    return _assemble(machine, answers, [_refuse(errno.EPERM)], [_refuse(errno.ENOSYS)])


def no_more_processes(machine: str) -> bytes:
    """A second filter, on top of the first, for a test's process: it allows threads, but no processes."""
    allow = [Instruction(_RETURN, _ALLOW)]
    answers: dict[int, Code] = {}
    _answer(answers, machine, syscalls.FORK, [_refuse(errno.EPERM)])
    thread = Checked(syscalls.CLONE, (Condition(0, "set", (syscalls.CLONE_THREAD,)),))
    _answer(answers, machine, {"clone": thread.numbers}, _check(thread))
    return _assemble(machine, answers, allow, allow)


def _answer(answers: dict[int, Code], machine: str, calls: dict[str, Numbers], code: Code) -> None:
    if machine not in MACHINES:
        raise ValueError(f"the machine is {machine!r}; expected one of {', '.join(MACHINES)}: see syscalls.py")
    for numbers in calls.values():
        number = numbers[MACHINES.index(machine)]
        if number is not None:
            answers[number] = code


def _refuse(number: int) -> Instruction:
    return Instruction(_RETURN, _REFUSE | number)


def _check(call: Checked) -> Code:
    """Code that checks the conditions; the first that fails jumps to the refusal."""
    code: Code = []
    for condition in call.conditions:
        code += _condition(condition, call.refusal)
    return [*code, Instruction(_RETURN, _ALLOW)]


def _condition(condition: Condition, refusal: int) -> Code:
    """Code that continues if the condition holds, and returns the refusal if not."""
    low = _ARGUMENTS + 8 * condition.argument
    refuse = _refuse(refusal)
    if condition.test == "in":
        num = len(condition.values)
        tests = [Instruction(_EQUAL, value, num - at, 0) for at, value in enumerate(condition.values)]
        return [Instruction(_LOAD, low), *tests, refuse]
    if condition.test == "not in":
        last = len(condition.values) - 1
        tests = [Instruction(_EQUAL, value, last - at, int(at == last)) for at, value in enumerate(condition.values)]
        return [Instruction(_LOAD, low), *tests, refuse]
    if condition.test == "clear":
        return [Instruction(_LOAD, low), Instruction(_ANY_BIT, condition.values[0], 0, 1), refuse]
    if condition.test == "set":
        each = [1 << bit for bit in range(32) if condition.values[0] >> bit & 1]
        code = [Instruction(_LOAD, low)]
        for bit in each:
            code += [Instruction(_ANY_BIT, bit, 1, 0), refuse]
        return code
    code = []
    for word in (low, low + 4):
        code += [Instruction(_LOAD, word), Instruction(_EQUAL, 0, 1, 0), refuse]
    return code


def _assemble(machine: str, answers: dict[int, Code], other: Code, newer: Code) -> bytes:
    runs: list[tuple[int, Code]] = []  # where a run of numbers with one answer begins
    for number in range(syscalls.NEWER_THAN_WE_KNOW):
        code = answers.get(number, other)
        if not runs or runs[-1][1] != code:
            runs.append((number, code))
    # Above all the numbers: among them those of x32, from 0x40000000 on.
    runs.append((syscalls.NEWER_THAN_WE_KNOW, newer))
    head = [
        Instruction(_LOAD, _ARCHITECTURE),
        Instruction(_EQUAL, _AUDIT_ARCH[machine], 1, 0),
        Instruction(_RETURN, _KILL_PROCESS),  # calls of another architecture, such as int 0x80 on x86_64
        Instruction(_LOAD, _NUMBER),
    ]
    assert all(before[0] < after[0] for before, after in pairwise(runs))
    return b"".join(
        struct.pack("<HBBI", code, if_true, if_false, value) for code, value, if_true, if_false in head + _search(runs)
    )


def _search(runs: Sequence[tuple[int, Code]]) -> Code:
    if len(runs) == 1:
        return runs[0][1]
    middle = len(runs) // 2
    below, above = _search(runs[:middle]), _search(runs[middle:])
    # Conditional jumps reach 255 instructions, `_JUMP` all of them.
    return [Instruction(_AT_LEAST, runs[middle][0], 0, 1), Instruction(_JUMP, len(below)), *below, *above]
