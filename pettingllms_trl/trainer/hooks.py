"""`TRLHooks`: what TRL's `GRPOTrainer` calls, and the only place that names its private attributes.

It decides nothing: each method of TRL that is overridden calls TRL's own and the parts of the trainer. Rows come once
instead of K times, a micro-step has several forward passes of one policy each, and TRL computes the loss of each.
`tests/trl/trainer/test_trl_seams.py` has a test for every private name.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather, gather_object
from datasets import IterableDataset
from torch.utils.data import DataLoader, Sampler
from transformers import TrainerState
from trl import GRPOTrainer
from trl.models.utils import disable_gradient_checkpointing
from trl.trainer.utils import RepeatSampler

from pettingllms_trl.checkpoints.checkpointer import Checkpointer
from pettingllms_trl.checkpoints.publishing import Publisher
from pettingllms_trl.config import override_args
from pettingllms_trl.engines.folder_sampling import without_folder_sampling
from pettingllms_trl.engines.synced_engines import SyncedEngines
from pettingllms_trl.engines.transformers import ending_at, prompts_read_once, role_settings
from pettingllms_trl.policies import weights
from pettingllms_trl.policies.adapters import check_optimized
from pettingllms_trl.policies.optim import clip_by_policy, numbers, split_groups
from pettingllms_trl.policies.profiles import SET_BY_TRL, PolicyProfile
from pettingllms_trl.policies.routing import Policy, Routing
from pettingllms_trl.policies.team import Team
from pettingllms_trl.processes.distributed import accumulating
from pettingllms_trl.processes.gradients import Gradients
from pettingllms_trl.records import DataRow, Engine, Tools
from pettingllms_trl.role_sampling import NOTHING, SamplingOverrides
from pettingllms_trl.trainer.dataloading import EvaluatedRows, GenerationPlan, each_generation_once, numbered
from pettingllms_trl.update.assignment import Assignment
from pettingllms_trl.update.entropy import EntropyBonus
from pettingllms_trl.update.micro_batches import Batch, ends_of, rollout_of, scaled_for
from pettingllms_trl.update.packed_logprobs import PackedScorer, Scores
from pettingllms_trl.update.pass_metrics import TrainingLog
from pettingllms_trl.update.step_guard import StepGuard
from pettingllms_trl.update.token_budget import TokenBudget


class TRLHooks(GRPOTrainer):
    """TRL's `GRPOTrainer`, which calls the parts of a trainer for teams. `MultiAgentGRPOTrainer` makes the parts."""

    # Parts that MultiAgentGRPOTrainer makes.
    entropy: EntropyBonus
    step_guard: StepGuard
    token_budget: TokenBudget
    scorer: PackedScorer
    checkpointer: Checkpointer
    publisher: Publisher
    team: Team
    routing: Routing
    engines: SyncedEngines
    rate_factors: Callable[[], Mapping[str, float]] | None
    # Set by the constructors of TRL and transformers.
    _buffered_inputs: list[list[Batch]] | None
    _current_train_step_time: float
    _signature_columns: list[str] | None
    _step: int

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._logged_in_evaluation: dict[str, list[float]] = defaultdict(list)  # by the user's reward functions
        self.evaluation, self.eval_rows_played = "eval", 0  # the one in progress, and its rows of all processes
        self._replayed: list[dict[str, Any]] = []  # the sequences that TRL scores now
        self._policy_norms: dict[str, torch.Tensor] = {}  # of the gradients of this optimizer step
        super().__init__(*args, **kwargs)
        self.rollout_func = lambda prompts, trainer: rollout_of(self._replayed, trainer)  # to __init__ TRL would warn
        self.plan = GenerationPlan(self.args, num_processes=self.accelerator.num_processes)
        self.eval_rows = EvaluatedRows(self.accelerator)
        several = len(self.routing.trained) > 1
        self.log_of_trl = TrainingLog(self._metrics, self._logs, self.accelerator, self.args, by_policy=several)
        self.team_gradients = Gradients(
            self.team,
            self.accelerator,
            forward=self._scores_of_two_tokens,
            whole=lambda: disable_gradient_checkpointing(self.model, self.args.gradient_checkpointing_kwargs),
        )

    def report(self, name: str, value: float, *, replace: bool = False) -> None:
        """Log a value, of training or evaluation as the model's mode says, beside earlier ones or in their place."""
        metrics = self._metrics["train" if self.model.training else "eval"]
        metrics[name] = [*([] if replace else metrics[name]), value]

    def report_all(self, metrics: Mapping[str, Iterable[float]], mode: str) -> None:
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
        rows = self.train_dataset
        dataset = self.plan.repeated(rows) if isinstance(rows, IterableDataset) else rows
        return self._get_dataloader(dataset, "Training", self.plan.rows, self._get_train_sampler, is_training=True)

    def get_batch_samples(
        self, epoch_iterator: Iterator[list[DataRow]], num_batches: int, device: torch.device
    ) -> tuple[list[Any], torch.Tensor | int | None]:
        """The batches of an optimizer step, which transformers holds all at once; each generation's rows once."""
        rows = each_generation_once(epoch_iterator, lambda number: self.plan.begins(self._step + number))
        return super().get_batch_samples(rows, num_batches, device)

    def _get_train_sampler(self, dataset: Any = None) -> Sampler[Any]:
        rows = self.train_dataset if dataset is None else dataset
        self._epoch_sampler = self.plan.sampler(rows, repeat_count=self.plan.num_repeats)
        return self._epoch_sampler

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader[Any]:
        """TRL's, with each row once: it repeats those of a stream here, and `prediction_step` plays each K times."""
        rows = self.eval_dataset if eval_dataset is None else eval_dataset
        rows = self.eval_dataset[rows] if isinstance(rows, str) else rows
        self.eval_rows.begin()
        if isinstance(rows, IterableDataset) and self.accelerator.num_processes > 1:
            eval_dataset = rows.map(numbered, with_indices=True)
        with override_args(self, num_generations_eval=1):
            return super().get_eval_dataloader(eval_dataset)

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

    def _get_eval_sampler(self, eval_dataset: Any) -> Sampler[Any]:
        return RepeatSampler(data_source=eval_dataset, mini_repeat_count=1, shuffle=False)

    def _set_signature_columns_if_needed(self) -> None:
        if self._signature_columns is None:
            self._signature_columns = list(self.train_dataset.column_names or [])

    def prepare_generation(self, rows: Sequence[DataRow]) -> list[list[Batch]]:
        """Rows to the forward passes of each of a generation's micro-steps. `MultiAgentGRPOTrainer` says how."""
        raise NotImplementedError

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        """Rows to the forward passes of this micro-step; a single forward pass, on its way to the loss, as it is."""
        if isinstance(generation_batch, dict):
            return generation_batch
        if self.plan.begins(self._step) or self._buffered_inputs is None:
            self._buffered_inputs = self.prepare_generation(generation_batch)
        return self._buffered_inputs[self.plan.place(self._step) % len(self._buffered_inputs)]

    def score_rows(
        self,
        policy: str,
        rows: Sequence[dict[str, Any]],
        *,
        table: Mapping[str, Sequence[Any]],
        columns: Mapping[str, Any],
        group_size: int,
        chunks: Sequence[Sequence[int]] | None = None,
    ) -> Batch:
        """See `RowScorer`. TRL's pipeline, which groups consecutive rows, with tokens that are already sampled."""
        self.activate(policy)
        for column, values in table.items():
            self._log_completion_extra(column, list(values))
        self._replayed = list(rows)
        as_scored = override_args(self, num_generations=group_size, eos_token_ids=ends_of(rows, self.eos_token_ids))
        with as_scored, self.scorer.scoring(pictures=columns.get("pictures"), chunks=chunks):
            batch = self._generate_and_score_completions([{**row, "prompt": row["messages"]} for row in rows])
        if chunks is not None:
            self.log_of_trl.correct_ratios(batch, [row for chunk in chunks for row in chunk])
        return {**batch, **columns}

    def _calculate_rewards(self, inputs: list[dict[str, Any]], *args: Any) -> torch.Tensor:
        """The rewards that the environment gave while it was played. (B, 1)"""
        rewards = torch.tensor([[row["reward"]] for row in inputs]).float()
        return gather(rewards.to(self.accelerator.device, non_blocking=True))

    def correct_for_padding(self, rows: Sequence[dict[str, Any]], assignment: Assignment, *, group_size: int) -> None:
        ends = {*self.eos_token_ids, self._tokenizer.pad_token_id}
        self.log_of_trl.correct_for_padding(rows, assignment, group_size=group_size, ends=ends)
        self.state.num_input_tokens_seen -= assignment.num_padding_rows  # a prompt of one token each
        self.report("num_tokens", self.state.num_input_tokens_seen, replace=True)

    def training_step(
        self, model: torch.nn.Module, inputs: Any, num_items_in_batch: torch.Tensor | int | None = None
    ) -> torch.Tensor:
        """TRL's micro-step, as one forward and backward after another; an adapter is never switched in between."""
        began = time.perf_counter()
        loss = torch.zeros((), device=self.accelerator.device)
        model.train()  # by the mode `_prepare_inputs` decides whether this is training or evaluation
        passes = self._prepare_inputs(inputs)
        if not self.step_guard.has_passes:
            self.team_gradients.begin(model)
        for batch in passes:
            if len(batch["advantages"]) == 0:  # a micro-step whose rows are all left out
                self.team_gradients.left_out.add(batch["policy"])
                continue
            with accumulating(model, self.accelerator), self.scorer.attending(batch["policy"], batch):
                # Past GRPOTrainer's, which would count each pass as a micro-step of its own.
                loss += super(GRPOTrainer, self).training_step(model, batch, num_items_in_batch)
        self.log_of_trl.end_micro_step()
        if self.accelerator.sync_gradients:
            self._end_step(model)
        self._step += 1
        self._current_train_step_time += time.perf_counter() - began
        if self._step % self.current_gradient_accumulation_steps == 0:
            self._metrics["train"]["step_time"].append(self._current_train_step_time)
            self._current_train_step_time = 0.0
        return loss

    def _end_step(self, model: torch.nn.Module) -> None:
        """After an optimizer step's last pass."""
        if self.use_adaptive_entropy:
            reduce = partial(self.accelerator.reduce, reduction="sum")
            self.report_all(self.entropy.steer(reduce, self.accelerator.device), "train")
            # Where TRL has its one, which it also writes beside a checkpoint.
            self.entropy_coef, self._last_world_entropy = self.entropy.first.coefficient, self.entropy.first.entropy
        if self.is_deepspeed_enabled:
            if self.args.entropy_coef and not self.use_adaptive_entropy:  # logged by TRL in a step's last pass
                self._metrics["train"]["entropy_coef"].append(self.args.entropy_coef)
            self.step_guard.check_losses(step=self.state.global_step)  # DeepSpeed leaves no step to be taken away
        self.team_gradients.finish(model)
        self.plan.step_began = self._step + 1

    def _scores_of_two_tokens(self, model: torch.nn.Module, policy: Policy) -> torch.Tensor:
        self.activate(policy.name)
        ids = torch.full((1, 2), self.eos_token_ids[0], device=self.accelerator.device)
        return self._get_per_token_logps_and_entropies(model, ids, torch.ones_like(ids), 1)[0]

    def _compute_loss(self, model: torch.nn.Module, inputs: Batch) -> torch.Tensor:
        inputs = scaled_for(self.loss_type, inputs)
        policy, scale = inputs["policy"], inputs["loss_scale"]
        self.activate(policy)
        with (
            self.log_of_trl.forward_pass(inputs, "train" if self.model.training else "eval"),
            self._with_entropy_bonus(policy, inputs["entropy_scale"]),
            override_args(self, router_aux_loss_coef=self.router_aux_loss_coef * inputs["router_scale"]),
        ):
            loss = super()._compute_loss(model, inputs)
        if self.model.training:
            self.step_guard.add(loss, inputs)
        return loss if scale == 1.0 else loss * scale

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Scores:
        return self.scorer.score(*args, **kwargs)

    def score_as_trl(self, *args: Any, **kwargs: Any) -> Scores:
        with self._logging_in_training():
            scores: Scores = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        return scores

    def _logging_in_training(self) -> AbstractContextManager[None]:
        """TRL logs how long things take to trackers, which begin and end with `train()`; trackio raises otherwise."""
        return nullcontext() if self.is_in_train else override_args(self.args, report_to=[])

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

    def _get_grad_norm(self, model: torch.nn.Module, grad_norm: Any = None) -> Any:
        """TRL's; where it or a loss is not finite, the step that would follow is taken away."""
        norm = super()._get_grad_norm(model, grad_norm)
        own, flag, *of_policies = numbers([norm, self.step_guard.losses_are_finite(), *self._policy_norms.values()])
        for name, value in zip(self._policy_norms, of_policies, strict=True):
            self._metrics["train"][f"policy/{name}/grad_norm"].append(value)
        self.step_guard.conclude(
            own, finite=bool(flag), model=model, optimizer=self.optimizer, step=self.state.global_step
        )
        if not self.is_deepspeed_enabled:
            self.report("skipped_steps", float(self.step_guard.skips.total), replace=True)
        return norm

    def profile_of_trl(self) -> PolicyProfile:
        """What TRL's constructor derived from its model and tokenizer."""
        return PolicyProfile(tokenizer=self._tokenizer, **{name: getattr(self, name) for name in SET_BY_TRL})

    def activate(self, name: str) -> None:
        """Forward passes go to this policy from now on, and prompts are written and read as its model wants them."""
        self._apply_profile(self.team.activate(name))

    def _apply_profile(self, profile: PolicyProfile) -> None:
        """What TRL reads from attributes of its own."""
        self._tokenizer, self.beta, self._is_vlm = profile.tokenizer, profile.beta, profile.reads_images
        for name in SET_BY_TRL:
            setattr(self, name, getattr(profile, name))

    def _generate_single_turn(self, *args: Any, **kwargs: Any) -> Any:
        # accelerate gives training's precision to the forward of the outermost model, which an inner model's
        # `generate` never calls: it would sample from another distribution than is trained.
        # And ZeRO-3's weights are gathered once for all of a rollout (`distributed.gathered`).
        reads_once = self.args.shared_prefix and not self.use_transformers_continuous_batching
        own, is_training = self.team.weights_of(self.team.active), self.model.training
        is_inner = self.routing.full or len(self.routing.policies) > 1  # the adapter of one role is as TRL has it
        with (
            self._logging_in_training(),
            self.accelerator.autocast() if is_inner else nullcontext(),
            override_args(self.args, ds3_gather_for_generation=False),
            without_folder_sampling(own),
            prompts_read_once(own, args[1]) if reads_once else nullcontext(),
        ):
            generated = super()._generate_single_turn(*args, **kwargs)
        if self.use_transformers_continuous_batching:  # after which TRL trains, whatever was before
            self.model.train(is_training)
        return generated

    def encode_prompts(
        self, profile: PolicyProfile, prompts: Sequence[Any], tools: Tools, template_kwargs: Mapping[str, Any]
    ) -> Sequence[Sequence[int]]:
        """Prompts with the same tools to their ids by a policy's chat template with these arguments."""
        if self.processing_class is not profile.processing_class:  # else a role's own sampling would be forgotten
            self._apply_profile(profile)
        with override_args(self, tools=list(tools), chat_template_kwargs=dict(template_kwargs)):  # TRL's are functions
            ids: Sequence[Sequence[int]] = self._tokenize_prompts([*map(list, prompts)])[0]
        return ids

    def generate(self, prompts: list[Sequence[int]], inputs: dict[str, Any], override: SamplingOverrides) -> Any:
        """Sample with the active policy: ids and log-probabilities of a completion of each prompt."""
        if override == NOTHING:
            return self._generate_single_turn(prompts, inputs.pop("images", None), inputs, 1)
        config, kwargs = role_settings(self.generation_config, self.generation_kwargs, override)
        # Continuous batching does not look for stop words.
        stop = () if self.use_transformers_continuous_batching else override.stop or ()
        with (
            override_args(self, generation_config=config, generation_kwargs=kwargs),
            ending_at(stop, config, self.team.model, self._tokenizer) if stop else nullcontext(),
        ):
            return self._generate_single_turn(prompts, inputs.pop("images", None), inputs, 1)

    def sampling(self, name: str) -> AbstractContextManager[Engine]:
        """The engine for a rollout of this name, with the current weights."""
        self._last_loaded_step = self.state.global_step  # so that TRL does not load them a second time
        return self.engines.rollout(name, step=self.state.global_step, report=self.report)

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        """TRL's, its parameter groups split by policy, each with its own learning rate."""
        fresh, optimizer = self.optimizer is None, super().create_optimizer(model)
        if fresh:
            trained, rate = self.routing.trained, self.args.learning_rate
            split_groups(optimizer, trained, self.team.parameters_of, rate, self.rate_factors)
        if not (self.is_deepspeed_enabled or self.is_fsdp_enabled):  # which have parameters of their own there
            check_optimized(self.routing.trained, self.team.parameters_of, optimizer)
        return optimizer

    def _clip_grad_norm(self, model: torch.nn.Module) -> Any:
        """Each policy's gradients are clipped by their own norm. Returns the norm of all of them, before clipping."""
        trained = self.routing.trained
        # DeepSpeed has clipped inside its step, by the common norm.
        if self.is_deepspeed_enabled or (len(trained) == 1 and trained[0].max_grad_norm is None):
            return super()._clip_grad_norm(model)
        self.accelerator.unscale_gradients()  # once; accelerate's own clipping would do it for each policy
        self._policy_norms = clip_by_policy(trained, self.team.parameters_of, max_grad_norm=self.args.max_grad_norm)
        return torch.stack([*self._policy_norms.values()] or [torch.zeros((), device=self.accelerator.device)]).norm()

    # ---- Checkpoints ----------------------------------------------------------------------------------------------

    def _save_checkpoint(self, model: torch.nn.Module, trial: Any) -> None:
        """TRL's, into a folder that takes its place only when all of it is on the disk."""
        step = self.state.global_step
        self.checkpointer.check_finite(self.model, step=step)
        run_dir = Path(self._get_output_dir(trial))
        final = run_dir / f"checkpoint-{step}"
        with self.checkpointer.staged(final, step=step) as folder:
            super()._save_checkpoint(model, trial)
            if not self.args.save_only_model:
                micro_step = self.plan.place(self._step)
                self.checkpointer.save_state(folder, micro_step=micro_step, generation=self._buffered_inputs)
            self.checkpointer.keep_best(self.state, folder, final)
        if self.args.push_to_hub:
            self._push_from_checkpoint(str(final))
        if self.args.should_save:
            self.checkpointer.rotate(run_dir, saved=final, best=self.state.best_model_checkpoint)

    def _get_output_dir(self, trial: Any) -> str:
        return str(self.checkpointer.staging or super()._get_output_dir(trial))

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        """TRL's uploads the output folder, after it copied weights there from the checkpoint's root alone."""
        if self.checkpointer.staging is not None:  # an upload goes on beside training: not of one about to be renamed
            return
        if self.is_world_process_zero():
            self.publisher.prepare_upload(Path(checkpoint_folder))
        super()._push_from_checkpoint(checkpoint_folder)

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        """TRL's, without the user's token in the arguments, which are saved and uploaded with the weights."""
        folder = Path(output_dir or self.args.output_dir)
        with override_args(self.args, hub_token=None):
            if self.team.is_plain:
                super()._save(output_dir, state_dict)
            elif self.args.should_save:
                self.publisher.save_policies(folder, state_dict)
        if self.args.should_save:
            self.publisher.finish(folder, self.state.global_step, self.chat_template_kwargs)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        self.engines.after_load()
        if self.team.is_loaded_by_trl or self.is_fsdp_enabled:  # FSDP2's shards are read back from a file of its own
            super()._load_from_checkpoint(resume_from_checkpoint, model)
            self.team.take_over_reference()
        else:
            own = self.accelerator.unwrap_model(self.model if model is None else model)
            weights.restore(own, self.routing.trained, Path(resume_from_checkpoint), at_root=self.team.is_plain)

    def _load_best_model(self) -> None:
        self.engines.after_load()
        if self.team.is_loaded_by_trl or self.is_deepspeed_enabled or self.is_fsdp_enabled:
            super()._load_best_model()
        else:  # transformers looks for weights at the root only, and goes on without
            self._load_from_checkpoint(self.state.best_model_checkpoint)

    def _load_optimizer_and_scheduler(self, checkpoint: str) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if (place := self.checkpointer.load_state(Path(checkpoint))) is not None:
            self._step, self._buffered_inputs = place
            self.plan.step_began = self._step
        self.checkpointer.warn_of_differences(Path(checkpoint))

    def _init_training_state(self, *args: Any) -> tuple[int, int]:
        """Transformers' epochs and micro-steps to skip; but it takes all passes over a stream for one epoch."""
        epochs, micro_steps = super()._init_training_state(*args)
        if micro_steps and isinstance(self.train_dataset, IterableDataset):
            saved = TrainerState.load_from_json(f"{args[3]}/trainer_state.json")  # `max_steps` may be others now
            epochs, share = divmod(saved.epoch, 1)
            micro_steps = round(share * saved.max_steps * self.args.gradient_accumulation_steps)
        return int(epochs), micro_steps

    def _run_epoch(self, *args: Any, resume_from_checkpoint: Any = None, **kwargs: Any) -> None:
        """TRL's; but a run that was over when it was killed stays so, where transformers adds a step."""
        micro_step = self.state.global_step * self.args.gradient_accumulation_steps
        if self.state.global_step >= self.state.max_steps or self.token_budget.is_spent(micro_step):
            self.control.should_training_stop = True
            self._load_rng_state(resume_from_checkpoint)
        else:
            if not isinstance(self.train_dataset, IterableDataset):
                # accelerate would not reach it where processes share batches and skip the first ones.
                self._epoch_sampler.epoch = kwargs["epoch"]
            super()._run_epoch(*args, resume_from_checkpoint=resume_from_checkpoint, **kwargs)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        """TRL's; from there an evaluation draws what it would have drawn where the run was ended before it."""
        super()._load_rng_state(checkpoint)
        if self.checkpointer.takes_due_evaluation():
            self._determine_best_metric(self._evaluate(None, None), None)

    def _maybe_log_save_evaluate(self, *args: Any, **kwargs: Any) -> None:
        """TRL's, after each optimizer step and epoch; on a signal, it saves and ends the run."""
        self.checkpointer.stop_on_signal(self.control, self.state)
        super()._maybe_log_save_evaluate(*args, **kwargs)

    def create_model_card(
        self, model_name: str | None = None, dataset_name: str | None = None, tags: str | list[str] | None = None
    ) -> None:
        """TRL's; where policies have weights of their own, a card that says which plays whom and how to load it."""
        card = Path(self.args.output_dir) / "README.md"
        if self.team.is_plain:
            super().create_model_card(model_name, dataset_name, tags)
            if self.is_world_process_zero():
                self.publisher.add_note(card, self.state.log_history, self.eval_dataset)
        elif self.is_world_process_zero():
            self.publisher.write_card(
                card,
                name=self.hub_model_id or model_name,  # transformers gives the last part of a repository's name
                tags=[*self._tag_names, *([tags] if isinstance(tags, str) else tags or [])],
                step=self.state.global_step,
                log_history=self.state.log_history,
                eval_dataset=self.eval_dataset,
            )
