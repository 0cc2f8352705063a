"""Print what completes commands, options and environments in a shell:

    eval "$(pettingllms completion bash)"         in ~/.bashrc
    eval "$(pettingllms completion zsh)"          in ~/.zshrc, after compinit
    pettingllms completion fish | source          in ~/.config/fish/config.fish

Where nothing of ours fits, the shell completes names of files.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterable, Sequence

from rich.console import Console

from pettingllms_envs.commands import Parser, plug_ins, refuse
from pettingllms_envs.registry import entries


BASH = """_pettingllms() {
  local IFS=$'\\n'
  COMPREPLY=($(compgen -W "$(pettingllms completion --words "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)" -- "$2"))
}
complete -o bashdefault -o default -F _pettingllms pettingllms
"""
SCRIPTS = {
    "bash": BASH,
    "zsh": f"autoload -U +X bashcompinit && bashcompinit\n{BASH}",
    "fish": "complete -c pettingllms -a"
    " '(pettingllms completion --words (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'\n",
}


def add(parser: argparse.ArgumentParser) -> None:
    """Add the argument of `completion`: the shell; or the words that are typed, for its script."""
    parser.add_argument("shell", nargs="?", choices=SCRIPTS, metavar="SHELL", help=", ".join(SCRIPTS))
    parser.add_argument("--words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def run(args: argparse.Namespace, console: Console) -> int:
    """Print the script of a shell, or what may come next."""
    if args.words:
        console.file.writelines(f"{each}\n" for each in candidates(args.words[:-1], args.words[-1]))
    elif args.shell:
        console.file.write(SCRIPTS[args.shell])
    else:
        refuse(f"no shell was given; expected one of {', '.join(SCRIPTS)}. Name yours.")
    return 0


def candidates(before: Sequence[str], word: str) -> Iterable[str]:
    """What may stand for a word, as far as it is typed; the shell takes those that begin as it does."""
    from pettingllms_envs.cli import COMMANDS, files

    plugged = plug_ins()
    if not before:
        return [*COMMANDS, *plugged]
    if (file := files(plugged).get(before[0])) is None:  # a function: it is asked only after an import of seconds
        return []
    parser = Parser(prog=before[0])
    importlib.import_module(file).add(parser)
    options = {name: action for action in parser._actions for name in action.option_strings}
    if word.startswith("-"):
        return list(options)
    if (action := options.get(before[-1])) is not None and action.nargs != 0:
        return list(map(str, action.choices or ()))
    envs = any(action.metavar == "ENV" for action in parser._actions)
    return list(dict.fromkeys(entry.name for entry in entries())) if envs else []
