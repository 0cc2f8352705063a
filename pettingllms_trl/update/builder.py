"""`BatchBuilder`: decisions and their advantages to the forward passes of a generation's micro-steps.

Each policy's sequences become TRL's batch (`RowScorer.score_rows`: padding, masks, old and reference
log-probabilities), with the credit's advantages in the place of TRL's. The batch is split into micro-steps, those into
forward passes of bounded size, and with several processes each takes a part of the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Any, Protocol

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list, send_to_device
from trl.trainer.utils import shuffle_sequence_dict

from pettingllms_envs.prompts import described
from pettingllms_trl.config import MultiAgentGRPOConfig
from pettingllms_trl.policies.routing import Policy
from pettingllms_trl.policies.team import Team
from pettingllms_trl.records import Completion, Decision
from pettingllms_trl.update.assignment import Assignment, assign, assign_by_tokens, values_of
from pettingllms_trl.update.micro_batches import Batch, ShardInfo, ends_of, select_rows, split, tokens, with_copies
from pettingllms_trl.update.packed_logprobs import PackedScorer
from pettingllms_trl.update.packing.conversations import sizes_of
from pettingllms_trl.update.step_guard import provenance


IMAGES = attrgetter("prompt.images")
"""The images of a decision."""
NO_ADVANTAGE = 1e-10
"""Largest size of an advantage that counts as 0."""
LARGEST_ROUNDING = 1e-2
"""The same in a group whose rewards are equal: in single precision, which is TRL's, equal rewards less their mean may
leave a last bit, which a deviation of 1e-4 makes larger. Only of credit whose baseline is the mean of siblings."""

BatchRow = dict[str, Any]
"""A sequence: its `prompt` (a `records.Prompt`), the `messages` of TRL's table, `completion`, `reward`, and whether it
`counts`."""
Columns = Mapping[str, Sequence[Any]]


class RowScorer(Protocol):
    """Turns sequences of one policy into TRL's batch, and logs them as TRL does."""

    def score_rows(
        self,
        policy: str,
        rows: Sequence[BatchRow],
        *,
        table: Columns,
        columns: Mapping[str, Any],
        group_size: int,
        chunks: Sequence[Sequence[int]] | None = None,
    ) -> Batch:
        """TRL's batch of the rows, with further tensors.

        Args:
            table: Further columns of the completions table, a value per row.
            columns: Further tensors of the batch, their first dimension rows, and perhaps the `pictures` of each row.
            group_size: Consecutive rows that TRL's metrics take for a group.
            chunks: Rows whose log-probabilities are computed together, where prompts are shared. Those of rows that
                are in none are NaN. `None`: as TRL does.
        """

    def correct_for_padding(self, rows: Sequence[BatchRow], assignment: Assignment, *, group_size: int) -> None:
        """Log the rows in their own order and without padding rows, after they were scored by several processes."""

    def log_advantages(self, advantages: Sequence[float], *, group_size: int) -> None:
        """Log the credit's advantages in the place of those that TRL computed for the rows scored last."""


@dataclass(frozen=True, slots=True)
class MicroBatches:
    """The passes of a generation.

    Args:
        steps: For each micro-step its forward passes, each with its `policy`.
        num_left_out: Of all these, how many go through no forward pass.
        num_tokens: Of all others, each with its prompt, where passes are bounded by their tokens.
        num_tokens_read: That the model reads for these, padding included.
    """

    steps: list[list[Batch]]
    num_rows: tuple[int, ...]
    num_left_out: int
    num_tokens: int
    num_tokens_read: int


