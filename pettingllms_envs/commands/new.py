"""Start a package with an environment of your own: a folder with all of it, one test, and what publishing it takes.

It begins as a small example that passes `pettingllms check NAME` at once, to be changed into yours:

    function    a team's conversation as a Python function, on a task of this package
    roles       the same, in which each role acts once a turn
    game        a game with moves, rewards and an oracle, and its team as a function: where no kind is named
    rows        questions of a file, graded by a function: --data questions.jsonl takes your own
    tool        a tool that roles call before they reply, with a task that needs it
    space       a game, and what serves it to clients of OpenEnv: Dockerfile, openenv.yaml

`--kind roles --from RUN --episode N` makes a team of the design of an episode on record (docs/designed_teams.md).
"""

from __future__ import annotations

import argparse
import builtins
import importlib.metadata
import importlib.util
import json
import keyword
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from rich.console import Console

import pettingllms_envs
from pettingllms_envs.commands import refuse, say, user_errors
from pettingllms_envs.commands.design_source import design_source
from pettingllms_envs.installing import requirement
from pettingllms_envs.tools import tool_names


KINDS = ("function", "roles", "game", "rows", "tool", "space")
ROWS = "my_game/rows.jsonl"
_NAME, _VERSION = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*"), re.compile(r"_v\d+$")
_WORD, _FUNCTION = re.compile(r"\w+"), re.compile(r"(?<=^def )my_game|(?<=\()my_game(?=,)", re.M)

# Where each file of `scaffold/` goes; "my_game" and "MyGame" are replaced in the names and in the texts, and
# "PETTINGLLMS_REQUIREMENT" by where this package is installed from.
FILES = {
    "test_my_game.py.txt": "tests/test_my_game.py",
    "pyproject.toml.txt": "pyproject.toml",
    "requirements.txt.txt": "requirements.txt",
    "MANIFEST.in.txt": "MANIFEST.in",
    "README.md.txt": "README.md",
    "PUBLISHING.md.txt": "PUBLISHING.md",
    "LICENSE.txt": "LICENSE",
    "gitignore.txt": ".gitignore",
    "workflow.yml.txt": ".github/workflows/test.yml",
}

# The folder of a game, in the order in which it is read.
GAME = {f"game_{part}.py.txt": f"my_game/{part}.py" for part in ("rules", "team", "my_game_v0", "__init__")}

# What a game has besides to be a Space; its README begins with what the Hub reads.
SPACE = {f"space_{name}.txt": name for name in ("Dockerfile", "openenv.yaml", "README.md")}

# What other kinds have besides their own file, `<kind>_v0.py.txt`. A file with a place that is taken is appended.
MORE_FILES = {
    "rows": {"pyproject_rows.toml.txt": "pyproject.toml", "rows.jsonl.txt": ROWS},
    "tool": {"pyproject_tool.toml.txt": "pyproject.toml"},
}


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of `new`: the name, the kind, its data and the target folder."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("name", metavar="NAME", help="name of the environment and its package, such as lights_out")
    parser.add_argument("--kind", choices=KINDS, default="game", help="what it begins as (game)")
    parser.add_argument(
        "--data", type=Path, metavar="FILE", help="for rows: a file of objects with a question and an answer"
    )
    parser.add_argument("--from", dest="run_folder", type=Path, metavar="RUN",
                        help="for roles: a run of the workflow designed, one of whose teams it becomes")  # fmt: skip
    parser.add_argument("--episode", type=int, default=1, metavar="N", help="which one, as the page counts them (1)")
    parser.add_argument("--to", type=Path, default=Path(), metavar="DIR", help="folder to create it in (this one)")


