"""Uses a trained team as agents, from the folder with `team.json` that `MultiAgentGRPOTrainer.save_model()` wrote.

    team:plan-path-team                        every role that the team has
    planner=team:plan-path-team                one of them
    team:plan-path-team,engine=vllm,base=PATH  by vLLM, on another copy of the base model

Each role becomes an agent of the kind `transformers`, or of another that takes such options, such as `vllm`, with the
sampling options of the trainer's evaluations as defaults.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pettingllms_envs.agent_names import role_of
from pettingllms_envs.agents.spec import AgentSpec, parse
from pettingllms_envs.episodes.files import read_json_text
from pettingllms_envs.settings import STRICT_FORMAT


TEAM = "team.json"
FORMAT = 1
KIND = "team"
ADAPTER = "adapter_config.json"
WORKFLOW_SETTINGS = ("workflow", "num_turns", "data")
"""Settings in which a team may well play another form of the task that it was trained on, or other rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """The content of a team's `team.json`.

    Args:
        environment: Name of the environment that it was trained on; several are separated by commas.
        agents: For each agent its `policy`, its `sampling` in evaluations, and its `history`.
        policies: By name, each with its `kind` (`"adapter"`, `"model"` or `"api"`), its `folder` below the team's or
            None, and, for an adapter or a model that is elsewhere, the `base` model with its `revision`.
        settings: For each environment by its name the settings that it was trained with, as far as they are known.
    """

    folder: Path
    environment: str
    agents: Mapping[str, Mapping[str, Any]]
    policies: Mapping[str, Mapping[str, Any]]
    settings: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)

    def agent_for(self, agent: str, role: str) -> str | None:
        """The team's agent of that name, or of that role; None if there is none."""
        if agent in self.agents:
            return agent
        return next((name for name in self.agents if role_of(name) == role), None)

    def __str__(self) -> str:
        return f"{self.folder} is a team of {', '.join(self.agents)} (trained on {self.environment})"


def read_team(folder: Path) -> Team:
    """The team of a folder; `ValueError` if it is not a team's, or of another version."""
    if not folder.is_dir():
        raise ValueError(
            f"there is no folder {str(folder)!r}; expected that of a team, as trainer.save_model() leaves it. "
            "Check the path."
        )
    file = folder / TEAM
    if not file.is_file():
        raise ValueError(f"{folder} has no {TEAM}; expected what trainer.save_model() wrote. {_instead(folder)}")
    try:
        facts: Any = json.loads(read_json_text(file.resolve(), "utf-8"))  # of the Hub's cache it is a link
        if facts["format"] != FORMAT:
            raise ValueError(f"it has the format {facts['format']!r}")
        team = Team(
            folder=folder,
            environment=str(facts["environment"]),
            agents={name: dict(each) for name, each in facts["agents"].items()},
            policies={name: dict(each) for name, each in facts["policies"].items()},
            settings={name: [dict(each) for each in of] for name, of in facts.get("settings", {}).items()},
        )
        for each in team.agents.values():
            team.policies[each["policy"]]["kind"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"{file} cannot be read ({type(error).__name__}: {error}); expected format {FORMAT} of "
            "trainer.save_model(). Save the team again, with this version."
        ) from None
    return team


def _instead(folder: Path) -> str:
    """A hint on how to use a folder without `team.json`, depending on its files."""
    if checkpoints := sorted(file.parent for file in folder.glob(f"*/{TEAM}")):
        return f"There is one in {', '.join(map(str, checkpoints))}: name that."
    if adapters := sorted(file.parent for file in folder.glob(f"*/{ADAPTER}")):
        agents = " ".join(f"{path.name}=transformers:{_base_of(path)},adapter={path}" for path in adapters)
        return f"It has adapters, but nothing says who they play. Save the team again, or name them: --agents {agents}"
    if models := sorted(file.parent for file in folder.glob("*/config.json")):
        agents = " ".join(f"{path.name}=transformers:{path}" for path in models)
        return f"It has models, but nothing says who they play. Save the team again, or name them: --agents {agents}"
    if (folder / "config.json").is_file():
        return f"It has one model. To let it play every role: --agents transformers:{folder}"
    return f"Looked for: {TEAM}, */{ADAPTER}, */config.json, config.json."


