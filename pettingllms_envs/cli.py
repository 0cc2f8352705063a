"""`pettingllms`: look at environments, play them, check them, and start a new one.

    pettingllms list
    pettingllms info plan_path
    pettingllms play sokoban --level 2 --role planner --record game.gif
    pettingllms check sudoku
    pettingllms bench plan_path --agents oracle
    pettingllms new my_game
    pettingllms data list
    pettingllms view outputs/my_run --serve
    pettingllms audit outputs/my_run
    pettingllms sandbox

Entry points add commands (see `pettingllms_envs.commands`): `train` and `sft` of the trainer, and those of `research`.

What a user got wrong ends with one line, "error: what was given, what was expected, what to do", and exit status 2.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import shlex
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import EntryPoint, version
from typing import Any, NoReturn

from rich.console import Console
from rich.text import Text

from pettingllms_envs.commands import INTERRUPTED, Parser, Refused, plug_ins, user_errors
from pettingllms_envs.failures import ServiceFailed
from pettingllms_envs.installing import POSIX, about_missing
from pettingllms_envs.printable import printable
from pettingllms_envs.suggestions import did_you_mean


COMMANDS = {
    "list": "which environments there are",
    "info": "an environment's roles, settings, options, rewards and prompts",
    "play": "play in this terminal, or watch a game and record it",
    "check": "run the conformance suite on an environment",
    "bench": "benchmark agents on an environment, with every episode on record",
    "compare": "compare runs on the same problems, with tests and intervals",
    "runs": "an index of all runs in a folder, by environment, model and date",
    "leaderboard": "models by environments, with intervals and paired comparisons",
    "export": "write runs as logs of Inspect",
    "report": "report a study: methods compared over seeds, with intervals and curves",
    "replay": "play recorded episodes again without a model, or rescore them",
    "audit": "check that a run is sound: groups, roles that do not learn, a collapse",
    "new": "start a package with an environment of your own",
    "data": "data sets of problems: list, show, prepare a copy, check for test problems",
    "view": "write a page with a run's numbers and all of its episodes",
    "push": "upload a run to the Hub as a data set; it asks first",
    "completion": "print what completes commands in bash, zsh or fish",
    "sandbox": "show how programs are isolated on this machine, and test it",
    "serve": "serve a team to clients of OpenEnv",
}

FILES = {"list": "listing", "runs": "index"}
"""Of the commands whose file has another name."""

SUMMARIES = {
    "train": "train a team by reinforcement learning, or estimate what that takes of GPUs",
    "sft": "warm up a team by supervised fine-tuning on demonstrations",
    "study": "compare training methods over seeds and settings, in worker processes",
    "cooperation": "compare a team with its forms: without messages, alone, and shown everything",
    "crossplay": "mix the roles of runs, replace a role, or play alone at the same budget",
    "blame": "answer every call of a run again, and show which ones decide the outcome",
    "blind": "play a run again with a role's pictures exchanged, and show what they are worth",
}
"""Of the commands that entry points add: without importing them nothing says what they do."""

WIDTH = 200
"""Columns of what goes into a file or to another program, unless COLUMNS is set: tables are seldom wrapped there."""


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM ends a command as Ctrl-C does, so that the processes that it has started are ended, too."""
    is_ours = threading.current_thread() is threading.main_thread()
    is_ours = is_ours and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if is_ours:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        if is_ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


