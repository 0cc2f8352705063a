"""The options of models and of runs: each is a flag of `pettingllms bench` and of commands like it, a key of a suite's
file and, if it is a model's, an option of an agent's specification.

A new one is a row here, which `commands/runs.py` gives to every agent with a model, and code where it has its effect:
of a server's model `SENT` of `agents/openai.py`, of one here `cli/local_agents.py`, of an episode `RunLimits`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple


class Option(NamedTuple):
    """An option.

    Args:
        kind: The type of its value: `str`, `int`, `float`, `list` (of texts, given several times) or `dict` (JSON).
        group: Where `--help` shows it.
        default: Of a run, where neither the command nor a suite gives it.
        minimum: The smallest valid number.
    """

    name: str
    kind: type
    group: Literal["agents", "sampled", "problems", "running"]
    metavar: str
    help: str
    default: int | None = None
    minimum: int | None = None

    @property
    def flag(self) -> str:
        """On the command line, such as `"--top-p"`."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def types(self) -> tuple[type, ...]:
        """Of its value in a suite's file."""
        return (int, float) if self.kind is float else (self.kind,)


MODEL_OPTIONS = (
    Option("base_url", str, "agents", "URL",
           "OpenAI-compatible server, such as http://host:8000/v1 (OPENAI_BASE_URL)"),
    Option("key_env", str, "agents", "NAME", "environment variable that holds the server's key"),
    Option("temperature", float, "sampled", "T", "sampling temperature (default of all these: server's)"),
    Option("top_p", float, "sampled", "P", "nucleus sampling: mass of the most likely tokens"),
    Option("timeout", float, "running", "S", "timeout of a request in seconds (600)"),
    Option("patience", float, "running", "S",
           "give up on a reply after S seconds (1200; before the first answer of a server 5)"),
    Option("top_k", int, "sampled", "K", "sample from the K most likely tokens"),
    Option("max_tokens", int, "sampled", "N", "most tokens of a reply"),
    Option("stop", list, "sampled", "WORD", "stop word; may be given several times"),
    Option("extra", dict, "sampled", "JSON", "further fields of each request"),
)  # fmt: skip
RUN_OPTIONS = (
    Option("workflow", str, "problems", "W", "short for --set workflow=W"),
    Option("split", str, "problems", "S", "split of the problems (test)"),
    Option("level", int, "problems", "L", "short for --option level=L"),
    Option("limit", int, "problems", "N", "at most N problems (all, where their number is known)", minimum=1),
    Option("samples", int, "problems", "K", "episodes on each problem (1)", default=1, minimum=1),
    Option("seed", int, "problems", "N", "random seed of all replies (0)", default=0),
    Option("concurrency", int, "running", "N", "concurrent episodes (32 with a model, else 1)", minimum=1),
    Option("env_workers", str, "running", "W", "ray, an address or JSON: environments in Ray's actors (docs/gpus.md)"),
    Option("episode_tokens", int, "problems", "N", "end an episode after N tokens", minimum=1),
    Option("generated_tokens", int, "problems", "N", "end an episode when more are generated", minimum=1),
    Option("max_steps", int, "problems", "N", "truncate an episode there (1000)", default=1000, minimum=1),
)

SERVER = ("base_url", "key_env", "timeout", "patience")
"""Options of models that are asked over the network."""
NUMBERS = {each.name: each.kind for each in MODEL_OPTIONS if each.kind in (int, float)}
NUMBERS |= {"min_p": float, "repetition_penalty": float}  # of a specification alone
DEFAULTS = {each.name: each.default for each in RUN_OPTIONS if each.default is not None}
MINIMA = {each.name: each.minimum for each in RUN_OPTIONS if each.minimum is not None}


def add_flags(group: Any, options: Iterable[Option]) -> None:
    """Add the flags of options. Values of models stay texts, which `agents.spec.option` reads."""
    for each in options:
        how: dict[str, Any] = {"action": "append"} if each.kind is list else {}
        if each in RUN_OPTIONS and each.kind is int:
            how["type"] = int
        group.add_argument(each.flag, metavar=each.metavar, help=each.help, **how)


def in_group(name: str) -> list[Option]:
    """The options that `--help` shows in a group, in order."""
    return [each for each in (*RUN_OPTIONS, *MODEL_OPTIONS) if each.group == name]
