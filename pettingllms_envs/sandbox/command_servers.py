"""The servers of a `Sandbox` for native commands: started at the first command, once a self-test has passed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from functools import partial

from pettingllms_envs.sandbox import selftest
from pettingllms_envs.sandbox.command_slot import CommandSlot
from pettingllms_envs.sandbox.commands import Command, CommandRequest, CommandResult
from pettingllms_envs.sandbox.layers import Plan, SandboxUnavailable
from pettingllms_envs.sandbox.pool import Pool, after_fork
from pettingllms_envs.sandbox.slot import Died, NotStarted
from pettingllms_envs.sandbox.values import Verdict


logger = logging.getLogger(__name__)


class CommandServers:
    """Servers that run native commands, with the layers that programs have: a pool for each, and one for given files.

    Args:
        scratch: Bytes of files that a command may hold.
    """

    def __init__(self, commands: Sequence[Command], scratch: int, num_slots: int) -> None:
        self.commands = tuple(commands)
        self.scratch = scratch
        self._plan: Plan | None = None
        self._num_slots = num_slots
        self._pools: dict[Command | None, Pool[CommandSlot]] = {
            command: Pool(num_slots, partial(self._new_slot, command)) for command in (None, *commands)
        }
        self._renew_locks()
        after_fork(self, CommandServers._renew_locks)

    def _renew_locks(self) -> None:
        self._testing = threading.Lock()
        self._free = threading.Semaphore(self._num_slots)

    def start(self, plan: Plan) -> None:
        """Test the plan with native commands, unless that is done.

        Raises:
            SandboxUnavailable: It does not contain them, or the machine is too busy to tell.
        """
        with self._testing:
            if self._plan is None:
                _test(plan, self.scratch)
                self._plan = plan

    def run(self, request: CommandRequest, isolation: str) -> CommandResult:
        """Run a command, once more if the sandbox failed."""
        reason = ""
        for _ in range(2):
            try:
                with self._free, self._pools[request.command].lend() as slot:
                    result = slot.run_command(request, isolation)
            except (Died, NotStarted) as error:
                reason = str(error)
                continue
            if result.verdict != Verdict.SANDBOX_ERROR:
                return result
            reason = result.detail
        logger.warning("the sandbox failed twice on a command: %s", reason)
        return CommandResult(verdict=Verdict.SANDBOX_ERROR, detail=reason, isolation=isolation)

    def close(self) -> None:
        """End all servers. The next command starts new ones."""
        for pool in self._pools.values():
            pool.close()

    def pids(self) -> list[int]:
        """The process ids of the servers' supervisors."""
        return [pid for pool in self._pools.values() for pid in pool.pids()]

    def _new_slot(self, command: Command | None) -> CommandSlot:
        assert self._plan is not None
        return CommandSlot(self._plan, command, self.scratch)


def _test(plan: Plan, scratch: int) -> None:
    """Run the self-test in a server of its own, whose only command is the system's shell."""
    if plan.confinement == "no-open":
        raise SandboxUnavailable(
            "native commands cannot be contained here: no-open mode holds programs that open no file, and a command is"
            " loaded from files. Use Linux 5.13 or newer with Landlock, or allow namespaces (`pettingllms sandbox`)."
        )
    try:
        slot = CommandSlot(plan, selftest.shell(), scratch)
        try:
            slot.start()
            failed = selftest.command_failures(slot)
        finally:
            slot.stop()
    except (NotStarted, Died, ValueError) as error:
        failed = [str(error)]
    except selftest.Undecided as error:
        raise SandboxUnavailable(
            f"it cannot be told whether native commands are contained here ({plan.level}): {error};"
            " expected the self-test to end in its time. Try again when this machine is less busy."
        ) from error
    if failed:
        raise SandboxUnavailable(
            f"native commands cannot be contained here ({plan.level}): {'; '.join(failed)}. Use another machine or"
            " container (`pettingllms sandbox` shows what this one allows); Python programs are not affected."
        )
