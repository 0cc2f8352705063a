"""`MultiAgentGRPOTrainer`: wires rollout, credit and policies into the seams of TRL's `GRPOTrainer`, nothing more.

A generation: rows of the data set are played (`rollout.play`), decisions become advantages (`credit`), and each
policy's sequences are *replayed* through the inherited `_generate_and_score_completions`, with a `rollout_func` that
returns the tokens already sampled. So padding, masks, old and reference log-probabilities, losses and metrics are
TRL's own. With one agent, one turn and K siblings this is `GRPOTrainer`, step for step.

The private seams this stands on are pinned by `tests/trl/test_trl_seams.py`.
"""

from __future__ import annotations

import time
import warnings
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar

import torch
from accelerate.utils import gather, set_seed
from datasets import Dataset, IterableDataset
from peft import PeftConfig, PeftModel
from torch.utils.data import DataLoader, Sampler
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback
from trl import GRPOTrainer
from trl.trainer.utils import RepeatSampler, get_config_model_id, repeat_iterable_dataset, shuffle_sequence_dict

from pettingllms_trl import credit as credits
from pettingllms_trl.batching import Batch, cut
from pettingllms_trl.config import MultiAgentGRPOConfig
from pettingllms_trl.curriculum import Curriculum, Progress
from pettingllms_trl.engine import Engine, Request, Sampled, Waves
from pettingllms_trl.environment import check_env, check_levels, env_maker
from pettingllms_trl.generation import sample
from pettingllms_trl.health import coordinates
from pettingllms_trl.layouts import Layouts, instead
from pettingllms_trl.metrics import of_episodes
from pettingllms_trl.order import EpochSampler
from pettingllms_trl.partners import ask
from pettingllms_trl.policies import Policy, route
from pettingllms_trl.records import Decision, Episode, check_groups
from pettingllms_trl.reward_functions import RewardFunction, judge, weighted
from pettingllms_trl.rollout import MakeEnv, play
from pettingllms_trl.run import Choice, Row
from pettingllms_trl.serving import Server, check_served
from pettingllms_trl.survival import Survives
from pettingllms_trl.voices import check_chat_template