class BatchBuilder:
    """Makes the forward passes of a generation's micro-steps from decisions and their advantages.

    Args:
        scorer: Which policies' prompts are shared.
        has_group_means: The credit's baseline is the mean of a decision's candidates.
    """

    def __init__(
        self,
        args: MultiAgentGRPOConfig,
        team: Team,
        scorer: PackedScorer,
        accelerator: Accelerator,
        *,
        rows: RowScorer,
        has_group_means: bool,
    ) -> None:
        self._args, self._team, self._scorer, self._accelerator = args, team, scorer, accelerator
        self._rows, self._has_group_means = rows, has_group_means
        assert args.steps_per_generation is not None
        self._num_steps = args.steps_per_generation
        self._split = partial(split, max_rows=args.per_device_train_batch_size, token_mean=args.loss_type == "bnpo")

    def build(
        self,
        decisions: Sequence[Decision],
        advantages: Sequence[Sequence[float]],
        *,
        learning: Collection[Policy],
        table: Callable[[Sequence[Decision]], Columns],
        micro_steps_for: Callable[[int], int] | None = None,
    ) -> MicroBatches:
        """
        Args:
            table: The user's columns of the completions table, of some of the decisions.
            micro_steps_for: Micro-steps for a number of a policy's sequences; policies with fewer are in the first
                ones. `None`: `steps_per_generation` for all.
        """
        of_agent = self._team.routing.of_agent
        steps: list[list[Batch]] = [[] for _ in range(self._num_steps if micro_steps_for is None else 0)]
        num_rows: list[int] = []
        num_left_out = num_tokens = num_tokens_read = 0
        for policy in learning:
            own = [i for i, d in enumerate(decisions) if of_agent[d.agent] == policy.name]
            if not own:
                continue
            of_policy, flat = [decisions[i] for i in own], [value for i in own for value in advantages[i]]
            has_pictures = any(map(IMAGES, of_policy)) or policy.name in self._scorer.only_vision
            # Such a batch is not packed.
            left_out = frozenset() if has_pictures else self.rows_without_gradient(policy, of_policy, flat)
            num_rows.append(len(flat))
            num_left_out += len(left_out)
            num_steps = self._num_steps if micro_steps_for is None else micro_steps_for(len(flat))
            passes, assignment = self._passes_of(
                policy, of_policy, flat, left_out, table(of_policy), has_pictures=has_pictures, num_steps=num_steps
            )
            if assignment is not None:
                num_tokens += assignment.num_tokens
                num_tokens_read += assignment.num_tokens_read
            own_values: Batch = {"policy": policy.name}
            if micro_steps_for is not None:  # TRL takes a generation's tokens to be those of `steps_per_generation`
                own_values["num_items_in_batch"] = passes[0][0]["num_items_in_batch"] * self._num_steps / num_steps
            steps += [[] for _ in range(num_steps - len(steps))]
            for step, more in zip(steps, passes, strict=False):
                step += [{**piece, **own_values} for piece in more]
        return MicroBatches(steps, tuple(num_rows), num_left_out, num_tokens, num_tokens_read)

    def rows_without_gradient(
        self, policy: Policy, decisions: Sequence[Decision], advantages: Sequence[float]
    ) -> frozenset[int]:
        """The rows that cannot move a weight, and so need not go through the model, where prompts are shared.

        In all of TRL's losses a row without an advantage has a gradient of zero, unless there is a term beside the
        advantage (a KL divergence, an entropy bonus, a router's loss), or its entropies decide which tokens of other
        rows are trained on.

        Args:
            advantages: Of all their candidates, one after another.
        """
        if (
            not self._scorer.is_packable(policy.name)
            or self._team.profiles[policy.name].beta != 0.0
            or self._team.profiles[policy.name].aux_loss_enabled
            or self._args.entropy_coef != 0.0
            or self._args.use_adaptive_entropy
            or self._args.top_entropy_quantile < 1.0
        ):
            return frozenset()
        left_out: set[int] = set()
        first = 0
        for decision in decisions:
            group = range(first, first + len(decision.candidates))
            first = group.stop
            rewards = {candidate.reward for candidate in decision.candidates}
            is_flat = len(group) > 1 and len(rewards) == 1 and len({advantages[row] for row in group}) == 1
            is_flat = is_flat and self._has_group_means  # the credit made no difference between them
            most = LARGEST_ROUNDING if is_flat else NO_ADVANTAGE
            left_out.update(row for row in group if abs(advantages[row]) <= most)
        return frozenset(left_out)

    def _passes_of(
        self,
        policy: Policy,
        decisions: Sequence[Decision],
        advantages: Sequence[float],
        left_out: Collection[int],
        table: Columns,
        *,
        has_pictures: bool,
        num_steps: int,
    ) -> tuple[list[list[Batch]], Assignment | None]:
        """One policy's passes of each micro-step, and how its rows were assigned to them; with several processes, this
        process's part of them.

        Args:
            decisions: At least one.
            left_out: The rows (candidates) that go through no forward pass.
            table: The user's columns of the completions table.
            has_pictures: Whether the model is given pictures beside the ids.
        """
        rows: list[BatchRow] = [
            {
                "prompt": decision.prompt,
                "messages": decision.prompt.messages,
                "completion": candidate.completion,
                "reward": candidate.reward,
                "counts": True,
            }
            for decision in decisions
            for candidate in decision.candidates
        ]
        of_rows = provenance(decisions, list(self._team.routing.of_agent))
        of_rows["advantages"] = torch.tensor(advantages)
        columns: dict[str, Any] = send_to_device(of_rows, self._accelerator.device, non_blocking=True)
        if has_pictures:
            columns["pictures"] = [decision.prompt.images for decision in decisions for _ in decision.candidates]
            for row in rows:
                row["messages"] = described(row["messages"])
        table = {**_places(decisions, has_continuations=self._args.train_continuations), **table}
        sizes = {len(decision.candidates) for decision in decisions}  # 1 in parallel episodes and in continuations
        group_size = sizes.pop() if len(sizes) == 1 else 1
        by_tokens = self._assignment_by_tokens(policy, rows, left_out, has_pictures=has_pictures, num_steps=num_steps)
        if by_tokens is None and self._accelerator.num_processes == 1:
            batch = self._rows.score_rows(policy.name, rows, table=table, columns=columns, group_size=group_size)
            batch = shuffle_sequence_dict(with_copies(batch))
            passes, assignment = self._split(batch, num_steps=num_steps, shard=None), None
        else:
            passes, assignment = self._assigned_passes(policy, rows, table, columns, by_tokens, group_size, num_steps)
        self._rows.log_advantages(advantages, group_size=group_size)
        return passes, assignment

    def _assignment_by_tokens(
        self,
        policy: Policy,
        rows: Sequence[BatchRow],
        left_out: Collection[int],
        *,
        has_pictures: bool,
        num_steps: int,
    ) -> Callable[..., Assignment] | None:
        """How rows are assigned where passes are bounded by their tokens; `None`: by their rows, as TRL's.

        Where the user sets no bound and prompts are shared, it is as many tokens as `per_device_train_batch_size` of
        the longest rows would have.
        """
        budget = self._args.max_tokens_per_microbatch
        is_shared = self._scorer.is_packable(policy.name) and not has_pictures
        if budget is None and not is_shared:
            return None
        prompts = [row["prompt"].ids for row in rows]
        completions = [row["completion"].ids for row in rows]
        if budget is None:
            budget = self._args.per_device_train_batch_size * (max(map(len, prompts)) + max(map(len, completions)))
        if is_shared and self._args.mask_truncated_completions:  # what TRL masks is not packed
            profile = self._team.profiles[policy.name]
            ends = {*ends_of(rows, profile.eos_token_ids), profile.tokenizer.pad_token_id}
            completions = [ids if ids[-1] in ends else () for ids in completions]
        sizes = sizes_of(prompts, completions)
        token_price = self._scorer.token_prices[policy.name] if is_shared else None
        return partial(
            assign_by_tokens,
            sizes,
            budget=budget,
            token_price=token_price,
            left_out=left_out,
            num_steps=num_steps,
            # Optimizer steps for which a generation is passed through once.
            num_updates=max(num_steps // self._args.gradient_accumulation_steps, 1),
            num_movable=num_movable_of(self._args, num_steps),
        )

    def _assigned_passes(
        self,
        policy: Policy,
        rows: Sequence[BatchRow],
        table: Columns,
        columns: Mapping[str, Any],
        by_tokens: Callable[..., Assignment] | None,
        group_size: int,
        num_steps: int,
    ) -> tuple[list[list[Batch]], Assignment]:
        """Passes that are assigned before they are made: by their tokens, or this process's part of them.

        The rows of a group may go to several processes, for their advantages are known already. Metrics and tables
        are of all of them, as one process would have them.
        """
        num_processes, device = self._accelerator.num_processes, self._accelerator.device
        score = partial(self._rows.score_rows, policy.name)
        if num_processes == 1:
            assert by_tokens is not None
            together = by_tokens(range(len(rows)), num_steps=1, num_updates=1, num_movable=1)
            chunks = _chunks(together.rows_of(0), together)
            batch = score(rows, table=table, columns=columns, group_size=group_size, chunks=chunks)
            order = _shuffled(len(rows))
            assignment = by_tokens(order)
            rows_here = assignment.rows_of(0)
            batch = select_rows(with_copies(batch), torch.tensor(rows_here), trim=False)
        else:
            order = _shuffled(len(rows))
            if by_tokens is None:
                assignment = assign(order, num_steps=num_steps, num_processes=num_processes)
            else:
                assignment = by_tokens(order, num_processes=num_processes)
            rows_here = assignment.rows_of(self._accelerator.process_index)
            own = torch.tensor([0 if row is None else row for row in rows_here])
            eos = self._team.profiles[policy.name].eos_token_ids[0]
            scored = score(
                values_of(rows_here, rows, _padding_row(rows[0], eos)),
                table={name: values_of(rows_here, values, None) for name, values in table.items()},
                columns={
                    name: values[own.to(device)]
                    if isinstance(values, torch.Tensor)
                    else values_of(rows_here, values, ())
                    for name, values in columns.items()
                },
                group_size=1,
                chunks=None if by_tokens is None else _chunks(range(len(rows_here)), assignment),
            )
            self._rows.correct_for_padding(rows, assignment, group_size=group_size)
            batch = with_copies(scored)
            batch["is_padding"] = torch.tensor([row is None for row in rows_here])
        num_here = assignment.num_here
        here = torch.split(torch.arange(len(rows_here)), list(num_here))
        num_tokens = [tokens(batch, part) for part in here]
        if num_processes > 1:
            num_tokens = self._accelerator.reduce(torch.tensor(num_tokens, device=device), reduction="sum").tolist()
        shard = ShardInfo(num_processes, num_here, assignment.num_rows, num_tokens, assignment.passes)
        return self._split(batch, num_steps=num_steps, shard=shard), assignment


def num_movable_of(args: MultiAgentGRPOConfig, num_steps: int) -> int:
    """Of a generation's micro-steps, those among which a row may move and weigh the same: of an optimizer step, unless
    the loss or the entropy bonus is a mean over a micro-step's tokens."""
    of_update = args.gradient_accumulation_steps
    if args.loss_type == "bnpo" or args.entropy_coef != 0.0 or args.use_adaptive_entropy:
        return 1
    if of_update % num_steps == 0:
        return num_steps
    return of_update if num_steps % of_update == 0 else 1


def _places(decisions: Sequence[Decision], *, has_continuations: bool) -> dict[str, list[Any]]:
    """Columns of the completions table that say which decision a row is of."""
    several = bool(decisions[0].environment)  # else all of them have none
    # Such as "2.0.1": decision 2 of the episode, its candidate 0, continuation 1; `None` in no continuation.
    continued = [d.continuation and ".".join(map(str, d.continuation)) for d in decisions for _ in d.candidates]
    return {
        "agent": [d.agent for d in decisions for _ in d.candidates],
        **({"env": [d.environment for d in decisions for _ in d.candidates]} if several else {}),
        "instance": [d.instance for d in decisions for _ in d.candidates],
        "episode": [d.episode for d in decisions for _ in d.candidates],
        "turn": [d.turn for d in decisions for _ in d.candidates],
        **({"continuation": continued} if has_continuations else {}),
        "chosen": [k == d.chosen for d in decisions for k in range(len(d.candidates))],
    }


def _shuffled(number: int) -> list[int]:
    """The numbers below, as TRL's shuffle orders a batch's rows; on all processes as the first has drawn it.

    So a seed gives the same generations whether prompts are shared or not, and optimizer steps the same rows on
    several processes as on one.
    """
    order = [shuffle_sequence_dict({"row": torch.arange(number)})["row"].tolist()]
    broadcast_object_list(order)
    return order[0]


def _chunks(rows_here: Sequence[int | None], assignment: Assignment) -> list[list[int]]:
    """The rows of each forward pass, without padding rows and those that are in none."""
    assert assignment.passes is not None
    chunks, start = list[list[int]](), 0
    for num_here, sizes in zip(assignment.num_here, assignment.passes, strict=True):
        rows = iter(rows_here[start : start + num_here])
        chunks += [[row for row in islice(rows, size) if row is not None] for size in sizes]
        start += num_here
    return chunks


def _padding_row(row: BatchRow, eos: int) -> BatchRow:
    """A short row that fills a process's share up, and counts nowhere.

    Of two tokens, since TRL takes what is one column wide for values of sequences and does not mask them.
    """
    logprobs = None if row["completion"].logprobs is None else (0.0, 0.0)
    return {
        **row,
        "prompt": replace(row["prompt"], ids=row["prompt"].ids[:1], images=()),
        "completion": Completion(ids=(eos, eos), text="", logprobs=logprobs),
        "reward": float("nan"),  # to TRL unscorable: it is in no mean
        "counts": False,
    }
