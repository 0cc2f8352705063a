"""`Publishes`: a team's folder, with a card for people and `team.json` for programs, and its upload if asked for."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sized
from pathlib import Path
from typing import Any

from peft import PeftModel
from pettingzoo import AECEnv
from transformers.trainer_utils import HubStrategy
from trl.trainer.utils import get_config_model_id

from pettingllms_trl.checkpoints.hub import results_of, team_card
from pettingllms_trl.checkpoints.team_file import TEAM, sampling_of, team_facts
from pettingllms_trl.policies import weights
from pettingllms_trl.policies.team import Layouts, instead
from pettingllms_trl.rollout.prompts import remembering
from pettingllms_trl.trainer.recorder import data_label


class Publishes(Layouts):
    """See the head of this file."""

    # Set by MultiAgentGRPOTrainer, and by the constructors of TRL and transformers.
    _envs: Mapping[str, list[AECEnv]]
    num_generations_eval: int

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        """The arguments are saved with the weights and uploaded with them: the user's token shall not be there."""
        with instead(self.args, hub_token=None):
            super()._save(output_dir, state_dict)
        if self.args.should_save:
            folder = Path(output_dir or self.args.output_dir)
            (folder / TEAM).write_text(json.dumps(self._team_facts(), indent=1) + "\n", encoding="utf-8")

    def _team_facts(self) -> dict[str, Any]:
        """Who plays what, as `team.json` has it."""
        configs = {
            policy.name: weights.weights_of(self._bare_model, policy).config
            for policy in self.routing.policies
            if policy.api is None
        }
        root = "adapter" if isinstance(self._bare_model, PeftModel) else "model"
        agents = list(self.routing.of_agent)
        return team_facts(
            environment=self._environment_name,
            step=self.state.global_step,
            routing=self.routing,
            bases={
                name: (get_config_model_id(config), getattr(config, "_commit_hash", None))
                for name, config in configs.items()
            },
            sampling={
                agent: sampling_of(self.args, override, self.chat_template_kwargs)
                for agent, override in self._overrides.items()
                if self.routing.of_agent[agent] in configs
            },
            remembering=dict.fromkeys(remembering(self.args.history, agents), "conversation"),
            root=root if self._is_plain else None,
        )

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        """The inherited uploads the output folder, after it copied weights there from the checkpoint's root alone."""
        pushes = self.is_world_process_zero() and self.args.hub_strategy != HubStrategy.END
        if pushes and not self._is_plain:
            for policy in self.routing.trained:
                source, target = Path(checkpoint_folder) / policy.name, Path(self.args.output_dir) / policy.name
                shutil.copytree(source, target, dirs_exist_ok=True)
        if pushes and (Path(checkpoint_folder) / TEAM).is_file():
            shutil.copy(Path(checkpoint_folder) / TEAM, self.args.output_dir)
        super()._push_from_checkpoint(checkpoint_folder)

    @property
    def _settings(self) -> dict[str, Any]:
        """What made the team: of the environment, where it says so, and of the training."""
        named = {
            f"env {of} {name}" if of else f"env {name}": value
            for of, pool in self._envs.items()
            for name, value in pool[0].metadata.get("settings", {}).items()
        }
        fields = ("sampling", "num_generations", "learning_rate", "max_steps", "max_completion_length", "temperature")
        trained = {name: getattr(self.args, name) for name in (*fields, "beta", "loss_type", "scale_rewards", "seed")}
        return {**named, **trained, "steps done": self.state.global_step}

    @property
    def _num_evaluated(self) -> dict[str, int]:
        """Episodes of an evaluation by what its metrics begin with; a stream has no length, and is left out."""
        given = self.eval_dataset if isinstance(self.eval_dataset, dict) else {"": self.eval_dataset}
        return {
            f"eval_{name}" if name else "eval": len(data) * self.num_generations_eval
            for name, data in given.items()
            if isinstance(data, Sized)
        }

    def create_model_card(
        self, model_name: str | None = None, dataset_name: str | None = None, tags: str | list[str] | None = None
    ) -> None:
        """TRL's; where policies have weights of their own, a card that says which plays whom and how to load it."""
        label = data_label(pool[0].metadata for pool in self._envs.values())
        note = f"The data are {label['note']}." if label and label["note"] else ""
        path = Path(self.args.output_dir) / "README.md"
        if self._is_plain:
            super().create_model_card(model_name, dataset_name, tags)
            if note and self.is_world_process_zero():
                text = path.read_text("utf-8")
                path.write_text(f"{text}\n**Trained on `{self._environment_name}`. {note}**\n", encoding="utf-8")
        elif self.is_world_process_zero():
            card = team_card(
                name=model_name or Path(self.args.output_dir).name,
                environment=self._environment_name,
                routing=self.routing,
                sources={
                    policy.name: get_config_model_id(weights.weights_of(self.model, policy).config)
                    for policy in self.routing.policies
                    if policy.api is None
                },
                tags=[*self._tag_names, *([tags] if isinstance(tags, str) else tags or [])],
                settings=self._settings,
                results=results_of(self.state.log_history, self._num_evaluated),
                note=note,
            )
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(card, encoding="utf-8")
