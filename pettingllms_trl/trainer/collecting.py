"""`Collects`: rows of the data set to a generation's episodes, and which of their decisions are trained on."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset, IterableDataset
from torch.utils.data import DataLoader, Sampler
from trl.trainer.utils import RepeatSampler, nanstd, repeat_iterable_dataset

from pettingllms_envs.audit import Run
from pettingllms_trl import credit as credits
from pettingllms_trl.credit.reward_functions import RewardScores, warnings_of_constant_rewards
from pettingllms_trl.credit.selection import Selection, metrics_of, select, shifted
from pettingllms_trl.policies.routing import Policy
from pettingllms_trl.policies.schedule import Schedule, learners
from pettingllms_trl.records import Decision, Episode, Row, role_of
from pettingllms_trl.rollout.curriculum import Curricula
from pettingllms_trl.rollout.env_pool import DEFAULT_ENVIRONMENT
from pettingllms_trl.rollout.prompts import check_conversations
from pettingllms_trl.trainer import recorder
from pettingllms_trl.trainer.dataloading import EpochSampler, RowsPlayed, places
from pettingllms_trl.trainer.metrics import of_episodes
from pettingllms_trl.trainer.playing import Plays
from pettingllms_trl.trainer.rollout_checks import RolloutAudit, check_groups


class Collects(Plays):
    """See the head of this file."""

    # Set by MultiAgentGRPOTrainer, and by the constructors of TRL and transformers.
    _credit: credits.Credit
    curricula: Curricula
    rows_played: RowsPlayed
    _filters: Sequence[credits.Filter]
    _rollout_log: recorder.RolloutRecorder | None
    _schedule: Schedule | None
    num_generations: int
    num_generations_eval: int
    _signature_columns: list[str] | None
    _step: int

    # ---- Data: a row is an instance ---------------------------------------------------------------------------------

    def get_train_dataloader(self) -> DataLoader[Any]:
        """TRL's, with each row once instead of K times: the candidates are made by the rollout."""
        dataset = self.train_dataset
        if isinstance(dataset, IterableDataset):
            dataset = repeat_iterable_dataset(
                dataset.shuffle(seed=self.args.seed) if self.shuffle_dataset else dataset,
                mini_repeat_count=1,
                batch_size=self._rows_per_generation,
                repeat_count=self._num_repeats,
            )
        return self._get_dataloader(
            dataset=dataset,
            description="Training",
            batch_size=self._rows_per_generation,
            sampler_fn=self._get_train_sampler,
            is_training=True,
        )

    @property
    def _rows_per_generation(self) -> int:
        return self.args.generation_batch_size // self.num_generations

    @property
    def _num_repeats(self) -> int:
        """How often a generation's rows are yielded: accelerate deals batches out, and each process shall know all."""
        return self.num_iterations * self.args.steps_per_generation * self.accelerator.num_processes

    def get_batch_samples(
        self, epoch_iterator: Iterator[list[Row]], num_batches: int, device: torch.device
    ) -> tuple[list[Any], torch.Tensor | int | None]:
        """The batches of an optimizer step, which transformers holds all at once.

        The data loader makes a generation's rows anew for each of its micro-steps. All are given one list here: memory
        would grow with the product of the two, which both grow with a batch.
        """

        def held_once() -> Iterator[list[Row]]:
            held: list[Row] = []
            for number, rows in enumerate(epoch_iterator):
                if number == 0 or self._begins_generation(self._step + number):
                    held = rows
                yield held

        return super().get_batch_samples(held_once(), num_batches, device)

    def _begins_generation(self, micro_step: int) -> bool:
        return micro_step % (self.args.steps_per_generation * self.num_iterations) == 0

    def _get_train_sampler(self, dataset: Dataset | None = None) -> Sampler[Any]:
        return self._sampler(dataset, repeat_count=self._num_repeats)

    def _sampler(self, dataset: Dataset | None = None, *, repeat_count: int) -> EpochSampler:
        return EpochSampler(
            data_source=self.train_dataset if dataset is None else dataset,
            mini_repeat_count=1,
            batch_size=self._rows_per_generation,
            repeat_count=repeat_count,
            shuffle=self.shuffle_dataset,
            seed=self.args.seed,
        )

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader[Any]:
        """TRL's, with each row once: it repeats those of a stream here, and `prediction_step` plays each K times."""
        number, self.num_generations_eval = self.num_generations_eval, 1
        try:
            return super().get_eval_dataloader(eval_dataset)
        finally:
            self.num_generations_eval = number

    def _get_eval_sampler(self, eval_dataset: Dataset) -> Sampler[Any]:
        return RepeatSampler(data_source=eval_dataset, mini_repeat_count=1, shuffle=False)

    def _set_signature_columns_if_needed(self) -> None:
        if self._signature_columns is None:
            self._signature_columns = list(self.train_dataset.column_names or [])

    # ---- A generation -----------------------------------------------------------------------------------------------

    @property
    def _learning(self) -> tuple[Policy, ...]:
        """The policies that learn from the generation of now."""
        trained = self.routing.trained
        if self._schedule is None:
            return trained
        micro_steps = self.args.steps_per_generation * self.num_iterations
        generation = self.state.global_step * self.args.gradient_accumulation_steps // micro_steps
        names = learners(self._schedule, generation, [policy.name for policy in trained])
        return tuple(policy for policy in trained if policy.name in names)

    @property
    def _learning_agents(self) -> set[str]:
        names = {policy.name for policy in self._learning}
        return {agent for agent, policy in self.routing.of_agent.items() if policy in names}

    @property
    def _name_of_generation(self) -> str:
        """The optimizer step that the generation of now begins in; of its second one "7.1", and so on."""
        micro_steps = self.args.steps_per_generation * self.num_iterations
        further = self._step % self.args.gradient_accumulation_steps // micro_steps
        return f"{self.state.global_step}.{further}" if further else str(self.state.global_step)

    def _generation(self, rows: Sequence[Row]) -> tuple[list[Row], list[Episode], Selection]:
        """The rows of a generation, further ones for what was dropped too, their episodes, and what is trained on."""
        if self.args.max_resamples:  # then the data loader only counts the steps
            rows = self._next_rows(self._rows_per_generation)
        else:
            self.rows_played.next(self._rows_per_generation)
        self._judgements = {}
        partners = set(self.routing.of_agent) - self._learning_agents
        episodes: list[Episode] = []
        played: list[Row] = []
        selection: Selection | None = None
        for wave in range(1 + self.args.max_resamples):
            if selection is not None:
                rows = self._next_rows(selection.num_more)
            name = f"{self._name_of_generation}+{wave}" if wave else self._name_of_generation
            rows = self.curricula.assign(rows, f"{self.args.seed}/{name}")
            more = self._play(
                rows,
                sampling=self.args.sampling,
                num_candidates=self.num_generations,
                name=name,
                num_continuations=self.args.num_continuations,
                partners=partners,
                further=wave > 0,
            )
            episodes += shifted(more, len(played))
            played += rows
            selection = select(
                self._taught(episodes),
                self._filters,
                num_played=len(played),
                num_wanted=self._rows_per_generation,
                resample=self.args.max_resamples > 0,
            )
            if not selection.num_more:
                break
        assert selection is not None
        self.curricula.advance(played, episodes)
        for of, progress in self.curricula.progress.items():
            level = "curriculum/level" if of == DEFAULT_ENVIRONMENT else f"env/{of}/curriculum/level"
            self._metrics["train"][level].append(float(progress.index + 1))
        if self.args.check_groups:
            width = self.num_generations if self.args.sampling == "tree" else 1
            check_groups(episodes, num_candidates=width, partners=partners)
            check_conversations(episodes, [agent for agent, follow in self._follow.items() if follow])
        if self._filters or self.args.max_resamples:
            self._log_selection(selection, num_played=len(played))
        return played, episodes, selection

    def _logged_rollouts(self) -> recorder.RolloutRecorder | None:
        """Where training rollouts are written, if they are; by one process, for each knows all episodes."""
        if not self.args.log_rollouts or not self.is_world_process_zero():
            return None
        roles = {agent: role_of(agent) for agent in self.routing.of_agent}
        config = {
            "agents": {agent: {"policy": policy} for agent, policy in self.routing.of_agent.items()},
            "model": str(getattr(self.model.config, "_name_or_path", "")),
            "sampling": self.args.sampling,
            "num_generations": self.num_generations,
            "temperature": self.temperature,
            "credit": {
                "name": credits.name_of(self._credit),
                "sums_to_zero": credits.sums_to_zero(self._credit, self.args.sampling),
                "judges_own_step": credits.judges_own_step_alone(self._credit, self.args.sampling),
                "scale": credits.scale_of(self._credit),
            },
            "learning_rate": self.args.learning_rate,
            "loss_type": self.loss_type,
            "seed": self.args.seed,
        }
        metadata = {name: pool[0].metadata for name, pool in self._envs.items()}
        about = recorder.header(self._environment_name, metadata, roles, config)
        return recorder.RolloutRecorder(Path(self.args.output_dir) / "rollouts", about)

    def _make_rollout_audit(self) -> RolloutAudit | None:
        """What looks for broken groups; `None` where it shall not."""
        if self.args.audit is None:
            return None
        run = Run(
            kind="rollouts",
            is_tree=self.args.sampling == "tree",
            num_candidates=self.num_generations,
            sums=credits.sums_to_zero(self._credit, self.args.sampling),
            credit=credits.name_of(self._credit),
            policies=self.routing.of_agent,
            judges_own_step=credits.judges_own_step_alone(self._credit, self.args.sampling),
            scale=credits.scale_of(self._credit),
            temperature=self.temperature,
        )
        return RolloutAudit(run, raises=self.args.audit == "stop")

    def _record(
        self, rows: Sequence[Row], episodes: Sequence[Episode], advantages: Mapping[int, Sequence[float]]
    ) -> None:
        """Write a generation's episodes to the log of rollouts."""
        assert self._rollout_log is not None
        names = {name: str(pool[0].metadata.get("name", name)) for name, pool in self._envs.items()}
        step = self.state.global_step + 1
        made = recorder.rows(
            episodes,
            advantages,
            rows,
            environments={**names, "": next(iter(names.values()))},
            policies=self.routing.of_agent,
            ends={*self.eos_token_ids, self._tokenizer.pad_token_id},
            step=step,
            first=self.rows_played.number - len(rows),
        )
        self._rollout_log.write(made, step)

    def _next_rows(self, number: int) -> list[Row]:
        """The next rows of the training data, in the data loader's order, on into its next epochs."""
        start = self.rows_played.next(number)
        return [self.train_dataset[i] for i in places(self._sampler(repeat_count=1), start, number)]

    def _taught(self, episodes: Sequence[Episode]) -> list[Decision]:
        """The decisions of the agents that learn now; those of partners teach nobody."""
        agents = self._learning_agents
        return [d for episode in episodes for d in episode.decisions if d.agent in agents]

    def _log_selection(self, selection: Selection, *, num_played: int) -> None:
        for name, value in metrics_of(selection, num_played=num_played, num_wanted=self._rows_per_generation).items():
            self._metrics["train"][name].append(value)
        if self.args.max_resamples:
            self._metrics["train"]["rollout/data_epoch"] = [
                self.rows_played.number / len(self._sampler(repeat_count=1))
            ]
        if not selection.kept.decisions and self.is_world_process_zero():
            warnings.warn(
                f"step {self.state.global_step}: the filters dropped every decision of the generation, so nothing is "
                "learnt from it and the weights stay as they are. If that goes on, look at the rewards "
                "(log_completions=True); choose instances neither too hard nor too easy, raise num_generations, or "
                "play more rows (max_resamples).",
                stacklevel=2,
            )

    def _log_episodes(self, episodes: Sequence[Episode], mode: str) -> None:
        groups_of = self._learning_agents if mode == "train" and self.args.sampling == "tree" else ()
        for name, values in of_episodes(episodes, groups_of=groups_of).items():
            self._metrics[mode][name].extend(values)
        found = [self._judgements.get(id(c.completion)) for e in episodes for d in e.decisions for c in d.candidates]
        for name in self._user_rewards.names:
            given = torch.tensor([judged[1].rewards[name] for judged in found if judged is not None])
            self._metrics[mode][f"rewards/{name}/mean"].append(torch.nanmean(given).item())
            self._metrics[mode][f"rewards/{name}/std"].append(nanstd(given).item())
        if mode == "train" and self._step == 0 and self.is_world_process_zero():
            for warning in warnings_of_constant_rewards(self._judgements_by_turn(episodes).values()):
                warnings.warn(warning, stacklevel=2)
        if mode == "eval":  # in training TRL logs it
            rewards = [c.reward for episode in episodes for d in episode.decisions for c in d.candidates]
            self._metrics[mode]["reward"].append(sum(rewards) / len(rewards))

    def _judgements_by_turn(self, episodes: Sequence[Episode]) -> dict[tuple[str, int], list[RewardScores]]:
        """What the reward functions said of the candidates of each agent at each turn."""
        judgements: dict[tuple[str, int], list[RewardScores]] = {}
        for decision in (d for episode in episodes for d in episode.decisions):
            for candidate in decision.candidates:
                judged = self._judgements.get(id(candidate.completion))
                if judged is not None:
                    judgements.setdefault((decision.agent, decision.turn), []).append(judged[1])
        return judgements
