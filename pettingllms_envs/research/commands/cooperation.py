"""Show what cooperation is worth: a team beside its forms without messages, alone, and shown everything.

The arguments are those of `pettingllms bench` for one environment and one team (docs/cooperation.md). Every arm is a
run of its own below the output folder, on the same problems and with the same number of generated tokens an episode:
as --generated-tokens says, or else as many as the team's longest episode takes. A command that was stopped goes on
where it was.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

from rich.console import Console

import pettingllms_envs
from pettingllms_envs.agents.spec import parse
from pettingllms_envs.bounds import HasBlindBound, HasLoneBound
from pettingllms_envs.commands import counted, refuse, say, user_errors
from pettingllms_envs.commands.runs import asked, default_output, missing, say_problems, specs, watched
from pettingllms_envs.episodes.files import write_json
from pettingllms_envs.episodes.observing import roles_of, task_of
from pettingllms_envs.evaluation import tables, team_forms
from pettingllms_envs.evaluation.guessers import best_guesser, guessers_of
from pettingllms_envs.evaluation.team_forms import TEAM
from pettingllms_envs.page.cooperation import NUMBERS, build
from pettingllms_envs.research import cooperation
from pettingllms_envs.research.commands import add_team, one_team
from pettingllms_envs.research.cooperation import Bound, sentences
from pettingllms_envs.testing.cooperation import lone_bound
from pettingllms_envs.testing.play import Failed


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of `cooperation`."""
    add_team(parser)
    forms = parser.add_argument_group("forms of the team")
    forms.add_argument(
        "--arms", nargs="+", default=[], metavar="ARM", help="some of: full routed team cut alone (all that there are)"
    )
    forms.add_argument("--arm-agents", nargs="+", default=[], metavar="ARM=AGENT",
                       help="agents of a form, ARM=AGENT or ARM=ROLE=AGENT (those of the team)")  # fmt: skip


def run(args: argparse.Namespace, console: Console) -> int:
    """Play the missing episodes of all arms, show what cooperation is worth, and write it."""
    args = one_team(args)
    bench, env = asked(args)
    with user_errors():
        arms = arms_of(args, bench, env)
        config = {**bench.config, "arms": {name: arm.config["agents"] for name, arm in arms.items()}}
        folder = args.output or default_output(config, suffix="-cooperation")
    say_problems(args, console, bench, env)
    played: dict[str, Any] = {}
    status = 0
    limit = args.generated_tokens
    for name in (TEAM, *(each for each in arms if each != TEAM)):
        arm = replace(arms[name], rules=replace(bench.rules, generated_tokens=limit))
        played[name] = watched(arm, folder / name, args, console, name)
        status = max(status, missing(console, played[name]))
        if status > 1 or (status and name == TEAM and limit is None):
            # The agents of the other arms would be refused as well, or Ctrl-C was meant for all; or the limit of the
            # others is not known before all of the team's episodes are played.
            return status
        if name == TEAM and limit is None:
            counts = [cooperation.generated(row) for row in played[name].ended.rows if row["error"] is None]
            limit = None if None in counts else max(map(int, filter(None, counts)), default=None)
    with user_errors():
        task = task_of(env)
        found = cooperation.compare(
            bench.env,
            {name: (arm.config, played[name].ended.rows) for name, arm in arms.items()},
            generated_tokens=limit,
            bound=_bound(bench, env) if isinstance(task, HasLoneBound) else None,
            blind_bound=float(task.blind_bound()) if isinstance(task, HasBlindBound) else None,
            guessers={
                name: best_guesser(arm.make, arm.chosen.instances, arm.rules.seed)
                for name, arm in arms.items()
                if guessers_of(arm.make())
            },
        )
        write_json(folder / NUMBERS, found.plain)
        page = build(folder)
    show(console, found)
    say(console, f"\nEvery arm is a run below {folder}, the numbers in {folder / NUMBERS} and {page}.")
    return status


