"""Serve a team as an OpenEnv server, a session an environment: `pettingllms bench openenv:URL` plays it, too.

Needs the packages of examples/openenv.txt, in a virtual environment of their own (docs/openenv.md).
"""

from __future__ import annotations

import argparse
from functools import partial

from rich.console import Console

import pettingllms_envs
from pettingllms_envs.commands import add_environment, made, refuse, say, settings, user_errors


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of `serve`: the environment, the address, and the bound on sessions."""
    add_environment(parser)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1; 0.0.0.0: from anywhere)")
    parser.add_argument("--port", type=int, default=8000, metavar="N", help="port to listen on (8000)")
    parser.add_argument("--sessions", type=int, default=64, metavar="N", help="most sessions at the same time (64)")


def run(args: argparse.Namespace, console: Console) -> int:
    """Serve until Ctrl-C."""
    env = made(args)  # what the user got wrong is said now, and not to each client
    try:
        from pettingllms_envs.remote.openenv_server import serve
    except ImportError as error:
        refuse(
            f"{error.name} is not installed; expected OpenEnv's package, in a virtual environment without the extra "
            "mcp. Run pip install -e . -r examples/openenv.txt in a checkout of PettingLLMs."
        )
    say(console, f"{env.metadata['name']} on http://{args.host}:{args.port}, at most {args.sessions} sessions")
    with user_errors():
        make = partial(pettingllms_envs.make, args.env, **settings(args))
        serve(make, host=args.host, port=args.port, sessions=args.sessions)
    return 0
