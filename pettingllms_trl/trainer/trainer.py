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
| `guard`        | `StepGuard`          | steps that are not finite change no weight                               |
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
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback

from pettingllms_trl import credit as credits
from pettingllms_trl.checkpoints.checkpointer import Checkpointer
from pettingllms_trl.checkpoints.publishing import Publisher
from pettingllms_trl.config import MultiAgentGRPOConfig
from pettingllms_trl.credit.reward_functions import RewardFunction, RewardFunctions
from pettingllms_trl.credit.reward_models import load_reward_model
from pettingllms_trl.credit.reward_weights import weigher
from pettingllms_trl.credit.selection import check_resampling, num_tokens
from pettingllms_trl.engines.factory import EngineSet, check_served
from pettingllms_trl.engines.local import LocalSampler, context_length
from pettingllms_trl.engines.versions import CountsSteps
from pettingllms_trl.engines.vllm_params import PromptCodec
from pettingllms_trl.policies.codecs import PolicyCodec
from pettingllms_trl.policies.profiles import PolicyProfile, check_chat_template
from pettingllms_trl.policies.references import MovesReferences, MovingReferences
from pettingllms_trl.policies.routing import Policy, route
from pettingllms_trl.policies.schedule import Alternate, Schedule, check_windows, learners
from pettingllms_trl.policies.schedule import learning as learning_in
from pettingllms_trl.policies.team import Team, instead
from pettingllms_trl.records import Episode, Row, Stateful
from pettingllms_trl.rollout.branch_probe import Branching
from pettingllms_trl.rollout.curriculum import Curricula, Curriculum, by_environment
from pettingllms_trl.rollout.env_checks import Env, agents_of, check_envs, check_levels, check_openings, env_makers
from pettingllms_trl.rollout.play import EnvironmentSource
from pettingllms_trl.rollout.prompts import Follow, remembering
from pettingllms_trl.trainer import recorder
from pettingllms_trl.trainer.collector import Generation, RolloutCollector
from pettingllms_trl.trainer.dataloading import RowsPlayed, check_num_rows, places
from pettingllms_trl.trainer.delayed_rewards import check_delayed_roles
from pettingllms_trl.trainer.distributed import check_processes, check_sharding
from pettingllms_trl.trainer.hooks import TRLHooks
from pettingllms_trl.trainer.monitor import LearningMonitor, reply_limits
from pettingllms_trl.trainer.reporting import GenerationReporter
from pettingllms_trl.trainer.synced_engines import SyncedEngines
from pettingllms_trl.update.builder import BatchBuilder
from pettingllms_trl.update.entropy import EntropyBonus
from pettingllms_trl.update.micro_batches import Batch
from pettingllms_trl.update.packed_logprobs import PackedScorer
from pettingllms_trl.update.step_guard import StepGuard


