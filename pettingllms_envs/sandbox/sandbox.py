"""`Sandbox`: runs programs that a model wrote in isolation, and judges their output. For threads and asyncio.

    with Sandbox() as sandbox:
        sandbox.run("print(6 * 7)").stdout                                           # b"42\\n"
        sandbox.run_tests("print(int(input()) ** 2)", [StdinTest("3", "9")]).passed  # True

Expected outputs never leave this process: the server gets only a program and its inputs, and returns bytes.
"""

from __future__ import annotations

import logging
import math
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Self

from pettingllms_envs.core import check_choice
from pettingllms_envs.sandbox import layers, selftest, unsafe
from pettingllms_envs.sandbox.pool import Pool, after_fork
from pettingllms_envs.sandbox.requests import Request, request_run, request_tests
from pettingllms_envs.sandbox.slot import Died, NotStarted, Slot
from pettingllms_envs.sandbox.values import (
    CallTest,
    Limits,
    ProgramResult,
    Report,
    StdinTest,
    Task,
    ToleranceKind,
    Verdict,
)


logger = logging.getLogger(__name__)

DEFAULT_LIMITS = Limits()


class Sandbox:
    """A pool of fork servers. Started at the first call, with the best confinement that works on this machine.

    Args:
        num_slots: Number of concurrent programs; None is one for each core that this process may use (`num_cores`).
        confinement: Require one of `layers.CONFINEMENTS`; None uses the best that works.
        min_isolation: The weakest acceptable confinement.
        memory: Require a way to limit the memory of a program's processes, `"cgroup"` or `"polling"`; None uses a
            cgroup, if one can be created.
        imports: Packages that programs may import, such as `("numpy", "sympy")`; imported once, beforehand. Their
            `site-packages` folder is then readable.
        resident: Source of a trusted module, run once in each server after the imports and before it is confined;
            never a model's program. Programs use it by `import resident`.
        as_other_user: Start the servers as an unprivileged user; needs root, and is for tests.
    """

    def __init__(
        self,
        *,
        num_slots: int | None = None,
        confinement: str | None = None,
        min_isolation: str = "no-open",
        memory: str | None = None,
        imports: Sequence[str] = (),
        resident: str = "",
        as_other_user: bool = False,
    ) -> None:
        if confinement is not None:
            check_choice("confinement", confinement, layers.CONFINEMENTS)
        check_choice("min_isolation", min_isolation, layers.CONFINEMENTS)
        if memory is not None:
            check_choice("memory", memory, layers.MEMORY_BOUNDS)
        if num_slots is not None and num_slots < 1:
            raise ValueError(f"num_slots is {num_slots}; expected at least 1. Leave it out for one for each core.")
        self.num_slots = num_cores() if num_slots is None else num_slots
        self._wanted = [confinement] if confinement else list(layers.CONFINEMENTS)
        self._min_isolation = min_isolation
        self._memory_wanted = memory or ""
        self._memory_bound = ""
        self._imports = tuple(imports)
        self._resident = resident
        self._as_other_user = as_other_user
        self._plan: layers.Plan | None = None
        self._probed: list[layers.Probed] = []
        self._pool = Pool(self.num_slots, self._new_slot)
        self._renew_lock()
        after_fork(self, Sandbox._renew_lock)

    def run(
        self, program: str, stdin: str | bytes = "", *, limits: Limits = DEFAULT_LIMITS, isolation: str = "per_test"
    ) -> ProgramResult:
        """Run a program from its first line to its end; `Verdict.FINISHED` if it got there with exit code 0.

        Raises:
            SandboxUnavailable: No sufficient isolation works on this machine.
        """
        request = request_run(program, stdin, limits)
        return self._results(request, isolation)[0]

    def run_tests(
        self,
        program: str,
        tests: Sequence[StdinTest | CallTest],
        *,
        fn_name: str | None = None,
        prelude: str = "",
        tolerance: float | None = None,
        tolerance_kind: ToleranceKind = "either",
        ignore_case: bool | frozenset[str] = False,
        limits: Limits = DEFAULT_LIMITS,
        isolation: str = "per_test",
        stop_at_timeout: bool = True,
    ) -> Report:
        """Run a program on its tests, in their order, and compare what it prints or returns.

        Args:
            tests: All of one kind: `StdinTest`, or `CallTest` with `fn_name`.
            fn_name: The function to call, or the method of the program's class `Solution`.
            prelude: Source that runs before the program, such as `LEETCODE_PRELUDE`.
            tolerance: How far numbers may be off, unless both are whole numbers; None for not at all.
            tolerance_kind: `"absolute"`, `"relative"` to the expected number, or `"either"`, the larger of the two.
            ignore_case: Whether printed letters may be of any case, or the words, in lower case, whose letters may.
            isolation: `"per_test"`: a process for each test. `"per_solution"`: one for all, five times as fast; the
                same security and verdicts, but a test can see the interpreter state that the previous one left.
                `"unsafe-subprocess"`: no sandbox; every result says so.
            stop_at_timeout: Count the tests after the first timeout as timed out, without running them.

        Raises:
            SandboxUnavailable: No sufficient isolation works on this machine.
        """
        task = Task(
            program=program,
            tests=tests,
            fn_name=fn_name,
            prelude=prelude,
            tolerance=tolerance,
            tolerance_kind=tolerance_kind,
            ignore_case=ignore_case,
        )
        return self._report(task, limits, isolation, stop_at_timeout)

    def run_many(
        self,
        tasks: Sequence[Task],
        *,
        limits: Limits = DEFAULT_LIMITS,
        isolation: str = "per_test",
        stop_at_timeout: bool = True,
    ) -> list[Report]:
        """`run_tests` on many programs, as many at a time as there are slots; the reports in the tasks' order."""
        report = partial(self._report, limits=limits, isolation=isolation, stop_at_timeout=stop_at_timeout)
        with ThreadPoolExecutor(self.num_slots, "sandbox") as threads:
            return list(threads.map(report, tasks))

    def start(self) -> str:
        """Choose the layers and start the first server, unless that is done; the level, such as in `Result.isolation`.

        Raises:
            SandboxUnavailable: No confinement works here, or none that is good enough.
        """
        with self._choosing:
            if self._plan is None:
                self._plan = self._choose()
        return self._plan.level

    def describe(self) -> dict[str, Any]:
        """What holds programs here, as plain values, for logs, reports and checkpoints. Starts the sandbox."""
        level = self.start()
        return {
            "level": level,
            "memory": self._memory_bound,
            "probed": [{"name": each.name, "works": each.works, "why": each.why} for each in self._probed],
            "num_slots": self.num_slots,
            "imports": list(self._imports),
            "interpreter": layers.interpreter(),
        }

    @property
    def probed(self) -> tuple[layers.Probed, ...]:
        """What was tried at the start, and what came of it."""
        return tuple(self._probed)

    def close(self) -> None:
        """End all servers. The next call starts new ones."""
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def pids(self) -> list[int]:
        """The process ids of the servers' supervisors, for tests and monitors."""
        return self._pool.pids()

    def _report(
        self, task: Task, limits: Limits = DEFAULT_LIMITS, isolation: str = "per_test", stop_at_timeout: bool = True
    ) -> Report:
        request = request_tests(task, limits, isolation, stop_at_timeout)
        results = self._results(request, isolation)
        return Report(results=results, isolation=results[0].isolation)

    def _results(self, request: Request, isolation: str) -> tuple[ProgramResult, ...]:
        if isolation == "unsafe-subprocess":
            logger.warning("a program runs WITHOUT A SANDBOX (isolation='unsafe-subprocess')")
            done = unsafe.run(request.job, request.work)
            return tuple(request.result(index, each, "none") for index, each in enumerate(done))
        level = self.start()
        reason = ""
        for _ in range(2):  # a server may have died of something else
            try:
                with self._pool.lend() as slot:
                    results = tuple(slot.run(request.job, request.work, partial(request.result, isolation=level)))
            except (Died, NotStarted) as error:
                reason = str(error)
                continue
            if all(result.verdict != Verdict.SANDBOX_ERROR for result in results):
                return results
            reason = next(result.detail for result in results if result.verdict == Verdict.SANDBOX_ERROR)
        logger.warning("the sandbox failed twice on a program: %s", reason)
        lost = ProgramResult(verdict=Verdict.SANDBOX_ERROR, detail=reason, isolation=level)
        return (lost,) * request.job.num_tests

    def _renew_lock(self) -> None:
        self._choosing = threading.Lock()

    def _new_slot(self) -> Slot:
        assert self._plan is not None
        return Slot(self._plan, self._imports, self._resident)

    def _choose(self) -> layers.Plan:
        """The first plan whose server starts and passes the self-test."""
        self._probed = [layers.check_platform()]
        if not self._probed[0].works:
            raise layers.SandboxUnavailable(layers.words_of(self._probed[0]))
        uid, landlock = layers.can_become_others(), layers.landlock_works()
        self._probed += [uid, landlock]
        for name in self._wanted:
            if layers.STRENGTH[name] < layers.STRENGTH[self._min_isolation]:
                continue
            plan = layers.plan(name, uid.works, landlock.works, self._as_other_user, self._memory_wanted)
            found = self._try(plan) if isinstance(plan, layers.Plan) else plan
            self._probed.append(found)
            if found.works:
                assert isinstance(plan, layers.Plan)
                logger.info("sandbox: %s", plan.level)
                return plan
        raise layers.SandboxUnavailable(
            f"no sandbox that is good enough works here (min_isolation={self._min_isolation!r}); of these, one must:\n"
            f"{layers.table(self._probed)}\n"
            "Change the machine as said there, or run programs without protection by isolation='unsafe-subprocess'."
        )

    def _try(self, plan: layers.Plan) -> layers.Probed:
        slot = Slot(plan, self._imports)
        try:
            slot.start()
            self._memory_bound = slot.memory
            failed = selftest.failures(slot)
        except (NotStarted, Died) as error:
            return layers.Probed(plan.confinement, False, str(error))
        except selftest.Undecided as error:
            return layers.Probed(
                plan.confinement, False, f"it cannot be told whether it holds: {error}", hint=layers.UNDECIDED
            )
        finally:
            slot.stop()
        return layers.Probed(plan.confinement, not failed, "; ".join(failed))


def num_cores() -> int:
    """The cores that this process may use, by its affinity and its cgroup's quota, shared by a machine's ranks."""
    cores = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    cores = min(cores, cgroup_quota())
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "1")  # torchrun and accelerate set it
    return max(1, int(cores) // (int(ranks) if ranks.isdigit() and int(ranks) else 1))


def cgroup_quota(folder: str = "/sys/fs/cgroup") -> float:
    """The cores that a container may use at a time, by its cgroup of version 2 or 1; infinity where none says so."""
    for names in (["cpu.max"], ["cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"]):
        try:
            words = [word for name in names for word in Path(folder, name).read_text().split()]
            quota, period = int(words[0]), int(words[1])
        except (OSError, ValueError, IndexError):
            continue  # no such version, or "max"
        if quota > 0 and period > 0:
            return quota / period
    return math.inf
