"""Start a package with an environment of your own: one file with the game, one test, pyproject.toml and README.

It begins as a small real game that passes `pettingllms check NAME` at once, to be changed into yours.
"""

from __future__ import annotations

import argparse
import importlib.util
import keyword
import re
from importlib import resources
from pathlib import Path

from rich.console import Console
from rich.text import Text

import pettingllms_envs
from pettingllms_envs.commands import refuse, user_errors


# Where each file of `scaffold/` goes; "my_game" and "MyGame" are replaced in the names and in the texts.
FILES = {
    "pyproject.toml.txt": "pyproject.toml",
    "README.md.txt": "README.md",
    "__init__.py.txt": "my_game/__init__.py",
    "my_game_v0.py.txt": "my_game/my_game_v0.py",
    "test_my_game.py.txt": "tests/test_my_game.py",
}


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of `new`: the name and the target folder."""
    parser.add_argument("name", metavar="NAME", help="name of the game and its package, such as lights_out")
    parser.add_argument("--to", type=Path, default=Path(), metavar="DIR", help="folder to create it in (this one)")


def run(args: argparse.Namespace, console: Console) -> int:
    """Write the package into a new folder, and say what to do next."""
    folder: Path = args.to / args.name
    if not args.to.is_dir():
        refuse(f"--to is {args.to}; expected a folder that exists. Make it first.")
    if folder.exists():
        refuse(f"{folder} is there already; expected a new folder. Choose another name, or another --to.")
    check_name(args.name)
    with user_errors():
        folder.mkdir()  # fails if it came into being just now, and so nothing is ever overwritten
        for path, text in files(args.name).items():
            (folder / path).parent.mkdir(exist_ok=True)
            (folder / path).write_text(text, "utf-8")
    lines = [f"Made {folder} with", *(f"    {path}" for path in files(args.name)), "Next:", f"    cd {folder}"]
    lines += ["    pip install -e .", f"    pettingllms check {args.name}", f"    pettingllms play {args.name}"]
    lines += [f"Then change {args.name}/{args.name}_v0.py into your game, from top to bottom."]
    console.print(Text("\n".join(lines)), soft_wrap=True)
    return 0


def check_name(name: str) -> None:
    """Raise `Refused` for a name that is no package name, or that would hide an environment or a module."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name) or keyword.iskeyword(name):
        refuse(f"the name is {name!r}; expected lower-case words joined by _, such as lights_out. Choose another.")
    if re.search(r"_v\d+$", name):
        refuse(f"the name {name!r} ends with a version; expected the game's alone, for v0 is added. Leave it out.")
    if name in pettingllms_envs.list_environments():
        refuse(f"there is an environment {name!r}; expected a new name. Choose another: `pettingllms list` shows all.")
    if name == "tests" or importlib.util.find_spec(name) is not None:
        refuse(f"there is a module {name!r}, which the package would hide; expected a new name. Choose another.")


def files(name: str) -> dict[str, str]:
    """The texts of the package by their paths in its folder."""
    scaffold = resources.files(pettingllms_envs) / "scaffold"
    return {_named(path, name): _named((scaffold / file).read_text("utf-8"), name) for file, path in FILES.items()}


def _named(text: str, name: str) -> str:
    return text.replace("MyGame", "".join(word.capitalize() for word in name.split("_"))).replace("my_game", name)
