"""Show how a model's programs are isolated on this machine, and test it. Exit status 1 if no isolation works."""

from __future__ import annotations

import argparse
import time

from rich.console import Console

from pettingllms_envs import sandbox
from pettingllms_envs.commands import say, user_errors
from pettingllms_envs.sandbox import selftest
from pettingllms_envs.sandbox.layers import table


_MEMORY = {
    "cgroup v1": "limited by the kernel (cgroup v1)",
    "cgroup v2": "limited by the kernel (cgroup v2)",
    "polling": "checked every 5 ms, with at most 4 processes; no memory cgroup can be made here",
}


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of `sandbox`: the weakest confinement that is acceptable."""
    parser.add_argument(
        "--min-isolation",
        default="no-open",
        metavar="NAME",
        help="weakest acceptable confinement: namespaces, user-namespaces, landlock or no-open (no-open)",
    )


def run(args: argparse.Namespace, console: Console) -> int:
    """Print what works, what is active, and the result of the self-test. Returns 0 if programs can be run."""
    with user_errors():
        box = sandbox.Sandbox(num_slots=1, min_isolation=args.min_isolation)
    say(console, f"What this machine allows:\n{table(sandbox.probe())}\n")
    with box:
        began = time.perf_counter()
        try:
            level = box.start()
        except sandbox.SandboxUnavailable as error:
            say(console, str(error))
            return 1
        seconds = time.perf_counter() - began
        say(console, f"Active: {level}")
        say(console, f"Memory of a program's processes together: {_MEMORY[box.describe()['memory']]}")
        say(console, f"\nSelf-test, passed in {seconds:.1f} s with the start:")
        for check in selftest.checks():
            say(console, f"  {check.name}")
    return 0