class MultiAgentGRPOTrainer(Survives, Layouts):
    """
    Trainer for teams of language-model agents with agent- and turn-wise group-relative policy optimisation (AT-GRPO,
    [Stronger Together](https://huggingface.co/papers/2510.11062)).

    Example:

    ```python
    >>> import pettingllms_envs
    >>> from datasets import Dataset
    >>> from pettingllms_trl import MultiAgentGRPOConfig, MultiAgentGRPOTrainer

    >>> trainer = MultiAgentGRPOTrainer(
    ...     model="Qwen/Qwen3-1.7B",
    ...     env="pettingllms/plan_path-v0",
    ...     policies="lora",
    ...     args=MultiAgentGRPOConfig(output_dir="plan-path-team", num_generations=4),
    ...     train_dataset=Dataset.from_dict({"seed": range(1000)}),
    ... )
    >>> trainer.train()
    ```

    Args:
        model (`str` or [`~transformers.PreTrainedModel`] or [`~peft.PeftModel`]):
            As in [`~trl.GRPOTrainer`]. With adapters, a `PeftModel` whose adapters bear the policies' names goes on
            training them. `None` where every policy has a model of its own.
        env (`str` or `Callable[[], AECEnv]`):
            A PettingZoo AEC environment whose observations are text (a `str`, or a dict with `"text"` and perhaps
            `"system"`): an id of PettingZoo's registry, or a function that makes one. It is called once for every
            environment in play at once.
        args ([`MultiAgentGRPOConfig`], *optional*):
            Configuration. `None`: the defaults.
        train_dataset ([`~datasets.Dataset`] or [`~datasets.IterableDataset`], *optional*):
            A row is an instance: `seed` and the fields that the environment's `reset(options=...)` takes. May be left
            out where only [`~MultiAgentGRPOTrainer.play`] or `evaluate` is used.
        eval_dataset (*optional*):
            Rows of the same kind. `evaluate` plays each `args.num_generations_eval` times (once by default).
        reward_funcs (`Callable` or `list[Callable]`, *optional*):
            TRL's reward functions, added to the environment's rewards, with `args.reward_weights`. Each is called for
            one decision at a time, before the best candidate goes on: `prompts`, `completions`, `completion_ids` of
            its candidates, and for each of them the `agent`, the `turn`, the row's columns, and `trainer_state`.
        policies (`str` or `dict`, *optional*, defaults to `"shared"`):
            `"shared"` (one model plays all), `"lora"` (an adapter per role), `"full"` (a copy of the model per role),
            or a dict from agents or roles to adapter names or [`Policy`]: any mixture, with partners that are frozen
            or behind an API.
        credit (`str` or [`Credit`], *optional*, defaults to `"at_grpo"`):
            `"at_grpo"`, `"grpo"` (with `sampling="parallel"`), or a function from decisions to advantages.
        curriculum ([`Curriculum`], *optional*):
            Levels of a reset option: one is written into each row that is trained on; success reaches the next.
        peft_config ([`~peft.PeftConfig`], *optional*):
            Of the adapters. With `policies="shared"`, as in [`~trl.GRPOTrainer`]: none trains the model itself.
        processing_class, callbacks, optimizers, quantization_config:
            As in [`~trl.GRPOTrainer`].

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
    entropy_coef: float
    num_generations: int
    num_generations_eval: int
    _buffered_inputs: list[list[Batch]] | None
    _current_train_step_time: float
    _signature_columns: list[str] | None

    def __init__(
        self,
        model: str | PreTrainedModel | PeftModel | None,
        env: str | MakeEnv,
        args: MultiAgentGRPOConfig | None = None,
        train_dataset: Dataset | IterableDataset | None = None,
        eval_dataset: Dataset | IterableDataset | dict[str, Dataset | IterableDataset] | None = None,
        processing_class: PreTrainedTokenizerBase | None = None,
        *,
        reward_funcs: RewardFunction | list[RewardFunction] | None = None,
        policies: str | Mapping[str, str | Policy] = "shared",
        credit: str | credits.Credit = "at_grpo",
        curriculum: Curriculum | None = None,
        peft_config: PeftConfig | None = None,
        callbacks: list[TrainerCallback] | None = None,
        optimizers: tuple[torch.optim.Optimizer | None, torch.optim.lr_scheduler.LambdaLR | None] = (None, None),
        quantization_config: Any = None,
    ) -> None:
        if args is None:
            args = MultiAgentGRPOConfig("multi-agent-grpo")
        if args.world_size > 1:
            raise ValueError(f"{args.world_size} processes: MultiAgentGRPOTrainer runs on one process so far")
        self._make_env = env_maker(env)
        probe = check_env(self._make_env, args.seed, [train_dataset, *_each(eval_dataset)])
        self._environment_name = str(probe.metadata.get("name", type(probe.unwrapped).__name__))
        self._envs = [probe]
        routing = route(policies, list(probe.possible_agents), model=model, tokenizer=processing_class)
        self._credit = credits.resolve(
            credit,
            sampling=args.sampling,
            scale=args.scale_rewards,
            num_candidates=args.num_generations,
            num_continuations=args.num_continuations,
        )
        self._curriculum, self._progress = curriculum, Progress()
        if curriculum is not None:
            check_levels(probe, curriculum)
        self._user_rewards = weighted(reward_funcs, args.reward_weights)
        if processing_class is not None:
            check_chat_template(processing_class)
        if train_dataset is not None and not routing.trained:
            raise ValueError(
                "a train_dataset is given, but no policy is trained. Leave it out to play and evaluate, or leave "
                "trainable=True."
            )
        self._can_train = train_dataset is not None
        check_served(routing, args)
        # The weights of the user's reward functions are not TRL's to use, and the engine is ours.
        with instead(args, reward_weights=None, use_vllm=False):
            super().__init__(
                model,
                routing,
                reward_funcs=[environment],
                args=args,
                train_dataset=train_dataset if self._can_train else Dataset.from_dict({"seed": [args.seed]}),
                eval_dataset=eval_dataset,
                processing_class=processing_class,
                callbacks=callbacks,
                optimizers=optimizers,
                quantization_config=quantization_config,
                peft_config=peft_config,
            )
        self._server = self._serve(args) if args.use_vllm else None
        self.rollout_func = _replay  # set here, since TRL warns of an experiment when it is given to __init__
        check_chat_template(self._tokenizer)
        # A generation's sequences outnumber `generation_batch_size`; the completions table shall hold them all.
        for name in ("prompt", "completion", "advantages"):
            self._logs[name] = deque()
        for name in ("rewards", "extra"):
            self._logs[name] = defaultdict(deque)

    def _serve(self, args: MultiAgentGRPOConfig) -> Server:
        model = self.accelerator.unwrap_model(self.model)
        name = get_config_model_id(model.config)
        if not name:
            raise ValueError(
                "use_vllm=True with a model that was not loaded from a folder or the Hub; vLLM loads it anew from "
                "there. Save it (model.save_pretrained) and give the folder."
            )
        server = Server(
            args,
            self.routing,
            model,
            name=name,
            dtype="auto" if args.bf16 or args.fp16 else "float32",
            tokenize=lambda messages: self._tokenize_prompts([list(messages)])[0][0],
            decode=lambda ids: self.processing_class.decode(ids, skip_special_tokens=True),
            stop_token_ids=self.eos_token_ids,
        )
        set_seed(args.seed, device_specific=True)  # vLLM has seeded the process anew
        self.use_vllm = True  # from here on TRL corrects for the sampler, and leaves sampling to us
        return server

    # ---- Playing --------------------------------------------------------------------------------------------------

    def play(
        self, rows: Sequence[Row], *, num_episodes: int = 1, name: str = "play", max_envs: int | None = None
    ) -> list[Episode]:
        """Play each row `num_episodes` times with the current policies: training's sampling, dropout switched off.

        Args:
            rows: Instances: `seed` and reset options.
            num_episodes: How often each is played.
            name: Seeds the breaking of ties.
            max_envs: Environments in play at once; `None`: `args.max_envs`.

        Returns:
            Episodes, in the order of the rows.
        """
        training = self.model.training
        self.model.eval()
        try:
            return self._play(rows, sampling="parallel", num_candidates=num_episodes, name=name, max_envs=max_envs)
        finally:
            self.model.train(training)

    def _play(
        self,
        rows: Sequence[Row],
        *,
        sampling: Any,
        num_candidates: int,
        name: str,
        max_envs: int | None = None,
        num_continuations: int = 0,
    ) -> list[Episode]:
        seed = f"{self.args.seed}/{name}"
        with self._sampling(seed) as engine:
            rollout = play(
                rows,
                make_env=self._make_env,
                pool=self._envs,
                engine=engine,
                judge=self._judge if self._user_rewards else None,
                sampling=sampling,
                num_candidates=num_candidates,
                num_continuations=num_continuations,
                seed=seed,
                default_env_seed=self.args.seed,
                max_envs=max_envs or self.args.max_envs,
                max_turns=self.args.max_turns,
                num_threads=self.args.num_threads,
            )
        for reason in rollout.dropped.values():
            warnings.warn(
                f"an instance was dropped, its environment having failed three times: {reason}", stacklevel=2
            )
        mode = "train" if self.model.training else "eval"
        self._metrics[mode]["rollout/dropped"].append(len(rollout.dropped))
        self._metrics[mode]["rollout/retried"].append(rollout.retried)
        return rollout.episodes

    @contextmanager
    def _sampling(self, seed: str) -> Iterator[Engine]:
        """What samples for a rollout, with the weights of now."""
        if self._server is None:
            yield Waves(self._sample)
            return
        self._server.renew(self.accelerator.unwrap_model(self.model), self.state.global_step)
        self._last_loaded_step = self.state.global_step  # so that TRL does not load them a second time
        with self._server.engine.rollout(seed):
            yield self._server.engine

    def _sample(self, requests: Sequence[Request]) -> list[Sampled]:
        """Every request answered by its agent's policy, one policy after another."""
        answers: dict[int, Sampled] = {}
        of_agent = self.routing.of_agent
        for name in dict.fromkeys(of_agent[request.agent] for request in requests):
            own = [i for i, request in enumerate(requests) if of_agent[request.agent] == name]
            answers.update(zip(own, self._answer(self._policies[name], [requests[i] for i in own]), strict=True))
        return [answers[i] for i in range(len(requests))]

    def _answer(self, policy: Policy, requests: Sequence[Request]) -> Sequence[Sampled]:
        if policy.is_trained:
            return self._generate_as(policy, requests)
        # Candidates are compared so that their policy learns from it. A partner that does not learn answers once, as
        # it would when it is evaluated, instead of having the best of K picked for it.
        once = [replace(request, num_candidates=1) for request in requests]
        if policy.api is not None:
            answers: Sequence[Sampled] = ask(policy.api, once, num_threads=self.args.num_threads)
        else:
            with self._as_it_is(policy):
                answers = self._generate_as(policy, once)
        return [
            replace(answer, completions=answer.completions * request.num_candidates)
            for answer, request in zip(answers, requests, strict=True)
        ]

    def _generate_as(self, policy: Policy, requests: Sequence[Request]) -> Sequence[Sampled]:
        self._activate(policy.name)
        return sample(
            requests,
            tokenize=lambda prompts: self._tokenize_prompts(prompts)[0],
            generate=lambda prompt_ids: self._generate_single_turn(prompt_ids, None, {}, 1),
            decode=lambda ids: self.processing_class.batch_decode(ids, skip_special_tokens=True),
        )

    def _judge(self, choice: Choice) -> list[dict[str, float]]:
        return judge(choice, self._user_rewards, trainer_state=self.state)

    # ---- Data: a row is an instance -------------------------------------------------------------------------------

    def get_train_dataloader(self) -> DataLoader[Any]:
        """TRL's, with each row once instead of K times: the candidates are made by the rollout."""
        dataset = self.train_dataset
        if isinstance(dataset, IterableDataset):
            dataset = repeat_iterable_dataset(
                dataset.shuffle(seed=self.args.seed) if self.shuffle_dataset else dataset,
                mini_repeat_count=1,
                batch_size=self._rows_per_generation,
                repeat_count=self.num_iterations * self.args.steps_per_generation,
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

    def _get_train_sampler(self, dataset: Dataset | None = None) -> Sampler[Any]:
        return EpochSampler(
            data_source=self.train_dataset if dataset is None else dataset,
            mini_repeat_count=1,
            batch_size=self._rows_per_generation,
            repeat_count=self.num_iterations * self.args.steps_per_generation,
            shuffle=self.shuffle_dataset,
            seed=self.args.seed,
        )

    def _get_eval_sampler(self, eval_dataset: Dataset) -> Sampler[Any]:
        return RepeatSampler(data_source=eval_dataset, mini_repeat_count=1, shuffle=False)

    def _set_signature_columns_if_needed(self) -> None:
        if self._signature_columns is None:
            self._signature_columns = list(self.train_dataset.column_names or [])

    # ---- A generation ---------------------------------------------------------------------------------------------

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
            batch = self._replay_policy(policy, [decisions[i] for i in own], [advantages[i] for i in own])
            passes = cut(
                shuffle_sequence_dict(batch),
                num_steps=self.args.steps_per_generation,
                max_rows=self.args.per_device_train_batch_size,
                token_mean=self.loss_type == "bnpo",
            )
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
    ) -> dict[str, Any]:
        """One policy's sequences through TRL's own pipeline; then its advantages are replaced by the credit's."""
        rows: list[dict[str, Any]] = [
            {
                "prompt": decision.prompt,
                "prompt_ids": list(decision.prompt_ids),
                "completion": candidate.completion,
                "reward": candidate.reward,
            }
            for decision in decisions
            for candidate in decision.candidates
        ]
        extra = {
            "agent": [d.agent for d in decisions for _ in d.candidates],
            "instance": [d.instance for d in decisions for _ in d.candidates],
            "episode": [d.episode for d in decisions for _ in d.candidates],
            "turn": [d.turn for d in decisions for _ in d.candidates],
            "chosen": [k == d.chosen for d in decisions for k in range(len(d.candidates))],
        }
        for column, values in extra.items():
            self._log_completion_extra(column, values)
        self._activate(policy.name)
        self._replayed = rows
        # TRL groups consecutive rows by K; a parallel episode's decision has a single one.
        num_generations, self.num_generations = self.num_generations, len(decisions[0].candidates)
        try:
            batch = self._generate_and_score_completions(rows)
        finally:
            self.num_generations = num_generations
        if len(decisions[0].candidates) == 1:  # TRL finds each group of one to be constant
            del self._metrics["train"]["frac_reward_zero_std"]
        flat = [value for values in advantages for value in values]
        batch |= coordinates(decisions, list(self.routing.of_agent))
        batch["advantages"] = torch.tensor(flat, dtype=torch.float32, device=self.accelerator.device)
        logged = self._logs["advantages"]
        for _ in flat:
            logged.pop()
        logged.extend(flat)
        return batch

    def _calculate_rewards(
        self, inputs: list[dict[str, Any]], prompts: list[Any], completions: list[Any], completion_ids_list: list[Any]
    ) -> torch.Tensor:
        """The rewards that the environment gave while it was played. (B, 1)"""
        rewards = torch.tensor([[row["reward"]] for row in inputs], dtype=torch.float32)
        return gather(rewards.to(self.accelerator.device))

    # ---- The update -----------------------------------------------------------------------------------------------

    def training_step(
        self, model: torch.nn.Module, inputs: Any, num_items_in_batch: torch.Tensor | int | None = None
    ) -> torch.Tensor:
        """TRL's micro-step, as one forward and backward after another; an adapter is never switched in between."""
        began = time.perf_counter()
        model.train()  # decides in `_prepare_inputs` whether this is training or evaluation
        loss = torch.zeros((), device=self.accelerator.device)
        for batch in self._prepare_inputs(inputs):
            # Past GRPOTrainer's, which would count each pass as a micro-step of its own.
            loss += super(GRPOTrainer, self).training_step(model, batch, num_items_in_batch)
        self._step += 1
        self._current_train_step_time += time.perf_counter() - began
        if self._step % self.current_gradient_accumulation_steps == 0:
            self._metrics["train"]["step_time"].append(self._current_train_step_time)
            self._current_train_step_time = 0.0
        return loss

    def _compute_loss(self, model: torch.nn.Module, inputs: Batch) -> torch.Tensor:
        self._activate(inputs["policy"])
        scale = inputs["loss_scale"]
        if scale != 1.0:
            # Losses that divide by the generation's tokens need no scale; undone here, so that the same factor serves
            # them and the terms that are a mean over the pass (entropy bonus, router loss).
            inputs = {**inputs, "num_items_in_batch": inputs["num_items_in_batch"] * scale}
        metrics = self._metrics["train" if self.model.training else "eval"]
        before = {key: len(values) for key, values in metrics.items()}
        self.entropy_coef = self.args.entropy_coef * inputs["entropy_scale"]
        loss = super()._compute_loss(model, inputs)
        if len(metrics.get("entropy_coef", ())) > before.get("entropy_coef", 0):
            metrics["entropy_coef"][-1] = self.args.entropy_coef
        if len(self.routing.trained) > 1:
            # Listed first: what the loop writes would count as grown too.
            for key in [key for key, values in metrics.items() if len(values) > before.get(key, 0)]:
                metrics[f"policy/{inputs['policy']}/{key}"].append(metrics[key][-1])
        return loss if scale == 1.0 else loss * scale

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """TRL's. Raises `ValueError` where the trainer was made without a `train_dataset`."""
        if not self._can_train:
            raise ValueError("train() needs a train_dataset: give one whose rows are instances, e.g. a column 'seed'")
        return super().train(*args, **kwargs)

    # ---- Evaluation and logging -----------------------------------------------------------------------------------

    def prediction_step(self, model: Any, inputs: Any, prediction_loss_only: bool, ignore_keys: Any = None) -> Any:
        """Play the rows and log rewards and outcomes. A group-relative loss says nothing here; none is given."""
        episodes = self.play(inputs, num_episodes=self.num_generations_eval, name=f"eval/{self.state.global_step}")
        self._log_episodes(episodes, "eval")
        return None, None, None

    def _log_episodes(self, episodes: Sequence[Episode], mode: str) -> None:
        groups = mode == "train" and self.args.sampling == "tree"
        for name, values in of_episodes(episodes, groups=groups).items():
            self._metrics[mode][name].extend(values)
        if mode == "eval":  # in training TRL logs it
            rewards = [c.reward for episode in episodes for d in episode.decisions for c in d.candidates]
            self._metrics[mode]["reward"].append(sum(rewards) / len(rewards))


def environment(**_: Any) -> list[float]:
    """Stands where TRL wants a reward function, and names its metrics (`rewards/environment/mean`).

    `_calculate_rewards` gives the rewards that the environment gave while it was played.
    """
    raise AssertionError("rewards come from the environment while it is played")


def _replay(prompts: list[Any], trainer: MultiAgentGRPOTrainer) -> dict[str, Any]:
    """TRL's `rollout_func`: what was sampled already, token for token."""
    completions = [row["completion"] for row in trainer._replayed]
    logprobs = [c.logprobs for c in completions]
    return {
        "prompt_ids": [row["prompt_ids"] for row in trainer._replayed],
        "completion_ids": [list(c.ids) for c in completions],
        "logprobs": None if any(values is None for values in logprobs) else [list(values) for values in logprobs],
    }


def _each(dataset: Any) -> list[Any]:
    return list(dataset.values()) if isinstance(dataset, dict) else [dataset]
