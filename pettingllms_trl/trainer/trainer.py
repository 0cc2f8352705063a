"""`MultiAgentGRPOTrainer`: what a user makes, checked at the door, and the loss of a micro-step; the rest is below it.

| file                     | class                   | what                                                          |
|--------------------------|-------------------------|---------------------------------------------------------------|
| `trainer/trainer.py`     | `MultiAgentGRPOTrainer` | arguments, and the parts that it makes of them                |
| `trainer/replaying.py`   | `Replays`               | a generation's decisions to the passes of its micro-steps     |
| `trainer/collecting.py`  | `Collects`              | rows to a generation's episodes, and what is trained on       |
| `trainer/playing.py`     | `Plays`                 | rows to episodes                                              |
| `trainer/hooks.py`       | `TRLHooks`              | what TRL calls: passes, policies, the optimizer, checkpoints  |
| TRL                      | `GRPOTrainer`           | padding, masks, old and reference log-probabilities, losses   |

Its parts, each with a state of its own:

| part          | class              | what                                                                    |
|---------------|--------------------|-------------------------------------------------------------------------|
| `team`        | `Team`             | the weights of all policies, and which of them forward passes go to     |
| `scorer`      | `PackedScorer`     | log-probabilities, with a prompt read once for all that begin with it   |
| `entropy`     | `EntropyBonus`     | each policy's entropy bonus                                             |
| `guard`       | `StepGuard`        | steps that are not finite change no weight                              |
| `references`  | `MovingReferences` | references that follow their policies                                   |
| `curricula`   | `Curricula`        | levels of instances                                                     |
| `checkpointer`| `Checkpointer`     | whole checkpoints, resumption, signals                                  |
| `publisher`   | `Publisher`        | the card of a saved team, and `team.json`                               |

With one agent, one turn and K siblings this is `GRPOTrainer`, step for step. The private seams that all of it stands
on are pinned by `tests/trl/trainer/test_trl_seams.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import torch
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
from pettingllms_trl.credit.selection import check_resampling
from pettingllms_trl.engines.factory import check_served
from pettingllms_trl.engines.versions import CountsSteps
from pettingllms_trl.policies.profiles import check_chat_template
from pettingllms_trl.policies.prompt_encoder import decoder
from pettingllms_trl.policies.references import MovesReferences, MovingReferences
from pettingllms_trl.policies.routing import Policy, route
from pettingllms_trl.policies.schedule import Alternate, Schedule, check_windows, learners
from pettingllms_trl.policies.team import Team, override_args
from pettingllms_trl.records import Stateful
from pettingllms_trl.rollout.branch_probe import Branching
from pettingllms_trl.rollout.curriculum import Curricula, Curriculum, by_environment
from pettingllms_trl.rollout.env_checks import Env, agents_of, check_envs, check_levels, check_openings, env_makers
from pettingllms_trl.rollout.prompts import agents_with_history
from pettingllms_trl.trainer import recorder
from pettingllms_trl.trainer.dataloading import RowsPlayed, check_num_rows
from pettingllms_trl.trainer.delayed_rewards import check_delayed_roles
from pettingllms_trl.trainer.distributed import check_processes, check_sharding
from pettingllms_trl.trainer.monitor import LearningMonitor, reply_limits
from pettingllms_trl.trainer.replaying import Replays, replay
from pettingllms_trl.update.entropy import EntropyBonus
from pettingllms_trl.update.packed_logprobs import PackedScorer
from pettingllms_trl.update.step_guard import StepGuard


class MultiAgentGRPOTrainer(Replays):
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
    num_generations: int
    num_generations_eval: int
    _signature_columns: list[str] | None

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
        self._make_env = env_makers(env)
        args = _config(args)
        branching = Branching.of(
            sampling=args.sampling,
            num_continuations=args.num_continuations,
            crash_reward=args.crash_reward,
            trains=train_dataset is not None,
        )
        self._envs = check_envs(self._make_env, args.seed, [train_dataset, *_each(eval_dataset)], branching)
        probes = [pool[0] for pool in self._envs.values()]
        self._environment_name = ", ".join(str(p.metadata.get("name", type(p.unwrapped).__name__)) for p in probes)
        routing = route(policies, agents_of(self._envs), model=model, tokenizer=processing_class)
        self._schedule = _schedule(schedule, args, [policy.name for policy in routing.trained])
        self._credit = credits.resolve(
            credit,
            sampling=args.sampling,
            scale=args.scale_rewards,
            num_candidates=args.num_generations,
            num_continuations=args.num_continuations,
        )
        self._filters = credits.resolve_filters(
            filters,
            sampling=args.sampling,
            num_candidates=args.num_generations,
            num_continuations=args.num_continuations,
        )
        check_resampling(args, self._filters, train_dataset)
        self.curricula = Curricula(by_environment(curriculum, self._envs))
        self.rows_played = RowsPlayed()
        for name, each in self.curricula.curricula.items():
            check_levels(self._envs[name][0], each)
        check_openings(self._envs, agents_with_history(args.history, agents_of(self._envs)))
        self._user_rewards = RewardFunctions(reward_funcs, args.reward_weights, reward_processing_classes)
        assert not isinstance(args.reward_parts, str)
        check_delayed_roles(self._envs, routing, self._credit, args, reward_functions=self._user_rewards.names)
        self._weigh = weigher(probes, alpha=args.alpha, weights=args.reward_parts, functions=self._user_rewards.names)
        if processing_class is not None:
            check_chat_template(processing_class)
        if train_dataset is not None and not routing.trained:
            raise ValueError(
                "a train_dataset is given, but no policy is trained. Leave it out to play and evaluate, or leave "
                "trainable=True."
            )
        check_num_rows(train_dataset, args)
        self._judgements, self._writers, self._readers = {}, {}, {}
        self._can_train = train_dataset is not None
        check_served(routing, args)
        check_processes(routing, args, takes_turns=self._schedule is not None)
        if args.world_size > 1 and args.accelerator_config.dispatch_batches is None:
            args.accelerator_config.dispatch_batches = False  # a stream's rows are no tensors to be sent round
        # The weights of the user's reward functions are not TRL's to use, and the engine is ours.
        self.team = Team(routing, args)
        given = self.team.prepare(
            model, processing_class=processing_class, peft_config=peft_config, quantization_config=quantization_config
        )
        with override_args(args, reward_weights=None, use_vllm=False, **given.hidden):
            super().__init__(
                model=given.model,
                reward_funcs=[environment],
                args=args,
                train_dataset=train_dataset if self._can_train else Dataset.from_dict({"seed": [args.seed]}),
                eval_dataset=eval_dataset,
                processing_class=given.processing_class,
                callbacks=[CountsSteps(self._count_step), *(callbacks or [])],
                optimizers=optimizers,
                quantization_config=given.quantization_config,
                peft_config=given.peft_config,
            )
        self._attach_team()
        check_sharding(routing, self.accelerator)
        check_chat_template(self._tokenizer)
        for name, profile in self.team.profiles.items():
            self._writers[name], self._readers[name] = self._writer_of(name), decoder(profile.processing_class)
        self._follow = self._conversations()
        self._serving = self._serve(args, model)
        self._canary = self._make_canary(args)
        self._user_rewards.load(partial(load_reward_model, args=args, device=self.accelerator.device))
        self.rollout_func = replay  # set here, since TRL warns of an experiment when it is given to __init__
        self._rollout_log, self._rollout_audit = self._logged_rollouts(), self._make_rollout_audit()
        self._monitor = LearningMonitor(
            reply_limits(
                routing.of_agent,
                self.team.profiles,
                self.team.overrides,
                max_length=args.max_completion_length,
                chat_template=self.chat_template,
                chat_template_kwargs=self.chat_template_kwargs,
            )
        )
        self._make_parts(args)
        self._hold_all_completions()
        if self._can_train:
            self.scorer.try_all()

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

    def _make_parts(self, args: MultiAgentGRPOConfig) -> None:
        """The parts of an update, and the checkpoints that hold their states."""
        self.entropy = EntropyBonus([policy.name for policy in self.routing.trained], args)
        self.guard = StepGuard(list(self.routing.of_agent))
        self.references = self._moving_references()
        self.publisher = Publisher(
            self.team,
            args,
            self._envs,
            environment=self._environment_name,
            label=recorder.data_label(pool[0].metadata for pool in self._envs.values()),
            agents_with_history=agents_with_history(args.history, list(self.routing.of_agent)),
        )
        parts: dict[str, Any] = {
            "credit": self._credit,
            "curricula": self.curricula,
            "rows": self.rows_played,
            "guard": self.guard,
            "monitor": self._monitor,
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
        self._count_step()  # DeepSpeed and FSDP load a checkpoint without `_load_from_checkpoint`
        output = super().train(*args, **kwargs)
        if self.state.global_step == 0 and self.stopped_by is None:
            warnings.warn(
                f"train() has trained 0 steps: the stream of rows ended before one generation was full, which takes "
                f"{self._rows_per_generation} rows (generation_batch_size {self.args.generation_batch_size} / "
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
        episodes = self.play(inputs, num_episodes=self.num_generations_eval, name=f"eval/{self.state.global_step}")
        self._log_episodes(episodes, "eval")
        return None, None, None


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
