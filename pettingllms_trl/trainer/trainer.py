"""`MultiAgentGRPOTrainer`: what a user makes. It validates its arguments and builds the parts that train a team.

| part           | class                | what it does                                                             |
|----------------|----------------------|--------------------------------------------------------------------------|
| `team`         | `Team`               | holds the weights of all policies, and says which are active             |
| `engines`      | `SyncedEngines`      | samples, with the weights that the trainer holds now                     |
| `collector`    | `RolloutCollector`   | plays rows, and says which decisions are trained on                      |
| `credit`       | `Credit`             | decisions to advantages                                                  |
| `reporter`     | `GenerationReporter` | metrics, warnings, the audit, the log of rollouts                        |
| `builder`      | `BatchBuilder`       | decisions and advantages to the forward passes of micro-steps            |
| `scorer`       | `PackedScorer`       | log-probabilities, with a prompt read once for all that begin with it    |
| `entropy`      | `EntropyBonus`       | each policy's entropy bonus                                              |
| `step_guard`   | `StepGuard`          | steps that are not finite change no weight                               |
| `token_budget` | `TokenBudget`        | counts generated tokens, and ends a training that has spent its own      |
| `rounds`       | `Rounds`             | with `imitate` the same by rounds, and the replies that are imitated     |
| `references`   | `MovingReferences`   | references that follow their policies                                    |
| `curricula`    | `Curricula`          | levels of instances                                                      |
| `monitor`      | `LearningMonitor`    | finds agents that cannot learn                                           |
| `checkpointer` | `Checkpointer`       | whole checkpoints, resumption, signals                                   |
| `publisher`    | `Publisher`          | the card of a saved team, and `team.json`                                |

`TRLHooks` (`hooks.py`) calls them where TRL's `GRPOTrainer` would do otherwise: it is the only class between this one
and TRL. With one agent, one turn and K siblings this is `GRPOTrainer`, step for step.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from accelerate.utils import set_seed
from datasets import Dataset, IterableDataset
from peft import PeftConfig, PeftModel
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PrinterCallback, TrainerCallback
from transformers.trainer import DEFAULT_PROGRESS_CALLBACK

from pettingllms_trl import credit as credits
from pettingllms_trl.checkpoints.checkpointer import Checkpointer
from pettingllms_trl.config import MultiAgentGRPOConfig, override_args
from pettingllms_trl.console import TrainingTable
from pettingllms_trl.credit.reward_functions import RewardFunction
from pettingllms_trl.credit.selection import num_tokens
from pettingllms_trl.engines import folder_sampling
from pettingllms_trl.engines.factory import kind_of
from pettingllms_trl.engines.prefix_cache import MAX_BYTES, PrefixCache
from pettingllms_trl.engines.transformers import LocalSampler
from pettingllms_trl.engines.weight_store import CountsSteps
from pettingllms_trl.imitation.rounds import Rounds
from pettingllms_trl.pixels import naming_torchvision
from pettingllms_trl.policies.codecs import PolicyCodec
from pettingllms_trl.policies.profiles import check_chat_template
from pettingllms_trl.policies.references import MoveReferencesCallback
from pettingllms_trl.policies.routing import Policy
from pettingllms_trl.processes.distributed import check_is_loaded, check_sharding, place, shards_weights
from pettingllms_trl.processes.row_sharing import row_sharing
from pettingllms_trl.records import DataRow, Decision, Episode, Stateful
from pettingllms_trl.rollout.curriculum import Curriculum
from pettingllms_trl.rollout.env_checks import Env
from pettingllms_trl.rollout.play import EnvironmentSource
from pettingllms_trl.trainer import parts
from pettingllms_trl.trainer.collector import Generation, RolloutCollector
from pettingllms_trl.trainer.dataloading import places
from pettingllms_trl.trainer.episode_metrics import EpisodeMetrics, with_absent_parts
from pettingllms_trl.trainer.hooks import TRLHooks
from pettingllms_trl.trainer.monitor import LearningMonitor, reply_limits, warn_above_progress_bar
from pettingllms_trl.trainer.reporting import GenerationReporter
from pettingllms_trl.trainer.rollout_times import RolloutTimes
from pettingllms_trl.trainer.setup import Setup, check_unsupported
from pettingllms_trl.update.builder import BatchBuilder
from pettingllms_trl.update.entropy import EntropyBonus
from pettingllms_trl.update.micro_batches import Batch
from pettingllms_trl.update.packed_logprobs import PackedScorer
from pettingllms_trl.update.schedule import Schedule, learning, rate_factors
from pettingllms_trl.update.step_guard import StepGuard


class MultiAgentGRPOTrainer(TRLHooks):
    """
    Trainer for teams of language-model agents with agent- and turn-wise group-relative policy optimisation (AT-GRPO,
    [Stronger-MAS](https://huggingface.co/papers/2510.11062)). `processing_class`, `callbacks`, `optimizers` and
    `quantization_config` are as in [`~trl.GRPOTrainer`].

    Example:

    ```python
    >>> from datasets import Dataset
    >>> from pettingllms_trl import MultiAgentGRPOConfig, MultiAgentGRPOTrainer

    >>> trainer = MultiAgentGRPOTrainer(
    ...     model="Qwen/Qwen3-1.7B",
    ...     env="pettingllms/plan_path-v0",
    ...     policies="lora",
    ...     args=MultiAgentGRPOConfig(
    ...         output_dir="plan-path-team",
    ...         num_generations=4,
    ...         learning_rate=1e-5,
    ...         chat_template_kwargs={"enable_thinking": False},
    ...     ),
    ...     train_dataset=Dataset.from_dict({"seed": range(1000)}),
    ... )
    >>> trainer.train()
    ```

    Args:
        model (`str` or [`~transformers.PreTrainedModel`] or [`~peft.PeftModel`]):
            As in [`~trl.GRPOTrainer`]. With adapters, a `PeftModel` whose adapters bear the policies' names goes on
            training them. `None` where every policy has a model of its own.
        env (`str` or `Callable[[], AECEnv]`, or `dict` of them):
            A PettingZoo AEC environment whose observations are text (a `str`, a dict with `"text"` and perhaps
            `"system"`, or one with chat `"messages"`): an id of PettingZoo's registry, or a function that makes one.
            It is called once for every environment in play at once, and makes a new one each time. With a dict by
            name, each row says in its column `environment` which one it is an instance of; a field that is `None` in a
            row is not one of its reset options.
        args ([`MultiAgentGRPOConfig`], *optional*):
            Configuration. `None`: the defaults.
        train_dataset ([`~datasets.Dataset`] or [`~datasets.IterableDataset`], *optional*):
            A row is an instance: `seed` and the fields that the environment's `reset(options=...)` takes. May be left
            out where only [`~MultiAgentGRPOTrainer.play`] or `evaluate` is used.
        eval_dataset (*optional*):
            Rows of the same kind. `evaluate` plays each `args.num_generations_eval` times (once by default).
        reward_funcs (`Callable`, [`~transformers.PreTrainedModel`], `str`, or a `list` of them, *optional*):
            TRL's reward functions and models, added to the environment's rewards, with `args.reward_weights`. Each is
            called for one decision at a time, before the best candidate goes on: `prompts`, `completions`,
            `completion_ids` of its candidates, and for each of them the `agent`, the `turn`, the row's columns; with
            `trainer_state`, `log_metric` and `log_extra`. In a `pettingllms_envs.conversation` they judge the last
            reply, for all roles.
        reward_processing_classes ([`~transformers.PreTrainedTokenizerBase`] or a `list`, *optional*):
            Tokenizers of the reward models, one for each of `reward_funcs`. `None`: each model's own.
        policies (`str` or `dict`, *optional*, defaults to `"shared"`):
            `"shared"` (one model plays all), `"lora"` (an adapter per role), `"full"` (a copy of the model per role),
            or a dict from agents or roles to adapter names or [`Policy`]: any mixture, with partners that are frozen
            or behind an API.
        credit (`str`, `dict` or [`Credit`], *optional*):
            `None`: `"at_grpo"`; where the environment declares roles as paid at later steps, `"return_to_go"` with
            `sampling="parallel"`, or with `num_continuations` `"counterfactual"`, which a line says when the trainer
            is created. Otherwise `"at_grpo"`, `"return_to_go"`, `"grpo"`, ..., a scheme with options such as
            `{"at_grpo": {"value": "return_to_go"}}`, or a function from decisions to advantages. It is called once
            with a made-up rollout when the trainer is created; pass a stateful scheme as an object, of which a copy
            is tried.
        filters (`str`, `dict`, [`Filter`] or `list` of them, *optional*):
            Which groups are trained on: `"nonzero_variance"`, `"signal_to_noise"`, one with options such as
            `{"signal_to_noise": {"threshold": 0.7}}`, or a function from decisions to [`Kept`]; of several, each sees
            what those before it left. With `args.max_resamples`, further rows are played for what they drop.
        curriculum ([`Curriculum`], or a `dict` of them, *optional*):
            Levels of a reset option: one is written into each row that is trained on; success reaches the next. With
            several environments, a curriculum by name for each environment that needs one.
        schedule (`Callable[[int], Collection[str]]`, *optional*):
            The number of a generation, from 0, to the names of the policies that learn from it, such as
            [`Alternate`]; the others act but are not updated. A mapping gives each the factor of its learning rate.
            `None`: all learn, or as `args.alternate_every` says.
        peft_config ([`~peft.PeftConfig`], *optional*):
            Of the adapters. With `policies="shared"`, as in [`~trl.GRPOTrainer`]: none trains the model itself.
    """

    _tag_names: ClassVar[list[str]] = ["trl", "grpo", "at-grpo", "multi-agent", "pettingllms"]
    _name = "AT-GRPO"
    _paper: ClassVar[dict[str, str]] = {
        "title": "Stronger-MAS: Multi-Agent Reinforcement Learning for Collaborative LLMs",
        "id": "2510.11062",
    }
    # Set by the constructors of TRL and transformers.
    num_generations_eval: int

    # ---- The algorithm ----------------------------------------------------------------------------------------------

    def prepare_generation(self, rows: Sequence[DataRow]) -> list[list[Batch]]:
        """Rows to the forward passes of a generation's micro-steps: collect, credit, report, build."""
        if self.rounds is not None:
            return self._prepare_pass(self.rounds)
        generation, advantages, of_continuations = self._play_generation(rows)
        inside = generation.continuations
        selected, kept = generation.selection, generation.kept_continuations
        return self._passes_over(
            [*selected.of(generation.decisions), *(inside[i] for i in kept)],
            [*selected.of(advantages), *(of_continuations[i] for i in kept)],
            sampled=num_tokens([*generation.decisions, *inside]),
            table=partial(self.reporter.table_of, played=generation.played),
        )

    def _prepare_pass(self, rounds: Rounds) -> list[list[Batch]]:
        """A pass over what is imitated to its forward passes; before a round's first, its instances are played."""
        sampled = 0
        while not (rounds.passes_left or rounds.is_over):
            rounds.begin()
            while not rounds.is_played(self.collector.rows_played.number):
                generation, advantages, _ = self._play_generation([])
                rounds.keep(generation.decisions, advantages, len(generation.played.episodes))
                sampled += num_tokens(generation.decisions)
            if (words := rounds.end_play()) and self.is_world_process_zero():
                warn_above_progress_bar(words)
        for name, value in rounds.metrics().items():
            self.report(name, value, replace=True)
        # The likelihood has no ratios to older log-probabilities, which TRL would compute for several steps.
        of_step, decisions = self.args.gradient_accumulation_steps, rounds.decisions if rounds.passes_left else []
        with override_args(self.args, steps_per_generation=of_step), override_args(self, num_iterations=1):
            steps = self._passes_over(
                decisions,
                [[1.0] * len(decision.candidates) for decision in decisions],
                sampled=sampled,
                table=lambda _: {},
                micro_steps_for=rounds.micro_steps_for,
            )
        steps = steps or [[] for _ in range(of_step)]
        rounds.begin_pass(len(steps))
        return steps

    def _passes_over(
        self, decisions: Sequence[Decision], advantages: credits.Advantages, *, sampled: int, **how: Any
    ) -> list[list[Batch]]:
        """The forward passes of micro-steps, reported. TRL counts their tokens; `sampled` is what is to be counted."""
        self.begin_table(sampled - num_tokens(decisions))
        batches = self.builder.build(decisions, advantages, learning=self._learning(), **how)
        if batches.num_rows:
            self.log_of_trl.join_policies(batches.num_rows)
            self.report("rollout/frac_rows_updated", 1 - batches.num_left_out / sum(batches.num_rows))
        self.report("rollout/used_tokens", self.num_iterations * num_tokens(decisions, prompts=False))
        if batches.num_tokens:
            self.report("rollout/frac_tokens_read", batches.num_tokens_read / batches.num_tokens)
        return batches.steps

    def begin_table(self, num_unseen_tokens: int) -> None:
        """Begin a generation's table of completions, and count the tokens that TRL does not see, untrained ones."""
        self.state.num_input_tokens_seen += num_unseen_tokens
        self.log_of_trl.begin_table()

    def log_advantages(self, advantages: Sequence[float], *, group_size: int) -> None:
        self.log_of_trl.replace_advantages(advantages, group_size=group_size)

    def _learning(self) -> tuple[Policy, ...]:
        return learning(self.schedule, self.plan.number(self.state.global_step), self.routing.trained)

    def _play_generation(self, rows: Sequence[DataRow]) -> tuple[Generation, credits.Advantages, credits.Advantages]:
        """Play and report a generation: what came of it, the advantages of its decisions, and its continuations'."""
        name = self.plan.name(self.state.global_step, self._step)
        with self.rollout_times.rollout():
            generation = self.collector.collect(rows, name=name, learning=self._learning())
        # The credit sees all decisions once, before any is left out.
        advantages = self.credit(generation.decisions) if generation.decisions else []
        credits.check_advantages(advantages, generation.decisions)
        of_continuations: credits.Advantages = []
        if inside := generation.continuations:
            group = self.args.continuation_group
            of_continuations = credits.continuation_advantages(inside, scale=self._continuation_scale, group=group)
        self._log_generation(generation, advantages, of_continuations)
        return generation, advantages, of_continuations

    def _log_generation(
        self, generation: Generation, advantages: credits.Advantages, of_continuations: credits.Advantages
    ) -> None:
        step = self.state.global_step
        metrics = self.reporter.metrics_of(generation, step=step, is_first=self.token_budget.num_generated == 0)
        self.report_all(with_absent_parts(metrics, self.log_of_trl.values["train"]), "train")
        if self.args.image_gain_steps and self.plan.is_due(step, self.args.image_gain_steps):
            gains = self._image_gains(generation.decisions)
            self.report_all({f"agent/{agent}/image_gain": [gain] for agent, gain in gains.items()}, "train")
        self.token_budget.add(int(generation.played.counts["sampled_tokens"]))
        self.report("rollout/total_sampled_tokens", self.token_budget.num_generated, replace=True)
        if self.args.max_resamples or self.rounds is not None:
            data_epoch = self.collector.rows_played.number / len(self.plan.sampler(self.train_dataset))
            self.report("rollout/data_epoch", data_epoch, replace=True)
        self.reporter.observe(generation, advantages, of_continuations, step=step)

    def _image_gains(self, decisions: Sequence[Decision]) -> dict[str, float]:
        from pettingllms_trl.image_gain import image_gains, with_other_images

        policy_of, inputs = self.routing.of_agent, self.image_inputs
        swapped = with_other_images(
            [decision for decision in decisions if policy_of[decision.agent] in inputs],
            lambda decision: inputs[policy_of[decision.agent]].num_tokens(decision.prompt.images),
        )
        return image_gains(swapped, lambda agent, *rows: self.scorer.totals(policy_of[agent], *rows))

    def play(
        self, rows: Sequence[DataRow], *, num_episodes: int = 1, name: str = "play", max_envs: int | None = None
    ) -> list[Episode]:
        """Play each row `num_episodes` times with the current policies: training's sampling, dropout switched off.

        With several processes call it on each, with the same rows: each plays its share, and is given all episodes.

        Args:
            rows: Instances: `seed` and reset options, and of several environments the `environment`.
            name: Seeds the breaking of ties.
            max_envs: Environments in play at once on a process; `None`: `args.max_envs`.

        Returns:
            Episodes, in the order of the rows.

        Raises:
            RuntimeError: With FSDP, before training or evaluation has given all processes the weights.
        """
        check_is_loaded(self.model_wrapped, self.accelerator)
        with self.team.in_eval_mode():
            return self.collector.play(rows, num_episodes=num_episodes, name=name, max_envs=max_envs).episodes

    def weights_changed(self) -> None:
        """Tell the trainer that you have changed weights by hand, of a trained policy or a frozen one.

        An engine with weights of its own is given them again after each optimizer step and each checkpoint that the
        trainer loads; of any other change the trainer does not know, and would go on to sample from the old ones:

        ```python
        >>> set_peft_model_state_dict(trainer.model, load_file("planner.safetensors"), adapter_name="planner")
        >>> trainer.weights_changed()
        >>> trainer.evaluate()
        ```

        Frozen full models on servers, and models in 4 bits, are the exception: no engine can be given those.
        """
        self.engines.after_change_by_hand()

    @property
    def stopped_by(self) -> str | None:
        """The signal that ended the last `train()`, of whichever process, `None` if it came to its end."""
        return self.checkpointer.stopped_by

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """TRL's, from a checkpoint that was read to its last byte first: a path, or `True` for the newest that
        verifies. One without a manifest, as transformers alone saves it, is used with a warning.

        Raises `ValueError` where the trainer was made without a `train_dataset`."""
        if not self._can_train:
            raise ValueError("train() needs a train_dataset: give one whose rows are instances, e.g. a column 'seed'")
        self.engines.after_step()  # DeepSpeed and FSDP load a checkpoint without `_load_from_checkpoint`
        checkpoint = self.checkpointer.verified(resume_from_checkpoint)
        with self.checkpointer.running():
            output = super().train(checkpoint, *args, **kwargs)
        if self.state.global_step == 0 and self.stopped_by is None:
            why = (
                f"the stream of rows ended before one generation was full, which takes {self.plan.rows} rows "
                f"(generation_batch_size {self.args.generation_batch_size} / num_generations {self.num_generations}). "
                "Give more rows, or lower generation_batch_size."
            )
            if self.token_budget.is_spent(0):
                why = "an earlier one has used max_generated_tokens, or all rounds of imitate. Make another trainer."
            warnings.warn(f"train() has trained 0 steps: {why}", stacklevel=2)
        return output

    # ---- The constructor -------------------------------------------------------------------------------------------

    def __init__(
        self,
        model: str | PreTrainedModel | PeftModel | None,
        env: Env | Mapping[str, Env] | None = None,
        args: MultiAgentGRPOConfig | None = None,
        train_dataset: Dataset | IterableDataset | None = None,
        eval_dataset: Dataset | IterableDataset | dict[str, Dataset | IterableDataset] | None = None,
        processing_class: PreTrainedTokenizerBase | None = None,
        *,
        reward_funcs: RewardFunction | list[RewardFunction] | None = None,
        reward_processing_classes: PreTrainedTokenizerBase | list[PreTrainedTokenizerBase | None] | None = None,
        policies: str | Mapping[str, str | Policy] = "shared",
        credit: str | credits.Named | credits.Credit | None = None,
        filters: credits.AnyFilter | list[credits.AnyFilter] | None = None,
        curriculum: Curriculum | Mapping[str, Curriculum] | None = None,
        schedule: Schedule | None = None,
        peft_config: PeftConfig | None = None,
        callbacks: list[TrainerCallback] | None = None,
        optimizers: tuple[torch.optim.Optimizer | None, torch.optim.lr_scheduler.LambdaLR | None] = (None, None),
        quantization_config: Any = None,
        **unsupported: Any,
    ) -> None:
        check_unsupported(unsupported)
        setup = Setup.of(
            model=model,
            env=env,
            args=args,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            processing_class=processing_class,
            reward_funcs=reward_funcs,
            reward_processing_classes=reward_processing_classes,
            policies=policies,
            credit=credit,
            filters=filters,
            curriculum=curriculum,
            schedule=schedule,
            optimizer=optimizers[0],
        )
        args = setup.args
        if args.world_size > 1 and args.accelerator_config.dispatch_batches is None:
            args.accelerator_config.dispatch_batches = False  # a stream's rows are no tensors to be sent round
        self.envs, self.credit, self.schedule = setup.envs, setup.credit, setup.schedule
        self.rate_factors = rate_factors(self.schedule, lambda: self.plan.number(self.state.global_step))
        self._can_train = setup.trains
        self.routing, self.team = setup.routing, parts.team_of(setup.routing, args, peft_config)
        given = self.team.prepare(
            model, processing_class=processing_class, peft_config=peft_config, quantization_config=quantization_config
        )
        # The weights of the user's reward functions are not TRL's to use, and the engine is ours.
        with override_args(args, reward_weights=None, use_vllm=False, **given.hidden), naming_torchvision():
            super().__init__(
                model=given.model,
                reward_funcs=[environment],
                args=args,
                train_dataset=setup.dataset,
                eval_dataset=eval_dataset,
                processing_class=given.processing_class,
                callbacks=[CountsSteps(lambda: self.engines.after_step()), *(callbacks or [])],
                optimizers=optimizers,
                quantization_config=given.quantization_config,
                peft_config=given.peft_config,
            )
        for note in setup.notes:
            self.accelerator.print(note)
        self._attach_team()
        check_sharding(self.routing, self.accelerator, gathers=args.ds3_gather_for_generation)
        self.codecs = {
            name: PolicyCodec(
                profile,
                tokenize=self.encode_prompts,
                chat_template=self.chat_template,
                chat_template_kwargs=self.chat_template_kwargs,
                images=self.image_inputs.get(name),
            )
            for name, profile in self.team.profiles.items()
        }
        parts.check_tools(self.team, self.codecs, setup.envs)
        vision_policies = parts.check_images(args, self.team, self.image_inputs, setup.envs, self.accelerator)
        bridges = parts.bridges(args, self.team, self.codecs)
        self.engines = parts.engines_of(
            setup,
            self.team,
            self.codecs,
            self.accelerator,
            sample=LocalSampler(
                self.team,
                self.codecs,
                PrefixCache(MAX_BYTES if args.shared_prefix and bridges else 0),
                activate=self.activate,
                generate=self.generate,
            ),
            images=self.image_inputs,
            vision_policies=vision_policies,
            wrapped=lambda: self.model_wrapped,
        )
        kind = kind_of(args)
        if kind.has_weights:
            set_seed(args.seed, device_specific=True)  # an engine may have seeded the process again
            # TRL's name for any engine: from here on it corrects for the sampler, of which a likelihood knows nothing.
            self.use_vllm = args.imitate is None
        setup.rewards.load(args, self.accelerator.device)
        self.collector = RolloutCollector(
            setup,
            self.accelerator,
            source=EnvironmentSource(
                make_env=setup.make_env,
                pool=setup.envs,
                weigh=setup.weigh,
                extensions=bridges,
                unplayed=setup.unplayed,
            ),
            sharing=row_sharing(self.engines.engine_set.tensor_parallel, is_seeded=kind.is_seeded),
            extensions=bridges,
            sampling=self.sampling,
            reward_context=lambda: {"trainer_state": self.state, "log_metric": self.report_reward_metric},
            rows_per_generation=self.plan.rows,
            rows_at=self._rows_at,
        )
        self.monitor = LearningMonitor(
            reply_limits(
                self.team,
                max_length=args.max_completion_length,
                chat_template=self.chat_template,
                chat_template_kwargs=self.chat_template_kwargs,
            ),
            must_act=parts.agents_of_programs(setup),
        )
        is_main = self.is_world_process_zero()
        facts = credits.facts_of(self.credit, args.sampling)
        self._continuation_scale = facts.deviation(default=args.scale_rewards)  # as the credit scheme's
        self.reporter = GenerationReporter(
            setup, self.team, facts, self.collector, self.monitor, temperature=self.temperature, is_main=is_main
        )
        has_group_means = facts.sums_to_zero == "siblings"
        self.builder = BatchBuilder(
            args, self.team, self.scorer, self.accelerator, rows=self, has_group_means=has_group_means
        )
        self.entropy = EntropyBonus([policy.name for policy in self.routing.trained], args)
        self.step_guard = StepGuard(list(self.routing.of_agent), args, self.accelerator)
        self.rounds, self.token_budget, self.plan = parts.ends_of(
            args, self.plan, setup.dataset, num_processes=self.accelerator.num_processes
        )
        self.add_callback(self.token_budget)
        replaced = PrinterCallback if args.disable_tqdm else DEFAULT_PROGRESS_CALLBACK
        self.remove_callback(next(each for each in self.callback_handler.callbacks if type(each) is replaced))
        budget = self.token_budget
        self.add_callback(
            TrainingTable(list(self.routing.of_agent), lambda: budget.num_generated, done=lambda: budget.done)
        )
        self.rollout_times = RolloutTimes(args, warn_above_progress_bar if is_main else lambda message: None)
        self.add_callback(self.rollout_times)
        self.references = parts.references_of(args, self.team, self.accelerator)
        if self.references is not None:
            self.add_callback(MoveReferencesCallback(self.references))
        self.publisher = parts.publisher_of(setup, self.team)
        self.checkpointer = Checkpointer(
            args,
            self.accelerator,
            self._states(),
            parts.configuration_of(setup, self.team, num_processes=self.accelerator.num_processes),
        )
        if self._can_train and not shards_weights(self.accelerator):  # which have no whole pass yet
            self.scorer.try_all()

    def _attach_team(self) -> None:
        place(self.model, self.accelerator)
        of_trl = self.profile_of_trl()
        check_chat_template(of_trl.processing_class)
        self.team.attach(self, of_trl=of_trl, generation_kwargs=self.generation_kwargs)
        parts.check_heads(self.team)
        if unused := folder_sampling.note(self.team):
            self.accelerator.print(unused)
        self.image_inputs = parts.image_inputs_of(self.team)
        trained = parts.trained_parts(self.team) if self._can_train else {}
        for name, (vision, others) in trained.items():
            self.accelerator.print(f"Policy {name!r} trains {vision:,} parameters of vision and {others:,} others.")
        self.scorer = PackedScorer(
            self.team,
            self.args,
            self.accelerator,
            activate=self.activate,
            score=self.score_as_trl,
            images=self.image_inputs,
            only_vision={name for name, (_, others) in trained.items() if not others},
        )
        if self._can_train:
            self.team.check_start(is_sharded=shards_weights(self.accelerator))
        self.activate(next(iter(self.team.profiles)))

    def _rows_at(self, start: int, number: int) -> list[Any]:
        return [self.train_dataset[i] for i in places(self.plan.sampler(self.train_dataset), start, number)]

    def _states(self) -> dict[str, Stateful]:
        """The parts whose states a checkpoint holds."""
        of_parts: dict[str, Any] = {
            "credit": self.credit,
            "curricula": self.collector.curricula,
            "rows": self.collector.rows_played,
            "guard": self.step_guard,
            "token_budget": self.token_budget,
            "monitor": self.monitor,
            "entropy": self.entropy,
            "references": self.references,
        }
        return {name: part for name, part in of_parts.items() if isinstance(part, Stateful)}

    # ---- Evaluation and logging -----------------------------------------------------------------------------------

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        """TRL's, of one data set; what is logged of it is of all its batches together."""
        self._evaluated_episodes = EpisodeMetrics(self.reporter.reward_names, policies=self.routing.of_agent)
        output = super().evaluation_loop(*args, **kwargs)
        self.report_all(self._evaluated_episodes.of_evaluation(), "eval")
        self.report_all({"rollout/instances": [self.eval_rows_played]}, "eval")
        if self.rounds is not None:
            self.report_all({"imitation/round": [self.rounds.number]}, "eval")
        return output

    def prediction_step(self, model: Any, inputs: Any, prediction_loss_only: bool, ignore_keys: Any = None) -> Any:
        """Play a batch of rows. A group-relative loss says nothing here; none is given."""
        if self.accelerator.num_processes > 1:
            inputs = self.eval_rows.gather(inputs)
        # Each data set and batch has random numbers of its own.
        name = f"{self.evaluation}/{self.state.global_step}/{self.eval_rows_played}"
        self.eval_rows_played += len(inputs)
        with self.team.in_eval_mode(), self.team.as_evaluated():
            played = self.collector.play(inputs, num_episodes=self.num_generations_eval, name=name)
        self._evaluated_episodes.add(played)
        return None, None, None


def environment(**_: Any) -> list[float]:
    """Stands where TRL wants a reward function, and names its metrics (`rewards/environment/mean`).

    `_calculate_rewards` gives the rewards that the environment gave while it was played.
    """
    raise AssertionError("rewards come from the environment while it is played")
