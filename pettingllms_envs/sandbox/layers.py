"""The layers that can isolate a program, which of them this machine allows, and what to do where it allows too few.

Which layers work is determined at runtime by starting a server with them (`Sandbox.start`). This module has the
candidates, best first, and the table that is shown when none of them works.
"""

from __future__ import annotations

import glob
import os
import platform
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pettingllms_envs.failures import Unavailable
from pettingllms_envs.installing import ON_WINDOWS
from pettingllms_envs.sandbox import filters
from pettingllms_envs.sandbox.inside import kernel
from pettingllms_envs.sandbox.inside.confine import Confinement, counts_processes


CONFINEMENTS = ("namespaces", "user-namespaces", "landlock", "no-open")
"""Ways to hide the machine's files from a program, best first; all include seccomp, limits, dropped privileges."""

MEMORY_BOUNDS = ("cgroup", "polling")
"""Ways to limit the memory of all of a program's processes: by the kernel, or by polling every few milliseconds."""

STRENGTH = {"namespaces": 3, "user-namespaces": 3, "landlock": 2, "no-open": 1}

LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64")
"""The system's libraries, which everything that runs in a sandbox may read."""

_NAMESPACES = {"namespaces": "root", "user-namespaces": "user"}

HINTS = {
    "namespaces": "run as root with CAP_SYS_ADMIN (docker run --cap-add SYS_ADMIN)",
    "user-namespaces": "allow unprivileged user namespaces (sysctl user.max_user_namespaces,"
    " kernel.apparmor_restrict_unprivileged_userns=0 on Ubuntu; a container's seccomp profile must allow unshare)",
    "landlock": "use Linux 5.13 or newer with landlock among its security modules (boot option lsm=landlock,...)",
    "no-open": "use a kernel with seccomp filters (CONFIG_SECCOMP_FILTER); gVisor and WSL 1 may have none",
    "uid": "run as root with CAP_SETUID, CAP_SETGID and CAP_KILL, as Docker does by default",
    "linux": "use Linux on x86_64 or aarch64, or a container or virtual machine of it"
    + (f". {ON_WINDOWS}" if sys.platform == "win32" else ""),
}
UNDECIDED = "try again when this machine is less busy"


class SandboxUnavailable(Unavailable):
    """No sufficient isolation works on this machine. The message lists what was tried and what to do."""


@dataclass(frozen=True, slots=True)
class Probed:
    """Whether a layer or a confinement works here, why not, and what to change unless `HINTS` says that."""

    name: str
    works: bool
    why: str = ""
    hint: str = ""

    def __str__(self) -> str:
        if self.works:
            return f"{self.name:16} yes"
        hint = self.hint or HINTS.get(self.name)
        return f"{self.name:16} no: {self.why}" + (f". To have it, {hint}" if hint else "")


