"""Benchmark any mix of agents on environments, with intervals, costs and every episode on record.

    pettingllms bench plan_path sokoban --model a --model b      each model on each environment
    pettingllms bench games --model a                            a suite: games, cooperation, code, mathematics, smoke
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

from pettingllms_envs.branching import check_replayable
from pettingllms_envs.commands import (
    add_settings,
    cooperation,
    counted,
    refuse,
    say,
    setting,
    suite,
    user_errors,
)
from pettingllms_envs.commands.runs import (
    DEFAULTS,
    add_agents,
    add_running,
    asked,
    check_at_least,
    default_output,
    missing,
    say_problems,
    watched,
)
from pettingllms_envs.core import check_choice
from pettingllms_envs.episodes.files import read
from pettingllms_envs.evaluation.bench import label_of
from pettingllms_envs.printable import printable
from pettingllms_envs.tools.calls import strict_json


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of `bench`: environments, agents, problems, sampling, and where records are written."""
    parser.add_argument(
        "envs",
        nargs="+",
        metavar="ENV",
        help="environments, as `pettingllms list` shows them or FILE.py:NAME, or a suite",
    )
    add_settings(parser)
    add_agents(parser)
    what = parser.add_argument_group("problems and episodes")
    what.add_argument("--workflow", metavar="W", help="short for --set workflow=W")
    what.add_argument("--split", metavar="S", help="split of the problems (test)")
    what.add_argument("--level", type=int, metavar="L", help="short for --option level=L")
    what.add_argument("--option", dest="reset_options", action="append", default=[], type=setting, metavar="KEY=VALUE",
                      help="a reset option")  # fmt: skip
    what.add_argument("--row", type=json_object, metavar="JSON",
                      help="ask this row alone, such as '{\"question\": \"...\"}', and show the replies")  # fmt: skip
    what.add_argument("--limit", type=int, metavar="N", help="at most N problems (all, where their number is known)")
    what.add_argument("--samples", type=int, metavar="K", help="episodes on each problem (1)")
    what.add_argument("--seed", type=int, metavar="N", help="random seed of all replies (0)")
    what.add_argument("--episode-tokens", type=int, metavar="N", help="end an episode after N tokens")
    what.add_argument("--generated-tokens", type=int, metavar="N", help="end an episode when more are generated")
    what.add_argument("--max-steps", type=int, metavar="N", help="truncate an episode there (1000)")
    what.add_argument("--blame", type=int, metavar="K",
                      help="answer every call anew K times, and show which ones decide the outcome")  # fmt: skip
    what.add_argument("--blind", metavar="ROLE",
                      help="play again with the role's pictures exchanged, and show what they are worth")  # fmt: skip
    forms = parser.add_argument_group("what cooperation is worth (docs/cooperation.md)")
    forms.add_argument("--cooperation", action="store_true", help="compare the team with its other forms")
    forms.add_argument(
        "--arms", nargs="+", default=[], metavar="ARM", help="some of: full routed team cut alone (all that there are)"
    )
    forms.add_argument("--arm-agents", nargs="+", default=[], metavar="ARM=AGENT",
                       help="agents of a form, ARM=AGENT or ARM=ROLE=AGENT (those of the team)")  # fmt: skip
    add_running(parser)


def run(args: argparse.Namespace, console: Console) -> int:
    """Play the missing episodes of a run, of a suite's or with --cooperation of all forms, and show the numbers."""
    check_at_least(args, limit=1, samples=1, concurrency=1, episode_tokens=1, generated_tokens=1, max_steps=1, blame=2)
    if not args.cooperation and (args.arms or args.arm_agents):
        refuse(
            "--arms or --arm-agents was given without --cooperation; expected it with them. Add it, or leave them out."
        )
    suite.check_name(args.envs[0])
    several = len(args.envs) > 1 or len(args.models) > 1 or suite.is_suite(args.envs[0])
    given = {"--blame": args.blame, "--blind": args.blind, "--cooperation": args.cooperation or None}
    asked_for = [name for name, value in given.items() if value is not None]
    if len(asked_for) > 1:
        refuse(f"{' and '.join(asked_for)} were given; expected one of them. Ask for each by itself.")
    if several and asked_for:
        refuse(f"{asked_for[0]} got several environments or models; expected one of each. Ask about each by itself.")
    choosing = [args.split, args.level, args.limit, *args.reset_options]
    if args.row is not None and (several or asked_for or any(each is not None for each in choosing)):
        refuse(
            "--row was given with other problems, environments or models, or a comparison; expected it with one "
            "environment and one team. Leave the others out."
        )
    if several:
        return suite.run(args, console)
    args = one_cell(args)
    bench, env = asked(args)
    if args.cooperation:
        return cooperation.run(args, console, bench, env)
    say_problems(args, console, bench, env)
    with user_errors():
        if args.blame is not None:
            check_replayable(env)
        path = args.output or default_output(bench.config, label_of(bench, env))
        members = [] if args.blind is None else agents_of(args.blind, bench, env)
    played = watched(bench, path, args, console, bench.env)
    if args.row is not None:
        return replies(console, played, path)
    status = told(console, played, path)
    if status > 1 or not asked_for:
        return status
    return max(status, blind(args, console, bench, path, members) if members else blame(args, console, bench, path))


