"""Run the conformance suite (`pettingllms_envs.testing`) on an environment. Exit status 1 if a check fails.

ENV is a name, or for any other PettingZoo AEC environment module:callable, such as my_module:make_env.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

from rich.console import Console

import pettingllms_envs
from pettingllms_envs.commands import add_environment, callable_at, made, refuse, say, settings, user_errors
from pettingllms_envs.registry import is_elsewhere


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of `check`: the environment, and the number of seeds."""
    add_environment(parser, by_path=True)
    parser.add_argument("--seeds", type=int, default=20, metavar="N", help="play the seeds 0 to N - 1 (20)")
    parser.add_argument(
        "--floor",
        type=float,
        default=0.25,
        metavar="SHARE",
        help="most success of replies that ignore the state (0.25); more where answers are few, as yes and no are",
    )


def run(args: argparse.Namespace, console: Console) -> int:
    """Print the report. Returns 0 if every check passed."""
    if args.seeds < 1:
        refuse(f"--seeds is {args.seeds}; expected at least 1. Give more.")
    from pettingllms_envs import testing  # it loads PettingZoo's own tests, which the other commands do without

    parallel: Callable[..., Any] | None = None
    if ":" in args.env and not is_elsewhere(args.env):
        with user_errors():
            make = partial(callable_at(args.env), **settings(args))
    else:
        made(args)  # what the user got wrong is said here, not in the report
        module = importlib.import_module(pettingllms_envs.find(args.env).module)
        parallel = partial(module.parallel_env, **settings(args)) if "parallel_env" in vars(module) else None
        # By its name and not as the module's function, so that it can be made in another process too.
        make = partial(pettingllms_envs.make, args.env, **settings(args))
    report = testing.check(make, make_parallel=parallel, seeds=range(args.seeds), floor=args.floor)
    say(console, str(report))
    return 0 if report.ok else 1
