"""Find the calls that decide the outcome: each call of a run is answered again, and its episode played on from there.

The arguments are those of `pettingllms bench` for one environment and one team (docs/benchmarking.md).
"""

from __future__ import annotations

import argparse

from rich.console import Console

from pettingllms_envs.branching import check_replayable
from pettingllms_envs.commands import counted, say, user_errors
from pettingllms_envs.commands.bench import play_run, told
from pettingllms_envs.commands.runs import asked, missing, say_problems, watched
from pettingllms_envs.episodes.files import read
from pettingllms_envs.evaluation import tables
from pettingllms_envs.research.blame import CallsAnew
from pettingllms_envs.research.commands import add_team, one_team


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of `blame`."""
    add_team(parser)
    parser.add_argument("--replies", type=int, required=True, metavar="K", help="answer every call K times, 2 or more")


def run(args: argparse.Namespace, console: Console) -> int:
    """Play the missing episodes of a run, then those in which its calls are answered again, and show the numbers."""
    args = one_team(args, replies=2)
    bench, env = asked(args)
    say_problems(args, console, bench, env)
    with user_errors():
        check_replayable(env)
    played, path = play_run(args, console, bench, env)
    if (status := told(console, played, path)) > 1:
        return status
    with user_errors():
        rows = [row for row in read(path) if row["error"] is None]
    anew = CallsAnew(rows, bench.samples, args.replies)
    lengths = [len(row["steps"]) for row in rows]
    num_asked = args.replies * sum(length * (length + 1) // 2 for length in lengths)
    what = (
        f"{counted(sum(lengths), 'call')} of {counted(len(rows), 'episode')} answered anew {args.replies} times each"
    )
    say(console, f"\n{what}: {len(anew.places):,} episodes to play on, about {num_asked:,} calls.")
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
        say(console, "The outcome never varied, so no call is found to decide it: a constant fault cannot be seen so.")
    say(console, "effect: the variance of the return that the call decides (docs/benchmarking.md).")
    say(console, f"Every episode that was played on is in {folder / 'episodes.jsonl'}.")
    return max(status, missing(console, played))
