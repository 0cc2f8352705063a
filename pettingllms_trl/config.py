"""`MultiAgentGRPOConfig`: every field of TRL's `GRPOConfig`, and the few that a team adds."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeVar

from transformers import SchedulerType
from trl import GRPOConfig

from pettingllms_trl.role_sampling import parse


Configuration = TypeVar("Configuration", bound=type)
_ARGUMENT = re.compile(r"^ {8}(\w+) \(.*\):\n((?: {12}.+\n)+)", re.MULTILINE)


def with_help(kind: Configuration) -> Configuration:
    """Give each field of a dataclass that has no `help` for the command line its text in the docstring's `Args`."""
    entries = _ARGUMENT.findall(kind.__doc__ or "")
    texts = {name: " ".join(text.split()).replace("%", "%%") for name, text in entries}
    for field in dataclasses.fields(kind):
        if field.name in texts and "help" not in field.metadata:
            field.metadata = MappingProxyType({"help": texts[field.name], **field.metadata})
    return kind


CHOICES: Mapping[str, tuple[Sequence[str | None], str]] = {
    "sampling": (("tree", "parallel", None), "'tree' or 'parallel', or None for what suits the credit"),
    "choose": (("reward", "value", "random"), "'reward', 'value' or 'random'"),
    "continuation_group": (("decision", "candidate"), "'decision' or 'candidate'"),
    "imitate": (("best", "success", None), "'best' or 'success', or None for policy gradients with a credit"),
    "replay": (("all", "last"), "'all' rounds so far or the 'last'"),
    "vllm_weight_transfer": (("files", "nccl"), "'files' or 'nccl'"),
    "canary": (("stop", "warn", None), "'stop', 'warn' or None to compare nothing"),
    "audit": (("warn", "stop", None), "'warn', 'stop' or None to look at nothing"),
}