def table(probed: Sequence[Probed]) -> str:
    """A table of what was probed, one line each."""
    return "\n".join(f"  {each}" for each in probed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A confinement with all of its settings.

    Args:
        confinement: One of `CONFINEMENTS`.
        uid: The user that programs run as; None: the current user.
        become_early: Whether the server becomes that user, too, as if an unprivileged one had started it.
        memory: How the memory of a program's processes is limited: `"cgroup"`, `"polling"`, or `""`, the better one.
    """

    confinement: str
    landlock: bool
    uid: int | None
    become_early: bool
    memory: str = ""

    @property
    def level(self) -> str:
        """The active layers as one word, for logs and results."""
        hidden = "namespaces" if self.confinement.endswith("namespaces") else ""
        hidden = "no-open" if self.confinement == "no-open" else hidden
        parts = (hidden, "landlock" if self.landlock else "", "seccomp", "uid" if self.uid is not None else "")
        return "+".join(part for part in parts if part)


def check_platform() -> Probed:
    """Whether the numbers of the kernel's calls are known for this machine."""
    if sys.platform != "linux":
        return Probed("linux", False, f"this is {sys.platform}")
    if platform.machine() not in kernel.MACHINES:
        return Probed("linux", False, f"this machine is {platform.machine()}")
    return Probed("linux", True)


def words_of(platform: Probed) -> str:
    """Why a machine that is not of `check_platform` runs no programs, in one sentence, and what to do."""
    return (
        f"a model's programs run in a sandbox of Linux, and {platform.why}; expected Linux on x86_64 or aarch64. "
        + (
            ON_WINDOWS
            if sys.platform == "win32"
            else "Use a container or a virtual machine of it, or an environment and a workflow that run no programs."
        )
    )


def landlock_works() -> Probed:
    """Whether the kernel has Landlock."""
    try:
        kernel.landlock_abi()
    except kernel.Refused as error:
        return Probed("landlock", False, f"{error.strerror}")
    return Probed("landlock", True)


_CAP_KILL, _CAP_SETGID, _CAP_SETUID = 5, 6, 7


def can_become_others() -> Probed:
    """Whether programs can run as a separate user."""
    if os.geteuid() != 0:
        return Probed("uid", False, "we are not root; programs run as the user that we are")
    with open("/proc/self/status") as file:
        fields = dict(line.split(":", 1) for line in file)
    capabilities = int(fields["CapEff"], 16)
    if any(not capabilities >> bit & 1 for bit in (_CAP_KILL, _CAP_SETGID, _CAP_SETUID)):
        return Probed("uid", False, "we are root without CAP_KILL, CAP_SETGID or CAP_SETUID")
    return Probed("uid", True)


def plan(confinement: str, uid: bool, landlock: bool, as_other_user: bool, memory: str = "") -> Plan | Probed:
    """The plan of a confinement on this machine, or why it cannot be used.

    `uid`: whether programs can run as a separate user; `as_other_user`: whether the server must be unprivileged, too.
    """
    if as_other_user and not uid:
        return Probed(confinement, False, "only root can start a server as another user")
    if confinement == "namespaces" and (os.geteuid() != 0 or as_other_user):
        return Probed(confinement, False, "we are not root")
    if confinement == "landlock" and not landlock:
        return Probed(confinement, False, "the kernel has no Landlock")
    early = as_other_user or (confinement == "user-namespaces" and uid)
    return Plan(
        confinement=confinement,
        landlock=landlock and confinement != "no-open",
        uid=0 if uid else None,
        become_early=early,
        memory=memory,
    )


def interpreter() -> str:
    """The interpreter that runs programs: this one, without its site-packages."""
    return f"{platform.python_implementation()} {platform.python_version()} ({sys.executable})"


def confinement_of(plan: Plan, imports: Sequence[str]) -> Confinement:
    """The server's settings for a plan."""
    machine = platform.machine()
    open_files = plan.confinement != "no-open"
    dirs = readable_dirs(imports)
    unlimited = Confinement(
        namespaces=_NAMESPACES.get(plan.confinement, ""),
        landlock=plan.landlock,
        uid=plan.uid,
        become_early=plan.become_early,
        base=sys.base_prefix,
        dirs=dirs,
        files=readable_files(),
        hidden=hidden_dirs(dirs, imports),
        job_filter=b"",
        process_filter=b"",
        test_filter=b"",
    )
    counted = counts_processes(unlimited)
    return replace(
        unlimited,
        job_filter=filters.program(machine, fork=True, open_files=open_files, set_filter=not counted),
        process_filter=filters.program(machine, fork=False, open_files=open_files),
        test_filter=b"" if counted else filters.no_more_processes(machine),
    )


def readable_dirs(imports: Sequence[str]) -> tuple[str, ...]:
    """The directories of the standard library, of the shared libraries, and of packages if any are imported."""
    # In a virtual environment sysconfig's own answer is a directory of the environment, with all its packages.
    base = {"platbase": sys.base_exec_prefix}
    paths = [os.path.dirname(os.__file__), sysconfig.get_path("platstdlib", vars=base), *module_path(imports)]
    if sysconfig.get_config_var("Py_ENABLE_SHARED"):
        paths.append(str(sysconfig.get_config_var("LIBDIR")))
    paths += [*LIBRARIES, "/usr/share/zoneinfo"]
    return _outermost([path for path in paths if path and os.path.isdir(path)])


def _outermost(paths: Iterable[str]) -> tuple[str, ...]:
    """The paths without those below another, which need no mount and no rule of their own."""
    found = dict.fromkeys(paths)
    return tuple(path for path in found if not _is_below(path, found))


def _is_below(path: str, folders: Iterable[str]) -> bool:
    return any(path.startswith(folder + "/") for folder in folders)


def hidden_dirs(dirs: Sequence[str], imports: Sequence[str]) -> tuple[str, ...]:
    """Package folders below the readable directories, which programs must not read, since they may contain answers.

    If packages are imported, theirs are not hidden, but this one is: a program could call a task's oracle.
    """
    places = [
        os.path.join(glob.escape(folder), between, name)
        for folder in dirs
        for between in ("", "python3*", "*/python3*")
        for name in ("site-packages", "dist-packages")
    ]
    packages = {path for place in places for path in glob.glob(place)} - set(module_path(imports))
    ours = Path(__file__).resolve().parents[1]
    for folder in dirs:  # of which some may be links to others, as lib64 is in an environment
        if ours.is_relative_to(real := Path(folder).resolve()):
            packages.add(os.path.join(folder, ours.relative_to(real)))
    return tuple(sorted(_outermost([path for path in packages if _is_below(path, dirs)])))


def readable_files() -> tuple[str, ...]:
    """Further files that programs may read."""
    names = ("/etc/ld.so.cache", "/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
    return tuple(name for name in names if os.path.exists(name))


def module_path(imports: Sequence[str]) -> list[str]:
    """Where packages are, for `sys.path` of the server."""
    if not imports:
        return []
    return list(dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib")))