class MultiAgentGRPOTrainer(TRLHooks):
    """
    Trainer for teams of language-model agents with agent- and turn-wise group-relative policy optimisation (AT-GRPO,
    [Stronger Together](https://huggingface.co/papers/2510.11062)). `processing_class`, `callbacks`, `optimizers` and
    `quantization_config` are as in [`~trl.GRPOTrainer`].

    Example:

    ```python
    >>> import pettingllms_envs
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
            It is called once for every environment in play at once. With a dict by name, each row says in its column
            `environment` which one it is an instance of; a field that is `None` in a row is not one of its reset
            options.
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
            `trainer_state`, `log_metric` and `log_extra`.
        reward_processing_classes ([`~transformers.PreTrainedTokenizerBase`] or a `list`, *optional*):
            Tokenizers of the reward models, one for each of `reward_funcs`. `None`: each model's own.
        policies (`str` or `dict`, *optional*, defaults to `"shared"`):
            `"shared"` (one model plays all), `"lora"` (an adapter per role), `"full"` (a copy of the model per role),
            or a dict from agents or roles to adapter names or [`Policy`]: any mixture, with partners that are frozen
            or behind an API.
        credit (`str`, `dict` or [`Credit`], *optional*, defaults to `"at_grpo"`):
            `"at_grpo"`, `"grpo"` (with `sampling="parallel"`), ..., a scheme with options such as
            `{"at_grpo": {"value": "return_to_go"}}`, or a function from decisions to advantages. It is called once
            with a made-up rollout when the trainer is created; give one that keeps anything as an object, of which a
            copy is tried.
        filters (`str`, `dict`, [`Filter`] or `list` of them, *optional*):
            Which groups are trained on: `"nonzero_variance"`, `"signal_to_noise"`, one with options such as
            `{"signal_to_noise": {"threshold": 0.7}}`, or a function from decisions to [`Kept`]; of several, each sees
            what those before it left. With `args.max_resamples`, further rows are played for what they drop.
        curriculum ([`Curriculum`], or a `dict` of them, *optional*):
            Levels of a reset option: one is written into each row that is trained on; success reaches the next. Of
            several environments, a curriculum for each that shall have one, by name.
        schedule (`Callable[[int], Collection[str]]`, *optional*):
            The number of a generation, from 0, to the names of the policies that learn from it, such as
            [`Alternate`]; the others play, and stand still. `None`: all learn, or as `args.alternate_every` says.
        peft_config ([`~peft.PeftConfig`], *optional*):
            Of the adapters. With `policies="shared"`, as in [`~trl.GRPOTrainer`]: none trains the model itself.

    Raises:
        ValueError, TypeError: Before any model is loaded, for an unknown environment, agent, credit or row field, an
            observation that is not text, or an option that is not supported; saying what was given, expected, to do.
    """

    _tag_names: ClassVar[list[str]] = ["trl", "grpo", "at-grpo", "multi-agent", "pettingllms"]
    _name = "AT-GRPO"
    _paper: ClassVar[dict[str, str]] = {
        "title": "Stronger Together: On-Policy Reinforcement Learning for Collaborative LLMs",
        "id": "2510.11062",
    }
    # Set by the constructors of TRL and transformers.
    num_generations_eval: int

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
        credit: str | credits.Named | credits.Credit = "at_grpo",
        filters: credits.AnyFilter | list[credits.AnyFilter] | None = None,
        curriculum: Curriculum | Mapping[str, Curriculum] | None = None,
        schedule: Schedule | None = None,
        peft_config: PeftConfig | None = None,
        callbacks: list[TrainerCallback] | None = None,
        optimizers: tuple[torch.optim.Optimizer | None, torch.optim.lr_scheduler.LambdaLR | None] = (None, None),
        quantization_config: Any = None,
        **unsupported: Any,
    ) -> None:
        _refuse(unsupported)
        make_env = env_makers(env)
        args = _config(args)
        branching = Branching.of(
            sampling=args.sampling,
            num_continuations=args.num_continuations,
            crash_reward=args.crash_reward,
            trains=train_dataset is not None,
        )
        self.envs = check_envs(make_env, args.seed, [train_dataset, *_each(eval_dataset)], branching)
        probes = [pool[0] for pool in self.envs.values()]
        self._environment_name = ", ".join(str(p.metadata.get("name", type(p.unwrapped).__name__)) for p in probes)
        routing = route(policies, agents_of(self.envs), model=model, tokenizer=processing_class)
        self.schedule = _schedule(schedule, args, [policy.name for policy in routing.trained])
        self.credit = credits.resolve(
            credit,
            sampling=args.sampling,
            scale=args.scale_rewards,
            num_candidates=args.num_generations,
            num_continuations=args.num_continuations,
        )
        group_filters = credits.resolve_filters(
            filters,
            sampling=args.sampling,
            num_candidates=args.num_generations,
            num_continuations=args.num_continuations,
        )
        check_resampling(args, group_filters, train_dataset)
        self.curricula = Curricula(by_environment(curriculum, self.envs))
        for name, each in self.curricula.curricula.items():
            check_levels(self.envs[name][0], each)
        check_openings(self.envs, remembering(args.history, agents_of(self.envs)))
        rewards = RewardFunctions(reward_funcs, args.reward_weights, reward_processing_classes)
        assert not isinstance(args.reward_parts, str)
        check_delayed_roles(self.envs, routing, self.credit, args, reward_functions=rewards.names)
        weigh = weigher(probes, alpha=args.alpha, weights=args.reward_parts, functions=rewards.names)
        if processing_class is not None:
            check_chat_template(processing_class)
        if train_dataset is not None and not routing.trained:
            raise ValueError(
                "a train_dataset is given, but no policy is trained. Leave it out to play and evaluate, or leave "
                "trainable=True."
            )
        check_num_rows(train_dataset, args)
        self._can_train = train_dataset is not None
        check_served(routing, args)
        check_processes(routing, args, takes_turns=self.schedule is not None)
        if args.world_size > 1 and args.accelerator_config.dispatch_batches is None:
            args.accelerator_config.dispatch_batches = False  # a stream's rows are no tensors to be sent round
        # The weights of the user's reward functions are not TRL's to use, and the engine is ours.
        self.team = Team(routing, args)
        given = self.team.prepare(
            model, processing_class=processing_class, peft_config=peft_config, quantization_config=quantization_config
        )
        with instead(args, reward_weights=None, use_vllm=False, **given.hidden):
            super().__init__(
                model=given.model,
                reward_funcs=[environment],
                args=args,
                train_dataset=train_dataset if self._can_train else Dataset.from_dict({"seed": [args.seed]}),
                eval_dataset=eval_dataset,
                processing_class=given.processing_class,
                callbacks=[CountsSteps(lambda: self.engines.after_step()), *(callbacks or [])],
                optimizers=optimizers,
                quantization_config=given.quantization_config,
                peft_config=given.peft_config,
            )
        self._attach_team()
        check_sharding(routing, self.accelerator)
        check_chat_template(self._tokenizer)
        self.codecs = {name: self._codec_of(profile) for name, profile in self.team.profiles.items()}
        follow = self._bridges(args)
        self._make_engines(args, model)
        rewards.load(partial(load_reward_model, args=args, device=self.accelerator.device))
        source = EnvironmentSource(make_env=make_env, pool=self.envs, weigh=weigh, follow=follow)
        self._make_collector(args, source, rewards=rewards, filters=group_filters)
        self._make_update(args)
        self._make_checkpoints(args)
        if self._can_train:
            self.scorer.try_all()

    # ---- The algorithm ----------------------------------------------------------------------------------------------

    def prepare_generation(self, rows: Sequence[Row]) -> list[list[Batch]]:
        """Rows to the forward passes of a generation's micro-steps: collect, credit, report, build."""
        learning = learning_in(self.schedule, self.generation_number, self.routing.trained)
        generation = self.collector.collect(rows, name=self.generation_name, learning=learning)
        # The credit sees all decisions once, before any is left out.
        advantages = self.credit(generation.decisions) if generation.decisions else []
        credits.check_advantages(advantages, generation.decisions)
        self._log_generation(generation, advantages)
        selected = generation.selection
        self.begin_table(num_tokens(generation.decisions) - num_tokens(selected.kept.decisions))
        batches = self.builder.build(
            selected.of(generation.decisions),
            selected.of(advantages),
            learning=learning,
            table=lambda decisions: self.reporter.table_of(decisions, generation.played),
        )
        if batches.num_rows:
            self.report("rollout/frac_rows_updated", 1 - batches.num_left_out / batches.num_rows)
        return batches.steps

    def _log_generation(self, generation: Generation, advantages: credits.Advantages) -> None:
        step = self.state.global_step
        metrics = self.reporter.metrics_of(generation, step=step, is_first=self.is_first_generation)
        self.report_all(metrics, "train")
        if self.args.max_resamples:
            data_epoch = self.collector.rows_played.number / len(self.epoch_sampler())
            self.report("rollout/data_epoch", data_epoch, replace=True)
        self.reporter.observe(generation, advantages, step=step)

    def play(
        self, rows: Sequence[Row], *, num_episodes: int = 1, name: str = "play", max_envs: int | None = None
    ) -> list[Episode]:
        """Play each row `num_episodes` times with the current policies: training's sampling, dropout switched off.

        With several processes call it on each, with the same rows: each plays its share, and is given all episodes.

        Args:
            rows: Instances: `seed` and reset options, and of several environments the `environment`.
            num_episodes: How often each is played.
            name: Seeds the breaking of ties.
            max_envs: Environments in play at once on a process; `None`: `args.max_envs`.

        Returns:
            Episodes, in the order of the rows.
        """
        with self.team.in_eval_mode():
            return self.collector.play(rows, num_episodes=num_episodes, name=name, max_envs=max_envs).episodes

    def weights_changed(self) -> None:
        """Tell the trainer that you have changed weights by hand, of a trained policy or a frozen one.

        With vLLM an engine has weights of its own. It is given them again after each optimizer step and each
        checkpoint that the trainer loads; of any other change the trainer does not know, and would go on to sample
        from the old ones:

        ```python
        >>> set_peft_model_state_dict(trainer.model, load_file("planner.safetensors"), adapter_name="planner")
        >>> trainer.weights_changed()
        >>> trainer.evaluate()
        ```

        Frozen full models on servers, and models in 4 bits, are the exception: no engine can be given those.
        """
        self.engines.after_change_by_hand()

    # ---- Parts ------------------------------------------------------------------------------------------------------

    def _attach_team(self) -> None:
        self.team.attach(
            lambda: self.model,
            self.accelerator,
            of_trl=self._profile_of_trl(),
            generation_kwargs=self.generation_kwargs,
        )
        self.scorer = PackedScorer(
            self.team,
            self.args,
            self.accelerator,
            model=lambda: self.model,
            activate=self.activate,
            score=self._score_as_trl,
        )
        self.activate(next(iter(self.team.profiles)))

    def _codec_of(self, profile: PolicyProfile) -> PolicyCodec:
        return PolicyCodec(
            profile,
            tokenize=self.encode_prompts,
            chat_template=self.chat_template,
            chat_template_kwargs=self.chat_template_kwargs,
        )

    def _make_engines(self, args: MultiAgentGRPOConfig, model: Any) -> None:
        """What turns messages into replies."""
        self.sampler = LocalSampler(self.team, self.codecs, activate=self.activate, generate=self.generate)
        engines = EngineSet(
            args,
            self.routing,
            self.team.model,
            in_memory=[
                policy.name
                for policy in self.routing.policies
                if policy.api is None and not isinstance(model if policy.model is None else policy.model, str)
            ],
            sample=self.sampler,
            tongues={agent: _prompt_codec(self.codecs[name]) for agent, name in self._agents_here()},
        )
        if args.use_vllm:
            set_seed(args.seed, device_specific=True)  # vLLM has seeded the process again
            self.use_vllm = True  # from here on TRL corrects for the sampler, and leaves sampling to us
        self.engines = SyncedEngines(
            args,
            self.team,
            engines,
            self.codecs,
            self.accelerator,
            wrapped=lambda: self.model_wrapped,
            activate=self.activate,
        )

    def _agents_here(self) -> list[tuple[str, str]]:
        """Agents whose policies have weights here, with their policies."""
        return [(agent, name) for agent, name in self.routing.of_agent.items() if name in self.codecs]

    def _bridges(self, args: MultiAgentGRPOConfig) -> dict[str, Follow | None]:
        """What continues the conversations of the agents that remember theirs; `None`: an API does.

        Raises:
            ValueError: A chat template does not let conversations go on.
        """
        agents = remembering(args.history, list(self.routing.of_agent))
        names = {agent: self.routing.of_agent[agent] for agent in agents}
        bridges: dict[str, Follow | None] = {}
        for name in dict.fromkeys(names.values()):
            if name not in self.codecs:
                bridges[name] = None
                continue
            context = args.vllm_max_model_length or context_length(self.team, name)
            room = None if context is None else context - (args.max_completion_length or 0)
            bridges[name] = self.codecs[name].bridge(name, longest=args.max_conversation_length or room)
        return {agent: bridges[name] for agent, name in names.items()}

    def _make_collector(
        self,
        args: MultiAgentGRPOConfig,
        source: EnvironmentSource,
        *,
        rewards: RewardFunctions,
        filters: Sequence[credits.Filter],
    ) -> None:
        """What plays, and what says how it went."""
        self.collector = RolloutCollector(
            args,
            self.accelerator,
            source=source,
            routing=self.routing,
            follow=source.follow,
            sampling=self.sampling,
            rewards=rewards,
            reward_context=lambda: {"trainer_state": self.state, "log_metric": self.report_reward_metric},
            filters=filters,
            curricula=self.curricula,
            rows_played=RowsPlayed(),
            rows_at=lambda start, number: [self.train_dataset[i] for i in places(self.epoch_sampler(), start, number)],
        )
        self.monitor = LearningMonitor(
            reply_limits(
                self.routing.of_agent,
                self.team.profiles,
                self.team.overrides,
                max_length=args.max_completion_length,
                chat_template=self.chat_template,
                chat_template_kwargs=self.chat_template_kwargs,
            )
        )
        self.reporter = GenerationReporter(
            args,
            self.team,
            self.envs,
            credit=self.credit,
            collector=self.collector,
            monitor=self.monitor,
            environment=self._environment_name,
            temperature=self.temperature,
            reward_names=rewards.names,
            is_main=self.is_world_process_zero(),
        )

    def _make_update(self, args: MultiAgentGRPOConfig) -> None:
        """What trains on a generation."""
        self.builder = BatchBuilder(
            args,
            self.team,
            self.scorer,
            self.accelerator,
            rows=self,
            has_group_means=credits.sums_to_zero(self.credit, args.sampling) == "siblings",
        )
        self.entropy = EntropyBonus([policy.name for policy in self.routing.trained], args)
        self.guard = StepGuard(list(self.routing.of_agent))
        self.references = self._moving_references()

    def _moving_references(self) -> MovingReferences | None:
        """Those that follow their policies (`sync_ref_model`).

        Raises:
            ValueError: Weights are spread over processes.
        """
        if not self.args.sync_ref_model:
            return None
        plugin = self.accelerator.state.deepspeed_plugin
        if self.is_fsdp_enabled or (plugin is not None and plugin.zero_stage == 3):
            raise ValueError(
                "sync_ref_model=True with weights that are spread over processes (FSDP, ZeRO-3), where a checkpoint "
                "could not hold the references. Use DDP or ZeRO-2, or leave it out."
            )
        own = {policy.name: self.team.profiles[policy.name].ref_model for policy in self.routing.trained}
        references = MovingReferences(
            {
                name: self.accelerator.unwrap_model(ref)
                for name, ref in own.items()
                if isinstance(ref, torch.nn.Module)
            },
            self.team.weights_of,
            alpha=self.args.ref_model_mixup_alpha,
            saves=self.args.should_save,
        )
        self.add_callback(MovesReferences(references))
        return references

    def _make_checkpoints(self, args: MultiAgentGRPOConfig) -> None:
        """What saves and publishes, and the parts whose states a checkpoint holds."""
        self.publisher = Publisher(
            self.team,
            args,
            self.envs,
            environment=self._environment_name,
            label=recorder.data_label(pool[0].metadata for pool in self.envs.values()),
            remembering=remembering(args.history, list(self.routing.of_agent)),
        )
        parts: dict[str, Any] = {
            "credit": self.credit,
            "curricula": self.curricula,
            "rows": self.collector.rows_played,
            "guard": self.guard,
            "monitor": self.monitor,
            "entropy": self.entropy,
            "references": self.references,
        }
        stateful = {name: part for name, part in parts.items() if isinstance(part, Stateful)}
        self.checkpointer = Checkpointer(args, self.accelerator, stateful)

    @property
    def stopped_by(self) -> str | None:
        """The signal that ended the last `train()`, of whichever process, `None` if it came to its end."""
        return self.checkpointer.stopped_by

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """TRL's. Raises `ValueError` where the trainer was made without a `train_dataset`."""
        if not self._can_train:
            raise ValueError("train() needs a train_dataset: give one whose rows are instances, e.g. a column 'seed'")
        self.engines.after_step()  # DeepSpeed and FSDP load a checkpoint without `_load_from_checkpoint`
        output = super().train(*args, **kwargs)
        if self.state.global_step == 0 and self.stopped_by is None:
            warnings.warn(
                f"train() has trained 0 steps: the stream of rows ended before one generation was full, which takes "
                f"{self.rows_per_generation} rows (generation_batch_size {self.args.generation_batch_size} / "
                f"num_generations {self.num_generations}). Give more rows, or lower generation_batch_size.",
                stacklevel=2,
            )
        return output

    # ---- Evaluation and logging -----------------------------------------------------------------------------------

    def prediction_step(self, model: Any, inputs: Any, prediction_loss_only: bool, ignore_keys: Any = None) -> Any:
        """Play the rows and log rewards and outcomes. A group-relative loss says nothing here; none is given."""
        if self.accelerator.num_processes > 1:
            # accelerate repeats rows until each process has as many; in here it leaves them out.
            inputs = self.accelerator.gather_for_metrics(inputs, use_gather_object=True)
        name = f"eval/{self.state.global_step}"
        with self.team.in_eval_mode():
            played = self.collector.play(inputs, num_episodes=self.num_generations_eval, name=name)
        rewards = [c.reward for episode in played.episodes for d in episode.decisions for c in d.candidates]
        metrics = self.reporter.metrics_of_episodes(played)
        self.report_all({**metrics, "reward": [sum(rewards) / len(rewards)]}, "eval")
        return None, None, None


