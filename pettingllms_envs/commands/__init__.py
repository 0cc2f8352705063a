"""The commands of `pettingllms`, a file each, and what they share: how arguments become an environment.

A command's file has `add(parser)`, which declares its arguments, and `run(args, console)`, which returns the exit
status. An installed package brings commands of its own by entry points of the group `pettingllms.commands`, each a
function from the arguments after the command's name to the exit status:

    [project.entry-points."pettingllms.commands"]
    train = "pettingllms_trl.cli.__main__:train"

It is imported when its command is called.
"""

from __future__ import annotations

import argparse
import ast
import errno
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NoReturn

import pettingllms_envs


GROUP = "pettingllms.commands"


class Refused(Exception):
    """What was given, what was expected, and what to do; the command ends with exit status 2."""


@contextmanager
def at_the_door() -> Iterator[None]:
    """Within, the errors with which environments and files answer a caller's mistake become `Refused`."""
    try:
        yield
    except OSError as error:
        what = f"{error.filename or 'a file'}: {error.strerror or error}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise Refused(
                f"{what}; expected room for the rest. Make some, and give the same command again."
            ) from error
        raise Refused(f"{what}; expected a path that can be used. Name another.") from error
    except (ValueError, TypeError, ImportError) as error:
        raise Refused(str(error)) from error


def add_environment(parser: argparse.ArgumentParser) -> None:
    """The arguments ENV and --set."""
    parser.add_argument("env", metavar="ENV", help="its name, as `pettingllms list` shows it")
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
    """The environment that the arguments name.

    Raises:
        Refused: There is no such environment, or a setting is unknown or out of its range.
    """
    with at_the_door():
        try:
            return pettingllms_envs.make(args.env, **{**settings(args), **more})
        except TypeError as error:
            hint = f"`pettingllms info {args.env}` shows the settings."
            raise TypeError(f"{error} {hint}") from error


def settings(args: argparse.Namespace) -> dict[str, Any]:
    """What --set gave, by name; the last one counts."""
    return dict(args.settings)


def plug_ins() -> dict[str, EntryPoint]:
    """The commands that installed packages bring, by name; nothing is imported.

    Raises:
        Refused: Two packages bring one of the same name.
    """
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=GROUP):
        other = found.setdefault(point.name, point)
        if other.value != point.value:
            refuse(
                f"the command {point.name!r} is {other.value} and {point.value}; expected one. Uninstall the other."
            )
    return found


def refuse(message: str) -> NoReturn:
    """End the command with a message of three parts."""
    raise Refused(message)


def counted(number: int, what: str) -> str:
    """`"1 problem"`, `"2 problems"`."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def setting(text: str) -> tuple[str, Any]:
    """`"size=8"` is `("size", 8)`: a Python number, string or None where it reads as one, else the text itself."""
    name, equals, value = text.partition("=")
    if not name.strip() or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is no setting; expected KEY=VALUE, such as size=8")
    try:
        return name.strip(), ast.literal_eval(value.strip())
    except (ValueError, SyntaxError):
        return name.strip(), value.strip()
