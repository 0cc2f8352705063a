"""What locks programs in, in three steps: the server's surroundings, the job's identity and limits, the test's limits.

`Confinement` says which layers to use. A layer that fails raises `kernel.Refused`: nothing is left out in silence, and
it is the trainer that decides whether less would do.
"""

from __future__ import annotations

import math
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from . import kernel
from .wire import Job


if sys.platform != "win32":
    import resource


STACK = 256 << 20  # as deep as recursion in C can get; see `supervisor.py` for why it is set there


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """The layers of a server and of its jobs.

    Args:
        namespaces: `""`, `"root"` (made with CAP_SYS_ADMIN) or `"user"` (in a user namespace of its own).
        uid: The user and group that jobs become, or None if they stay who they are.
        become_early: Become `uid` before everything else, and so go on as any unprivileged user would.
        base: The interpreter's prefix: the working directory, relative to which its files are found.
        dirs: Directories that may be read, absolute.
        files: Files that may be read, absolute.
        hidden: Directories below `dirs` of which no file may be read, absolute.
        job_filter: seccomp filter of a job that makes a process for each test.
        process_filter: seccomp filter of a job that runs its tests itself.
        test_filter: On top of `job_filter`, for the test; empty where the count of processes can be limited.
    """

    namespaces: str
    landlock: bool
    uid: int | None
    become_early: bool
    base: str
    dirs: tuple[str, ...]
    files: tuple[str, ...]
    hidden: tuple[str, ...]
    job_filter: bytes
    process_filter: bytes
    test_filter: bytes