@_terminated_as_interrupted()
def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; `argv` defaults to the process's arguments. Returns the exit status."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal without Unicode shows "?" instead of ending the game
            stream.reconfigure(errors="replace")
    has_width = sys.stdout.isatty() or "COLUMNS" in os.environ
    console = Console(markup=False, emoji=False, highlight=False, width=None if has_width else WIDTH)
    argv = sys.argv[1:] if argv is None else argv
    try:
        plugged = plug_ins() if not argv or argv[0] not in COMMANDS else {}
        if argv and argv[0] in plugged:
            with user_errors():
                command = plugged[argv[0]].load()
            if callable(command):
                return int(command(argv[1:]))
        elif argv and not argv[0].startswith("-") and argv[0] not in COMMANDS:
            raise Refused(_unknown("there is no command", repr(argv[0]), (*COMMANDS, *plugged), "pettingllms"))
        if not argv:
            _parser(plugged).print_help()
            return 0
        args, unknown = _parser(plugged).parse_known_args(argv)
        if unknown:
            several = " For several models repeat --model." * bool(getattr(args, "models", None))
            words = _unknown("unrecognized arguments:", " ".join(unknown), args.options, args.prog) + several
            raise Refused(_moved(argv, args.moved) or words)
        status: int = args.run(args, console)
    except (Refused, ServiceFailed) as refused:
        return _error(str(refused))
    except ModuleNotFoundError as error:
        if error.name not in POSIX:
            raise
        return _error(about_missing(error))
    except KeyboardInterrupt:
        return INTERRUPTED
    return status


def _error(words: str) -> int:
    """Print an error in one line. Returns the exit status."""
    Console(stderr=True).print(Text(f"error: {printable(' '.join(words.split()))}"), soft_wrap=True)
    return 2


def _unknown(what: str, given: str, known: Iterable[str], prog: str) -> str:
    hint = did_you_mean(given.strip("'").partition(" ")[0], known)
    return f"{what} {given}.{hint} `{prog} --help` shows what there is."


def _moved(argv: Sequence[str], moved: Mapping[str, tuple[str, str]]) -> str:
    """The error for options that another command has, with that command; empty if none of them is given."""
    words = [word.partition("=") for word in argv[1:]]
    given = {name: moved[name][0] for name, *_ in words if name in moved}
    if len(set(given.values())) != 1:
        return f"{' and '.join(given)} were given; expected one of them. Ask for each by itself." if given else ""
    named = [(moved[name][1] if name in moved else name, equals + value) for name, equals, value in words]
    option, command = next(iter(given.items()))
    line = shlex.join([command, *(name + value for name, value in named if name or value)])
    return f"{argv[0]} got {option}; expected it of the command {command}. Use: pettingllms {line}"


def files(plugged: Mapping[str, EntryPoint]) -> dict[str, str]:
    """The module of each command that is a file."""
    own = {name: f"pettingllms_envs.commands.{FILES.get(name, name)}" for name in COMMANDS}
    return {**own, **{name: point.module for name, point in plugged.items() if not point.attr}}


class _Help(argparse.HelpFormatter):
    """Fills each paragraph of a description by itself, and leaves examples, which are indented, as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        blocks = text.rstrip().split("\n\n")
        return "\n\n".join(
            each if each.startswith("    ") else super(_Help, self)._fill_text(each, width, indent) for each in blocks
        )


class _Command(Parser):
    """Imports the file of its command, with the arguments, when it is the one that was called."""

    file: str

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        module = importlib.import_module(self.file)
        self.description, self.formatter_class = module.__doc__, _Help
        self.set_defaults(moved={})
        module.add(self)
        self.set_defaults(run=module.run, prog=self.prog, options=list(self._option_string_actions))
        return super().parse_known_args(args, namespace)


class _Version(argparse.Action):
    """Prints the version, which is looked up only on request."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        sys.stdout.write(f"{parser.prog} {version('pettingllms')}\n")
        parser.exit()


def _parser(plugged: Mapping[str, EntryPoint]) -> argparse.ArgumentParser:
    parser = Parser(prog="pettingllms", description="Text environments for teams of language models.")
    parser.add_argument("--version", action=_Version, nargs=0, help="the version of the package")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=_Command)
    others = {name: f"command of the package {point.module.partition('.')[0]}" for name, point in plugged.items()}
    for name, summary in {**COMMANDS, **others}.items():
        commands.add_parser(name, help=SUMMARIES.get(name, summary)).file = files(plugged).get(name, "")
    return parser


if __name__ == "__main__":
    sys.exit(main())
