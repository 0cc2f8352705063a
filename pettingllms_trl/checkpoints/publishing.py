"""Writes `team.json` and the model card (`model_card.py`) of a saved team, and prepares its folder for the Hub.

`team.json` has the policies of a saved team and their agents; `pettingllms bench --team FOLDER` reads it:

    {"format": 1, "environment": "plan_path_v0", "settings": {"plan_path_v0": [{"size": 5, ...}]}, "step": 200,
     "agents": {"drafter_0": {"policy": "drafter", "history": "none", "sampling": {"temperature": 1.0, ...}}, ...},
     "policies": {"drafter": {"kind": "adapter", "folder": "drafter", "base": "Qwen/Qwen3-1.7B", "revision": null},
                  ...}}

`folder` is relative to the team's; null if the weights are not in it. `base` is the base model of an adapter, or a
model that is used but not saved.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence, Sized
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from peft import PeftModel
from pettingzoo import AECEnv
from transformers.trainer import TRAINING_ARGS_NAME
from transformers.trainer_utils import HubStrategy
from trl.trainer.utils import get_config_model_id

from pettingllms_envs.episodes.origin import without_paths
from pettingllms_trl.config import MultiAgentGRPOConfig
from pettingllms_trl.policies import weights
from pettingllms_trl.policies.routing import Policy, Routing
from pettingllms_trl.policies.team import Team
from pettingllms_trl.role_sampling import SamplingOverrides


if TYPE_CHECKING:
    from pettingllms_trl.checkpoints.model_card import Result


TEAM = "team.json"
FORMAT = 1


def team_facts(
    *,
    environment: str,
    step: int,
    routing: Routing,
    bases: Mapping[str, tuple[str, str | None]],
    sampling: Mapping[str, Mapping[str, Any]],
    histories: Mapping[str, str],
    root: str | None = None,
    settings: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
) -> dict[str, Any]:
    """The content of `team.json`.

    Args:
        bases: For each policy with weights, the id or path and the revision of its model or of its adapter's base.
        sampling: Sampling settings of each agent in evaluations, see `sampling_of`.
        root: `"model"` or `"adapter"` if the trainer's model is saved in the team's folder itself, else None.
        settings: For each environment by its name the settings that it was trained with, as far as it declares them.
    """
    return {
        "format": FORMAT,
        "environment": environment,
        "settings": {name: [dict(each) for each in of] for name, of in (settings or {}).items()},
        "step": step,
        "agents": {
            agent: {
                "policy": policy,
                "history": histories.get(agent, "none"),
                "sampling": dict(sampling.get(agent, {})),
            }
            for agent, policy in routing.of_agent.items()
        },
        "policies": {
            policy.name: _policy(policy, bases.get(policy.name, ("", None)), root) for policy in routing.policies
        },
    }


def _policy(policy: Policy, base: tuple[str, str | None], root: str | None) -> dict[str, Any]:
    if policy.api is not None:
        return {"kind": "api", "folder": None, "base": None, "revision": None}
    at_root = policy.is_base and root is not None
    folder = "." if at_root else policy.name if policy.is_trained else None
    is_adapter = policy.adapter is not None or (at_root and root == "adapter")
    saved_whole = folder is not None and not is_adapter
    source, revision = ("", None) if saved_whole else base
    return {
        "kind": "adapter" if is_adapter else "model",
        "folder": folder,
        "base": source or None,
        "revision": revision,
    }


def sampling_of(args: Any, override: SamplingOverrides, chat_template_kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The sampling settings of an agent with these overrides, under the names of `pettingllms bench`."""
    names = {"max_completion_length": "max_tokens"}
    fields = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_completion_length")
    given = {name: getattr(args, name, None) for name in fields}
    given |= {name: value for name, value in (args.generation_kwargs or {}).items() if name in given}
    given |= override.given()
    found = {names.get(name, name): value for name, value in given.items() if value is not None}
    if not found.get("min_p"):
        found.pop("min_p", None)
    if found.get("repetition_penalty") == 1.0:
        del found["repetition_penalty"]
    if "stop" in found:
        found["stop"] = list(found["stop"])
    thinks = {} if override.enable_thinking is None else {"enable_thinking": override.enable_thinking}
    if of_template := {**chat_template_kwargs, **thinks}:
        found["extra"] = {"chat_template_kwargs": of_template}
    return found


