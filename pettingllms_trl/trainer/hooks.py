"""`TRLHooks`: what TRL's `GRPOTrainer` calls, and the only place that names its private attributes.

| what               | here                                                                                     |
|--------------------|------------------------------------------------------------------------------------------|
| data               | each row once instead of K times: the candidates are made by the rollout                 |
| a generation       | `prepare_generation` makes its micro-steps, `score_rows` has TRL score the sequences     |
| a micro-step       | several forward passes, of one policy each; TRL computes the loss of each                |
| sampling           | TRL's `generate` of the active policy, with a role's own settings                        |
| the optimizer      | gradients are clipped, and learning rates set, by policy                                 |
| checkpoints, Hub   | TRL's, staged and restored by the `Checkpointer`                                         |
| metrics            | `report` and `report_all` write TRL's log                                                |

`tests/trl/trainer/test_trl_seams.py` has a test for every private name.
"""

from __future__ import annotations

import copy
import math
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather, gather_object
from datasets import Dataset, IterableDataset
from torch.utils.data import DataLoader, Sampler
from transformers.trainer import TRAINING_ARGS_NAME
from transformers.trainer_utils import HubStrategy
from trl import GRPOTrainer
from trl.models.utils import disable_gradient_checkpointing
from trl.trainer.utils import RepeatSampler, nanmax, nanmin, nanstd, repeat_iterable_dataset

from pettingllms_trl.checkpoints.checkpointer import Checkpointer
from pettingllms_trl.checkpoints.publishing import Publisher, copy_policies, write_team_file
from pettingllms_trl.engines.synced_engines import SyncedEngines
from pettingllms_trl.engines.transformers import noisy_modules, prompts_read_once
from pettingllms_trl.policies import weights
from pettingllms_trl.policies.multi_model import MultiPolicyModel
from pettingllms_trl.policies.optim import clip_by_policy, split_groups
from pettingllms_trl.policies.profiles import PolicyProfile
from pettingllms_trl.policies.routing import Policy, Routing
from pettingllms_trl.policies.team import Team, override_args
from pettingllms_trl.processes.distributed import accumulating, average_gradients
from pettingllms_trl.records import Engine, Row, Tools
from pettingllms_trl.role_sampling import NOTHING, SamplingOverrides
from pettingllms_trl.trainer.dataloading import EpochSampler, each_generation_once
from pettingllms_trl.update.assignment import Assignment
from pettingllms_trl.update.entropy import EntropyBonus
from pettingllms_trl.update.micro_batches import Batch
from pettingllms_trl.update.packed_logprobs import PackedScorer, Scores
from pettingllms_trl.update.pass_metrics import (
    ForwardMetrics,
    means_of_padding_rows,
    merge_passes,
    of_completions,
    without_padding,
)
from pettingllms_trl.update.step_guard import StepGuard
from pettingllms_trl.update.token_budget import TokenBudget


NUMBER = "__number__"
"""Field of a stream's rows in evaluation by several processes."""