def _prompt_codec(codec: PolicyCodec) -> PromptCodec:
    """A policy's codec as vLLM's engines take it."""
    return PromptCodec(
        tokenize=lambda messages: codec.encode([messages])[0],
        decode=lambda ids: codec.decode([ids])[0],
        stop_token_ids=codec.stop_token_ids,
    )


REPLACED = {
    "rollout_func": "the environment says what follows a reply: write it as a PettingZoo AECEnv, and give env=",
    "environment_factory": "environments are PettingZoo's AECEnv: give env=",
    "tools": "a tool is an agent or a part of the environment: let the environment's step() answer a call",
}
"""Arguments of `GRPOTrainer` that this trainer does not take, and what does their work."""


def _config(args: Any) -> MultiAgentGRPOConfig:
    """The configuration, by default one that writes to a folder of this name."""
    if args is None:
        return MultiAgentGRPOConfig("multi-agent-grpo")
    if not isinstance(args, MultiAgentGRPOConfig):
        raise TypeError(
            f"args is a {type(args).__name__}, expected a MultiAgentGRPOConfig. Change the name: it takes all that "
            "GRPOConfig does."
        )
    return args


def _refuse(unsupported: Mapping[str, Any]) -> None:
    """Raise `TypeError` for arguments that the constructor does not have."""
    for name in unsupported:
        what = REPLACED.get(
            name, "the parameters of MultiAgentGRPOTrainer are in docs/reference/trainer.md. Leave it out"
        )
        raise TypeError(f"MultiAgentGRPOTrainer has no argument {name!r}; {what}.")


def environment(**_: Any) -> list[float]:
    """Stands where TRL wants a reward function, and names its metrics (`rewards/environment/mean`).

    `_calculate_rewards` gives the rewards that the environment gave while it was played.
    """
    raise AssertionError("rewards come from the environment while it is played")


def _schedule(given: Schedule | None, args: MultiAgentGRPOConfig, trained: Sequence[str]) -> Schedule | None:
    """The user's schedule, tried once, or the one that `args` say."""
    if args.alternate_every is not None:
        if given is not None:
            raise ValueError(
                f"alternate_every is {args.alternate_every} and there is a schedule; expected one of them. Leave one "
                "out."
            )
        if len(trained) < 2:
            raise ValueError(
                f"alternate_every is {args.alternate_every}, but the policies that are trained are "
                f"{', '.join(trained) or 'none'}; expected two that take turns. Leave it out, or set policies='lora'."
            )
        given = Alternate(trained, args.alternate_every)
    if given is not None:
        check_windows(args.gradient_accumulation_steps, args.steps_per_generation * args.num_iterations)
        learners(given, 0, trained)
    return given


def _each(dataset: Any) -> list[Any]:
    return list(dataset.values()) if isinstance(dataset, dict) else [dataset]
