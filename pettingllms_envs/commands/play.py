"""Play an environment in a terminal, or watch one being played (--auto), and record the boards as a GIF (--record).

A reply is a line; a line that ends with a backslash goes on in the next. One that begins with a block (```) goes on to
the first empty line that is in no block. Instead of a reply: ? shows what the role is shown, :oracle a best reply
if the environment has an oracle, :quit leaves.
"""

from __future__ import annotations

import argparse
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from pettingllms_envs import rendering
from pettingllms_envs.aec import TextEnv
from pettingllms_envs.commands import INTERRUPTED, add_environment, made, refuse, say, user_errors
from pettingllms_envs.episodes.outputs import check_output, write_output
from pettingllms_envs.failures import EpisodeRestart
from pettingllms_envs.printable import printable
from pettingllms_envs.prompts import read_observation, text_of
from pettingllms_envs.replies.fences import FENCE
from pettingllms_envs.replies.moves import between


ORACLE = ", :oracle a best reply"
COMMANDS = "Here ? shows the prompt{oracle}, :quit leaves; a line that ends with \\ goes on in the next"
BLOCKS = "; an empty line after the last block ends a reply with blocks"
GIF = b"GIF89a"
MAX_SHOWN = 400  # characters of a reply that nobody typed


class UserLeft(Exception):
    """The user leaves the game."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of `play`: environment, instance, agents, and where to record."""
    add_environment(parser)
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the instance (0)")
    parser.add_argument("--split", metavar="S", help="train, validation or test")
    parser.add_argument("--level", type=int, metavar="L", help="difficulty, from 1")
    parser.add_argument("--board", type=Path, metavar="FILE", help="a file with the instance itself")
    parser.add_argument("--role", default="all", metavar="ROLE", help="your role; the oracle plays the others (all)")
    parser.add_argument("--workflow", metavar="W", help="short for --set workflow=W")
    parser.add_argument("--auto", choices=("oracle", "random"), help="play automatically with the oracle or at random")
    parser.add_argument("--record", type=Path, metavar="FILE.gif", help="save the game as an animated GIF")


def run(args: argparse.Namespace, console: Console) -> int:
    """Play one episode until it ends or the person leaves; 130 after Ctrl-C."""
    if args.record is not None:
        with user_errors():
            if not args.record.parent.is_dir():
                refuse(
                    f"--record is {args.record}; expected a file in a folder that exists. Make {args.record.parent} "
                    "first."
                )
            check_output(args.record, GIF)
    env = _started(args)
    if not isinstance(env, TextEnv):
        return _play_texts(args, env, console)
    states, status = [_state(env)], 0
    _show_board(env, console)
    try:
        while not (env.snapshot().terminated or env.snapshot().truncated):
            if env.terminations[env.agent_selection]:  # it left, and the others play on
                env.step(None)
                continue
            before = _state(env)
            reply = _step(args, env, console)
            if _state(env) != before:
                states += [*between(env.workflow.task, before, reply), _state(env)]
                _show_board(env, console)
    except (EOFError, UserLeft, KeyboardInterrupt) as left:
        say(console, "\nThe game is left as it is.")
        status = INTERRUPTED if isinstance(left, KeyboardInterrupt) else 0
    say(console, ending(env))
    if args.record is not None:
        with user_errors():
            film = io.BytesIO()
            rendering.save_gif([rendering.picture(env.workflow.task, state) for state in states], film)
            write_output(args.record, film.getvalue())
        say(console, f"Recorded {len(states)} boards in {args.record}.")
    return status


def ending(env: TextEnv) -> str:
    """A line with the episode's status and the task's outcome."""
    now = env.snapshot()
    how = env.standing().capitalize() or "Left"
    figures = _figures(env.workflow.task.outcome(now.play.task))
    return f"\n{how} in turn {now.play.turn} of {env.workflow.num_turns}: {figures}."


def _play_texts(args: argparse.Namespace, env: Any, console: Console) -> int:
    """Play an episode of a program or of a third-party environment, of which the prompts are shown and no board."""
    outcome: Mapping[str, Any] = {}
    try:
        while env.agents:
            agent = env.agent_selection
            if env.terminations[agent] or env.truncations[agent]:
                env.step(None)
                continue
            for message in read_observation(env.observe(agent), agent=agent).messages:
                calls = [json.dumps(call["function"]) for call in message.get("tool_calls") or ()]
                text = printable("\n".join([text_of(message["content"]), *calls]))
                say(console, f"\n{message['role']}: {text}", "dim")
            reply = _typed(console, agent) if args.auto is None else env.action_space(agent).sample()
            if args.auto is not None:
                say(console, f"\n{agent}: {printable(reply, MAX_SHOWN)}")
            with user_errors():
                env.step(reply)
            outcome = next((info.get("outcome", {}) for info in env.infos.values()), {})
            say(console, f"rewards: {', '.join(f'{name} {value:+.3g}' for name, value in env.rewards.items())}")
    except EpisodeRestart as restart:
        say(console, str(restart))
        return _play_texts(args, _started(args), console)
    except (EOFError, KeyboardInterrupt) as left:
        say(console, "\nThe game is left as it is.")
        return INTERRUPTED if isinstance(left, KeyboardInterrupt) else 0
    finally:
        env.close()
    say(console, f"\nOver: {_figures(outcome) or 'no outcome'}.")
    return 0


