"""The commands of `pettingllms`, a file each, and what they share: how arguments become an environment.

A command's file has `add(parser)`, which declares its arguments, and `run(args, console)`, which returns the exit
status. An installed package brings commands of its own by entry points of the group `pettingllms.commands`, each a
file as here, or a function from the arguments after the command's name to the exit status:

    [project.entry-points."pettingllms.commands"]
    blame = "pettingllms_envs.research.commands.blame"
    train = "pettingllms_trl.cli.__main__:train"

It is imported when its command is called.
"""

from __future__ import annotations

import argparse
import ast
import errno
import importlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points
from operator import attrgetter
from typing import Any, NoReturn

from rich.console import Console
from rich.table import Table
from rich.text import Text

import pettingllms_envs
from pettingllms_envs.failures import ProgramFailed, Unavailable
from pettingllms_envs.installing import about_missing
from pettingllms_envs.printable import printable
from pettingllms_envs.registry import is_elsewhere


GROUP = "pettingllms.commands"
RESEARCH = "pettingllms.research"
INTERRUPTED = 130  # the usual exit status after Ctrl-C
CONSTANTS = {"true": True, "false": False, "null": None}


class Refused(Exception):
    """A user's mistake, with what was given, what was expected and what to do; the exit status is 2."""


class Parser(argparse.ArgumentParser):
    """Reports errors in one line; argparse would print its usage before every error."""

    def error(self, message: str) -> NoReturn:
        raise Refused(f"{message}. `{self.prog} --help` shows what there is.")


@contextmanager
def user_errors() -> Iterator[None]:
    """Turn the errors that environments and files raise for a user's mistake into `Refused`."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is None:  # of another library, with words of its own
            raise Refused(str(error)) from error
        what = f"{error.filename or 'a file'}: {error.strerror or error}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise Refused(
                f"{what}; expected room for the rest. Make some, and give the same command again."
            ) from error
        raise Refused(f"{what}; expected a path that can be used. Name another.") from error
    except ImportError as error:
        raise Refused(about_missing(error)) from error
    except (ValueError, TypeError, ProgramFailed, Unavailable) as error:
        raise Refused(str(error)) from error


def add_environment(parser: argparse.ArgumentParser, *, by_path: bool = False) -> None:
    """Add the arguments ENV and --set. With `by_path` ENV may also be `module:callable`.

    A command whose records name the environment only accepts names, from which it can be made again.
    """
    path = ", or module:callable, such as my_module:make_env" if by_path else ""
    names = f"its name, as `pettingllms list` shows it, or FILE.py:NAME{path}"
    parser.add_argument("env", metavar="ENV", help=names)
    add_settings(parser)


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add the argument --set."""
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        type=setting,
        metavar="KEY=VALUE",
        help="a setting, such as size=8; may be given several times (`pettingllms info ENV` shows them)",
    )


def made(args: argparse.Namespace, **more: Any) -> Any:
    """The environment that the arguments name."""
    with user_errors():
        if ":" in args.env and not is_elsewhere(args.env):
            raise ValueError(
                f"the environment is {args.env!r}; expected a name, as `pettingllms list` shows it, or FILE.py:NAME, "
                "an environment or a program of a file. Only `pettingllms check` takes module:callable: give the "
                "environment a name by an entry point of the group pettingllms.envs (docs/add_environment.md, Publish "
                "it)."
            )
        try:
            return pettingllms_envs.make(args.env, **{**settings(args), **more})
        except TypeError as error:
            hint = f"`pettingllms info {args.env}` shows the settings."
            raise TypeError(f"{error} {hint}") from error


def callable_at(path: str) -> Callable[..., Any]:
    """Import the callable at `module:callable`, such as a class; the working directory is searched, too."""
    module, _, name = path.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = attrgetter(name)(importlib.import_module(module))
    except (ImportError, AttributeError, ValueError) as error:  # ValueError: no module is named
        raise ValueError(
            f"the environment is {path!r}: {error}; expected module:callable, such as my_module:make_env. Install its "
            "package, or start the command in the folder that has the module."
        ) from error
    if not callable(found):
        raise ValueError(
            f"{path} is {found!r}; expected a function or a class that makes an environment, such as "
            "my_module:make_env. Name another."
        )
    made: Callable[..., Any] = found
    return made


def settings(args: argparse.Namespace) -> dict[str, Any]:
    """The settings given by --set, by name; the last one wins."""
    return dict(args.settings)


def plug_ins(group: str = GROUP) -> dict[str, EntryPoint]:
    """The commands of installed packages, or other entry points, by name, without importing them."""
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=group):
        other = found.setdefault(point.name, point)
        if other.value != point.value:
            refuse(
                f"the command {point.name!r} is {other.value} and {point.value}; expected one. Uninstall the other."
            )
    return found


def of_research(name: str) -> Any:
    """What a command takes from `research`, which nothing imports: the entry point with this name."""
    points = plug_ins(RESEARCH)
    if name not in points:
        refuse(
            f"no entry point {name!r} of the group {RESEARCH} is installed; expected that of pettingllms. Install it "
            "again, such as by pip install -e . in its repository."
        )
    return points[name].load()


def refuse(message: str) -> NoReturn:
    """End the command with a message of three parts."""
    raise Refused(message)


def say(console: Console, text: str, style: str = "") -> None:
    """Print a text without any markup and control characters; the terminal wraps its lines."""
    console.print(Text(printable(text), style=style), soft_wrap=True)


def say_table(console: Console, title: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table below its title, if it has one; nothing if it has no rows. The first column is not wrapped."""
    rows = list(rows)
    if not rows:
        return
    if title:
        say(console, f"\n{title}", "bold")
    table = Table(box=None, padding=(0, 2, 0, 0))
    for number, head in enumerate(heads):
        table.add_column(head, overflow="fold", no_wrap=number == 0)
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    console.print(table)


def counted(number: int, what: str) -> str:
    """`"1 problem"`, `"2 problems"`."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def setting(text: str) -> tuple[str, Any]:
    """`"size=8"` is `("size", 8)`: a Python literal if the value is one, else the text itself.

    `true`, `false` and `null` in any case are True, False and None, as in JSON and YAML. As texts they would be true.
    """
    name, equals, value = text.partition("=")
    if not name.strip() or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is no setting; expected KEY=VALUE, such as size=8")
    if value.strip().lower() in CONSTANTS:
        return name.strip(), CONSTANTS[value.strip().lower()]
    try:
        return name.strip(), ast.literal_eval(value.strip())
    except (ValueError, SyntaxError, RecursionError, MemoryError):  # the last where it is nested too deeply
        return name.strip(), value.strip()