@with_help
@dataclass
class MultiAgentGRPOConfig(GRPOConfig):
    r"""
    Configuration of [`MultiAgentGRPOTrainer`]. All of [`~trl.GRPOConfig`] keeps its meaning, with two notes:

    - `num_generations` is K, the number of candidates a decision samples (`sampling="tree"`), or of episodes an
      instance is played (`sampling="parallel"`).
    - `generation_batch_size / num_generations` rows of the data set are played per generation, as in
      [`~trl.GRPOTrainer`]. A row gives K sequences for *each decision* of its episode, so a step trains on more
      sequences than `generation_batch_size`; they pass through the model at most `per_device_train_batch_size` at a
      time, so memory does not grow with the length of episodes.

    With several processes a generation's rows are shared out, each process plays its share at its own pace, and what
    was sampled is then redistributed for training; the update is that of one process with all of it.

    Args:
        sampling (`str`, *optional*):
            `"tree"`: at each decision the policy samples K candidates from one prompt, each is played on a branch of
            its own and scored, and the best goes on. `"parallel"`: each instance is played K times, independently.
            `None`: the one that suits the trainer's `credit`; `"tree"` for the default, unless a role is paid later.
            `trainer.args` is then a copy that has the choice, and the object that you gave stays as it is.
        max_envs (`int`, *optional*):
            How many environments are in play at once, on each process. `None` plays all its rows of a generation
            together; fewer bounds the number of sequences in one call of the generator. With vLLM and several
            processes, those that have room then take further rows from a common counter; episodes do not depend on the
            process that plays them. What they leave room for, K for each row with `None`, is used for candidates of
            slow environments that are replayed. Besides, slow ones on threads may step candidates in further ones, at
            most one for each thread.
        max_turns (`int`, *optional*):
            Most decisions of an agent in an episode, which ends there. `None` leaves it to the environment.
        num_threads (`int`, *optional*, defaults to `0`):
            Threads on which environments are stepped, beside each other and the engine: for environments that wait,
            for a sandbox, a search, a game server. One that takes 10 ms or more for a step, and is restored or
            replayed rather than copied, has the candidates of a decision stepped at once, each in an environment of
            its own, so that as many more are made as there are threads at most; `num_generations` threads for each
            decision that is played at the same time are all it can use. The same number of further threads call
            policies behind an API. With `0` all of that is done one after the other. An environment that computes in
            Python holds the interpreter's lock while it does: on threads it is no faster, and holds up the engine's
            own loop. Leave `0` for it, or have it compute in a process of its own.
        env_timeout (`float`, *optional*):
            Seconds that one call of an environment may take, on threads (`num_threads`); then it has failed, and its
            instance is restarted, and dropped after the third failure. Its thread cannot be ended: it is abandoned
            and counted, and training stops when more than 32 have not come back. Reward functions have no limit.
        env_workers (`str` or `dict[str, Any]`, *optional*):
            `"ray"`, or the address of a Ray cluster: its actors hold the environments, and each of the `num_threads`
            waits for one. A dict may have the `address`, how many `actors` there are (the cluster's CPUs), a
            `runtime_env`, and Ray's options of an actor. Needs the extra `ray`; see docs/gpus.md.
        crash_reward (`float`, *optional*):
            What an agent gets for a reply that crashes its environment twice, in a state in which another reply does
            not: a number below any return, or crashing pays. The reply's branch ends there. `None`: a crash is the
            environment's failure, whatever the reply; its instance is restarted, then dropped, and never scored. Where
            all environments are programs with `reward_ranges`, the default is the least that these allow.
        history (`str` or `dict[str, str]`, *optional*, defaults to `"none"`):
            `"none"`: an agent's prompt is what it observes now. `"conversation"`: it is its own earlier prompts and
            replies of the episode, followed by what it observes now, user, assistant, user, ...; in tokens, exactly
            those that it was given and sampled, so that a prefix cache knows them. Thinking stays in, also where the
            chat template would drop it from earlier turns. A dict says it by agent or role. An environment whose
            observations have a `"followup"` has that said to an agent that remembers, instead of the `"text"`. An
            agent that observes several `"messages"` has no history but those, and raises a `ValueError` otherwise. A
            prompt longer than the model's context (`vllm_max_model_length`, where it is set) less
            `max_completion_length` is restarted from the present observation.
        num_continuations (`int`, *optional*, defaults to `0`):
            How often each candidate's branch is played to its end by the current policies in training, for
            `credit="counterfactual"`, `choose="value"` and `train_continuations`. Costs `num_generations *
            num_continuations` episodes for each decision.
        choose (`str`, *optional*, defaults to `"reward"`):
            Which candidate of a tree is played on. `"reward"`: that with the highest reward for its own step, as in
            the paper. `"value"`: that with the highest value, the reward of its step plus the mean return of its
            continuations to the acting agent, so that a message is chosen by what came of it. It needs
            `num_continuations`, and an episode waits at each decision until the continuations are over. `"random"`:
            any whose step did not fail, so that later decisions are trained in the states that the policy alone
            reaches, as in evaluation, rather than those that the best of K candidates reaches.
        train_continuations (`bool`, *optional*, defaults to `False`):
            Train on the decisions of continuations, too, which were sampled anyway. Each is compared, by the return
            from its step on, with those of the same agent at the same turn in the other continuations of the same
            decision's candidates ([`~pettingllms_trl.credit.continuation_advantages`]), whatever the credit scheme.
            The rollout costs the same, the update as much more as there are more tokens.
        continuation_group (`str`, *optional*, defaults to `"decision"`):
            With which others a decision inside a continuation is compared: `"decision"`, with those in the
            continuations of all candidates of one decision; `"candidate"`, of the same candidate only. Then the first
            prompt after the candidate is the same for all, and `num_continuations` must be at least 2.
        branch_at (`list[str]`, *optional*):
            Agents or roles at whose decisions a tree branches, whether they learn or not. The others answer once, and
            learn from continuations alone, so that it needs `train_continuations`. With `branch_at=["designer"]`, a
            designer that acts once has `num_generations` designs, each of which is executed `num_continuations` times.
            `None`: it branches at all decisions of agents that learn.
        alpha (`float`, *optional*):
            Weight of the team's parts of every reward, `alpha * team + local`. `None` leaves them as the environment
            weighs them. Rewards are weighed in the rollout, for every agent, before the best candidate is chosen.
        reward_parts (`dict[str, float]`, *optional*):
            Weight of each named part of the rewards (`infos[agent]["rewards"]`, and those of reward functions by their
            name), such as `{"format": 2.0, "progress": 0.0}`; 1 where none is given. Parts are logged unweighed. Names
            are checked against the parts that the environment declares (`metadata["reward_ranges"]`). If it declares
            none, a part may come later; one that has not come in the first generation is warned of.
        max_resamples (`int`, *optional*, defaults to `0`):
            Dynamic sampling as in DAPO: where the trainer's `filters` leave less than a generation's rows hold, or an
            environment's failure dropped some, further rows are played, at most `max_resamples` times and at most a
            generation's rows each time; what exceeds a full generation is cut off. The rows are the next ones of the
            data set, so that the data passes faster than `epoch` says. `0`: never.
        max_generated_tokens (`int`, *optional*):
            Stop training once the policies have generated this many tokens, at the end of the generation that reaches
            it. Everything that is sampled in training counts, candidates that are not played on and continuations
            included; prompts, evaluations and agents behind an API do not. The count is saved in checkpoints. As the
            number of steps is not known in advance, use a constant `lr_scheduler_type` and a `max_steps` that is never
            reached. `None`: no limit.
        imitate (`str`, *optional*):
            Expert iteration instead of a credit scheme: in rounds, the team plays, some of its replies are kept, and
            their tokens are imitated. `"success"` keeps the replies of episodes that succeeded
            (`outcome["success"]`), `"best"` the best of each group, as `credit="best"` has them; neither one that was
            cut off. The loss is the negative log-likelihood of the sampled ids, TRL's `"cispo"` at a ratio and an
            advantage of 1 (`trainer.args` is a copy that says so); `credit`, `filters`, `beta` and `loss_type` are
            left out. `None`: policy gradients. `docs/training.md` says more.
        num_rounds (`int`, *optional*, defaults to `10`):
            Rounds of `imitate`. Each plays generations of the ordinary size, one at least, until its share of
            `max_generated_tokens` is spent, or without that of the rows of all epochs.
        replay (`str`, *optional*, defaults to `"all"`):
            A round of `imitate` makes `num_iterations` passes over what `"all"` rounds so far have kept, or the
            `"last"`, in mini-batches of `per_device_train_batch_size * gradient_accumulation_steps` replies of each
            policy, on each process.
        keep_fraction (`float`, *optional*):
            With `imitate="success"`: keep this share of an agent's episodes of a generation with the highest returns
            to it, none with the lowest, instead of those that succeeded.
        alternate_every (`int`, *optional*):
            The policies are trained in turn, for this number of generations each, in the order of the agents that they
            play; the others are frozen meanwhile, and answer each prompt once. `None`: all are trained on every
            generation. For another order give the trainer a `schedule`.
        image_gain_steps (`int`, *optional*, defaults to `0`):
            Log `agent/<agent>/image_gain` of the first generation in each `image_gain_steps` optimizer steps: how much
            likelier an agent's replies are beside the images that it observes than beside those of another instance,
            in nats for a reply. 0 where its policy does not look at them. It takes two further forward passes of that
            generation's sequences. `0`: never.
        log_rollouts (`bool`, *optional*, defaults to `False`):
            Write every training rollout to `output_dir/rollouts`, with all candidates, their rewards and advantages;
            `pettingllms view output_dir/rollouts` makes a page of them. A resumed run goes on in the same files.
        shared_prefix (`bool`, *optional*, defaults to `True`):
            In the update a prompt goes through the model once for all candidates that answer it, forward and backward,
            and so does a conversation for all its turns in a pass where that is cheaper; several decisions are laid in
            one row without padding. Log-probabilities and a generation's gradients are TRL's but for rounding, except
            that dropout is drawn once for what is read once, that learned positions are those of the prompt without
            its padding, and that passes and optimizer steps hold other sequences than TRL's: this matters with several
            optimizer steps a generation (`steps_per_generation > gradient_accumulation_steps`), with means over the
            tokens of a micro-step (`loss_type="bnpo"`, an entropy bonus), and with `top_entropy_quantile < 1`.
            Sequences that cannot move a weight (no advantage, no KL term, entropy bonus or router loss,
            `top_entropy_quantile=1`) do not go through the model; they count in every denominator, but not in
            `entropy`, `clip_ratio/*` and `sampling/*`. A model that cannot share prompts is updated by TRL's path,
            with a warning when the trainer is created. `False`: TRL's path, bit for bit; with learned positions
            (GPT-2) it is wrong for padded prompts, as TRL's is, and the trainer warns. While
            `generate` samples, a prompt is read once for its candidates, too, and with `history="conversation"` from
            where it goes on from what its policy has read in the rollout.
        max_tokens_per_microbatch (`int`, *optional*):
            Most tokens that go through the model together on each process, padding and shared prompts as they are
            passed through it. Passes are of sequences of like length, each weighs as ever, and on all processes they
            are equally many. `None`: the tokens of `per_device_train_batch_size` of the longest sequences where
            prompts are shared, else `per_device_train_batch_size` rows.
        per_device_eval_batch_size (`int`, *optional*):
            Rows that an evaluation plays at once on each process. `None`: about as many episodes as training samples
            replies of at once, `per_device_train_batch_size * steps_per_generation`, and at least 8 rows.
        num_generations_eval (`int`, *optional*, defaults to `1`):
            How many episodes an evaluation plays of each row. `None`: `num_generations`, TRL's default.
        role_sampling (`dict[str, dict]`, *optional*):
            How single agents or roles sample, where it is not as the configuration says: `{"planner": {"temperature":
            0.7, "stop": ["\n\n"]}}`, with any of `temperature`, `top_p`, `top_k`, `min_p`, `repetition_penalty`,
            `max_completion_length`, `stop` and `enable_thinking` (of the chat template). The loss of a policy is taken
            at its role's temperature.
        role_sampling_eval (`dict[str, dict]`, *optional*):
            The same for evaluations alone, where single agents or roles are to sample otherwise than in training:
            `{"planner": {"temperature": 0.2, "enable_thinking": True}}`.
        vllm_server_urls (`dict[str, str]`, *optional*):
            Servers of single policies, by the policy's name: `{"planner": "http://one:8000", "coder":
            "http://two:8000"}`; several urls with commas are replicas. Each full model needs one with
            `vllm_mode="server"`; with `"colocate"` those named are on servers, the others in this process.
        vllm_weight_transfer (`str`, *optional*, defaults to `"files"`):
            How the weights of a whole model that is trained reach its servers. `"files"`: over `output_dir`, which the
            servers must see under the same path. `"nccl"`: over NCCL, from the main process, with process groups on
            `vllm_group_port` and the ports after it; trainer and servers need CUDA, and the servers
            `VLLM_SERVER_DEV_MODE=1` and `--weight-transfer-config '{"backend": "nccl"}'`. It is experimental: it was
            never run on a GPU.
            Adapters go over `output_dir` in either case, because vLLM reads them from a path only.
        canary (`str`, *optional*, defaults to `"stop"`):
            With vLLM: every ten optimizer steps each policy's engine scores a fixed text of 256 tokens at most, and
            the trainer compares that with its own log-probabilities, so that an engine with old weights is noticed.
            What to do then: `"stop"` raises `StaleWeights`, `"warn"` warns. `None`: nothing is scored.
            `docs/generation.md` says what it can find. It costs a forward pass over the text on either side.
        audit (`str`, *optional*, defaults to `"warn"`):
            Each generation's groups are checked: one prompt, agent, turn and instance, all candidates and one of
            them chosen, finite numbers, advantages that follow from the rewards, copied candidates, states of the
            branches, swapped agents. What to do where one is broken: `"warn"` warns once of each kind, `"stop"`
            raises `UnsoundRollouts` where a check failed. `None`: they are not looked at.
            `docs/audit.md` says what is found; `pettingllms audit` finds more in the files of a run.
    """

    _VALID_DICT_FIELDS = [  # noqa: RUF012  # as in TRL
        *GRPOConfig._VALID_DICT_FIELDS,
        "history",
        "reward_parts",
        "role_sampling",
        "role_sampling_eval",
        "vllm_server_urls",
        "env_workers",
    ]

    sampling: Literal["tree", "parallel"] = None  # type: ignore[assignment]  # until the trainer that is given it chooses
    max_envs: int | None = None
    max_turns: int | None = None
    num_continuations: int = 0
    choose: Literal["reward", "value", "random"] = "reward"
    train_continuations: bool = False
    continuation_group: Literal["decision", "candidate"] = "decision"
    branch_at: list[str] | None = None
    num_threads: int = 0
    alpha: float | None = None
    reward_parts: dict[str, Any] | str | None = None
    max_resamples: int = 0
    max_generated_tokens: int | None = None
    imitate: Literal["best", "success"] | None = None
    num_rounds: int = 10
    replay: Literal["all", "last"] = "all"
    keep_fraction: float | None = None
    alternate_every: int | None = None
    env_timeout: float | None = None
    env_workers: dict[str, Any] | str | None = None
    crash_reward: float | None = None
    history: dict[str, str] | str | None = "none"
    image_gain_steps: int = 0
    log_rollouts: bool = False

    shared_prefix: bool = True
    max_tokens_per_microbatch: int | None = None
    per_device_eval_batch_size: int | None = None
    num_generations_eval: int | None = 1
    role_sampling: dict[str, Any] | str | None = None
    role_sampling_eval: dict[str, Any] | str | None = None
    vllm_server_urls: dict[str, Any] | str | None = None
    vllm_weight_transfer: Literal["files", "nccl"] = "files"
    canary: Literal["stop", "warn"] | None = "stop"
    audit: Literal["warn", "stop"] | None = "warn"

    def __post_init__(self) -> None:
        resume: Any = self.resume_from_checkpoint
        if str(resume).lower() in ("true", "false"):  # a text on the command line, where it may also be a path
            self.resume_from_checkpoint: Any = str(resume).lower() == "true"
        if self.num_generations < 2:
            raise ValueError(
                f"num_generations={self.num_generations}: a candidate is judged against its siblings, so at least 2 "
                "are needed. Set num_generations=4 or more."
            )
        for name, (values, words) in CHOICES.items():
            if getattr(self, name) not in values:
                raise ValueError(f"{name}={getattr(self, name)!r}, expected {words}")
        for name in ("max_envs", "max_turns", "max_generated_tokens", "alternate_every", "max_tokens_per_microbatch"):
            value: Any = getattr(self, name)
            if value is not None and value < 1:
                none = "no turns" if name == "alternate_every" else "no bound"
                raise ValueError(f"{name}={value}, expected a positive number, or None for {none}")
        if self.save_on_each_node:
            raise ValueError(
                "save_on_each_node=True, expected False: a checkpoint is one folder. Put it on a shared disk."
            )
        for name in ("num_continuations", "max_resamples", "image_gain_steps"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)}, expected 0 or more")
        self._check_continuations()
        self._check_imitation()
        if self.env_timeout is not None and not (self.env_timeout > 0 and self.num_threads > 0):
            raise ValueError(
                f"env_timeout={self.env_timeout} with num_threads={self.num_threads}, expected seconds above 0, and "
                "threads: without them nothing can interrupt a call of the environment. Set num_threads=8, say, or "
                "leave "
                "env_timeout out."
            )
        if self.crash_reward is not None and not math.isfinite(self.crash_reward):
            raise ValueError(f"crash_reward={self.crash_reward}, expected a finite number, or None to drop instances")
        if self.multi_objective_aggregation != "sum_then_normalize":
            raise ValueError(
                f"multi_objective_aggregation={self.multi_objective_aggregation!r}, expected 'sum_then_normalize': "
                "the sum of a candidate's rewards decides which goes on, and advantages are made of it by the credit "
                "scheme. Weigh the rewards (reward_weights), or give a credit function that reads candidate.parts."
            )
        if self.max_tool_calling_iterations is not None:
            raise ValueError(
                f"max_tool_calling_iterations={self.max_tool_calling_iterations}, but a tool is an agent or a part of "
                "the environment here, and TRL's tool loop is not run. Set max_turns, or leave it out."
            )
        if self.max_completion_length is not None and self.max_completion_length < 1:
            raise ValueError(
                f"max_completion_length={self.max_completion_length}, expected the most tokens of a reply, 1 or more. "
                "Set max_completion_length=256."
            )
        episodes = self.num_generations_eval or self.num_generations  # of a row
        if as_in_training := self.per_device_eval_batch_size is None:
            self.per_device_eval_batch_size = episodes  # which TRL checks
        try:
            super().__post_init__()
        except ValueError as error:
            if not str(error).startswith("generation_batch_size"):
                raise
            raise ValueError(f"{error} {self._fitting_batches()}") from error
        if as_in_training:
            replies = self.per_device_train_batch_size * self.steps_per_generation
            self.per_device_eval_batch_size = max(8, replies // episodes)
        parse(self.role_sampling)
        parse(self.role_sampling_eval, "role_sampling_eval")
        parts = self.reward_parts
        if not isinstance(parts, dict | None) or not all(isinstance(w, int | float) for w in (parts or {}).values()):
            raise ValueError(
                f"reward_parts={parts!r}, expected a mapping from the names of parts to numbers. Write "
                "reward_parts={'format': 2.0}, on the command line '{\"format\": 2.0}'."
            )

    def _check_continuations(self) -> None:
        """Raise `ValueError` for options that need a tree, or one with continuations."""
        if self.choose == "random" and self.sampling == "parallel":
            raise ValueError(
                "choose='random' with sampling='parallel', expected 'tree': elsewhere a decision has one candidate. "
                "Set sampling='tree', or choose='reward'."
            )
        if self.branch_at is not None and (not isinstance(self.branch_at, list) or not self.train_continuations):
            raise ValueError(
                f"branch_at={self.branch_at!r} with train_continuations={self.train_continuations}, expected a list "
                "of agents or roles, and True: the others learn from continuations alone. Set "
                "train_continuations=True, or leave branch_at out."
            )
        if self.continuation_group == "candidate" and not (self.train_continuations and self.num_continuations > 1):
            raise ValueError(
                f"continuation_group='candidate' with train_continuations={self.train_continuations} and "
                f"num_continuations={self.num_continuations}, expected True and at least 2: the continuations of a "
                "candidate are compared. Set them, or continuation_group='decision'."
            )
        chosen = "choose='value'" if self.choose == "value" else "train_continuations=True"
        other = "choose='reward'" if self.choose == "value" else "train_continuations=False"
        if self.choose != "value" and not self.train_continuations:
            return
        if self.sampling == "parallel":
            raise ValueError(
                f"{chosen} with sampling={self.sampling!r}, expected 'tree': the continuations of a decision's "
                f"candidates are compared, and here it has one candidate. Set sampling='tree', or {other}."
            )
        if not self.num_continuations:
            raise ValueError(
                f"{chosen} with num_continuations=0, expected at least 1 continuation of each candidate. Set "
                f"num_continuations=1, or {other}."
            )

    def _check_imitation(self) -> None:
        """Raise `ValueError` for options that expert iteration does not have, or that it alone has."""
        if isinstance(self.num_rounds, bool) or not isinstance(self.num_rounds, int) or self.num_rounds < 1:
            raise ValueError(f"num_rounds={self.num_rounds!r}, expected a whole number, 1 or more. Set num_rounds=10.")
        for name, unset in {"num_rounds": 10, "replay": "all"}.items():
            if self.imitate is None and getattr(self, name) != unset:
                raise ValueError(
                    f"{name}={getattr(self, name)!r} without imitate, whose rounds it is about; expected 'best' or "
                    f"'success'. Set imitate, or leave {name} out."
                )
        if self.keep_fraction is not None and self.imitate != "success":
            raise ValueError(
                f"keep_fraction={self.keep_fraction} with imitate={self.imitate!r}, expected 'success', whose "
                "episodes it chooses. Set imitate='success', or leave keep_fraction out."
            )
        if self.imitate is None:
            return
        unused = {"beta": 0.0, "loss_type": GRPOConfig.loss_type, "train_continuations": False, "fp16": False}
        unused["top_entropy_quantile"] = 1.0
        for name, value in unused.items():
            if getattr(self, name) != value:
                raise ValueError(
                    f"{name}={getattr(self, name)!r} with imitate={self.imitate!r}, expected {value!r}: the loss is "
                    "the log-likelihood of the replies that are kept, perhaps of none in a step. Leave it out."
                )
        schedule = SchedulerType(self.lr_scheduler_type).value
        is_constant = schedule in ("linear", "constant", "constant_with_warmup") and not 0 < self.warmup_steps < 1
        if self.max_steps < 0 and not is_constant:
            raise ValueError(
                f"lr_scheduler_type={schedule!r} and warmup_steps={self.warmup_steps} with imitate={self.imitate!r}, "
                "whose number of steps is not known in advance; expected 'constant' or 'constant_with_warmup' with a "
                "number of steps. Set them, or max_steps, with which training ends at the latest."
            )

    def _fitting_batches(self) -> str:
        """How a generation's batch comes about, and the nearest values that fit together."""
        at_once = self.per_device_train_batch_size * self.world_size
        unit = math.lcm(at_once, self.num_generations)
        given = self.generation_batch_size or at_once
        below = given // unit * unit
        sizes = " or ".join(str(size) for size in (below, below + unit) if size)
        said = (
            f"The global batch size {at_once} is per_device_train_batch_size {self.per_device_train_batch_size} x "
            f"{self.world_size} processes"
        )
        divisors = [k for k in range(2, given + 1) if given % k == 0 and given % at_once == 0]
        near = sorted(sorted(divisors, key=lambda k: abs(k - self.num_generations))[:2])
        groups = f", or num_generations={' or '.join(map(str, near))}" if near else ""
        return f"{said}. Set generation_batch_size={sizes}{groups}."


@contextmanager
def override_args(args: Any, **values: Any) -> Iterator[None]:
    """Temporarily change attributes, such as arguments that are handled here and hidden from TRL's constructor."""
    before = {name: getattr(args, name) for name in values}
    for name, value in values.items():
        setattr(args, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(args, name, value)
