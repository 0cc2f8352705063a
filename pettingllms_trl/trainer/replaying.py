"""`Replays`: a generation's decisions to the forward passes of its micro-steps.

Decisions become advantages (`credit`), and each policy's sequences are *replayed* through the inherited
`_generate_and_score_completions`, with a `rollout_func` that returns the tokens already sampled.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

import torch
from accelerate.utils import broadcast_object_list, gather
from trl.trainer.utils import nanmax, nanmin, nanstd, shuffle_sequence_dict

from pettingllms_trl import credit as credits
from pettingllms_trl.credit import Advantages
from pettingllms_trl.credit.selection import Selection, num_tokens
from pettingllms_trl.policies.routing import Policy
from pettingllms_trl.records import Completion, Decision, Episode
from pettingllms_trl.trainer.collecting import Collects
from pettingllms_trl.trainer.metrics import of_completions
from pettingllms_trl.trainer.monitor import LearningMonitor, warn_above_progress_bar
from pettingllms_trl.trainer.rollout_checks import RolloutAudit
from pettingllms_trl.update.assignment import Assignment, assign, values_of
from pettingllms_trl.update.micro_batches import Batch, ShardInfo, select_rows, split, tokens
from pettingllms_trl.update.step_guard import provenance
from pettingllms_trl.update.token_budget import Size, assign_by_tokens


NO_ADVANTAGE = 1e-10
"""Largest size of an advantage that counts as 0."""
LARGEST_ROUNDING = 1e-2
"""The same in a group whose rewards are equal: in single precision, which is TRL's, equal rewards less their mean may
leave a last bit, which a deviation of 1e-4 makes larger. Only of credit whose baseline is the mean of siblings."""


class Replays(Collects):
    """See the head of this file."""

    _credit: credits.Credit
    _monitor: LearningMonitor
    _rollout_audit: RolloutAudit | None
    _buffered_inputs: list[list[Batch]] | None
    _replayed: list[dict[str, Any]]

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        """Rows to the forward passes of this micro-step; a single forward pass, on its way to the loss, as it is."""
        if isinstance(generation_batch, dict):
            return generation_batch
        if self._begins_generation(self._step) or self._buffered_inputs is None:
            rows, episodes, selection = self._generation(generation_batch)
            self._log_episodes(episodes, "train")
            decisions = self._taught(episodes)
            advantages = self._advantages_of(decisions)
            self._watch(episodes, decisions, advantages)
            if self._rollout_log is not None:
                self._record(rows, episodes, dict(zip(map(id, decisions), advantages, strict=True)))
            self._buffered_inputs = self._batches(decisions, advantages, selection)
        return self._buffered_inputs[self._step % self.args.steps_per_generation]

    def _watch(self, episodes: Sequence[Episode], decisions: Sequence[Decision], advantages: Advantages) -> None:
        """Warn where a generation shows that an agent cannot learn, or that groups are broken."""
        found = list(self._monitor.observe(episodes, decisions, advantages))
        if self._rollout_audit is not None:
            found += self._rollout_audit.observe(episodes, dict(zip(map(id, decisions), advantages, strict=True)))
        if self.is_world_process_zero():
            for words in found:
                warn_above_progress_bar(f"step {self.state.global_step}: {words}")

    def _advantages_of(self, decisions: Sequence[Decision]) -> Advantages:
        """The advantages of all decisions that teach; the credit sees them once, before any is left out."""
        advantages = self._credit(decisions) if decisions else []
        credits.check_advantages(advantages, decisions)
        return advantages

    def _batches(
        self, decisions: Sequence[Decision], advantages: Advantages, selection: Selection
    ) -> list[list[Batch]]:
        """Decisions to the forward passes of each of a generation's micro-steps; what is not selected is left out."""
        of_agent = self.routing.of_agent
        # TRL counts the tokens that it is given; those left out here were generated as well.
        self.state.num_input_tokens_seen += num_tokens(decisions) - num_tokens(selection.kept.decisions)
        decisions, advantages = selection.of(decisions), selection.of(advantages)
        for log in (self._logs["prompt"], self._logs["completion"], self._logs["advantages"]):
            log.clear()
        self._logs["rewards"].clear()
        self._logs["extra"].clear()
        steps: list[list[Batch]] = [[] for _ in range(self.args.steps_per_generation)]
        num_rows = num_left_out = 0
        for policy in self._learning:
            own = [i for i, d in enumerate(decisions) if of_agent[d.agent] == policy.name]
            if not own:
                continue
            flat = [value for i in own for value in advantages[i]]
            left_out = self._left_out(policy, [decisions[i] for i in own], flat)
            num_rows, num_left_out = num_rows + len(flat), num_left_out + len(left_out)
            passes = self._replay_policy(policy, [decisions[i] for i in own], flat, left_out)
            for step, more in zip(steps, passes, strict=True):
                step.extend({**piece, "policy": policy.name} for piece in more)
        if num_rows:
            self._metrics["train"]["rollout/frac_rows_updated"].append(1 - num_left_out / num_rows)
        return steps

    def _left_out(self, policy: Policy, decisions: Sequence[Decision], advantages: Sequence[float]) -> frozenset[int]:
        """The rows that cannot move a weight, and so need not go through the model, where prompts are shared.

        In all of TRL's losses a row without an advantage has a gradient of zero, unless there is a term beside the
        advantage (a KL divergence, an entropy bonus, a router's loss), or its entropies decide which tokens of other
        rows are trained on.
        """
        if (
            not self.scorer.is_packable(
                policy.name
            )  # which makes it active: `beta` and `aux_loss_enabled` are the policy's
            or self.beta != 0.0
            or self.aux_loss_enabled
            or self._entropy_bonus_enabled
            or self.top_entropy_quantile < 1.0
        ):
            return frozenset()
        has_means = credits.sums_to_zero(self._credit, self.args.sampling) == "siblings"
        left_out: set[int] = set()
        first = 0
        for decision in decisions:
            group = range(first, first + len(decision.candidates))
            first = group.stop
            is_flat = has_means and _is_flat(decision, [advantages[row] for row in group])
            most = LARGEST_ROUNDING if is_flat else NO_ADVANTAGE
            left_out.update(row for row in group if abs(advantages[row]) <= most)
        return frozenset(left_out)

    def _replay_policy(
        self, policy: Policy, decisions: Sequence[Decision], flat: Sequence[float], left_out: Collection[int]
    ) -> list[list[Batch]]:
        """One policy's sequences through TRL's own pipeline; then its advantages are replaced by the credit's.

        With several processes, of each its own part of them.

        Args:
            policy: Whose decisions these are.
            decisions: At least one.
            flat: The advantages of all their candidates.
            left_out: The rows (candidates) that go through no forward pass.

        Returns:
            The passes of each micro-step.
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
        columns = {**provenance(decisions, list(self.routing.of_agent)), "advantages": torch.tensor(flat)}
        self.activate(policy.name)
        # TRL groups consecutive rows by K; a parallel episode's decision has a single one.
        num_generations, self.num_generations = self.num_generations, len(decisions[0].candidates)
        try:
            by_tokens = self._by_tokens(policy, rows, left_out)
            if self.accelerator.num_processes > 1:
                passes = self._share_out(policy, rows, extra, columns, by_tokens)
            elif by_tokens is None:
                passes = self._cut(shuffle_sequence_dict(self._replay_rows(rows, extra, columns)))
            else:
                passes = self._sort_out(rows, extra, columns, by_tokens)
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
        chunks: Sequence[Sequence[int]] | None = None,
    ) -> Batch:
        """Rows, with columns for the completions table and for the batch, to TRL's batch.

        Old and reference log-probabilities of `chunks` are taken together, where prompts are shared. Those of rows
        that are in no chunk are NaN.
        """
        for column, values in extra.items():
            self._log_completion_extra(column, list(values))
        self._replayed, self.scorer.chunks = list(rows), chunks
        device = self.accelerator.device
        batch = self._generate_and_score_completions(self._replayed)
        if chunks is not None and "importance_sampling_ratio" in batch:
            self._mend_ratios(batch, torch.tensor([row for chunk in chunks for row in chunk], dtype=torch.long))
        return {**batch, **{name: values.to(device) for name, values in columns.items()}}

    def _mend_ratios(self, batch: Batch, scored: torch.Tensor) -> None:
        """Metrics of the sampler's importance ratios, of the rows with log-probabilities: to TRL the others are 1."""
        ratios = batch["importance_sampling_ratio"][scored]  # (B, C), or (B, 1) of sequences
        mask = batch["completion_mask"] * batch.get("tool_mask", 1)
        flat = ratios.flatten() if ratios.size(1) == 1 else ratios[mask[scored].bool()]
        flat = flat if flat.numel() else torch.zeros(1, device=ratios.device)
        metrics = self._metrics["train"]
        for name, value in (
            ("min", nanmin(self.accelerator.gather(flat.min()))),
            ("mean", self.accelerator.gather(flat.mean()).nanmean()),
            ("max", nanmax(self.accelerator.gather(flat.max()))),
        ):
            metrics[f"sampling/importance_sampling_ratio/{name}"][-1] = value.item()

    def _by_tokens(
        self, policy: Policy, rows: Sequence[dict[str, Any]], left_out: Collection[int]
    ) -> Callable[..., Assignment] | None:
        """How rows are dealt where passes are bounded by their tokens; `None`: by their rows, as TRL's.

        Where the user sets no bound and prompts are shared, it is as many tokens as `per_device_train_batch_size` of
        the longest rows would have.
        """
        budget, is_shared = self.args.max_tokens_per_microbatch, self.scorer.is_packable(policy.name)
        if budget is None and not is_shared:
            return None
        of_rows = [(row["prompt_ids"], row["completion"].ids) for row in rows]
        if budget is None:
            longest = max(len(ids) for ids, _ in of_rows) + max(len(ids) for _, ids in of_rows)
            budget = self.args.per_device_train_batch_size * longest
        sizes = [Size(tuple(prompt), len(prompt), len(completion)) for prompt, completion in of_rows]
        return partial(assign_by_tokens, sizes, budget=budget, is_shared=is_shared, left_out=left_out)

    def _sort_out(
        self,
        rows: Sequence[dict[str, Any]],
        extra: Mapping[str, Sequence[Any]],
        columns: Mapping[str, torch.Tensor],
        by_tokens: Callable[..., Assignment],
    ) -> list[list[Batch]]:
        """All rows, in passes bounded by their tokens."""
        together = by_tokens(range(len(rows)), num_steps=1)
        batch = self._replay_rows(rows, extra, columns, _chunks(together.rows_of(0), together))
        order = _shuffled(len(rows))
        dealt = by_tokens(order, num_steps=self.args.steps_per_generation, num_updates=self._num_updates)
        batch = select_rows(batch, torch.tensor(dealt.rows_of(0), device=self.accelerator.device), trim=False)
        here = torch.split(torch.arange(len(rows)), list(dealt.num_here))
        num_tokens = [tokens(batch, part) for part in here]
        return self._cut(batch, ShardInfo(1, dealt.num_here, dealt.num_rows, num_tokens, dealt.passes))

    @property
    def _num_updates(self) -> int:
        """Optimizer steps for which a generation is passed through once."""
        return max(self.args.steps_per_generation // self.args.gradient_accumulation_steps, 1)

    def _share_out(
        self,
        policy: Policy,
        rows: Sequence[dict[str, Any]],
        extra: Mapping[str, Sequence[Any]],
        columns: Mapping[str, torch.Tensor],
        by_tokens: Callable[..., Assignment] | None,
    ) -> list[list[Batch]]:
        """This process's part of the rows; metrics and tables are of all of them, as one process would have them.

        Groups may be torn apart, for what a row is worth against its siblings is known already.
        """
        num_processes = self.accelerator.num_processes
        order = _shuffled(len(rows))
        num_steps = self.args.steps_per_generation
        if by_tokens is None:
            dealt = assign(order, num_steps=num_steps, num_processes=num_processes)
        else:
            dealt = by_tokens(order, num_steps=num_steps, num_updates=self._num_updates, num_processes=num_processes)
        hand = dealt.rows_of(self.accelerator.process_index)
        own = torch.tensor([0 if row is None else row for row in hand])
        num_candidates, self.num_generations = self.num_generations, 1
        batch = self._replay_rows(
            values_of(hand, rows, _filler(rows[0], self.eos_token_ids[0])),
            {name: values_of(hand, values, None) for name, values in extra.items()},
            {name: values[own] for name, values in columns.items()},
            None if by_tokens is None else _chunks(range(len(hand)), dealt),
        )
        self._mend_logs(dealt)
        self._mend_metrics(rows, dealt, num_candidates)
        here = torch.split(torch.arange(len(hand)), list(dealt.num_here))
        num_tokens = torch.tensor([tokens(batch, part) for part in here], device=self.accelerator.device)
        num_tokens = self.accelerator.reduce(num_tokens, reduction="sum")
        batch["fills_up"] = torch.tensor([row is None for row in hand])
        shared = ShardInfo(num_processes, dealt.num_here, dealt.num_rows, num_tokens.tolist(), dealt.passes)
        return self._cut(batch, shared)

    def _mend_logs(self, dealt: Assignment) -> None:
        """The completions table in the order of the rows; TRL has appended them process after process."""
        tables = self._logs["rewards"], self._logs["extra"]
        columns = [self._logs[name] for name in ("prompt", "completion", "advantages")]
        for column in [*columns, *(column for table in tables for column in table.values())]:
            num_dealt = sum(dealt.num_here) * self.accelerator.num_processes
            column.extend(dealt.restore_order([column.pop() for _ in range(num_dealt)][::-1]))

    def _mend_metrics(self, rows: Sequence[dict[str, Any]], dealt: Assignment, num_candidates: int) -> None:
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
        self.state.num_input_tokens_seen -= dealt.num_padding_rows  # a prompt of one token each
        metrics["num_tokens"] = [self.state.num_input_tokens_seen]

    def _cut(self, batch: Batch, shared: ShardInfo | None = None) -> list[list[Batch]]:
        return split(
            batch,
            num_steps=self.args.steps_per_generation,
            max_rows=self.args.per_device_train_batch_size,
            token_mean=self.loss_type == "bnpo",
            shard=shared,
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


def _shuffled(number: int) -> list[int]:
    """The numbers below, as TRL's shuffle orders a batch's rows; on all processes as the first has drawn it.

    So a seed gives the same generations whether prompts are shared or not, and optimizer steps the same rows on
    several processes as on one.
    """
    order = [shuffle_sequence_dict({"row": torch.arange(number)})["row"].tolist()]
    broadcast_object_list(order)
    return order[0]


def _chunks(hand: Sequence[int | None], dealt: Assignment) -> list[list[int]]:
    """A hand without rows that fill up or are left out, or their places, pass after pass."""
    assert dealt.passes is not None
    chunks, start = list[list[int]](), 0
    for num_here, sizes in zip(dealt.num_here, dealt.passes, strict=True):
        rows = iter(hand[start : start + num_here])
        chunks += [[row for row in islice(rows, size) if row is not None] for size in sizes]
        start += num_here
    return chunks


def _is_flat(decision: Decision, advantages: Sequence[float]) -> bool:
    """Whether the candidates of a decision were paid alike, and the credit made no difference between them."""
    rewards = {candidate.reward for candidate in decision.candidates}
    return len(advantages) > 1 and len(rewards) == 1 and len(set(advantages)) == 1


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
