"""Show what pictures are worth: a run is played again, with a role's pictures exchanged for those of other problems.

The arguments are those of `pettingllms bench` for one environment and one team (docs/views.md).
"""

from __future__ import annotations

import argparse

from rich.console import Console

from pettingllms_envs.commands import counted, say, user_errors
from pettingllms_envs.commands.bench import play_run, told
from pettingllms_envs.commands.runs import asked, missing, say_problems, watched
from pettingllms_envs.core import check_choice
from pettingllms_envs.episodes.files import read
from pettingllms_envs.episodes.observing import roles_of
from pettingllms_envs.evaluation import tables
from pettingllms_envs.research.blind import BlindRole
from pettingllms_envs.research.commands import add_team, one_team


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of `blind`."""
    add_team(parser)
    parser.add_argument("--role", required=True, metavar="ROLE", help="the role whose pictures are exchanged")


def run(args: argparse.Namespace, console: Console) -> int:
    """Play the missing episodes of a run, then those with other pictures, and show the numbers."""
    args = one_team(args)
    bench, env = asked(args)
    say_problems(args, console, bench, env)
    roles = roles_of(env)
    with user_errors():
        check_choice("--role", args.role, tuple(dict.fromkeys(roles.values())))
    played, path = play_run(args, console, bench, env)
    if (status := told(console, played, path)) > 1:
        return status
    members = [agent for agent in bench.agents if roles[agent] == args.role]
    with user_errors():
        again = BlindRole(args.role, members, [row for row in read(path) if row["error"] is None], path)
    say(console, f"\nThe same {counted(len(again.places), 'episode')}, in which {args.role} is shown other pictures:")
    folder = path / f"blind-{args.role}"
    played = watched(bench, folder, args, console, bench.env, again)
    found = played.report["blind"]
    shown = [
        (name, f"{each['own']:.3g}", f"{each['other']:.3g}", tables.number(each))
        for name, each in found["differences"].items()
    ]
    if shown:
        tables.table(console, ("", "own pictures", "others", "difference [95% interval]"), shown)
    say(console, f"\n{counted(found['episodes'], 'pair')} of episodes. Every one with other pictures is in {folder}.")
    return max(status, missing(console, played))