def _started(args: argparse.Namespace) -> Any:
    """The environment at the start of the instance that the arguments name."""
    env = made(args, **({} if args.workflow is None else {"workflow": args.workflow})).unwrapped
    is_text = isinstance(env, TextEnv)
    roles = [role.name for role in env.workflow.roles] if is_text else []
    if args.role not in ("all", *roles):
        refuse(f"--role is {args.role!r}; expected {', '.join(['all', *roles])}. Choose one of them.")
    has_oracle = is_text and env.metadata["has_oracle"]
    if not has_oracle and (args.auto == "oracle" or (args.auto is None and args.role != "all")):
        refuse(f"{args.env} has no oracle to play a role. Play all roles yourself, or give --auto random.")
    if args.record is not None and not is_text:
        refuse(f"{args.env} has no boards to --record; expected an environment of this package. Leave it out.")
    given = {"split": args.split, "level": args.level, "board": args.board}
    options = {name: value for name, value in given.items() if value is not None}
    for name in options:
        if name not in env.metadata.get("reset_options", ()):
            known = ", ".join(f"--{option}" for option in env.metadata.get("reset_options", ())) or "none"
            refuse(f"{args.env} has no --{name}; expected {known}. Leave it out.")
    with user_errors():
        if args.board is not None:
            # What is not UTF-8 then fails as a symbol that no board has, with the task's own words.
            options["board"] = args.board.read_text("utf-8", errors="replace")
        env.reset(seed=args.seed, options=options)
    for i, agent in enumerate(env.possible_agents):
        env.action_space(agent).seed(args.seed + i)
    return env


def _step(args: argparse.Namespace, env: TextEnv, console: Console) -> str:
    """Play one reply, by a person or automatically. Returns a line with its reward."""
    agent = env.agent_selection
    role = env.metadata["roles"][agent]
    typed = args.auto is None and args.role in ("all", role)
    if typed:
        reply = _ask(env, agent, console)
    else:
        reply = env.action_space(agent).sample() if args.auto == "random" else env.oracle()
        say(console, f"\n{agent}: {printable(reply, MAX_SHOWN)}")
    env.step(reply)
    scopes = env.snapshot().parts.items()
    parts = [f"{name} {value:+.3g} ({scope})" for scope, named in scopes for name, value in named.items()]
    say(console, f"rewards: {', '.join(parts) or 'none'}")
    return reply


def _texts(env: TextEnv, agent: str) -> tuple[str, str]:
    """The agent's system prompt and the rest of its prompt, images by their descriptions."""
    messages = read_observation(env.observe(agent), agent=agent).messages
    texts = [text_of(message["content"]) for message in messages]
    return (texts[0], "\n".join(texts[1:])) if messages[0]["role"] == "system" else ("", "\n".join(texts))


def _ask(env: TextEnv, agent: str, console: Console) -> str:
    """A person's reply.

    Raises:
        UserLeft: The person wants to leave.
        EOFError: The input has ended.
    """
    system, text = _texts(env, agent)
    # The board has just been shown; what is left are the turn, the feedback and another role's proposal.
    shown = env.workflow.task.show(_state(env))
    say(console, "\n" + "\n".join(filter(None, text.replace(shown, "").splitlines())))
    form = env.workflow.task.reply_format()
    form = form if form in system else system.removeprefix(env.workflow.task.rules()).strip()
    commands = COMMANDS.format(oracle=ORACLE if env.metadata["has_oracle"] else "")
    say(console, f"{form} ({commands}{BLOCKS if FENCE in form else ''}.)", "dim")
    while True:
        reply = _typed(console, agent)
        match reply.strip():
            case "?":
                say(console, f"{system}\n\n{text}", "cyan")
            case ":oracle" if env.metadata["has_oracle"]:
                say(console, env.oracle(), "cyan")
            case ":quit":
                raise UserLeft
            case word if word.startswith(":"):
                say(console, f"There is no command {word!r}. {commands}.")
            case _:
                return reply


def _typed(console: Console, agent: str) -> str:
    lines = [console.input(f"{agent}> ", markup=False)]
    if lines[0].lstrip().startswith(FENCE):
        inside = True
        while inside or lines[-1].strip():
            lines.append(console.input("... ", markup=False))
            if lines[-1].lstrip().startswith(FENCE):
                inside = not inside
        return "\n".join(lines)
    while lines[-1].endswith("\\"):
        lines[-1] = lines[-1][:-1]
        lines.append(console.input("... ", markup=False))
    return "\n".join(lines)


def _show_board(env: TextEnv, console: Console) -> None:
    say(console, "")
    rendering.to_terminal(env.workflow.task, _state(env), console=console)


def _state(env: TextEnv) -> Any:
    return env.snapshot().play.task


def _figures(outcome: Mapping[str, Any]) -> str:
    shown = {name: f"{value:.3g}" if isinstance(value, float) else value for name, value in outcome.items()}
    return ", ".join(f"{name} {value}" for name, value in shown.items())
