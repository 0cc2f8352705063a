"""An environment's page, from its code: rules, roles, settings, rewards, prompts, and an episode played by the oracle.

All of it is what `pettingllms info` shows, as Markdown; a new environment has a page as soon as it is registered.
"""

from __future__ import annotations

import importlib
import inspect
import io
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pettingllms_envs
from pettingllms_envs import rendering
from pettingllms_envs.aec import TextEnv
from pettingllms_envs.boards import Board
from pettingllms_envs.commands import info
from pettingllms_envs.commands.listing import summary
from pettingllms_envs.registry import BUILT_IN, Entry, entries
from pettingllms_envs.sandbox import SandboxUnavailable


SEED = 0
GUIDES = {
    **dict.fromkeys(("apps", "code_contests", "live_code_bench"), "coding"),
    **dict.fromkeys(("aime", "math", "olympiad_bench"), "mathematics"),
    **dict.fromkeys(("archives", "note_taking"), "cooperation"),
    **dict.fromkeys(("laws", "causal_graphs", "benches"), "discovery"),
    **dict.fromkeys(("blocksworld", "eight_queens"), "puzzles"),
    "conversation": "training",
    "hidden_bench": "search",
    "kuhn_poker": "competition",
}
"""Pages written by hand that say more, of environments that do not have one of their own name."""


def own_entries() -> list[Entry]:
    """The newest version of each environment of this package."""
    newest = {entry.name: entry for entry in entries() if entry.origin == BUILT_IN}
    return [newest[name] for name in sorted(newest)]


def index() -> str:
    """The page that lists them."""
    rows = []
    for entry in own_entries():
        env = pettingllms_envs.make(entry.full_name)
        workflows = ", ".join(f"`{name}`" for name in env.metadata["workflows"])
        rows.append((f"[`{entry.name}`]({entry.full_name}.md)", summary(entry), workflows))
    return "\n".join(
        [
            "# Environments",
            "",
            "Made from the code, as all pages below. The first workflow is the default.",
            "",
            *table(("environment", "what it is", "workflows"), rows),
            "",
            "`pettingllms info NAME` shows the same in a terminal, `pettingllms play NAME` lets you play.",
            "",
        ]
    )


def page(entry: Entry, *, board: str = "") -> str:
    """The page of an environment. `board` is the address of a picture of the start of seed 0, if there is one."""
    env = pettingllms_envs.make(entry.full_name)
    module = importlib.import_module(entry.module)
    task = env.workflow.task
    lines = [
        f"# {entry.name}",
        "",
        f'`pettingllms_envs.make("{entry.name}")`, or `pettingzoo.make("aec", "pettingllms/{entry.name}-'
        f'v{entry.version}")`. Published test set: {info.published(entry.full_name)}.',
        "",
    ]
    guide = GUIDES.get(entry.name, entry.name)
    if (Path(__file__).parents[1] / f"{guide}.md").is_file():
        lines += [f"[More about environments of this kind](../{guide}.md).", ""]
    lines += [*prose(modules(task)), "", "## Settings", ""]
    lines += [*table(("name", "default", "meaning"), info.settings(module, task, None)), ""]
    lines += ["Options of `reset`:", ""]
    options = [(f"`{name}`", info.listed(values)) for name, values in env.metadata["reset_options"].items()]
    lines += [*table(("name", "values"), options), ""]
    told: set[str] = set()
    for name in env.metadata["workflows"]:
        lines += [*workflow(entry, name, told), ""]
    lines += [*prompts(env), ""]
    if not (env.metadata["has_oracle"] or env.metadata["bots"]):
        return "\n".join(lines)
    heading, *played = episode(env)
    picture = ["", f"![the board of seed {SEED}]({board})"] if board else []
    lines += [heading, *picture, *played, ""]
    return "\n".join(lines)


def board(entry: Entry) -> bytes | None:
    """A picture (PNG) of the start of seed 0; None for a task without a board."""
    env = pettingllms_envs.make(entry.full_name)
    task = env.workflow.task
    if not isinstance(task, Board):
        return None
    env.reset(seed=SEED)
    file = io.BytesIO()
    rendering.picture(task, env.snapshot().play.task, side=240).save(file, "PNG")
    return file.getvalue()


