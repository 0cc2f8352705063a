"""Benchmark any mix of agents on environments, with intervals, costs and every episode on record.

    pettingllms bench plan_path sokoban --model a --model b      each model on each environment
    pettingllms bench games --model a                            a suite, such as games, code or mathematics
    pettingllms bench my_suite.yaml                              a suite of your own (docs/benchmarking.md)
    pettingllms bench math --team FOLDER --row '{"question": "..."}'    one question, and each agent's reply

The server of a model is --base-url, or else OPENAI_BASE_URL with the key OPENAI_API_KEY. --model M@SERVER and
--base-url SERVER name one of a file of aliases, ~/.config/pettingllms/servers.toml or what PETTINGLLMS_SERVERS says.

Agents are [ROLE=]KIND[:TARGET][,OPTION=VALUE]...: oracle, bot:NAME, random, null, scripted:FILE, recorded:RUN,
api[:MODEL], transformers:PATH[,adapter=PATH], vllm:PATH[,adapter=PATH], team:FOLDER[,engine=vllm]. A run that was
stopped goes on with the same command.
Exit status: 0 all episodes ended, 1 some are errors or missing, 2 something given was wrong, 130 Ctrl-C.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console

from pettingllms_envs.agents.options import MINIMA
from pettingllms_envs.commands import add_settings, refuse, runs, say, suite, user_errors
from pettingllms_envs.episodes.files import read
from pettingllms_envs.evaluation.bench import label_of
from pettingllms_envs.printable import printable
from pettingllms_envs.tools.calls import strict_json


MOVED = {
    "--blame": ("blame", "--replies"),
    "--blind": ("blind", "--role"),
    "--cooperation": ("cooperation", ""),
    "--arms": ("cooperation", "--arms"),
    "--arm-agents": ("cooperation", "--arm-agents"),
}
"""Options that other commands have: which one, and how it calls them."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of `bench`; those of models and of runs are rows of `pettingllms_envs.agents.options`."""
    parser.add_argument(
        "envs",
        nargs="+",
        metavar="ENV",
        help="environments, as `pettingllms list` shows them or FILE.py:NAME, or a suite",
    )
    add_settings(parser)
    runs.add_agents(parser)
    runs.add_problems(parser).add_argument(
        "--row", type=json_object, metavar="JSON",
        help="ask this row alone, such as '{\"question\": \"...\"}', and show the replies",
    )  # fmt: skip
    runs.add_running(parser)
    parser.set_defaults(moved=MOVED)


def run(args: argparse.Namespace, console: Console) -> int:
    """Play the missing episodes of a run, or of a suite's, and show the numbers."""
    runs.check_at_least(args, **MINIMA)
    suite.check_name(args.envs[0])
    several = len(args.envs) > 1 or len(args.models) > 1 or suite.is_suite(args.envs[0])
    choosing = [args.split, args.level, args.limit, *args.reset_options]
    if args.row is not None and (several or any(each is not None for each in choosing)):
        refuse(
            "--row was given with other problems, environments or models; expected it with one environment and one "
            "team. Leave the others out."
        )
    if several:
        return suite.run(args, console)
    args = runs.one_cell(args, args.envs[0])
    bench, env = runs.asked(args)
    runs.say_problems(args, console, bench, env)
    played, path = play_run(args, console, bench, env)
    return told(console, played, path) if args.row is None else replies(console, played, path)


def play_run(args: argparse.Namespace, console: Console, bench: Any, env: Any) -> tuple[Any, Path]:
    """Play the missing episodes of a run. Returns it, and its folder."""
    with user_errors():
        path = args.output or runs.default_output(bench.config, label_of(bench, env))
    return runs.watched(bench, path, args, console, bench.env), path


def json_object(text: str) -> dict[str, Any]:
    """The object of `--row`."""
    try:
        found = strict_json(text)
    except (ValueError, RecursionError) as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no JSON ({error}); expected an object") from None
    if not isinstance(found, dict) or not found:
        raise argparse.ArgumentTypeError(f'{text!r} is no object with columns; expected {{"question": "..."}}')
    return found


def replies(console: Console, played: Any, path: Path) -> int:
    """Show what the agents replied, and whether that is right if it is known. Returns the exit status."""
    for row in read(path) if played.is_kept else ():
        for step in row["steps"]:
            say(console, f"\n{step['agent']}:", "bold")
            say(console, printable(step["reply"]))
        if row["success"] is not None:
            say(console, "\nsolved" if row["success"] else "\nnot solved")
    if played.is_kept:
        say(console, f"\nThe prompts are in {path}: pettingllms view {path}", "dim")
    return runs.missing(console, played)


def told(console: Console, played: Any, path: Path) -> int:
    """Show the numbers and what is missing. Returns the exit status."""
    from pettingllms_envs.evaluation import metrics, tables

    if played.ended.rows:
        tables.show(console, played.report, metrics.retries(played.ended.rows))
    if played.is_kept:
        say(console, f"\nEvery episode is in {path / 'episodes.jsonl'}, the numbers in {path / 'report.json'}.")
    else:
        say(console, "\nNo model answered, so nothing was written.")
    return runs.missing(console, played)
