"""`Replays`: a generation, from rows of the data set to the forward passes of its micro-steps.

Rows are played (`playing.py`), decisions become advantages (`credit`), and each policy's sequences are *replayed*
through the inherited `_generate_and_score_completions`, with a `rollout_func` that returns the tokens already sampled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from accelerate.utils import gather
from datasets import Dataset, IterableDataset
from torch.utils.data import DataLoader, Sampler
from trl.trainer.utils import RepeatSampler, nanstd, repeat_iterable_dataset, shuffle_sequence_dict

from pettingllms_trl import credit as credits
from pettingllms_trl.batching import Batch, Shared, cut, tokens
from pettingllms_trl.curriculum import Curriculum, Progress
from pettingllms_trl.dealing import Deal, deal, pick
from pettingllms_trl.health import coordinates
from pettingllms_trl.metrics import of_completions, of_episodes
from pettingllms_trl.order import EpochSampler, shuffled
from pettingllms_trl.playing import Plays
from pettingllms_trl.policies import Policy
from pettingllms_trl.records import Completion, Decision, Episode, check_groups
from pettingllms_trl.survival import Survives


class Replays(Survives, Plays):
    """See the head of this file."""

    # Set by MultiAgentGRPOTrainer, and by the constructors of TRL and transformers.
    _curriculum: Curriculum | None
    _progress: Progress
    num_generations: int
    _replayed: list[dict[str, Any]]
    _signature_columns: list[str] | None

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
        return EpochSampler(
            data_source=self.train_dataset if dataset is None else dataset,
            mini_repeat_count=1,
            batch_size=self._rows_per_generation,
            repeat_count=self._num_repeats,
            shuffle=self.shuffle_dataset,
            seed=self.args.seed,
        )

    def _get_eval_sampler(self, eval_dataset: Dataset) -> Sampler[Any]:
        return RepeatSampler(data_source=eval_dataset, mini_repeat_count=1, shuffle=False)

    def _set_signature_columns_if_needed(self) -> None:
        if self._signature_columns is None:
            self._signature_columns = list(self.train_dataset.column_names or [])

    # ---- A generation -----------------------------------------------------------------------------------------------

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        """Rows to the forward passes of this micro-step; a single forward pass, on its way to the loss, as it is."""
        if isinstance(generation_batch, dict):
            return generation_batch
        steps_per_generation = self.args.steps_per_generation
        if self._step % (steps_per_generation * self.num_iterations) == 0 or self._buffered_inputs is None:
            name = str(self.state.global_step)
            rows = generation_batch
            if self._curriculum is not None:
                rows = self._curriculum.assign(rows, self._progress, f"{self.args.seed}/{name}")
            episodes = self._play(
                rows,
                sampling=self.args.sampling,
                num_candidates=self.num_generations,
                name=name,
                num_continuations=self.args.num_continuations,
            )
            if self._curriculum is not None:
                self._progress = self._curriculum.after(self._progress, rows, episodes)
                self._metrics["train"]["curriculum/level"].append(float(self._progress.index + 1))
            if self.args.check_groups:
                check_groups(episodes, num_candidates=self.num_generations if self.args.sampling == "tree" else 1)
            self._log_episodes(episodes, "train")
            self._buffered_inputs = self._batches([d for episode in episodes for d in episode.decisions])
        return self._buffered_inputs[self._step % steps_per_generation]

    def _batches(self, decisions: Sequence[Decision]) -> list[list[Batch]]:
        """Decisions to the forward passes of each of a generation's micro-steps; those of partners teach nobody."""
        of_agent, names = self.routing.of_agent, {policy.name for policy in self.routing.trained}
        decisions = [decision for decision in decisions if of_agent[decision.agent] in names]
        advantages = self._credit(decisions)
        credits.check_advantages(advantages, decisions)
        self._watch(decisions, advantages)
        for log in (self._logs["prompt"], self._logs["completion"], self._logs["advantages"]):
            log.clear()
        self._logs["rewards"].clear()
        self._logs["extra"].clear()
        steps: list[list[Batch]] = [[] for _ in range(self.args.steps_per_generation)]
        for policy in self.routing.trained:
            own = [i for i, d in enumerate(decisions) if of_agent[d.agent] == policy.name]
            if not own:
                continue
            passes = self._replay_policy(policy, [decisions[i] for i in own], [advantages[i] for i in own])
            for step, more in zip(steps, passes, strict=True):
                step.extend({**piece, "policy": policy.name} for piece in more)
        return steps

    def _place(self) -> dict[str, Any]:
        return {**super()._place(), "curriculum": [self._progress.index, list(self._progress.latest)]}

    def _take_place(self, place: dict[str, Any]) -> None:
        super()._take_place(place)
        index, latest = place["curriculum"]
        self._progress = Progress(index, tuple(latest))

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
            "instance": [d.instance for d in decisions for _ in d.candidates],
            "episode": [d.episode for d in decisions for _ in d.candidates],
            "turn": [d.turn for d in decisions for _ in d.candidates],
            "chosen": [k == d.chosen for d in decisions for k in range(len(d.candidates))],
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

    def _calculate_rewards(
        self, inputs: list[dict[str, Any]], prompts: list[Any], completions: list[Any], completion_ids_list: list[Any]
    ) -> torch.Tensor:
        """The rewards that the environment gave while it was played. (B, 1)"""
        rewards = torch.tensor([[row["reward"]] for row in inputs], dtype=torch.float32)
        return gather(rewards.to(self.accelerator.device))

    def _log_episodes(self, episodes: Sequence[Episode], mode: str) -> None:
        groups = mode == "train" and self.args.sampling == "tree"
        for name, values in of_episodes(episodes, groups=groups).items():
            self._metrics[mode][name].extend(values)
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