def agents_of(role: str, bench: Any, env: Any) -> list[str]:
    """The agents of a role; `ValueError` if there is no such role."""
    from pettingllms_envs.evaluation.bench import roles_of

    roles = roles_of(env)
    check_choice("--blind", role, tuple(dict.fromkeys(roles.values())))
    return [agent for agent in bench.agents if roles[agent] == role]


def blind(args: argparse.Namespace, console: Console, bench: Any, path: Path, members: list[str]) -> int:
    """Play a run again with a role's pictures exchanged, and show what they are worth. Returns the exit status."""
    from pettingllms_envs.evaluation import tables
    from pettingllms_envs.evaluation.blind import BlindRole

    with user_errors():
        again = BlindRole(args.blind, members, [row for row in read(path) if row["error"] is None], path)
    say(console, f"\nThe same {counted(len(again.places), 'episode')}, in which {args.blind} is shown other pictures:")
    folder = path / f"blind-{args.blind}"
    played = watched(bench, folder, args, console, bench.env, again)
    found = played.report["blind"]
    shown = [
        (name, f"{each['own']:.3g}", f"{each['other']:.3g}", tables.number(each))
        for name, each in found["differences"].items()
    ]
    if shown:
        tables.table(console, ("", "own pictures", "others", "difference [95% interval]"), shown)
    say(console, f"\n{counted(found['episodes'], 'pair')} of episodes. Every one with other pictures is in {folder}.")
    return missing(console, played)


def blame(args: argparse.Namespace, console: Console, bench: Any, path: Path) -> int:
    """Answer the calls of a run anew, and show which ones decide the outcome. Returns the exit status."""
    from pettingllms_envs.evaluation import tables
    from pettingllms_envs.evaluation.blame import CallsAnew

    with user_errors():
        rows = [row for row in read(path) if row["error"] is None]
    anew = CallsAnew(rows, bench.samples, args.blame)
    lengths = [len(row["steps"]) for row in rows]
    num_asked = args.blame * sum(length * (length + 1) // 2 for length in lengths)
    what = f"{counted(sum(lengths), 'call')} of {counted(len(rows), 'episode')} answered anew {args.blame} times each"
    say(console, f"\n{what}: {len(anew.places):,} episodes to play on, about {num_asked:,} calls.")
    folder = path / f"blame-{args.blame}"
    played = watched(bench, folder, args, console, bench.env, anew)
    found = played.report["blame"]
    shown = [
        (call["agent"], str(call["call"]), str(call["episodes"]), tables.number(call),
         "-" if call["share"] is None else f"{call['share']:.0%}")
        for call in found["calls"]
    ]  # fmt: skip
    if shown:
        tables.table(console, ("agent", "call", "episodes", "effect [95% interval]", "share"), shown)
    less = "" if shown else "; two are needed at least"
    say(console, f"\n{counted(found['episodes'], 'episode')} in which every call was answered anew{less}.")
    say(console, "effect: the variance of the return that the call decides (docs/benchmarking.md).")
    say(console, f"Every episode that was played on is in {folder / 'episodes.jsonl'}.")
    return missing(console, played)


def one_cell(args: argparse.Namespace) -> argparse.Namespace:
    """The arguments of a run of one environment, with defaults for what was not given."""
    own = {"env": args.envs[0], "model": next(iter(args.models), None)}
    given = {name: value for name, value in vars(args).items() if value is not None or name not in DEFAULTS}
    return argparse.Namespace(**{**DEFAULTS, **given, **own})


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
    return missing(console, played)


def told(console: Console, played: Any, path: Path) -> int:
    """Show the numbers and what is missing. Returns the exit status."""
    from pettingllms_envs.evaluation import metrics, tables

    if played.ended.rows:
        tables.show(console, played.report, metrics.retries(played.ended.rows))
    if played.is_kept:
        say(console, f"\nEvery episode is in {path / 'episodes.jsonl'}, the numbers in {path / 'report.json'}.")
    else:
        say(console, "\nNo model answered, so nothing was written.")
    return missing(console, played)
