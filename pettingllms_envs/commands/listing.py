"""List the environments of this package and those of the plug-ins that are installed."""

from __future__ import annotations

import argparse
import importlib

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pettingllms_envs import registry
from pettingllms_envs.printable import printable


def add(parser: argparse.ArgumentParser) -> None:
    """`list` has no arguments."""


def run(args: argparse.Namespace, console: Console) -> int:
    """Print a line for each environment: name, version, origin, and its summary or why it cannot be imported."""
    table = Table(box=None, pad_edge=False)
    for heading in ("name", "version", "from"):
        table.add_column(heading, no_wrap=True)
    table.add_column("what it is", overflow="fold")
    newest = {(entry.name, entry.origin): entry for entry in registry.entries()}  # sorted by version: the last counts
    for entry in newest.values():
        origin = "built in" if entry.origin == registry.BUILT_IN else entry.origin
        cells = entry.name, f"v{entry.version}", origin, summary(entry)
        table.add_row(*(Text(printable(each)) for each in cells))
    console.print(table)
    return 0


def summary(entry: registry.Entry) -> str:
    """The first line of its module's docstring, or why the module cannot be imported."""
    try:
        doc = importlib.import_module(entry.module).__doc__
    except Exception as error:  # noqa: BLE001  # a third-party module may raise anything; it is shown, and hides no other
        return f"cannot be imported: {type(error).__name__}: {error}"
    line = (doc or "").strip().partition("\n")[0].removeprefix(f"{entry.full_name}: ")
    return line or "(its module has no docstring)"
