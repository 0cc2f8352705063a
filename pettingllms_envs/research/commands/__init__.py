"""Commands of research, found by entry points. Those about one team take the arguments of a run of `bench`."""

from __future__ import annotations

import argparse

from pettingllms_envs.agents.options import MINIMA
from pettingllms_envs.commands import add_environment, refuse
from pettingllms_envs.commands.runs import add_agents, add_problems, add_running, check_at_least, one_cell


def add_team(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pettingllms bench` for one environment and one team."""
    add_environment(parser)
    for add in (add_agents, add_problems, add_running):
        add(parser)


def one_team(args: argparse.Namespace, **least: int) -> argparse.Namespace:
    """The arguments of a run of one team, with defaults for what was not given; `least` are values of options."""
    check_at_least(args, **MINIMA, **least)
    if len(args.models) > 1:
        refuse(f"--model was given {len(args.models)} times; expected one team. Ask about each by itself.")
    return argparse.Namespace(**vars(one_cell(args, args.env)), row=None)