def workflow(entry: Entry, name: str, told: set[str]) -> Iterator[str]:
    """A section on one way to play it: roles, settings of its own, parts of the rewards.

    `told` are the modules whose docstrings the page has already; those of this one are added.
    """
    env = pettingllms_envs.make(entry.full_name, workflow=name)
    yield f"## Workflow `{name}`" + ("" if told else " (the default)")
    yield ""
    here = [module for module in modules(env.workflow) if module not in told]
    told.update(here)
    yield from prose(here)
    yield ""
    yield from table(("agent", "job"), [(f"`{agent}`", job) for agent, job in info.agents(env)])
    yield ""
    module = importlib.import_module(entry.module)
    shared = {row[0] for row in info.settings(module, None, None)}
    if own := [row for row in info.settings(module, None, env.workflow) if row[0] not in shared]:
        yield from table(("setting", "default", "meaning"), own)
        yield ""
    ranges = [
        (f"`{part}`", f"{low:.4g}", f"{high:.4g}") for part, (low, high) in env.metadata["reward_ranges"].items()
    ]
    yield from table(("part of a step's reward", "least", "greatest"), ranges)
    yield ""
    yield info.return_line(env)


def prompts(env: TextEnv) -> Iterator[str]:
    """What each agent reads first, the same in every episode; of one that observes a chat, its last message."""
    env.reset(seed=SEED)
    yield "## System prompts" if any("system" in env.observe(agent) for agent in env.possible_agents) else "## Prompts"
    for agent in env.possible_agents:
        yield ""
        yield f"`{agent}`:"
        yield ""
        shown = env.observe(agent)
        yield fenced(shown["system"] if "system" in shown else shown["messages"][-1]["content"])


def episode(env: TextEnv) -> Iterator[str]:
    """A whole episode: what each agent reads, what it replies, the parts of the rewards.

    The oracle plays it or, where there is none, the first bot.
    """
    env.reset(seed=SEED)
    has_oracle = env.metadata["has_oracle"]
    player = "the oracle" if has_oracle else f"the bot `{env.metadata['bots'][0]}`"
    yield f"## An episode, seed {SEED}, played by {player}"
    while not env.standing():
        agent = env.agent_selection
        text = env.observe(agent)["text"]
        try:
            reply = env.oracle() if has_oracle else env.bot(env.metadata["bots"][0])
            env.step(reply)
        except SandboxUnavailable as error:
            yield ""
            yield f"It runs programs, and this machine has no sandbox: {str(error).splitlines()[0]}"
            return
        paid = [
            f"`{part}` {value:+.3g} ({scope})"
            for scope, parts in env.snapshot().parts.items()
            for part, value in parts.items()
        ]
        for line in (
            f"`{agent}` reads:",
            fenced(text),
            "and replies:",
            fenced(reply),
            f"Rewards: {', '.join(paid) or 'none'}.",
        ):
            yield ""
            yield line
    play = env.snapshot().play
    outcome = ", ".join(f"{name} {_figure(value)}" for name, value in env.workflow.task.outcome(play.task).items())
    yield ""
    yield f"{env.standing().capitalize()} in turn {play.turn} of {env.workflow.num_turns}: {outcome}."


PLAY_MODULES = ("pettingllms_envs.environments.", "pettingllms_envs.tasks.", "pettingllms_envs.teams.")
FOR_AUTHORS = frozenset(
    f"pettingllms_envs.{kind}.{name}"
    for kind, names in {
        "tasks": ("base", "cooperative", "multiplayer", "rows", "sequential"),
        "teams": ("base", "functions"),
    }.items()
    for name in names
)


def modules(*things: Any) -> list[str]:
    """The modules of objects' classes and of their bases among tasks and workflows, own first, each once.

    Without those of base classes for authors of environments, which say nothing about a game.
    """
    names = dict.fromkeys(kind.__module__ for thing in things for kind in type(thing).__mro__)
    return [name for name in names if name.startswith(PLAY_MODULES) and name not in FOR_AUTHORS]


def prose(names: Iterable[str]) -> list[str]:
    """What modules say, as lines of paragraphs."""
    return "\n\n".join(paragraphs(inspect.cleandoc(sys.modules[name].__doc__ or "")) for name in names).split("\n")


def paragraphs(doc: str) -> str:
    """A docstring as Markdown: a label at the beginning of a line ("Rules:") begins a paragraph; "<" is no tag."""
    title, _, rest = doc.partition("\n\n")
    rest = re.sub(r"\n(?=[A-Z][a-z]+(?: [a-z]+)?(?:, [^:\n]*)?: )", "\n\n", rest)
    rest = re.sub(r"^([A-Z][a-z]+(?: [a-z]+)?): ", r"**\1:** ", rest, flags=re.M)
    pieces = f"{title}\n\n{rest}".split("`")
    return "`".join(piece if quoted % 2 else piece.replace("<", "&lt;") for quoted, piece in enumerate(pieces))


def table(headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Lines of a Markdown table."""
    cells = [tuple(cell.replace("|", "\\|").replace("\n", " ") for cell in row) for row in rows]
    return [f"| {' | '.join(row)} |" for row in (headings, ("---",) * len(headings), *cells)]


def fenced(text: str) -> str:
    """The text in a fence that is longer than any inside."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}text\n{text}\n{fence}"


def _figure(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
