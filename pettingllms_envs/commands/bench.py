"""Benchmark any mix of agents on an environment, with intervals, costs and every episode on record.

Agents are [ROLE=]KIND[:TARGET][,OPTION=VALUE]...: oracle, bot:NAME, random, null, scripted:FILE, recorded:RUN,
api[:MODEL], transformers:PATH[,adapter=PATH], vllm:PATH[,adapter=PATH], team:FOLDER[,engine=vllm]. A run that was
stopped goes on with the same command.
Exit status: 0 all episodes ended, 1 some are errors or missing, 2 something given was wrong, 130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import Any

from rich.console import Console

import pettingllms_envs
from pettingllms_envs.commands import add_environment, cooperation, made, refuse, say, setting, settings, user_errors
from pettingllms_envs.commands.runs import (
    add_agents,
    add_running,
    check_at_least,
    default_output,
    missing,
    say_problems,
    specs,
    watched,
)


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of `bench`: environment, agents, problems, sampling, and where records are written."""
    add_environment(parser)
    add_agents(parser)
    what = parser.add_argument_group("problems and episodes")
    what.add_argument("--workflow", metavar="W", help="short for --set workflow=W")
    what.add_argument("--split", metavar="S", help="split of the problems (test)")
    what.add_argument("--level", type=int, metavar="L", help="short for --option level=L")
    what.add_argument("--option", dest="reset_options", action="append", default=[], type=setting, metavar="KEY=VALUE",
                      help="a reset option")  # fmt: skip
    what.add_argument("--limit", type=int, metavar="N", help="at most N problems (all, where their number is known)")
    what.add_argument("--samples", type=int, default=1, metavar="K", help="episodes on each problem (1)")
    what.add_argument("--seed", type=int, default=0, metavar="N", help="random seed of all replies (0)")
    what.add_argument("--episode-tokens", type=int, metavar="N", help="end an episode after N tokens")
    what.add_argument("--generated-tokens", type=int, metavar="N", help="end an episode when more are generated")
    what.add_argument("--max-steps", type=int, default=1000, metavar="N", help="truncate an episode there (1000)")
    forms = parser.add_argument_group("what cooperation is worth (docs/cooperation.md)")
    forms.add_argument("--cooperation", action="store_true", help="compare the team with its other forms")
    forms.add_argument(
        "--arms", nargs="+", default=[], metavar="ARM", help="some of: full routed team cut alone (all)"
    )
    forms.add_argument("--arm-agents", nargs="+", default=[], metavar="ARM=AGENT",
                       help="agents of a form, ARM=AGENT or ARM=ROLE=AGENT (those of the team)")  # fmt: skip
    add_running(parser)


def run(args: argparse.Namespace, console: Console) -> int:
    """Play the missing episodes of the benchmark, and show its numbers; with --cooperation those of all forms."""
    check_at_least(args, limit=1, samples=1, concurrency=1, episode_tokens=1, generated_tokens=1, max_steps=1)
    if not args.cooperation and (args.arms or args.arm_agents):
        refuse(
            "--arms or --arm-agents was given without --cooperation; expected it with them. Add it, or leave them out."
        )
    bench, env = asked(args)
    if args.cooperation:
        return cooperation.run(args, console, bench, env)
    say_problems(args, console, bench, env)
    with user_errors():
        path = args.output or default_output(bench.config, _label(bench, env))
    played = watched(bench, path, args, console, bench.env)
    return told(console, played, path)


def asked(args: argparse.Namespace) -> tuple[Any, Any]:
    """The benchmark that the arguments describe, and an environment of it."""
    from pettingllms_envs.episodes.episode import RunLimits
    from pettingllms_envs.evaluation import bench as benches  # with numpy's random numbers, which others do without
    from pettingllms_envs.observations import read_observation

    chosen_settings = {
        **_of_team(args),
        **settings(args),
        **({} if args.workflow is None else {"workflow": args.workflow}),
    }
    env = made(args, **chosen_settings)
    name = pettingllms_envs.find(args.env).full_name
    options = {**dict(args.reset_options), **({} if args.level is None else {"level": args.level})}
    with user_errors():
        chosen = benches.choose(env, name, chosen_settings, split=args.split, options=options, limit=args.limit)
        env.reset(seed=chosen.instances[0].seed, options=dict(chosen.instances[0].options) or None)
        for agent in env.agents:
            read_observation(env.observe(agent), agent=agent)  # raises for what no agent can be shown
        bench = benches.Bench(
            env=name,
            settings=chosen_settings,
            agents=specs(args, benches.roles_of(env)),
            chosen=chosen,
            samples=args.samples,
            rules=RunLimits(
                seed=args.seed,
                max_steps=args.max_steps,
                episode_tokens=args.episode_tokens,
                generated_tokens=args.generated_tokens,
            ),
        )
    return bench, env


def _of_team(args: argparse.Namespace) -> dict[str, Any]:
    """The settings of a saved team's training that are the team's own, such as who speaks when in a conversation."""
    from pettingllms_envs.evaluation.teams import read_team

    if args.team is None or ":" in args.env:
        return {}
    with user_errors():
        entry = pettingllms_envs.find(args.env)
        own = vars(importlib.import_module(entry.module)).get("TEAM_SETTINGS", ())
        trained = read_team(Path(args.team.partition(",")[0])).settings.get(entry.full_name, []) if own else []
    return {name: value for name, value in trained[0].items() if name in own} if len(trained) == 1 else {}


def _label(bench: Any, env: Any) -> Any:
    from pettingllms_envs.evaluation import data_label

    return data_label.of_env(env, len(bench.chosen.instances))


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