def show(console: Console, found: Any) -> None:
    """Show a table of the arms, one of the differences, and what they say."""
    rows = [
        (
            arm.name,
            tables.percent({"mean": arm.mean, "low": arm.low, "high": arm.high}),
            "-" if arm.tokens is None else f"{arm.tokens:,.0f}",
            tables.count(arm.most_tokens),
            str(arm.num_out_of_tokens),
        )
        for arm in found.arms
    ]
    if found.bound is not None and found.bound.shows_need:
        rows.append(("bound alone", f"{100 * found.bound.declared:.1f}%", "", "", ""))
    if found.blind_bound is not None:
        rows.append(("bound blind", f"{100 * found.blind_bound:.1f}%", "", "", ""))
    tables.table(console, ("arm", "success [95% interval]", "tokens out", "most", "out of tokens"), rows)
    guessed = [
        (arm.name, tables.percent({"mean": own.mean, "low": own.low, "high": own.high}), own.name)
        for arm in found.arms
        if (own := arm.guesser) is not None
    ]
    if guessed:
        tables.table(console, ("arm", "best guesser [95% interval]", "which is"), guessed)
    differences = [
        (each.name, each.of, f"{100 * each.mean:+.1f} [{100 * each.low:+.1f}, {100 * each.high:+.1f}]", each.verdict)
        for each in found.differences
    ]
    if differences:
        tables.table(console, ("", "left - right", "points [95% interval]", "verdict"), differences)
    say(console, f"\n{counted(found.num_problems, 'problem')} that every arm has a result for; intervals are paired.")
    for line in sentences(found):
        say(console, line)


def arms_of(args: argparse.Namespace, bench: Any, env: Any) -> dict[str, Any]:
    """The benchmark of each arm, in the order in which they are shown."""
    forms = team_forms.forms_of(env)
    own = _agents_of_arms(args.arm_agents)
    names = team_forms.chosen(forms, args.arms or list(forms))
    for arm in own:
        team_forms.chosen(forms, [arm])
    found = {}
    for name in names:
        form = forms[name]
        arm = bench if form.settings is None else replace(bench, settings=form.settings, agents={})
        texts = own.get(name) or (own.get(team_forms.ALONE) if team_forms.is_alone(name) else None) or []
        roles = roles_of(arm.make())
        named = {role for role, _ in map(parse, texts)}
        ours = {agent: role for agent, role in roles.items() if None in named or {agent, role} & named}
        if texts and not ours:
            ours = roles  # so that the error names all of them
        agents = specs(argparse.Namespace(**{**vars(args), "team": None}), ours, texts) if texts else {}
        rest = team_forms.inherited(bench.agents, name, form, [agent for agent in roles if agent not in agents])
        found[name] = replace(arm, agents={agent: {**agents, **rest}[agent] for agent in roles})
    return found


def _agents_of_arms(given: list[str]) -> dict[str, list[str]]:
    """`["alone=api:m"]` as `{"alone": ["api:m"]}`."""
    found: dict[str, list[str]] = {}
    for text in given:
        arm, equals, agent = text.partition("=")
        if not equals or not arm or not agent:
            refuse(f"--arm-agents got {text!r}; expected ARM=AGENT or ARM=ROLE=AGENT, such as alone=oracle.")
        found.setdefault(arm, []).append(agent)
    return found


def _bound(bench: Any, env: Any) -> Bound:
    """The bound that an environment declares for an agent alone, recomputed."""
    declared = float(task_of(env).lone_bound())
    try:
        found = lone_bound(env, lambda settings: pettingllms_envs.make(bench.env, **settings))
    except Failed as why:
        return Bound(declared=declared, recomputed=None, by=str(why))
    if found is None:
        return Bound(declared=declared, recomputed=None, by="the task does not say of what it follows")
    return Bound(declared=declared, recomputed=float(found.recomputed), by=found.by)
