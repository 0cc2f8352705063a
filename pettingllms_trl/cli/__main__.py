"""Entry points of the commands `train` and `sft`, for `pettingllms` and for `accelerate launch`.

    pettingllms train --config examples/configs/sokoban_L2_1.7B.yaml --learning_rate 1e-5
    accelerate launch -m pettingllms_trl.cli train --config examples/configs/sokoban_L2_1.7B.yaml

What a user got wrong ends with one line, "error: what was given, what was expected, what to do", and exit status 2.
`pettingllms_envs.cli`, which never imports this package, finds both commands by the entry-point group
`pettingllms.commands`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from pettingllms_envs.failures import ServiceFailed
from pettingllms_envs.installing import POSIX, TRAINER, about_missing


COMMANDS = ("train", "sft")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that the first argument names; returns the exit status."""
    name, *rest = (sys.argv[1:] if argv is None else argv) or [""]
    if name not in COMMANDS:
        return refused(f"the command is {name!r}; expected {' or '.join(COMMANDS)}. Add --help to one of them.")
    return _run(name, rest)


def train(argv: Sequence[str]) -> int:
    """`pettingllms train`: train a team by reinforcement learning. Returns the exit status."""
    return _run("train", argv)


def sft(argv: Sequence[str]) -> int:
    """`pettingllms sft`: warm up a team by supervised fine-tuning. Returns the exit status."""
    return _run("sft", argv)


def _run(name: str, argv: Sequence[str]) -> int:
    if name == "train" and not {"--estimate", "--help", "--help-all", "-h"}.isdisjoint(argv):
        name = "estimate"  # whose options are those of `train` and more
    try:
        script = importlib.import_module(f"pettingllms_trl.cli.{name}")
    except ModuleNotFoundError as error:
        return refuse_missing(name, error)
    try:
        work = script.prepare(argv)
    except (ValueError, TypeError, OSError, ImportError, ServiceFailed) as error:
        return refused(str(error))
    work()
    return 0


def refuse_missing(command: str, error: ModuleNotFoundError) -> int:
    """Say what to do where a library of the trainer is missing, or a module of Windows. Another's error is raised."""
    if (error.name or "").partition(".")[0] not in (*TRAINER, *POSIX):
        raise error
    return refused(f"`pettingllms {command}`: {about_missing(error)}")


def refused(message: str) -> int:
    """Say in one line what a user got wrong. Returns the exit status."""
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