def become(uid: int) -> None:
    """Become another user for good, with no groups."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def leave_namespaces(confinement: Confinement) -> None:
    """Leave all namespaces of the machine but that of files; the next child is process 1 of a new one.

    Before the first fork. The supervisor keeps its files, above all /proc; the server leaves them in `new_root`.
    """
    flags = (
        kernel.CLONE_NEWPID | kernel.CLONE_NEWNET | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS | kernel.CLONE_NEWCGROUP
    )
    if confinement.namespaces == "root":
        kernel.unshare(flags)
        return
    uid, gid = os.getuid(), os.getgid()
    kernel.unshare(flags | kernel.CLONE_NEWUSER)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def new_root(confinement: Confinement) -> None:
    """Put this process into an empty, read-only file system with the readable directories and files alone."""
    kernel.unshare(kernel.CLONE_NEWNS)
    kernel.mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    sources = (*confinement.dirs, *confinement.files, confinement.base)
    candidates = ("/mnt", "/media", "/srv", "/opt", "/tmp")
    root = next(
        (path for path in candidates if os.path.isdir(path) and not any(s.startswith(path) for s in sources)), None
    )
    if root is None:
        raise FileNotFoundError(2, "no directory to build the new root on", ", ".join(candidates))
    kernel.mount("none", root, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "size=1m,mode=755")
    for path in (*confinement.dirs, *confinement.files):
        target = root + path
        os.makedirs(os.path.dirname(target) if path in confinement.files else target, exist_ok=True)
        if path in confinement.files:
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o444))
        kernel.mount(from_base(confinement, path), target, None, kernel.MS_BIND | kernel.MS_REC)
        kernel.make_read_only(target, devices=path.startswith("/dev/"))
    for path in confinement.hidden:
        flags = kernel.MS_RDONLY | kernel.MS_NOSUID | kernel.MS_NODEV
        kernel.mount("none", root + path, "tmpfs", flags, "size=4k,mode=755")
    os.makedirs(f"{root}/tmp", exist_ok=True)
    os.chdir(root)
    kernel.pivot_root_here()
    kernel.make_read_only("/")


def from_base(confinement: Confinement, path: str) -> str:
    """The path, relative to the working directory if it lies below the interpreter's prefix.

    So it can be opened where a directory above the prefix is closed to us, such as another user's home.
    """
    inside = path.startswith(confinement.base.rstrip("/") + "/")
    return os.path.relpath(path, confinement.base) if inside else path


def readable(confinement: Confinement) -> Iterator[tuple[str, int]]:
    """The readable paths with their rights, as `kernel.landlock` takes them."""
    if confinement.namespaces:  # the hidden directories are empty already
        yield from ((path, kernel.READ | kernel.LIST) for path in confinement.dirs)
        yield from ((path, kernel.READ) for path in confinement.files)
        return
    for path in confinement.dirs:
        yield from _readable_below(confinement, path)
    yield from ((from_base(confinement, path), kernel.READ) for path in confinement.files)


def _readable_below(confinement: Confinement, path: str) -> Iterator[tuple[str, int]]:
    """A rule takes nothing away: where something is hidden below a directory, each of its entries needs its own."""
    name = from_base(confinement, path)
    if not any(hidden.startswith(path + "/") for hidden in confinement.hidden):
        yield name, kernel.READ | kernel.LIST
        return
    yield name, kernel.LIST  # modules are looked for by listing; so the names below it are no secret
    with os.scandir(name) as entries:
        for entry in entries:
            child = f"{path}/{entry.name}"
            if child in confinement.hidden or entry.is_symlink():  # a link's target has a rule, or should have none
                continue
            if entry.is_dir():
                yield from _readable_below(confinement, child)
            elif entry.is_file():
                yield from_base(confinement, child), kernel.READ


def lock_in(confinement: Confinement, job: Job, address_space: int, largest_file: int) -> None:
    """Make this process a job's: limits, user, capabilities, and the filter last.

    Args:
        largest_file: Bytes of the largest file that it writes besides its output, such as the copy of an input.
    """
    os.setsid()  # the filter refuses to leave the process group: `os.killpg` reaches all that the job ever starts
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it, and a program would not notice its own flood
    for limit, value in _limits(confinement, job, address_space, largest_file).items():
        _, most = resource.getrlimit(limit)
        value = _at_most(value, most)
        # Programs raise their stack's limit, as contests allow; what they use of it is address space all the same.
        resource.setrlimit(limit, (value, most if limit == resource.RLIMIT_STACK else value))
    if confinement.uid is not None and not confinement.become_early:
        become(confinement.uid)
    kernel.drop_capabilities()
    kernel.die_with_parent()
    if not job.in_process:
        kernel.adopt_orphans()
    kernel.no_new_privileges()
    kernel.install_filter(confinement.process_filter if job.in_process else confinement.job_filter)


def _at_most(value: int, most: int) -> int:
    return value if most == resource.RLIM_INFINITY else min(value, most)


def _limits(confinement: Confinement, job: Job, address_space: int, largest_file: int) -> dict[int, int]:
    limits = {
        resource.RLIMIT_AS: job.memory + address_space,
        resource.RLIMIT_CPU: whole_seconds(job.total) + 1,
        resource.RLIMIT_FSIZE: max(job.num_tests * job.output, largest_file),
        resource.RLIMIT_NOFILE: 256,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_STACK: STACK,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_RTPRIO: 0,
        resource.RLIMIT_NICE: 0,
        resource.RLIMIT_SIGPENDING: 64,
    }
    if counts_processes(confinement):
        limits[resource.RLIMIT_NPROC] = job.processes + 3  # this one, and in a user namespace the two above it
    return limits


def counts_processes(confinement: Confinement) -> bool:
    """Whether RLIMIT_NPROC counts the job's processes alone, and not all others of the same user."""
    return confinement.namespaces == "user" or (confinement.uid is not None and not confinement.become_early)


def whole_seconds(cpu: float) -> int:
    """Where the kernel is to stop a program that may use so much CPU time.

    Its clock for this limit counts the ticks of a timer, which was seen to run fast by a fifth on a busy machine. The
    verdict is by the exact account at the end, so what the kernel stops early would be an injustice.
    """
    return max(1, math.ceil(1.25 * cpu))


def limit_test(job: Job, cpu: float, test_filter: bytes) -> None:
    """Narrow a test's own process further, before the program runs."""
    seconds = whole_seconds(cpu)
    _, most = resource.getrlimit(resource.RLIMIT_CPU)  # a cluster's own limit may be lower
    soft, hard = _at_most(seconds, most), _at_most(seconds + 1, most)
    resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))  # SIGXCPU, and SIGKILL for who ignores it
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    output = _at_most(job.output, most)
    resource.setrlimit(resource.RLIMIT_FSIZE, (output, output))
    if test_filter:
        kernel.install_filter(test_filter)
