"""Writes a training's rollouts, with all candidates, rewards and advantages, for `pettingllms view`.

The format is that of `docs/records.md`.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from PIL.Image import Image as Picture

from pettingllms_envs.episodes import files
from pettingllms_envs.episodes.observing import success_of
from pettingllms_envs.episodes.prompts import recorded, with_tools
from pettingllms_envs.observations import Image
from pettingllms_envs.pictures import image_of
from pettingllms_trl.records import Candidate, ContinuationPlace, Decision, Episode, role_of


LIBRARIES = ("trl", "transformers", "torch")


def rows(
    episodes: Sequence[Episode],
    advantages: Mapping[int, Sequence[float]],
    instances: Sequence[Mapping[str, Any]],
    *,
    environments: Mapping[str, str],
    teams: Mapping[str, Sequence[str]],
    states: Mapping[str, Mapping[str, Any]],
    policies: Mapping[str, str],
    step: int,
    before: int,
    first: int,
) -> list[dict[str, Any]]:
    """A generation's episodes, as rows of the record.

    Args:
        advantages: Of each decision's candidates, by the `id` of the decision; missing for decisions not trained on.
        instances: The rows of data that were played; an episode's `instance` is an index into them.
        environments: The environments' own names, by the names that episodes have.
        teams: The possible agents of each environment, by the same names.
        states: The `observing.state_fields` of each environment, by the same names.
        step: The optimizer step of the generation, from 1.
        before: Number of episodes that the log has of earlier generations.
        first: Number of instances that the training had played before.
    """
    made = []
    training = {"step": step, "before": before, "episodes": len(episodes)}
    for episode in episodes:
        tools: list[Any] = []
        scopes = _scopes(teams[episode.environment])
        step_of = partial(_step, advantages=advantages, policies=policies, scopes=scopes, tools=tools)
        steps = [step_of(decision) for decision in episode.decisions]
        _add_continuations(steps, episode, step_of)
        made.append(
            _row(
                episode,
                steps,
                tools,
                instances[episode.instance],
                environment=environments[episode.environment],
                states=states[episode.environment],
                training=training,
                index=first + episode.instance,
            )
        )
    return made


def header(
    environment: str, metadata: Mapping[str, Mapping[str, Any]], roles: Mapping[str, str], config: Mapping[str, Any]
) -> dict[str, Any]:
    """The content of `run.json`.

    Args:
        metadata: Metadata of the environments, by the names that episodes have; `settings` and `data` are used.
    """
    own = {name: _settings_of(each) for name, each in metadata.items()}
    several = {name: {"env": str(metadata[name].get("name", name)), "settings": own[name]} for name in metadata}
    settings = next(iter(own.values())) if len(own) == 1 else {}
    named = {"environments": several} if len(several) > 1 else {}
    return files.header(
        "rollouts",
        {"env": environment, "settings": settings, "roles": dict(roles), **named, **config},
        {name: version(name) for name in LIBRARIES},
        data=data_label(metadata.values()),
    )


def data_label(metadata: Iterable[Mapping[str, Any]]) -> dict[str, str] | None:
    """The label of the training problems: the name of the data, and a note if they are not those of the benchmark that
    the environment is named after. None if no environment declares its data, or the rows bring the problems."""
    found = [each["data"] for each in metadata if each.get("data") is not None and not each.get("required_options")]
    if not found:
        return None
    notes = dict.fromkeys(each["note"] for each in found if each["note"])
    return {"name": ", ".join(dict.fromkeys(each["name"] for each in found)), "note": "; ".join(notes)}


class RolloutRecorder:
    """Writes the files of a training run, `run.json` and `episodes.jsonl`. Used by one process only.

    After each generation `run.json` says what was written, so that rows that are lost later are missed. A kill comes
    before that or after it: there may be rows of which it does not know yet, but never too few.
    """

    def __init__(self, folder: Path, about: Mapping[str, Any]) -> None:
        self._run, self._episodes = folder / files.RUN, folder / files.EPISODES
        _check_is_log(self._episodes)
        self._about = about
        self._digest = hashlib.sha256()
        self._num = 0
        self._is_open = False

    def begin(self, step: int) -> int:
        """The number of episodes in the log, before those of this optimizer step.

        The first call removes the rows that an earlier run in this folder wrote for this step and later ones: a
        resumed run plays them again, and a new one starts with an empty log.
        """
        if not self._is_open:
            self._run.parent.mkdir(parents=True, exist_ok=True)
            kept = []
            for line, row in _before(self._episodes, step):
                kept.append(line)
                self._count(row)
            if kept and self._run.is_file():  # resumed: it was started when the first process was
                was = json.loads(files.read_json_text(self._run))
                self._about = {**self._about, **{name: was[name] for name in ("started", "command") if name in was}}
            self._write_header()  # first: it must never say more than there is
            files.write_whole(self._episodes, b"".join(kept))
            self._is_open = True
        return self._num

    def write(self, made: Sequence[Mapping[str, Any]], images: Iterable[Image] = ()) -> None:
        """Append the rows of a generation, and the images that they show; `begin` was called for its step."""
        for image in images:  # first: no row is without its files
            from pettingllms_envs.episodes.media import write_image

            write_image(self._run.parent, image)
        with open(self._episodes, "a", encoding="ascii") as stream:
            stream.writelines(json.dumps(row) + "\n" for row in made)
        for row in made:
            self._count(row)
        self._write_header()

    def _count(self, row: Mapping[str, Any]) -> None:
        self._num += 1
        self._digest.update(row.get("digest", "").encode("ascii"))

    def _write_header(self) -> None:
        written = {"episodes": self._num, "digest": self._digest.hexdigest()}
        files.write_json(self._run, {**self._about, "written": written})


def _settings_of(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that an environment was made with, as JSON data."""
    settings = dict(metadata.get("settings") or {})
    for name, value in settings.items():
        try:
            settings[name] = json.loads(json.dumps(value, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{metadata.get('name')} has the setting {name}={value!r} in its metadata, which the log of rollouts "
                f"cannot hold ({error}); expected what JSON has. Leave it out of metadata['settings'], or set "
                "log_rollouts=False."
            ) from None
    return settings


def _check_is_log(file: Path) -> None:
    if not file.exists():
        return
    first = next(files.lines(file), b"")
    if first.endswith(b"\n") and "training" not in json.loads(first):
        raise ValueError(
            f"{file} has other episodes than a training's; expected a folder for the log of rollouts. Set another "
            "output_dir, or log_rollouts=False."
        )


def _before(file: Path, step: int) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """The lines of earlier steps in a file with their rows, without an incomplete last line."""
    if not file.exists():
        return
    for line in files.lines(file):
        if line.endswith(b"\n") and (row := json.loads(line))["training"]["step"] < step:
            yield line, row


def _row(
    episode: Episode,
    steps: list[dict[str, Any]],
    tools: Sequence[Any],
    instance: Mapping[str, Any],
    *,
    environment: str,
    states: Mapping[str, Any],
    training: Mapping[str, int],
    index: int,
) -> dict[str, Any]:
    options = {key: _plain(value) for key, value in instance.items() if key != "seed" and value is not None}
    outcome = {key: _plain(value) for key, value in episode.outcome.items()}
    row = {
        "format": files.FORMAT,
        "instance": {
            "index": index,
            "env": environment,
            "seed": _plain(instance.get("seed")),
            "options": options,
            "problem": None,
        },
        "sample": episode.episode,
        "training": {**training, **({"environment": episode.environment} if episode.environment else {})},
        **({"tools": tools} if tools else {}),
        "steps": steps,
        "end": None,
        "turns": max((each["turn"] for each in steps), default=None),
        "success": success_of(outcome),
        "outcome": outcome,
        "returns": dict(episode.returns),
        "state": episode.decisions[-1].played.state if episode.decisions else None,
        **states,
        "error": None,
    }
    return {**row, "digest": files.digest(row), "timing": {}}


def _step(
    decision: Decision,
    *,
    advantages: Mapping[int, Sequence[float]],
    policies: Mapping[str, str],
    scopes: Mapping[str, str],
    tools: list[Any],
) -> dict[str, Any]:
    """A step of a row. `tools` are those of the row's earlier steps; new ones are added."""
    played, own, scope = decision.played, advantages.get(id(decision)), scopes[decision.agent]
    return {
        "agent": decision.agent,
        "turn": decision.turn + 1,
        "state": decision.state,
        **recorded(decision.prompt.messages),
        **with_tools(decision.prompt.tools, tools),
        "reply": played.completion.text,
        "reasoning": None,
        "tokens": {"prompt": len(decision.prompt.ids), "completion": len(played.completion.ids)},
        "finish": played.completion.finish,
        "model": None,
        "seed": None,
        "rewards": {**decision.rewards, decision.agent: played.reward},
        "parts": _parts(played, scope),
        **({} if played.reading is None else {"reading": played.reading}),
        "policy": policies[decision.agent],
        "prompt_ids": hashlib.sha256(array("q", decision.prompt.ids).tobytes()).hexdigest()[:16],
        "candidates": [
            {
                "reply": candidate.completion.text,
                "reward": candidate.reward,
                "parts": _parts(candidate, scope),
                "return": None,
                "advantage": None if own is None else float(own[at]),
                "tokens": len(candidate.completion.ids),
                "finish": candidate.completion.finish,
                "chosen": at == decision.chosen,
                "state": candidate.state,
            }
            for at, candidate in enumerate(decision.candidates)
        ],
    }


def _add_continuations(
    steps: Sequence[dict[str, Any]], episode: Episode, step_of: Callable[[Decision], dict[str, Any]]
) -> None:
    """Write the continuations of each candidate into the steps of an episode."""
    kept: dict[ContinuationPlace | None, list[dict[str, Any]]] = {}
    for decision in episode.continuations:
        kept.setdefault(decision.continuation, []).append(step_of(decision))
    for i, decision in enumerate(episode.decisions):
        for k, candidate in enumerate(decision.candidates):
            if candidate.continuations:
                steps[i]["candidates"][k]["continuations"] = [
                    {"return": value, "steps": kept.get(ContinuationPlace(i, k, repeat), [])}
                    for repeat, value in enumerate(candidate.continuations)
                ]


def _scopes(team: Sequence[str]) -> dict[str, str]:
    """The scope of each agent's own rewards: its role, or its own name if the role has several agents."""
    roles = [role_of(agent) for agent in team]
    return {agent: role if roles.count(role) == 1 else agent for agent, role in zip(team, roles, strict=True)}


def _parts(candidate: Candidate, scope: str) -> dict[str, dict[str, float]] | None:
    """A candidate's reward parts by scope: the team's, and that of the agent that acted."""
    if not candidate.parts:
        return None
    scopes: dict[str, dict[str, float]] = {}
    for name, value in candidate.parts.items():
        scopes.setdefault("team" if name in candidate.team else scope, {})[name] = float(value)
    return scopes


def _plain(value: Any) -> Any:
    """A value as JSON has it: NumPy numbers become Python numbers, pictures their digests, other objects text."""
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, list | dict):
        return json.loads(json.dumps(value, default=_plain))  # keys become text, by which the digest sorts them
    if isinstance(value, Picture):
        return {"image": image_of(value).digest}
    return value if isinstance(value, str | int | float | bool | None) else str(value)