def _base_of(adapter: Path) -> str:
    try:
        return str(
            json.loads(read_json_text((adapter / ADAPTER).resolve(), "utf-8"))["base_model_name_or_path"] or "BASE"
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return "BASE"


def check_roles(texts: Sequence[str], roles: Mapping[str, str]) -> None:
    """Check that a team that plays every role has no role that the environment lacks: results would depend on it."""
    for role, spec in map(parse, texts):
        if role is not None or spec.kind != KIND or spec.target is None:
            continue
        team = read_team(Path(spec.target))
        known = {*roles, *roles.values()}
        if idle := [agent for agent in team.agents if not {agent, role_of(agent)} & known]:
            one = next(iter(roles.values()))
            raise ValueError(
                f"{team}, but the environment has no {', '.join(idle)}; its roles are {', '.join(roles.values())}. "
                f"Choose the environment or workflow of the training, or name the role: --agents {one}={KIND}:"
                f"{spec.target}"
            )


def spec_of(spec: AgentSpec, agent: str, role: str, given: Mapping[str, Any]) -> AgentSpec:
    """The spec of the agent that a team has for a role.

    Args:
        given: Options of all models, which override the team's sampling; the spec's own options override both.
    """
    options = dict(spec.options)
    engine, base = options.pop("engine", "transformers"), options.pop("base", None)
    if spec.target is None:
        raise ValueError(f"the agent is {KIND!r}; expected {KIND}:FOLDER. Name the folder.")
    team = read_team(Path(spec.target))
    who = team.agent_for(agent, role)
    do = f"Name an agent for it, such as {role}=oracle, or another team."
    if who is None:
        raise ValueError(f"{team}; no agent of it plays the role {role!r}. {do}")
    name = team.agents[who]["policy"]
    policy = team.policies[name]
    if policy["kind"] == "api":
        raise ValueError(f"{team}; {who} was played by an API, which is not in the folder. {do}")
    if policy["kind"] == "adapter" and policy["folder"] is None:
        raise ValueError(f"{team}; {who} was played by the frozen adapter {name!r}, which is not in the folder. {do}")
    if team.agents[who].get("history", "none") != "none":
        raise ValueError(
            f"{team}; {who} was trained with history={team.agents[who]['history']!r}, but here each prompt stands "
            f"alone, and its numbers would not be those of the team. {do}"
        )
    sampling = {option: value for option, value in team.agents[who].get("sampling", {}).items() if value is not None}
    target, own = _weights(team, policy, base)
    whole = {**sampling, **given, **own, **options, KIND: str(team.folder)}
    return AgentSpec(engine, target, whole)


def _weights(team: Team, policy: Mapping[str, Any], base: str | None) -> tuple[str, dict[str, Any]]:
    here = None if policy["folder"] is None else team.folder / policy["folder"]
    if here is not None:
        wanted = ADAPTER if policy["kind"] == "adapter" else "config.json"
        if not (here / wanted).is_file():
            raise ValueError(f"{team}, but {here / wanted} is missing. Copy the whole folder.")
        if policy["kind"] == "model":
            return str(here), {}
    model = base or policy.get("base")
    if not model:
        raise ValueError(
            f"{team}, but it does not say which base model it stands on, for that was never saved under a name. Say "
            f"so: {team.folder},base=MODEL"
        )
    is_path = model.startswith(("/", ".", "~")) or model.count("/") > 1  # of the Hub it is NAME or OWNER/NAME
    if base is None and is_path and not Path(model).is_dir():
        raise ValueError(
            f"{team} on the base model {model}, which is not on this machine, or not below this folder. Say where it "
            f"is: {team.folder},base=PATH"
        )
    options: dict[str, Any] = {} if base or not policy.get("revision") else {"revision": policy["revision"]}
    if here is not None:
        options["adapter"] = str(here)
        if (here / "tokenizer_config.json").is_file():
            options["tokenizer"] = str(here)
    return model, options


def notes(
    specs: Iterable[AgentSpec],
    env: str,
    settings: Mapping[str, Any] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> list[str]:
    """One line for each team that was trained on another environment, or with other settings, than it plays here.

    Args:
        defaults: Values of the settings that are not given, which a training may have left out, too.
    """
    here, defaults = {**(defaults or {}), **(settings or {})}, defaults or {}
    teams = dict.fromkeys(spec.options[KIND] for spec in specs if KIND in spec.options)
    found = [read_team(Path(folder)) for folder in teams]
    lines = [f"{team}, and plays {env} here." for team in found if env not in team.environment.split(", ")]
    for team in found:
        strict = {STRICT_FORMAT: True} if STRICT_FORMAT in defaults else {}  # of a team that does not say
        others = [_differences({**defaults, **strict, **trained}, here) for trained in team.settings.get(env, [])]
        if others and all(others):
            nearest = min(others, key=lambda differences: len(differences))
            lines.append(f"{team} with {', '.join(nearest)}. Play it so with --set NAME=VALUE.")
    return lines


def _differences(trained: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """The settings of a training that are others here, such as `size=10 (here 40)`."""
    compared = [name for name in trained if name in here and name not in WORKFLOW_SETTINGS]
    return [f"{name}={trained[name]} (here {here[name]})" for name in compared if trained[name] != here[name]]
