"""Find the calls that decide the outcome: each call of a run is answered again, and its episode played on from there.

The arguments are those of `pettingllms bench` for one environment and one team (docs/benchmarking.md).
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from pettingllms_envs.branching import check_replayable
from pettingllms_envs.commands import counted, refuse, say, user_errors
from pettingllms_envs.commands.bench import play_run, told
from pettingllms_envs.commands.runs import asked, digest_of, missing, say_problems, specs, watched
from pettingllms_envs.episodes.files import read
from pettingllms_envs.episodes.observing import roles_of
from pettingllms_envs.evaluation import tables
from pettingllms_envs.evaluation.bench import Bench
from pettingllms_envs.research.blame import CallsAnew, CallsSubstituted
from pettingllms_envs.research.commands import add_team, one_team


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of `blame`."""
    add_team(parser)
    parser.add_argument("--replies", type=int, required=True, metavar="K", help="answer every call K times, 2 or more")
    parser.add_argument(
        "--substitute",
        action="append",
        default=[],
        metavar="AGENT=SPEC",
        help="have another agent give AGENT's calls from one on, such as planner_0=oracle: finds constant faults",
    )


def run(args: argparse.Namespace, console: Console) -> int:
    """Play the missing episodes of a run, then those in which its calls are answered again, and show the numbers."""
    if len(args.substitute) > 1:
        refuse(f"--substitute was given as {' and '.join(args.substitute)}; expected one. Give a command to each.")
    args = one_team(args, replies=2)
    args.substitute = next(iter(args.substitute), None)
    bench, env = asked(args)
    say_problems(args, console, bench, env)
    with user_errors():
        check_replayable(env)
        substituted = _substitute(args, bench)
    played, path = play_run(args, console, bench, env)
    if (status := told(console, played, path)) > 1:
        return status
    with user_errors():
        rows = [row for row in read(path) if row["error"] is None]
    if substituted is not None:
        member, other, name = substituted
        given = CallsSubstituted(rows, bench.samples, args.replies, member)
        return max(status, _substituted(args, console, other, given, path / name))
    anew = CallsAnew(rows, bench.samples, args.replies)
    lengths = [len(row["steps"]) for row in rows]
    num_asked = args.replies * sum(length * (length + 1) // 2 for length in lengths)
    what = f"{counted(sum(lengths), 'call')} of {counted(len(rows), 'episode')} answered anew"
    times = f"{args.replies} times each: {len(anew.places):,} episodes to play on, about {num_asked:,} calls."
    say(console, f"\n{what} {times}")
    folder = path / f"blame-{args.replies}"
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
    if shown and not found["varied"]:
        say(
            console, "The outcome never varied: a constant fault cannot be found so. --substitute AGENT=SPEC finds it."
        )
    say(console, "effect: the variance of the return that the call decides (docs/benchmarking.md).")
    say(console, f"Every episode that was played on is in {folder / 'episodes.jsonl'}.")
    return max(status, missing(console, played))


def _substitute(args: argparse.Namespace, bench: Bench) -> tuple[str, Bench, str] | None:
    """Who is substituted, the benchmark with the other agent, and its folder's name; None where nobody is."""
    if args.substitute is None:
        return None
    roles = roles_of(bench.make())
    name, _, text = args.substitute.partition("=")
    members = [agent for agent, role in roles.items() if name in (agent, role)]
    if not text or len(members) != 1:
        raise ValueError(
            f"--substitute is {args.substitute!r}; expected AGENT=SPEC, of one of the agents {', '.join(roles)}, such "
            f"as {next(iter(roles))}=oracle."
        )
    alone = argparse.Namespace(**{**vars(args), "team": None})  # or its other members would have to be here
    spec = specs(alone, {members[0]: roles[members[0]]}, [f"{members[0]}={text}"])
    other = replace(bench, agents={**bench.agents, **spec})
    return members[0], other, f"substitute-{members[0]}-{digest_of(other.config)}-{args.replies}"


def _substituted(
    args: argparse.Namespace, console: Console, bench: Bench, anew: CallsSubstituted, folder: Path
) -> int:
    """Play the episodes in which a member is substituted from one of its calls on, and show what they gain."""
    say(console, f"\n{args.substitute}, from each of its calls on: {len(anew.places):,} episodes to play on.")
    played = watched(bench, folder, args, console, bench.env, anew)
    names = ("success", "return")
    heads = ("call", "episodes", "gain in success [95% interval]", "gain in its return [95% interval]")
    shown = []
    for each in played.report[anew.kind]["calls"]:
        gains = [tables.number(each["gains"].get(name)) for name in names]
        if len({row["instance"]["index"] for row in anew.rows}) < tables.FEW:
            gains[1] = f"{each['gains']['return']['mean']:.3g}"
        shown.append((str(each["call"]), str(each["episodes"]), *gains))
    if shown:
        tables.table(console, heads, shown)
    say(console, f"\nEvery episode that was played on is in {folder / 'episodes.jsonl'}.")
    return missing(console, played)
