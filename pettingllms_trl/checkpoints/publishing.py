"""Writes the model card and `team.json` of a saved team, and prepares its folder for an upload to the Hub."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from peft import PeftModel
from pettingzoo import AECEnv
from trl.trainer.utils import get_config_model_id

from pettingllms_trl.checkpoints.hub import results_of, team_card
from pettingllms_trl.checkpoints.team_file import TEAM, sampling_of, team_facts
from pettingllms_trl.config import MultiAgentGRPOConfig
from pettingllms_trl.policies.team import Team


class Publisher:
    """Describes a saved team.

    Args:
        team: Its policies.
        args: The trainer's.
        envs: The environments that it is trained on, by name.
        environment: One name for all of them.
        label: A note about the data, if the environments have one.
        agents_with_history: The agents with `history="conversation"`.
    """

    def __init__(
        self,
        team: Team,
        args: MultiAgentGRPOConfig,
        envs: Mapping[str, Sequence[AECEnv]],
        *,
        environment: str,
        label: Mapping[str, Any] | None,
        agents_with_history: Sequence[str],
    ) -> None:
        self._team, self._args, self._envs = team, args, envs
        self._environment, self._agents_with_history = environment, agents_with_history
        self._note = f"The data are {label['note']}." if label and label["note"] else ""

    def facts(self, *, step: int, chat_template_kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The policy of each agent and how it is loaded, as in `team.json`."""
        team, routing = self._team, self._team.routing
        configs = {name: team.weights_of(name).config for name in team.profiles}
        root = "adapter" if isinstance(team.model, PeftModel) else "model"
        return team_facts(
            environment=self._environment,
            step=step,
            routing=routing,
            bases={
                name: (get_config_model_id(config), getattr(config, "_commit_hash", None))
                for name, config in configs.items()
            },
            sampling={
                agent: sampling_of(self._args, override, chat_template_kwargs)
                for agent, override in team.overrides.items()
                if routing.of_agent[agent] in configs
            },
            histories=dict.fromkeys(self._agents_with_history, "conversation"),
            root=root if team.is_plain else None,
        )

    def settings(self, *, step: int) -> dict[str, Any]:
        """The settings of the environments, as far as they declare them, and of the training."""
        named = {
            f"env {of} {name}" if of else f"env {name}": value
            for of, pool in self._envs.items()
            for name, value in pool[0].metadata.get("settings", {}).items()
        }
        fields = ("sampling", "num_generations", "learning_rate", "max_steps", "max_completion_length", "temperature")
        trained = {name: getattr(self._args, name) for name in (*fields, "beta", "loss_type", "scale_rewards", "seed")}
        return {**named, **trained, "steps done": step}

    def add_note(self, card: Path) -> None:
        """Append the note about the data, if there is one, to TRL's model card."""
        if self._note:
            text = card.read_text("utf-8")
            card.write_text(f"{text}\n**Trained on `{self._environment}`. {self._note}**\n", encoding="utf-8")

    def write_card(
        self,
        card: Path,
        *,
        name: str | None,
        tags: Sequence[str],
        step: int,
        log_history: Sequence[Mapping[str, Any]],
        num_evaluated: Mapping[str, int],
    ) -> None:
        """Write a model card with the policy of each agent and how to load it.

        Args:
            card: The file to write.
            name: Name of the team; `None`: that of its folder.
            tags: Tags for the Hub.
            step: Number of optimizer steps done.
            log_history: `trainer.state.log_history`.
            num_evaluated: Episodes of an evaluation, by the prefix of its metrics.
        """
        text = team_card(
            name=name or card.parent.name,
            environment=self._environment,
            routing=self._team.routing,
            sources={
                policy: get_config_model_id(self._team.weights_of(policy).config) for policy in self._team.profiles
            },
            tags=list(tags),
            settings=self.settings(step=step),
            results=results_of(log_history, num_evaluated),
            note=self._note,
        )
        card.parent.mkdir(parents=True, exist_ok=True)
        card.write_text(text, encoding="utf-8")


def write_team_file(folder: Path, facts: Mapping[str, Any]) -> None:
    """Write `team.json` of a saved team."""
    (folder / TEAM).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def copy_policies(policies: Sequence[str], checkpoint: Path, output_dir: Path) -> None:
    """Copy the folders of policies and `team.json` from a checkpoint to the folder that is uploaded."""
    for policy in policies:
        shutil.copytree(checkpoint / policy, output_dir / policy, dirs_exist_ok=True)
    if (checkpoint / TEAM).is_file():
        shutil.copy(checkpoint / TEAM, output_dir)