class TRLHooks(GRPOTrainer):
    """See the head of this file."""

    # Parts that MultiAgentGRPOTrainer makes.
    entropy: EntropyBonus
    guard: StepGuard
    token_budget: TokenBudget
    scorer: PackedScorer
    checkpointer: Checkpointer
    publisher: Publisher
    team: Team
    engines: SyncedEngines
    # Set by the constructors of TRL and transformers.
    entropy_coef: float
    use_adaptive_entropy: bool
    _current_train_step_time: float
    generation_config: Any
    generation_kwargs: dict[str, Any]
    num_generations: int
    num_generations_eval: int
    processing_class: Any
    ref_model: Any
    _buffered_inputs: list[list[Batch]] | None
    _signature_columns: list[str] | None
    _step: int

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._logged_passes: list[ForwardMetrics] = []
        self._unmoved: set[str] = set()  # policies with rows in the optimizer step in progress that are left out
        self._evaluated: set[int | None] = set()  # numbers of the rows of a stream, in the evaluation in progress
        self._logged_in_evaluation: dict[str, list[float]] = defaultdict(list)  # by the user's reward functions
        self.evaluation, self.eval_rows_played = "eval", 0  # the one in progress, and its rows of all processes
        self._replayed: list[dict[str, Any]] = []  # the sequences that TRL scores now
        super().__init__(*args, **kwargs)
        self.rollout_func = replay  # set here, since TRL warns of an experiment when it is given to __init__
        self._log_whole_generations()

    # ---- Metrics ----------------------------------------------------------------------------------------------------

    def report(self, name: str, value: float, *, replace: bool = False) -> None:
        """Log a value, of training or evaluation as the model's mode says; TRL averages those of several generations.

        Args:
            name: Of the metric.
            value: Its value.
            replace: In the place of earlier values instead of beside them.
        """
        metrics = self._metrics["train" if self.model.training else "eval"]
        if replace:
            metrics[name] = []
        metrics[name].append(value)

    def report_all(self, metrics: Mapping[str, Iterable[float]], mode: str) -> None:
        """Log values of several metrics, of `"train"` or `"eval"`."""
        for name, values in metrics.items():
            self._metrics[mode][name].extend(values)

    def report_reward_metric(self, name: str, value: float) -> None:
        """What the user's reward functions log."""
        if self.model.training:
            self._log_metric(name, value)
        else:  # TRL keeps what is logged until it scores a batch in training, which would be of another rollout
            self._logged_in_evaluation[name].append(value)

    # ---- Data: a row is an instance ---------------------------------------------------------------------------------

    def get_train_dataloader(self) -> DataLoader[Any]:
        """TRL's, with each row once instead of K times: the candidates are made by the rollout."""
        dataset = self.train_dataset
        if isinstance(dataset, IterableDataset):
            dataset = repeat_iterable_dataset(
                dataset.shuffle(seed=self.args.seed) if self.shuffle_dataset else dataset,
                mini_repeat_count=1,
                batch_size=self.rows_per_generation,
                repeat_count=self._num_repeats,
            )
        return self._get_dataloader(
            dataset=dataset,
            description="Training",
            batch_size=self.rows_per_generation,
            sampler_fn=self._get_train_sampler,
            is_training=True,
        )

    @property
    def rows_per_generation(self) -> int:
        """Rows that a generation plays, without further ones for what filters drop."""
        return self.args.generation_batch_size // self.num_generations

    @property
    def _num_repeats(self) -> int:
        """How often a generation's rows are yielded: accelerate distributes batches, and every
        process needs all rows."""
        return self.micro_steps_per_generation * self.accelerator.num_processes

    @property
    def micro_steps_per_generation(self) -> int:
        """Micro-steps that are trained on a generation's sequences."""
        return self.args.steps_per_generation * self.num_iterations

    def get_batch_samples(
        self, epoch_iterator: Iterator[list[Row]], num_batches: int, device: torch.device
    ) -> tuple[list[Any], torch.Tensor | int | None]:
        """The batches of an optimizer step, which transformers holds all at once; each generation's rows once."""
        rows = each_generation_once(epoch_iterator, lambda number: self._begins_generation(self._step + number))
        return super().get_batch_samples(rows, num_batches, device)

    def _begins_generation(self, micro_step: int) -> bool:
        return micro_step % self.micro_steps_per_generation == 0

    def _get_train_sampler(self, dataset: Dataset | None = None) -> Sampler[Any]:
        return self.epoch_sampler(dataset, repeat_count=self._num_repeats)

    def epoch_sampler(self, dataset: Dataset | None = None, *, repeat_count: int = 1) -> EpochSampler:
        """The order of the rows, each `repeat_count` times."""
        return EpochSampler(
            data_source=self.train_dataset if dataset is None else dataset,
            mini_repeat_count=1,
            batch_size=self.rows_per_generation,
            repeat_count=repeat_count,
            shuffle=self.shuffle_dataset,
            seed=self.args.seed,
        )

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader[Any]:
        """TRL's, with each row once: it repeats those of a stream here, and `prediction_step` plays each K times."""
        rows = self.eval_dataset if eval_dataset is None else eval_dataset
        rows = self.eval_dataset[rows] if isinstance(rows, str) else rows
        self._evaluated.clear()
        if isinstance(rows, IterableDataset) and self.accelerator.num_processes > 1:
            eval_dataset = rows.map(numbered, with_indices=True)
        number, self.num_generations_eval = self.num_generations_eval, 1
        try:
            return super().get_eval_dataloader(eval_dataset)
        finally:
            self.num_generations_eval = number

    def evaluation_loop(self, *args: Any, metric_key_prefix: str = "eval", **kwargs: Any) -> Any:
        """Transformers', of one data set: `eval`, `eval_NAME` of several, or `test` in `predict`."""
        self.evaluation, self.eval_rows_played = metric_key_prefix, 0
        # Whatever `play` or `predict` has left there is not of this evaluation.
        self._metrics["eval"].clear()
        self._logged_in_evaluation.clear()
        output = super().evaluation_loop(*args, metric_key_prefix=metric_key_prefix, **kwargs)
        for logged in gather_object([dict(self._logged_in_evaluation)]):  # each process has called for its own rows
            self.report_all(logged, "eval")
        return output

    def gather_eval_rows(self, rows: Sequence[Row]) -> list[Row]:
        """The rows of all processes. Of a set with a length accelerate leaves out those that it has repeated until
        each process has as many; of a stream it does not know them, and they are left out by their numbers."""
        gathered: list[Row] = self.accelerator.gather_for_metrics(rows, use_gather_object=True)
        new: list[Row] = []
        for row in gathered:
            number = row.get(NUMBER)
            if number is None or number not in self._evaluated:
                new.append({name: value for name, value in row.items() if name != NUMBER})
            self._evaluated.add(number)
        return new

    def _get_eval_sampler(self, eval_dataset: Dataset) -> Sampler[Any]:
        return RepeatSampler(data_source=eval_dataset, mini_repeat_count=1, shuffle=False)

    def _set_signature_columns_if_needed(self) -> None:
        if self._signature_columns is None:
            self._signature_columns = list(self.train_dataset.column_names or [])

    # ---- A generation -----------------------------------------------------------------------------------------------

    def prepare_generation(self, rows: Sequence[Row]) -> list[list[Batch]]:
        """Rows to the forward passes of each of a generation's micro-steps. `MultiAgentGRPOTrainer` says how."""
        raise NotImplementedError

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        """Rows to the forward passes of this micro-step; a single forward pass, on its way to the loss, as it is."""
        if isinstance(generation_batch, dict):
            return generation_batch
        if self._begins_generation(self._step) or self._buffered_inputs is None:
            self._buffered_inputs = self.prepare_generation(generation_batch)
        return self._buffered_inputs[self._step % self.args.steps_per_generation]

    @property
    def generation_number(self) -> int:
        """The number of the current generation, from 0."""
        return self.state.global_step * self.args.gradient_accumulation_steps // self.micro_steps_per_generation

    @property
    def generation_name(self) -> str:
        """Name of the current generation: the optimizer step in which it begins; the second one of a step is "7.1"."""
        further = self._step % self.args.gradient_accumulation_steps // self.micro_steps_per_generation
        return f"{self.state.global_step}.{further}" if further else str(self.state.global_step)

    @property
    def is_first_generation(self) -> bool:
        """Whether nothing was trained on yet."""
        return self._step == 0

    def begin_table(self, num_unseen_tokens: int) -> None:
        """Begin a generation's table of completions.

        Args:
            num_unseen_tokens: That were sampled, but are not trained on, so that TRL does not see and count them.
        """
        self.state.num_input_tokens_seen += num_unseen_tokens
        for log in (self._logs["prompt"], self._logs["completion"], self._logs["advantages"]):
            log.clear()
        self._logs["rewards"].clear()
        self._logs["extra"].clear()

    def score_rows(
        self,
        policy: str,
        rows: Sequence[dict[str, Any]],
        *,
        table: Mapping[str, Sequence[Any]],
        columns: Mapping[str, torch.Tensor],
        group_size: int,
        chunks: Sequence[Sequence[int]] | None = None,
    ) -> Batch:
        """See `RowScorer`. The sequences go through TRL's own pipeline, with a `rollout_func` that returns the tokens
        already sampled."""
        self.activate(policy)
        for column, values in table.items():
            self._log_completion_extra(column, list(values))
        self._replayed, self.scorer.chunks = list(rows), chunks
        device = self.accelerator.device
        # TRL groups consecutive rows by K.
        num_generations, self.num_generations = self.num_generations, group_size
        try:
            batch = self._generate_and_score_completions(self._replayed)
        finally:
            self.num_generations = num_generations
        if chunks is not None and "importance_sampling_ratio" in batch:
            self._correct_ratios(batch, torch.tensor([row for chunk in chunks for row in chunk], dtype=torch.long))
        return {**batch, **{name: values.to(device) for name, values in columns.items()}}

    def _calculate_rewards(
        self, inputs: list[dict[str, Any]], prompts: list[Any], completions: list[Any], completion_ids_list: list[Any]
    ) -> torch.Tensor:
        """The rewards that the environment gave while it was played. (B, 1)"""
        rewards = torch.tensor([[row["reward"]] for row in inputs], dtype=torch.float32)
        return gather(rewards.to(self.accelerator.device))

    def _correct_ratios(self, batch: Batch, scored: torch.Tensor) -> None:
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

    def correct_for_padding(self, rows: Sequence[dict[str, Any]], assignment: Assignment, *, group_size: int) -> None:
        """See `RowScorer`. TRL has appended the rows process after process, padding rows included."""
        tables = self._logs["rewards"], self._logs["extra"]
        logged = [self._logs[name] for name in ("prompt", "completion", "advantages")]
        for column in [*logged, *(column for table in tables for column in table.values())]:
            num_dealt = sum(assignment.num_here) * self.accelerator.num_processes
            column.extend(assignment.restore_order([column.pop() for _ in range(num_dealt)][::-1]))
        metrics = self._metrics["train"]
        ends = {*self.eos_token_ids, self._tokenizer.pad_token_id}
        completions = [row["completion"].ids for row in rows]
        corrected = of_completions([len(ids) for ids in completions], [ids[-1] in ends for ids in completions])
        rewards = torch.tensor([row["reward"] for row in rows]).view(-1, group_size)
        if group_size > 1:
            std = nanstd(rewards) if self.scale_rewards == "batch" else nanstd(rewards, dim=1)
            corrected["frac_reward_zero_std"] = torch.isclose(std, torch.zeros_like(std)).float().mean().item()
        for name, value in corrected.items():
            metrics[name][-1] = value
        self.state.num_input_tokens_seen -= assignment.num_padding_rows  # a prompt of one token each
        metrics["num_tokens"] = [self.state.num_input_tokens_seen]

    def log_advantages(self, advantages: Sequence[float], *, group_size: int) -> None:
        """See `RowScorer`."""
        if group_size == 1:  # TRL finds each group of one to be constant
            del self._metrics["train"]["frac_reward_zero_std"]
        logged = self._logs["advantages"]
        for _ in advantages:
            logged.pop()
        logged.extend(advantages)

    # ---- A micro-step -----------------------------------------------------------------------------------------------

    def training_step(
        self, model: torch.nn.Module, inputs: Any, num_items_in_batch: torch.Tensor | int | None = None
    ) -> torch.Tensor:
        """TRL's micro-step, as one forward and backward after another; an adapter is never switched in between."""
        began = time.perf_counter()
        loss = torch.zeros((), device=self.accelerator.device)
        model.train()  # by the mode `_prepare_inputs` decides whether this is training or evaluation
        passes = self._prepare_inputs(inputs)
        if self.is_deepspeed_enabled and not self.guard.has_passes:
            self._zero_gradients(model, self.routing.trained)
        for batch in passes:
            if len(batch["advantages"]) == 0:  # a micro-step whose rows are all left out
                self._unmoved.add(batch["policy"])
                continue
            with accumulating(model, self.accelerator), self.scorer.attending(batch["policy"]):
                # Past GRPOTrainer's, which would count each pass as a micro-step of its own.
                loss += super(GRPOTrainer, self).training_step(model, batch, num_items_in_batch)
        self._log_passes()
        if self.use_adaptive_entropy and self.accelerator.sync_gradients:
            self._steer_entropy()
        if self.accelerator.sync_gradients:
            self._finish_gradients(model)
        self._step += 1
        self._current_train_step_time += time.perf_counter() - began
        if self._step % self.current_gradient_accumulation_steps == 0:
            self._metrics["train"]["step_time"].append(self._current_train_step_time)
            self._current_train_step_time = 0.0
        return loss

    def _finish_gradients(self, model: torch.nn.Module) -> None:
        """After an optimizer step's last pass."""
        if self.is_deepspeed_enabled:
            if self.args.entropy_coef and not self.use_adaptive_entropy:  # logged by TRL in a step's last pass
                self._metrics["train"]["entropy_coef"].append(self.args.entropy_coef)
            if not self._losses_are_finite():  # before DeepSpeed steps, for it leaves no step to be taken away
                raise FloatingPointError(self._report("1 step in a row", math.nan))
            self._zero_gradients(model, self.routing.trained, steps=True)
        else:
            # All of their rows are left out: a gradient of zero, which the optimizer treats differently from none.
            for policy in self.routing.trained:
                if policy.name in self._unmoved and all(p.grad is None for p in self.team.parameters_of(policy)):
                    self._zero_gradients(model, [policy])
            if self.accelerator.num_processes > 1 and not self.is_fsdp_enabled:
                average_gradients(p for policy in self.routing.trained for p in self.team.parameters_of(policy))
        self._unmoved.clear()

    def _zero_gradients(self, model: torch.nn.Module, policies: Sequence[Policy], *, steps: bool = False) -> None:
        """Give all that these policies train a gradient of zero, by a pass of two tokens.

        Where all rows of a policy are left out, its optimizer step is one with such gradients. DeepSpeed needs them
        before an optimizer step's first pass and after its last: it takes what has no gradient in the first for last
        step's (`partition_grads` of ZeRO-3), with an offloaded optimizer what has none in the last, and steps within
        a backward pass, of which there may be none.

        Args:
            model: As `accelerator` prepared it.
            policies: At least one.
            steps: DeepSpeed's optimizer step follows.
        """
        zero = torch.zeros((), device=self.accelerator.device)
        scaling = {"scale_wrt_gas": False} if self.is_deepspeed_enabled else {}
        with (
            disable_gradient_checkpointing(self.model, self.args.gradient_checkpointing_kwargs),
            accumulating(model, self.accelerator) if not steps else nullcontext(),
        ):
            for policy in policies:
                self.activate(policy.name)
                ids = torch.full((1, 2), self.eos_token_ids[0], device=zero.device)
                scores, _, _ = self._get_per_token_logps_and_entropies(model, ids, torch.ones_like(ids), 1)
                zero = zero + 0.0 * scores.sum()
            self.accelerator.backward(zero, **scaling)

    def _compute_loss(self, model: torch.nn.Module, inputs: Batch) -> torch.Tensor:
        policy, scale = inputs["policy"], inputs["loss_scale"]
        self.activate(policy)
        if scale != 1.0:
            # Losses that divide by the generation's tokens need no scale; undone here, so that the same factor serves
            # them and the terms that are a mean over the pass (entropy bonus, router loss).
            inputs = {**inputs, "num_items_in_batch": inputs["num_items_in_batch"] * scale}
        metrics = self._metrics["train" if self.model.training else "eval"]
        before = {key: len(values) for key, values in metrics.items()}
        with self._with_entropy_bonus(policy, inputs["entropy_scale"]):
            loss = super()._compute_loss(model, inputs)
        if self.model.training:
            self.guard.add(loss, inputs)
        num_rows, num_tokens = len(inputs["advantages"]), inputs["num_tokens"]
        if "is_padding" in inputs:
            counts = torch.tensor([num_rows, int(inputs["is_padding"].sum()), num_tokens], device=loss.device)
            num_rows, num_fillers, num_tokens = self.accelerator.reduce(counts, reduction="sum").tolist()
            new = [key for key, values in metrics.items() if len(values) > before.get(key, 0)]
            of_rows = self.importance_sampling_level == "sequence"
            for key, value in means_of_padding_rows(new, ratios_of_rows=of_rows).items():
                metrics[key][-1] = without_padding(metrics[key][-1], value, num_rows=num_rows, num_padding=num_fillers)
            num_rows -= num_fillers
        logged = {key: values.pop() for key, values in metrics.items() if len(values) > before.get(key, 0)}
        self._logged_passes.append(
            ForwardMetrics(policy=policy, metrics=logged, num_rows=num_rows, num_tokens=num_tokens, loss_scale=scale)
        )
        return loss if scale == 1.0 else loss * scale

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        **kwargs: Any,
    ) -> Scores:
        return self.scorer.score(model, input_ids, attention_mask, logits_to_keep, batch_size=batch_size, **kwargs)

    def score_as_trl(self, *args: Any, **kwargs: Any) -> Scores:
        scores: Scores = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        return scores

    @contextmanager
    def _with_entropy_bonus(self, policy: str, scale: float) -> Iterator[None]:
        """TRL computes the bonus inside, with this policy's coefficient times `scale`, and steers nothing."""
        control = self.entropy.control(policy)
        self.entropy_coef = control.coefficient * scale
        if not self.use_adaptive_entropy:
            logged = self._metrics["train"]["entropy_coef"] if self._entropy_bonus_enabled else []
            before = len(logged)
            yield
            if len(logged) > before:
                logged[-1] = control.coefficient
            return
        self._last_world_entropy, self._entropy_window_stats = control.entropy, self.entropy.sums(policy)
        is_last = self.accelerator.sync_gradients
        self.accelerator.sync_gradients = False  # TRL steers where it is set, which would be in every pass
        try:
            yield
        finally:
            self.accelerator.sync_gradients = is_last
            self.entropy.keep(policy, self._entropy_window_stats)

    def _steer_entropy(self) -> None:
        """At the end of an optimizer step."""
        reduce = partial(self.accelerator.reduce, reduction="sum")
        for policy, coefficient in self.entropy.steer(reduce, self.accelerator.device).items():
            self._metrics["train"]["entropy_coef"].append(coefficient)
            if len(self.routing.trained) > 1:
                self._metrics["train"][f"policy/{policy}/entropy_coef"].append(coefficient)
        # Where TRL has its one, which it also writes beside a checkpoint.
        self.entropy_coef, self._last_world_entropy = self.entropy.first.coefficient, self.entropy.first.entropy

    def _get_grad_norm(self, model: torch.nn.Module, grad_norm: Any = None) -> Any:
        """TRL's; where it or a loss is not finite, the step that would follow is taken away."""
        norm = super()._get_grad_norm(model, grad_norm)
        finite = self._losses_are_finite()
        if self.is_deepspeed_enabled:  # it has stepped; in float16 it scales and skips by itself
            if not self.args.fp16 and not math.isfinite(norm):
                raise FloatingPointError(self._report("1 step in a row", norm, has_stepped=True))
            self.guard.start_step()
            return norm
        # A scaler of float16 tries scales until its gradients overflow, and skips those steps itself.
        if self.accelerator.scaler is None:
            finite = finite and math.isfinite(norm)
            if not finite:
                model.zero_grad()  # to None: an optimizer leaves such parameters, their moments and decay alone
            self.optimizer._is_overflow = not finite  # then the scheduler waits, too
        too_many = self.guard.record(finite=finite)
        self._metrics["train"]["skipped_steps"] = [float(self.guard.skips.total)]
        if too_many:
            raise FloatingPointError(self._report(too_many, norm))
        self.guard.start_step()
        return norm

    def _losses_are_finite(self) -> bool:
        """Those of the optimizer step in progress, of all processes."""
        return bool(self.accelerator.gather(self.guard.sum_of_losses(self.accelerator.device)).isfinite().all())

    def _report(self, too_many: str, norm: Any, *, has_stepped: bool = False) -> str:
        return self.guard.report(
            too_many,
            step=self.state.global_step + 1,
            norm=float(norm),
            output_dir=self.args.output_dir,
            has_stepped=has_stepped,
        )

    def _log_passes(self) -> None:
        """A micro-step's passes, as one for each policy."""
        passes, self._logged_passes = self._logged_passes, []
        metrics = self._metrics["train"]
        for name in dict.fromkeys(each.policy for each in passes):
            own = [each for each in passes if each.policy == name]
            by_row = self.importance_sampling_level == "sequence"
            for key, value in merge_passes(own, ratios_of_rows=by_row).items():
                metrics[key].append(value)
                if len(self.routing.trained) > 1:
                    metrics[f"policy/{name}/{key}"].append(value)

    def _log_whole_generations(self) -> None:
        """A generation's sequences outnumber `generation_batch_size`; TRL's table of them shall hold all."""
        for name in ("prompt", "completion", "advantages"):
            self._logs[name] = deque()
        for name in ("rewards", "extra"):
            self._logs[name] = defaultdict(deque)

    # ---- One policy at a time -------------------------------------------------------------------------------------

    @property
    def routing(self) -> Routing:
        """Which policy decides for which agent."""
        return self.team.routing

    def profile_of_trl(self) -> PolicyProfile:
        """What TRL's constructor derived from its model and tokenizer."""
        return PolicyProfile(
            processing_class=self.processing_class,
            tokenizer=self._tokenizer,
            eos_token_ids=self.eos_token_ids,
            generation_config=self.generation_config,
            ref_model=self.ref_model,
            router_aux_loss_coef=self.router_aux_loss_coef,
            aux_loss_enabled=self.aux_loss_enabled,
        )

    def activate(self, name: str) -> None:
        """Forward passes go to this policy from now on, and prompts are written and read as its model wants them."""
        self._apply_profile(self.team.activate(name))

    def _apply_profile(self, profile: PolicyProfile) -> None:
        """What TRL reads from attributes of its own."""
        self.processing_class, self._tokenizer = profile.processing_class, profile.tokenizer
        self.eos_token_ids, self.generation_config = profile.eos_token_ids, profile.generation_config
        self.beta, self.ref_model = profile.beta, profile.ref_model
        self.router_aux_loss_coef, self.aux_loss_enabled = profile.router_aux_loss_coef, profile.aux_loss_enabled

    def _generate_single_turn(self, *args: Any, **kwargs: Any) -> Any:
        # accelerate gives training's precision to the forward of the outermost model, which an inner model's
        # `generate` never calls: it would sample from another distribution than is trained.
        # And ZeRO-3's weights are gathered once for all of a rollout (`distributed.gathered`).
        own = self.team.weights_of(self.team.active)
        reads_once = (
            self.args.shared_prefix
            and not self.use_transformers_continuous_batching
            and not any(module.training for module in noisy_modules(own))
        )
        with (
            self.accelerator.autocast() if isinstance(self.model, MultiPolicyModel) else nullcontext(),
            override_args(self.args, ds3_gather_for_generation=False),
            prompts_read_once(self.team.model) if reads_once else nullcontext(),
        ):
            is_training = self.model.training
            generated = super()._generate_single_turn(*args, **kwargs)
        if self.use_transformers_continuous_batching:  # after which TRL trains, whatever was before
            self.model.train(is_training)
        return generated

    def encode_prompts(self, profile: PolicyProfile, prompts: Sequence[Any], tools: Tools) -> Sequence[Sequence[int]]:
        """Prompts with the same tools to their ids by a policy's chat template."""
        if self.processing_class is not profile.processing_class:  # else a role's own sampling would be forgotten
            self._apply_profile(profile)
        with override_args(self, tools=list(tools)):  # those of TRL's own loop are functions, and we have none
            ids: Sequence[Sequence[int]] = self._tokenize_prompts([list(prompt) for prompt in prompts])[0]
        return ids

    def generate(self, prompts: list[Sequence[int]], override: SamplingOverrides) -> Any:
        """Sample with the active policy: ids and log-probabilities of a completion of each prompt."""
        with nullcontext() if override == NOTHING else self._sampling_as(override):
            return self._generate_single_turn(prompts, None, {}, 1)

    def sampling(self, name: str) -> AbstractContextManager[Engine]:
        """The engine for a rollout of this name, with the current weights."""
        self._last_loaded_step = self.state.global_step  # so that TRL does not load them a second time
        return self.engines.rollout(name, step=self.state.global_step, report=self.report)

    @contextmanager
    def _sampling_as(self, override: SamplingOverrides) -> Iterator[None]:
        """A role's own settings of `generate`, in the place of its policy's."""
        before, given = (self.generation_config, self.generation_kwargs), override.given()
        names = {"max_completion_length": "max_new_tokens"}
        own = {names.get(name, name): value for name, value in given.items() if name != "stop"}
        self.generation_config = copy.deepcopy(self.generation_config)
        self.generation_config.update(**own)
        self.generation_kwargs = {**self.generation_kwargs, **own}
        model = self.team.model
        # What follows a stop word is cut off in any case (`engines/transformers.py`); here rows end that need go no
        # further.
        ends = override.stop is not None and not self.use_transformers_continuous_batching  # which does not look
        if ends:
            self.generation_config.stop_strings = list(override.stop or ())
            model.generate = partial(model.generate, tokenizer=self._tokenizer)  # TRL does not give it
        try:
            yield
        finally:
            self.generation_config, self.generation_kwargs = before
            if ends:
                del model.generate

    # ---- The optimizer --------------------------------------------------------------------------------------------

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        """TRL's, its parameter groups split by policy, each with its own learning rate."""
        fresh = self.optimizer is None
        optimizer = super().create_optimizer(model)
        trained = self.routing.trained
        if fresh and any(policy.learning_rate is not None for policy in trained):
            split_groups(optimizer, trained, self.team.parameters_of, learning_rate=self.args.learning_rate)
        return optimizer

    def _clip_grad_norm(self, model: torch.nn.Module) -> Any:
        """Each policy's gradients are clipped by their own norm. Returns the norm of all of them, before clipping."""
        trained = self.routing.trained
        # DeepSpeed has clipped inside its step, by the common norm.
        if self.is_deepspeed_enabled or (len(trained) == 1 and trained[0].max_grad_norm is None):
            return super()._clip_grad_norm(model)
        self.accelerator.unscale_gradients()  # once; accelerate's own clipping would do it for each policy
        norms = clip_by_policy(trained, self.team.parameters_of, max_grad_norm=self.args.max_grad_norm)
        for name, norm in norms.items():
            self._metrics["train"][f"policy/{name}/grad_norm"].append(float(norm))
        return torch.stack(list(norms.values()) or [torch.zeros((), device=self.accelerator.device)]).norm()

    # ---- Checkpoints ----------------------------------------------------------------------------------------------

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """TRL's, from a checkpoint that was read to its last byte first.

        Args:
            resume_from_checkpoint: `True`: the newest in `output_dir` that verifies. A path: that one, which must
                verify; without a manifest, as transformers alone saves it, it is used with a warning.
        """
        if self.args.enable_jit_checkpoint:
            raise ValueError(
                "enable_jit_checkpoint=True writes into the checkpoint's folder itself, where a kill leaves half of "
                "it. Leave it False: SIGTERM saves a whole checkpoint here anyway."
            )
        checkpoint = self.checkpointer.verified(resume_from_checkpoint)
        with self.checkpointer.running():
            return super().train(checkpoint, *args, **kwargs)

    def _save_checkpoint(self, model: torch.nn.Module, trial: Any) -> None:
        """TRL's, into a folder that takes its place only when all of it is on the disk."""
        step = self.state.global_step
        self.checkpointer.check_finite(self.model, step=step)
        run_dir = Path(self._get_output_dir(trial))
        final = run_dir / f"checkpoint-{step}"
        with self.checkpointer.staged(final, step=step) as folder:
            super()._save_checkpoint(model, trial)
            if not self.args.save_only_model:
                micro_step = self._step % (self.args.steps_per_generation * self.num_iterations)
                self.checkpointer.save_state(folder, micro_step=micro_step, generation=self._buffered_inputs)
            if self.state.best_model_checkpoint == str(folder):
                self.state.best_model_checkpoint = str(final)
                if self.args.should_save:
                    self.state.save_to_json(str(folder / "trainer_state.json"))
        if self.args.push_to_hub:
            self._push_from_checkpoint(str(final))
        if self.args.should_save:
            self.checkpointer.rotate(run_dir, saved=final, best=self.state.best_model_checkpoint)

    def _get_output_dir(self, trial: Any) -> str:
        staging = self.checkpointer.staging
        return super()._get_output_dir(trial) if staging is None else str(staging)

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        """TRL's uploads the output folder, after it copied weights there from the checkpoint's root alone."""
        if self.checkpointer.staging is not None:  # an upload goes on beside training: not of one about to be renamed
            return
        if self.is_world_process_zero() and self.args.hub_strategy != HubStrategy.END:
            trained = [] if self.team.is_plain else [policy.name for policy in self.routing.trained]
            copy_policies(trained, Path(checkpoint_folder), Path(self.args.output_dir))
        super()._push_from_checkpoint(checkpoint_folder)

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        """TRL's, without the user's token in the arguments, which are saved and uploaded with the weights."""
        folder = Path(output_dir or self.args.output_dir)
        with override_args(self.args, hub_token=None):
            if self.team.is_plain:
                super()._save(output_dir, state_dict)
            elif self.args.should_save:
                folder.mkdir(parents=True, exist_ok=True)
                weights.save(self.team.model, self.routing.trained, folder, state_dict)
                for policy in self.routing.trained:
                    self.team.profiles[policy.name].processing_class.save_pretrained(folder / policy.name)
                torch.save(self.args, folder / TRAINING_ARGS_NAME)
        if self.args.should_save:
            facts = self.publisher.facts(step=self.state.global_step, chat_template_kwargs=self.chat_template_kwargs)
            write_team_file(folder, facts)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        self.engines.after_load()
        if self.team.is_plain or self.is_fsdp_enabled:  # FSDP2's shards are read back from a file of its own
            super()._load_from_checkpoint(resume_from_checkpoint, model)
        else:
            own = self.accelerator.unwrap_model(self.model if model is None else model)
            weights.restore(own, self.routing.trained, Path(resume_from_checkpoint))

    def _load_best_model(self) -> None:
        self.engines.after_load()
        if self.team.is_plain or self.is_deepspeed_enabled or self.is_fsdp_enabled:
            super()._load_best_model()
        else:  # transformers looks for weights at the root only, and goes on without
            self._load_from_checkpoint(self.state.best_model_checkpoint)

    def _load_optimizer_and_scheduler(self, checkpoint: str) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        place = self.checkpointer.load_state(Path(checkpoint))
        if place is not None:
            self._step, self._buffered_inputs = place
        self.checkpointer.warn_of_differences(Path(checkpoint))

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        """TRL's; but a run that was over when it was killed stays so, where transformers adds a step."""
        micro_step = self.state.global_step * self.args.gradient_accumulation_steps
        if self.state.global_step >= self.state.max_steps or self.token_budget.is_spent(micro_step):
            self.control.should_training_stop = True
        else:
            super()._run_epoch(*args, **kwargs)

    def _maybe_log_save_evaluate(self, *args: Any, **kwargs: Any) -> None:
        """TRL's, after each optimizer step and epoch; on a signal, it saves and ends the run."""
        if self.checkpointer.received_signal() is not None:
            is_saved = self.checkpointer.saved_step == self.state.global_step
            self.control.should_evaluate = False
            self.control.should_save = self.args.save_strategy != "no" and not is_saved
            self.control.should_training_stop = True
        super()._maybe_log_save_evaluate(*args, **kwargs)

    def create_model_card(
        self, model_name: str | None = None, dataset_name: str | None = None, tags: str | list[str] | None = None
    ) -> None:
        """TRL's; where policies have weights of their own, a card that says which plays whom and how to load it."""
        card = Path(self.args.output_dir) / "README.md"
        if self.team.is_plain:
            super().create_model_card(model_name, dataset_name, tags)
            if self.is_world_process_zero():
                self.publisher.add_note(card)
        elif self.is_world_process_zero():
            data = self.eval_dataset if isinstance(self.eval_dataset, dict) else {"": self.eval_dataset}
            self.publisher.write_card(
                card,
                name=model_name,
                tags=[*self._tag_names, *([tags] if isinstance(tags, str) else tags or [])],
                step=self.state.global_step,
                log_history=self.state.log_history,
                num_evaluated={  # a stream has no length, and is left out
                    f"eval_{name}" if name else "eval": len(rows) * self.num_generations_eval
                    for name, rows in data.items()
                    if isinstance(rows, Sized)
                },
            )


def numbered(row: Row, number: int) -> Row:
    """A row of a stream that says which it is."""
    return {**row, NUMBER: number}


def replay(prompts: list[Any], trainer: TRLHooks) -> dict[str, Any]:
    """TRL's `rollout_func`: what was sampled already, token for token."""
    rows = trainer._replayed
    logprobs = [row["completion"].logprobs for row in rows]
    masks = [[int(row["counts"])] * len(row["completion"].ids) for row in rows]
    return {
        **({} if all(row["counts"] for row in rows) else {"env_mask": masks}),
        "prompt_ids": [row["prompt_ids"] for row in rows],
        "completion_ids": [list(row["completion"].ids) for row in rows],
        "logprobs": None if any(values is None for values in logprobs) else [list(values) for values in logprobs],
    }