def run(args: argparse.Namespace, console: Console) -> int:
    """Write the package into a new folder, and say what to do next."""
    folder: Path = args.to / args.name
    with user_errors():
        if not args.to.is_dir():
            refuse(f"--to is {args.to}; expected a folder that exists. Make it first.")
        if folder.exists():
            refuse(f"{folder} is there already; expected a new folder. Choose another name, or another --to.")
    if args.data is not None and args.kind != "rows":
        refuse(f"--data is {args.data}, and --kind is {args.kind}; expected data for rows only. Add --kind rows.")
    if args.run_folder is not None and args.kind != "roles":
        refuse(f"--from is {args.run_folder}, and --kind is {args.kind}; expected it for roles. Add --kind roles.")
    if args.run_folder is None and args.episode != 1:
        refuse(f"--episode is {args.episode} without a run; expected it with --from RUN. Add it, or leave it out.")
    check_name(args.name)
    if args.kind == "tool" and args.name in tool_names():
        refuse(f"there is a tool {args.name!r}; expected a new name. Choose another.")
    with user_errors():
        rows = None if args.data is None else json_lines(args.data)
        if args.run_folder is None:
            made = files(args.name, args.kind, rows)
        else:
            made = files(args.name, "design", source=design_source(args.run_folder, args.episode))
        folder.mkdir()  # fails if it came into being just now, and so nothing is ever overwritten
        for path, text in made.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, "utf-8")
    lines = [f"Made {folder} with", *(f"    {path}" for path in made), "Next:"]
    lines += [f"    cd {folder}", "    pip install -r requirements.txt -e '.[test]'"]
    lines += [f"    pettingllms {command} {args.name}" for command in ("check", "play")]
    lines += [f"Then change {next(iter(made))} into yours, from top to bottom."]
    say(console, "\n".join(lines))
    return 0


def check_name(name: str) -> None:
    """Raise `Refused` for a name that is no package name, or that would hide an environment or a module."""
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        refuse(f"the name is {name!r}; expected lower-case words joined by _, such as lights_out. Choose another.")
    if _VERSION.search(name):
        refuse(f"the name {name!r} ends with a version; expected the name alone, for v0 is added. Leave it out.")
    if name in pettingllms_envs.list_environments():
        refuse(f"there is an environment {name!r}; expected a new name. Choose another: `pettingllms list` shows all.")
    if name == "tests" or importlib.util.find_spec(name) is not None:
        refuse(f"there is a module {name!r}, which the package would hide; expected a new name. Choose another.")
    if any(importlib.metadata.distributions(name=name)):
        refuse(f"there is a package {name!r}, which the new one would replace; expected a new name. Choose another.")


def files(
    name: str, kind: str = "game", rows: str | None = None, source: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The texts of the package by their paths in its folder.

    Args:
        rows: JSON lines that take the place of the example's.
        source: Of `"design"`: texts by the words that they take the place of, see `design_source`.
    """
    scaffold = resources.files(pettingllms_envs) / "scaffold"
    own = {f"{kind}_v0.py.txt": "my_game/my_game_v0.py", "__init__.py.txt": "my_game/__init__.py"}
    places = {**(GAME | SPACE if kind == "space" else GAME if kind == "game" else own), **FILES}
    places |= MORE_FILES.get(kind, {})
    texts = {file: (scaffold / file).read_text("utf-8") for file in places}
    code = "".join(texts[file] for file in places if file.startswith("game" if kind == "space" else kind))
    class_name = _free("".join(word.capitalize() for word in name.split("_")), code, prefix="My")
    function = _free(name, code, prefix="play_")

    def named(text: str) -> str:
        text = _FUNCTION.sub(function, text)  # of the kind `function`
        text = text.replace("MyGame", class_name).replace("my_game", name)
        text = text.replace("PETTINGLLMS_REQUIREMENT", requirement())
        # At once, so that the words in a job stay as they are.
        return re.sub("|".join(source), lambda word: source[word[0]], text) if source else text

    made: dict[str, str] = {}
    for file, place in places.items():
        text = rows if rows is not None and place == ROWS else named(texts[file])
        made[named(place)] = made.get(named(place), "") + text
    return made


def json_lines(data: Path) -> str:
    """The rows of a file as JSON lines."""
    from pettingllms_envs.tasks.rows import read_table

    rows = [problem.written for problems in read_table(data).values() for problem in problems]
    for row in map(json.loads, rows):
        if "answer" not in row:
            raise ValueError(
                f"{data} has a row with {', '.join(map(repr, row))}; expected an 'answer', with which the example "
                "compares replies. Rename the column, or start without --data and write your own `grade`."
            )
    return "\n".join(rows) + "\n"


def _free(wanted: str, text: str, *, prefix: str) -> str:
    """The wanted identifier, with a prefix where the example, Python or its builtins have it already."""
    taken = {*_WORD.findall(text), *keyword.kwlist, *vars(builtins)} - {"MyGame", "my_game"}
    return prefix + wanted if wanted in taken else wanted