class Publisher:
    """Describes a saved team.

    Args:
        label: A note about the data, if the environments have one.
    """

    def __init__(
        self,
        team: Team,
        args: MultiAgentGRPOConfig,
        envs: Mapping[str, Sequence[AECEnv]],
        *,
        environment: str,
        credit: str,
        label: Mapping[str, Any] | None,
        histories: Mapping[str, str],
    ) -> None:
        self._team, self._args, self._envs = team, args, envs
        self._environment, self._credit, self._histories = environment, credit, histories
        self._note = f"The data are {label['note']}." if label and label["note"] else ""
        self._is_checked = False

    def finish(self, folder: Path, step: int, chat_template_kwargs: Mapping[str, Any]) -> None:
        """Write `team.json` beside weights that were saved, which are read back the first time."""
        if not self._is_checked:
            from pettingllms_trl.checkpoints.saved_weights import check_saved

            check_saved(self._team, folder)
            self._is_checked = True
        facts = self.facts(step=step, chat_template_kwargs=chat_template_kwargs)
        (folder / TEAM).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")

    def facts(self, *, step: int, chat_template_kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The policy of each agent and how it is loaded, as in `team.json`."""
        team, routing = self._team, self._team.routing
        configs = {name: team.weights_of(name).config for name in team.profiles}
        root = None
        if team.is_plain:
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
                for agent, override in team.evaluated.items()
                if routing.of_agent[agent] in configs
            },
            histories=self._histories,
            root=root,
            settings=self._settings_by_name(),
        )

    def _settings_by_name(self) -> dict[str, list[Mapping[str, Any]]]:
        """The settings of the environments that declare a name and settings; several may have one name."""
        found: dict[str, list[Mapping[str, Any]]] = {}
        for pool in self._envs.values():
            metadata = pool[0].metadata
            if "name" in metadata and "settings" in metadata:
                found.setdefault(metadata["name"], []).append(metadata["settings"])
        return found

    def settings(self, *, step: int) -> dict[str, Any]:
        """The settings of the environments, as far as they declare them, and of the training."""
        named = {
            f"env {of} {name}" if of else f"env {name}": value
            for of, pool in self._envs.items()
            for name, value in pool[0].metadata.get("settings", {}).items()
        }
        fields = ("sampling", "num_generations", "learning_rate", "max_steps", "max_completion_length", "temperature")
        trained = {name: getattr(self._args, name) for name in (*fields, "beta", "loss_type", "scale_rewards", "seed")}
        if self._args.imitate is not None:
            of_rounds = ("imitate", "keep_fraction", "num_rounds", "replay", "num_iterations", "max_generated_tokens")
            trained |= {name: getattr(self._args, name) for name in of_rounds}
        return {**named, "credit": self._credit, **trained, "steps done": step}

    def save_policies(self, folder: Path, state_dict: Any) -> None:
        """Save the trained policies, each with its tokenizer, and the arguments."""
        trained = self._team.routing.trained
        folder.mkdir(parents=True, exist_ok=True)
        weights.save(self._team.model, trained, folder, state_dict)
        for policy in trained:
            self._team.profiles[policy.name].processing_class.save_pretrained(folder / policy.name)
        torch.save(self._args, folder / TRAINING_ARGS_NAME)

    def prepare_upload(self, checkpoint: Path) -> None:
        """Copy what is uploaded from a checkpoint to the output folder; of a plain model transformers does it."""
        if self._args.hub_strategy != HubStrategy.END:
            trained = [] if self._team.is_plain else [policy.name for policy in self._team.routing.trained]
            copy_policies(trained, checkpoint, Path(self._args.output_dir))

    def add_note(self, card: Path, log_history: Sequence[Mapping[str, Any]], eval_dataset: Any) -> None:
        """Append to TRL's model card the note about the data, if there is one, and the evaluations of rounds."""
        lines = [f"**Trained on `{self._environment}`. {self._note}**", ""] if self._note else []
        if self._args.imitate is not None:
            from pettingllms_trl.checkpoints.model_card import results_table

            lines += results_table(self._results(log_history, eval_dataset))
        if lines:
            card.write_text("\n".join([card.read_text("utf-8"), *lines]), encoding="utf-8")

    def _results(self, log_history: Sequence[Mapping[str, Any]], eval_dataset: Any) -> list[Result]:
        from pettingllms_trl.checkpoints.model_card import results_of

        data = eval_dataset if isinstance(eval_dataset, dict) else {"": eval_dataset}
        num_evaluated = {  # a stream has no length, and is left out
            f"eval_{of}" if of else "eval": len(rows) * (self._args.num_generations_eval or self._args.num_generations)
            for of, rows in data.items()
            if isinstance(rows, Sized)
        }
        return results_of(log_history, num_evaluated)

    def write_card(
        self,
        card: Path,
        *,
        name: str | None,
        tags: Sequence[str],
        step: int,
        log_history: Sequence[Mapping[str, Any]],
        eval_dataset: Any,
    ) -> None:
        """Write a model card with the policy of each agent and how to load it.

        Args:
            eval_dataset: Rows that were evaluated, or several sets by name.
        """
        from pettingllms_trl.checkpoints.model_card import team_card

        text = team_card(
            name=name or card.parent.name,
            environment=self._environment,
            routing=self._team.routing,
            sources={
                policy: get_config_model_id(self._team.weights_of(policy).config) for policy in self._team.profiles
            },
            tags=list(tags),
            vision_policies=[policy for policy, profile in self._team.profiles.items() if profile.reads_images],
            settings=without_paths(self.settings(step=step)),
            results=self._results(log_history, eval_dataset),
            note=self._note,
        )
        card.parent.mkdir(parents=True, exist_ok=True)
        card.write_text(text, encoding="utf-8")


def copy_policies(policies: Sequence[str], checkpoint: Path, output_dir: Path) -> None:
    """Copy the folders of policies and `team.json` from a checkpoint to the folder that is uploaded."""
    for policy in policies:
        shutil.copytree(checkpoint / policy, output_dir / policy, dirs_exist_ok=True)
    if (checkpoint / TEAM).is_file():
        shutil.copy(checkpoint / TEAM, output_dir)
