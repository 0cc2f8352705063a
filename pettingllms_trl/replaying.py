"""`Replays`: a generation, from rows of the data set to the forward passes of its micro-steps.

Rows are played (`playing.py`), decisions become advantages (`credit`), and each policy's sequences are *replayed*
through the inherited `_generate_and_score_completions`, with a `rollout_func` that returns the tokens already sampled.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from accelerate.utils import gather
from datasets import Dataset, IterableDataset
from torch.utils.data import DataLoader, Sampler
from trl.trainer.utils import RepeatSampler, nanstd, repeat_iterable_dataset, shuffle_sequence_dict

from pettingllms_trl import credit as credits
from pettingllms_trl.batching import Batch, Shared, cut, tokens
from pettingllms_trl.conversation import check_conversations
from pettingllms_trl.curricula import Curricula, after, assign
from pettingllms_trl.curriculum import Progress
from pettingllms_trl.dealing import Deal, deal, pick
from pettingllms_trl.health import coordinates
from pettingllms_trl.metrics import of_completions, of_episodes
from pettingllms_trl.order import EpochSampler, places, shuffled
from pettingllms_trl.playing import Plays
from pettingllms_trl.policies import Policy
from pettingllms_trl.records import Completion, Decision, Episode, check_groups
from pettingllms_trl.schedules import Schedule, learners
from pettingllms_trl.selection import Selection, metrics_of, num_tokens, select, shifted
from pettingllms_trl.stock import ONLY, Row
from pettingllms_trl.survival import Survives


class Replays(Survives, Plays):
    """See the head of this file."""

    # Set by MultiAgentGRPOTrainer, and by the constructors of TRL and transformers.
    _credit: credits.Credit
    _curricula: Curricula
    _filters: Sequence[credits.Filter]
    _progress: dict[str, Progress]
    _schedule: Schedule | None
    num_generations: int
    num_generations_eval: int
    _replayed: list[dict[str, Any]]
    _signature_columns: list[str] | None

    _num_rows_played = 0
    """Of the training data, since its first epoch began."""

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

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        """Rows to the forward passes of this micro-step; a single forward pass, on its way to the loss, as it is."""
        if isinstance(generation_batch, dict):
            return generation_batch
        steps_per_generation = self.args.steps_per_generation
        if self._step % (steps_per_generation * self.num_iterations) == 0 or self._buffered_inputs is None:
            episodes, selection = self._generation(generation_batch)
            self._log_episodes(episodes, "train")
            self._buffered_inputs = self._batches(self._taught(episodes), selection)
        return self._buffered_inputs[self._step % steps_per_generation]

    def _generation(self, rows: Sequence[Row]) -> tuple[list[Episode], Selection]:
        """A generation's episodes, of its rows and of those played for what was dropped, and what is trained on."""
        if self.args.max_resamples:  # then the data loader only counts the steps
            rows = self._next_rows(self._rows_per_generation)
        else:
            self._num_rows_played += self._rows_per_generation
        self._judgements = {}
        partners = set(self.routing.of_agent) - self._learning_agents
        episodes: list[Episode] = []
        played: list[Row] = []
        selection: Selection | None = None
        for wave in range(1 + self.args.max_resamples):
            if selection is not None:
                rows = self._next_rows(selection.num_more)
            name = f"{self.state.global_step}+{wave}" if wave else str(self.state.global_step)
            rows = assign(self._curricula, rows, self._progress, f"{self.args.seed}/{name}")
            more = self._play(
                rows,
                sampling=self.args.sampling,
                num_candidates=self.num_generations,
                name=name,
                num_continuations=self.args.num_continuations,
                partners=partners,
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
        self._progress = after(self._curricula, self._progress, played, episodes)
        for of, progress in self._progress.items():
            level = "curriculum/level" if of == ONLY else f"env/{of}/curriculum/level"
            self._metrics["train"][level].append(float(progress.index + 1))
        if self.args.check_groups:
            width = self.num_generations if self.args.sampling == "tree" else 1
            check_groups(episodes, num_candidates=width, partners=partners)
            check_conversations(episodes, [agent for agent, follow in self._follow.items() if follow])
        if self._filters or self.args.max_resamples:
            self._log_selection(selection, num_played=len(played))
        return episodes, selection

    def _next_rows(self, number: int) -> list[Row]:
        """The next rows of the training data, in the data loader's order, on into its next epochs."""
        start, self._num_rows_played = self._num_rows_played, self._num_rows_played + number
        return [self.train_dataset[i] for i in places(self._sampler(repeat_count=1), start, number)]

    def _taught(self, episodes: Sequence[Episode]) -> list[Decision]:
        """The decisions of the agents that learn now; those of partners teach nobody."""
        agents = self._learning_agents
        return [d for episode in episodes for d in episode.decisions if d.agent in agents]

    def _log_selection(self, selection: Selection, *, num_played: int) -> None:
        for name, value in metrics_of(selection, num_played=num_played, num_wanted=self._rows_per_generation).items():
            self._metrics["train"][name].append(value)
        if self.args.max_resamples:
            self._metrics["train"]["rollout/data_epoch"] = [self._num_rows_played / len(self._sampler(repeat_count=1))]
        if not selection.kept.decisions and self.is_world_process_zero():
            warnings.warn(
                f"step {self.state.global_step}: the filters dropped every decision of the generation, so nothing is "
                "learnt from it and the weights stay as they are. If that goes on, look at the rewards "
                "(log_completions=True); choose instances neither too hard nor too easy, raise num_generations, or "
                "play more rows (max_resamples).",
                stacklevel=2,
            )

    def _batches(self, decisions: Sequence[Decision], selection: Selection) -> list[list[Batch]]:
        """Decisions to the forward passes of each of a generation's micro-steps.

        The credit sees all of them, once; then those that are not selected are left out.
        """
        of_agent = self.routing.of_agent
        advantages = self._credit(decisions) if decisions else []
        credits.check_advantages(advantages, decisions)
        self._watch(decisions, advantages)
        # TRL counts the tokens that it is given; those left out here were generated as well.
        self.state.num_input_tokens_seen += num_tokens(decisions) - num_tokens(selection.kept.decisions)
        decisions, advantages = selection.of(decisions), selection.of(advantages)
        for log in (self._logs["prompt"], self._logs["completion"], self._logs["advantages"]):
            log.clear()
        self._logs["rewards"].clear()
        self._logs["extra"].clear()
        steps: list[list[Batch]] = [[] for _ in range(self.args.steps_per_generation)]
        for policy in self._learning:
            own = [i for i, d in enumerate(decisions) if of_agent[d.agent] == policy.name]
            if not own:
                continue
            passes = self._replay_policy(policy, [decisions[i] for i in own], [advantages[i] for i in own])
            for step, more in zip(steps, passes, strict=True):
                step.extend({**piece, "policy": policy.name} for piece in more)
        return steps

    def _place(self) -> dict[str, Any]:
        progress = {name: [each.index, list(each.latest)] for name, each in self._progress.items()}
        return {**super()._place(), "curriculum": progress, "num_rows_played": self._num_rows_played}

    def _take_place(self, place: dict[str, Any]) -> None:
        super()._take_place(place)
        for name, (index, latest) in place["curriculum"].items():
            if name in self._progress:
                self._progress[name] = Progress(index, tuple(latest))
        self._num_rows_played = place["num_rows_played"]

    def _replay_policy(
        self, policy: Policy, decisions: Sequence[Decision], advantages: credits.Advantages
    ) -> list[list[Batch]]:
        """One policy's sequences through TRL's own pipeline; then its advantages are replaced by the credit's.

        With several processes, of each its own part of them. Returns the passes of each micro-step.
        """
        rows: list[dict[str, Any]] = [
            {
                "prompt": decision.prompt,
                "prompt_ids": list(decision.prompt_ids),
                "completion": candidate.completion,
                "reward": candidate.reward,
                "counts": True,
            }
            for decision in decisions
            for candidate in decision.candidates
        ]
        extra: dict[str, list[Any]] = {
            "agent": [d.agent for d in decisions for _ in d.candidates],
            **({"env": [d.environment for d in decisions for _ in d.candidates]} if len(self._envs) > 1 else {}),
            "instance": [d.instance for d in decisions for _ in d.candidates],
            "episode": [d.episode for d in decisions for _ in d.candidates],
            "turn": [d.turn for d in decisions for _ in d.candidates],
            "chosen": [k == d.chosen for d in decisions for k in range(len(d.candidates))],
            **self._columns(decisions),
        }
        flat = [value for values in advantages for value in values]
        columns = {**coordinates(decisions, list(self.routing.of_agent)), "advantages": torch.tensor(flat)}
        self._activate(policy.name)
        # TRL groups consecutive rows by K; a parallel episode's decision has a single one.
        num_generations, self.num_generations = self.num_generations, len(decisions[0].candidates)
        try:
            if self.accelerator.num_processes == 1:
                passes = self._cut(shuffle_sequence_dict(self._replay_rows(rows, extra, columns)))
            else:
                passes = self._share_out(policy, rows, extra, columns)
        finally:
            self.num_generations = num_generations
        if len(decisions[0].candidates) == 1:  # TRL finds each group of one to be constant
            del self._metrics["train"]["frac_reward_zero_std"]
        logged = self._logs["advantages"]
        for _ in flat:
            logged.pop()
        logged.extend(flat)
        return passes

    def _replay_rows(
        self,
        rows: Sequence[dict[str, Any]],
        extra: Mapping[str, Sequence[Any]],
        columns: Mapping[str, torch.Tensor],
    ) -> Batch:
        """Rows, with columns for the completions table and for the batch, to TRL's batch."""
        for column, values in extra.items():
            self._log_completion_extra(column, list(values))
        self._replayed = list(rows)
        device = self.accelerator.device
        batch = self._generate_and_score_completions(self._replayed)
        return {**batch, **{name: values.to(device) for name, values in columns.items()}}

    def _share_out(
        self,
        policy: Policy,
        rows: Sequence[dict[str, Any]],
        extra: Mapping[str, Sequence[Any]],
        columns: Mapping[str, torch.Tensor],
    ) -> list[list[Batch]]:
        """This process's part of the rows; metrics and tables are of all of them, as one process would have them.

        Groups are torn apart, for what a row is worth against its siblings is known already.
        """
        num_processes = self.accelerator.num_processes
        order = shuffled(len(rows), f"{self.args.seed}/{self.state.global_step}/{policy.name}")
        dealt = deal(order, num_steps=self.args.steps_per_generation, num_processes=num_processes)
        hand = dealt.hand(self.accelerator.process_index)
        own = torch.tensor([0 if row is None else row for row in hand])
        num_candidates, self.num_generations = self.num_generations, 1
        batch = self._replay_rows(
            pick(hand, rows, _filler(rows[0], self.eos_token_ids[0])),
            {name: pick(hand, values, None) for name, values in extra.items()},
            {name: values[own] for name, values in columns.items()},
        )
        self._mend_logs(dealt)
        self._mend_metrics(rows, dealt, num_candidates)
        here = torch.split(torch.arange(len(hand)), list(dealt.num_here))
        num_tokens = torch.tensor([tokens(batch, part) for part in here], device=self.accelerator.device)
        num_tokens = self.accelerator.reduce(num_tokens, reduction="sum")
        batch["fills_up"] = torch.tensor([row is None for row in hand])
        return self._cut(batch, Shared(num_processes, dealt.num_here, dealt.num_rows, num_tokens.tolist()))

    def _mend_logs(self, dealt: Deal) -> None:
        """The completions table in the order of the rows; TRL has appended them process after process."""
        tables = self._logs["rewards"], self._logs["extra"]
        columns = [self._logs[name] for name in ("prompt", "completion", "advantages")]
        for column in [*columns, *(column for table in tables for column in table.values())]:
            num_dealt = sum(dealt.num_here) * self.accelerator.num_processes
            column.extend(dealt.collect([column.pop() for _ in range(num_dealt)][::-1]))

    def _mend_metrics(self, rows: Sequence[dict[str, Any]], dealt: Deal, num_candidates: int) -> None:
        """What TRL has counted over rows that only fill up, and of groups that were torn apart."""
        metrics = self._metrics["train"]
        ends = {*self.eos_token_ids, self._tokenizer.pad_token_id}
        completions = [row["completion"].ids for row in rows]
        mended = of_completions([len(ids) for ids in completions], [ids[-1] in ends for ids in completions])
        rewards = torch.tensor([row["reward"] for row in rows]).view(-1, num_candidates)
        if num_candidates > 1:
            std = nanstd(rewards) if self.scale_rewards == "batch" else nanstd(rewards, dim=1)
            mended["frac_reward_zero_std"] = torch.isclose(std, torch.zeros_like(std)).float().mean().item()
        for name, value in mended.items():
            metrics[name][-1] = value
        self.state.num_input_tokens_seen -= dealt.num_fillers  # a prompt of one token each
        metrics["num_tokens"] = [self.state.num_input_tokens_seen]

    def _cut(self, batch: Batch, shared: Shared | None = None) -> list[list[Batch]]:
        return cut(
            batch,
            num_steps=self.args.steps_per_generation,
            max_rows=self.args.per_device_train_batch_size,
            token_mean=self.loss_type == "bnpo",
            shared=shared,
        )

    def _columns(self, decisions: Sequence[Decision]) -> dict[str, list[Any]]:
        """What the user's reward functions gave and wrote, for the completions table: the same columns for all
        policies, whose rows follow one another in it."""
        written = dict.fromkeys(name for _, judgement in self._judgements.values() for name in judgement.columns)
        found = [self._judgements.get(id(c.completion)) for d in decisions for c in d.candidates]
        judged = [None if each is None else each[1] for each in found]
        return {
            **{name: [j and j.rewards[name] for j in judged] for name in self._user_rewards.names},
            **{name: [j and j.columns.get(name) for j in judged] for name in written},
        }

    def _calculate_rewards(
        self, inputs: list[dict[str, Any]], prompts: list[Any], completions: list[Any], completion_ids_list: list[Any]
    ) -> torch.Tensor:
        """The rewards that the environment gave while it was played. (B, 1)"""
        rewards = torch.tensor([[row["reward"]] for row in inputs], dtype=torch.float32)
        return gather(rewards.to(self.accelerator.device))

    def _log_episodes(self, episodes: Sequence[Episode], mode: str) -> None:
        groups_of = self._learning_agents if mode == "train" and self.args.sampling == "tree" else ()
        for name, values in of_episodes(episodes, groups_of=groups_of).items():
            self._metrics[mode][name].extend(values)
        found = [self._judgements.get(id(c.completion)) for e in episodes for d in e.decisions for c in d.candidates]
        for name in self._user_rewards.names:
            given = torch.tensor([judged[1].rewards[name] for judged in found if judged is not None])
            self._metrics[mode][f"rewards/{name}/mean"].append(torch.nanmean(given).item())
            self._metrics[mode][f"rewards/{name}/std"].append(nanstd(given).item())
        if mode == "eval":  # in training TRL logs it
            rewards = [c.reward for episode in episodes for d in episode.decisions for c in d.candidates]
            self._metrics[mode]["reward"].append(sum(rewards) / len(rewards))


def replay(prompts: list[Any], trainer: Replays) -> dict[str, Any]:
    """TRL's `rollout_func`: what was sampled already, token for token."""
    completions = [row["completion"] for row in trainer._replayed]
    logprobs = [c.logprobs for c in completions]
    counts = [row["counts"] for row in trainer._replayed]
    masks = [[int(row["counts"])] * len(row["completion"].ids) for row in trainer._replayed]
    return {
        **({} if all(counts) else {"env_mask": masks}),
        "prompt_ids": [row["prompt_ids"] for row in trainer._replayed],
        "completion_ids": [list(c.ids) for c in completions],
        "logprobs": None if any(values is None for values in logprobs) else [list(values) for values in logprobs],
    }


def _filler(row: dict[str, Any], eos: int) -> dict[str, Any]:
    """A short row that takes a place and counts nowhere.

    Of two tokens, since TRL takes what is one column wide for values of sequences and does not mask them.
    """
    logprobs = None if row["completion"].logprobs is None else (0.0, 0.0)
    return {
        **row,
        "prompt_ids": row["prompt_ids"][:1],
        "completion": Completion(ids=(eos, eos), text="", logprobs=logprobs),
        "reward": float("nan"),  # to TRL unscorable: it is in no mean
        "counts": False,
    }
