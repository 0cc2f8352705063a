"""Suites: a file that names environments, and the models and teams that play each of them. docs/benchmarking.md.

    samples: 4
    environments:
      - plan_path
      - {env: sokoban, set: {size: 6}, limit: 50}
    models:
      - Qwen/Qwen3-1.7B
      - {model: Qwen/Qwen3-8B, temperature: 0.6}
    teams:
      trained: team:plan-path-team
      mixed: {drafter: oracle, planner: api:Qwen/Qwen3-8B}

Options have the names and the meaning of those of `pettingllms bench`. Those of an environment come before those of
the suite, and those of a model before both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import pettingllms_envs
from pettingllms_envs.agents import options
from pettingllms_envs.agents.spec import parse
from pettingllms_envs.episodes.files import read_json_text
from pettingllms_envs.installing import install_command
from pettingllms_envs.suggestions import did_you_mean


SUFFIXES = (".yaml", ".yml")

RECORD = "suite.json"
"""In the folder of a suite's runs: its `name`, its file as `source`, and the names of `players` by a run's folder."""

MODEL_KEYS = {each.name: each.types for each in options.MODEL_OPTIONS}
ENVIRONMENT_KEYS = {**MODEL_KEYS, "set": (dict,), "option": (dict,)} | {
    each.name: each.types for each in options.RUN_OPTIONS
}
"""Options of models and of environments; `set` are the settings, `option` the reset options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Player:
    """A model, or a team of agents, that plays every role of an environment.

    Args:
        agents: Specifications of the agents of a team, as `--agents` takes them.
    """

    name: str
    model: str | None = None
    agents: Sequence[str] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """What a suite's file says.

    Args:
        name: Its name: that of its file, unless it says another.
        source: The file, or the name of one that is shipped with this package.
        environments: Options of each environment, and its name as `env`.
        players: Models and teams; there may be none, where the command names them.
    """

    name: str
    source: str
    environments: Sequence[Mapping[str, Any]]
    players: Sequence[Player] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


def shipped() -> tuple[str, ...]:
    """Names of the suites that are shipped with this package."""
    files = (resources.files(pettingllms_envs) / "suites").iterdir()
    return tuple(sorted(Path(file.name).stem for file in files if file.name.endswith(SUFFIXES)))


def is_suite(name: str) -> bool:
    """Whether an argument of `pettingllms bench` is a suite: a YAML file, or a shipped suite and no environment."""
    if name.endswith(SUFFIXES) or name not in shipped():
        return name.endswith(SUFFIXES)
    try:
        pettingllms_envs.find(name)
    except ValueError:
        return True
    return False


def read_suite(name: str) -> Suite:
    """The suite of a file, or the shipped one of that name.

    Raises:
        ValueError: The file is no suite.
        ImportError: PyYAML is not installed.
        OSError: The file cannot be read.
    """
    if name.endswith(SUFFIXES):
        file, source = Path(name), str(Path(name).resolve())
        if not file.exists():
            raise ValueError(
                f"there is no suite {name}; expected a file of yours, or one of {', '.join(shipped())}. Correct it."
            )
        text = file.read_text("utf-8-sig")
    else:
        file, source = Path(f"{name}.yaml"), name
        text = (resources.files(pettingllms_envs) / "suites" / file.name).read_text("utf-8")
    return suite_of(_yaml(text, name), default_name=file.stem, source=source)


def read_record(root: Path) -> dict[str, Any]:
    """The record of a suite in the folder of its runs; empty where there is none, or none that can be read."""
    try:
        found = json.loads(read_json_text(root / RECORD, "utf-8"))
    except (ValueError, OSError, RecursionError):
        return {}
    return found if isinstance(found, dict) and isinstance(found.get("players", {}), dict) else {}


def suite_of(content: Any, *, default_name: str, source: str) -> Suite:
    """The suite that a file's content describes.

    Raises:
        ValueError: An option is unknown or of another type, or there is no environment.
    """
    known = {"name": (str,), "environments": (list,), "models": (list,), "teams": (dict,), **ENVIRONMENT_KEYS}
    whole = _checked(content, known, source)
    options = {name: value for name, value in whole.items() if name in ENVIRONMENT_KEYS}
    environments = [_environment(each, source) for each in whole.get("environments", ())]
    if not environments:
        raise ValueError(f"{source} has no environments; expected some. Write environments: [plan_path, sokoban].")
    models = [_model(each, source) for each in whole.get("models", ())]
    teams = [_team(str(name), each, source) for name, each in whole.get("teams", {}).items()]
    name = whole.get("name", default_name)
    if not name or name.startswith(".") or set(name) & set("/\\\0"):
        raise ValueError(f"{source} has the name {name!r}; expected one that a folder may have. Choose another.")
    players = [*models, *teams]
    check_distinct([player.name for player in players], "a player", source)
    return Suite(name=name, source=source, environments=environments, players=players, options=options)


def check_distinct(names: Iterable[str], what: str, where: str) -> None:
    """Raise `ValueError` if a name is given twice."""
    names = list(names)
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{where} has {what} called {name!r} twice; expected each once. Leave one out.")


def _environment(entry: Any, source: str) -> Mapping[str, Any]:
    whole = {"env": entry} if isinstance(entry, str) else entry
    _checked(whole, {"env": (str,), **ENVIRONMENT_KEYS}, f"{source}, the environment {entry!r},", needed="env")
    return dict(whole)


def _model(entry: Any, source: str) -> Player:
    whole = {"model": entry} if isinstance(entry, str) else entry
    where = f"{source}, the model {entry!r},"
    whole = _checked(whole, {"model": (str,), "name": (str,), **MODEL_KEYS}, where, needed="model")
    options = {name: value for name, value in whole.items() if name in MODEL_KEYS}
    return Player(name=whole.get("name", whole["model"]), model=whole["model"], options=options)


def _team(name: str, entry: Any, source: str) -> Player:
    if isinstance(entry, Mapping) and all(isinstance(each, str) for pair in entry.items() for each in pair):
        agents = [f"{role}={agent}" for role, agent in entry.items()]
    elif isinstance(entry, str):
        agents = [entry]
    else:
        raise ValueError(
            f"{source} has the team {name!r} as {entry!r}; expected an agent for every role, such as team:FOLDER, or "
            "one for each, such as {drafter: oracle, planner: api:MODEL}. Write it so."
        )
    for agent in agents:
        parse(agent)
    return Player(name=name, agents=agents)


def _checked(value: Any, known: Mapping[str, tuple[type, ...]], where: str, *, needed: str = "") -> dict[str, Any]:
    """The mapping, with known keys and values of their types alone, and with the key that is needed."""
    if not isinstance(value, dict):
        raise ValueError(f"{where} is {value!r}; expected a mapping of {', '.join(known)}. Correct it.")
    for name, given in value.items():
        if name not in known:
            hint = did_you_mean(name, known)
            raise ValueError(f"{where} has {name!r}; expected one of: {', '.join(known)}.{hint}")
        if not isinstance(given, known[name]) or isinstance(given, bool):
            kinds = " or ".join(kind.__name__ for kind in known[name])
            raise ValueError(f"{where} has {name}: {given!r}; expected {kinds}. Correct it.")
    if needed and needed not in value:
        raise ValueError(f"{where} has no {needed!r}; expected it. Add {needed}: NAME.")
    return value


def _yaml(text: str, name: str) -> Any:
    try:
        import yaml
    except ImportError as error:
        raise ImportError(f"suites need PyYAML, which is not installed. Run {install_command('suites')}.") from error
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"{name} is not YAML ({' '.join(str(error).split())}). Correct it.") from None
