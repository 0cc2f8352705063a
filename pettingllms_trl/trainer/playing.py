"""`Plays`: rows of the data set to episodes, played by the policies as they are now, by vLLM or by `generate`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from accelerate.utils import set_seed
from pettingzoo import AECEnv

from pettingllms_trl.config import MultiAgentGRPOConfig
from pettingllms_trl.credit.reward_functions import RewardFunctions, RewardScores
from pettingllms_trl.engines.canary import LARGEST_AT_START, Array, Canary, Own
from pettingllms_trl.engines.factory import EngineSet
from pettingllms_trl.engines.protocol import context_of, sample_within
from pettingllms_trl.engines.transformers import sample
from pettingllms_trl.engines.vllm_params import PromptCodec
from pettingllms_trl.policies.escaping import escape_of
from pettingllms_trl.policies.profiles import PolicyProfile
from pettingllms_trl.policies.prompt_encoder import CHECKED_EVERY, Decode, Encode, Ids, Prompt, PromptEncoder, is_plain
from pettingllms_trl.policies.rendering import TurnBridge
from pettingllms_trl.policies.routing import Policy
from pettingllms_trl.records import Completion, Engine, Episode, PendingDecision, Request, Row, Sampled
from pettingllms_trl.role_sampling import SamplingOverrides
from pettingllms_trl.rollout.branching import RewardWeigher
from pettingllms_trl.rollout.env_pool import MakeEnv
from pettingllms_trl.rollout.play import Rollout, merge, play
from pettingllms_trl.rollout.prompts import Follow, agents_with_history, num_restarted
from pettingllms_trl.trainer.distributed import gathered, on_all
from pettingllms_trl.trainer.hooks import TRLHooks
from pettingllms_trl.update.assignment import share_of


class Plays(TRLHooks):
    """See the head of this file."""

    # Set by MultiAgentGRPOTrainer.
    _make_env: MakeEnv | Mapping[str, MakeEnv]
    _envs: Mapping[str, list[AECEnv]]
    _follow: dict[str, Follow | None]  # how conversations go on, of the agents that hold one
    _user_rewards: RewardFunctions
    _judgements: dict[int, tuple[Completion, RewardScores]]
    """Of the latest rollouts, by the completion's id; with the completion, so that no other takes its id."""
    _weigh: RewardWeigher | None
    _serving: EngineSet
    _writers: dict[str, Encode]  # of each policy that has weights here
    _readers: dict[str, Decode]
    _canary: Canary | None

    def _serve(self, args: MultiAgentGRPOConfig, model: Any) -> EngineSet:
        of_agent = {a: n for a, n in self.routing.of_agent.items() if self.team.policies[n].api is None}
        in_memory = [
            policy.name
            for policy in self.routing.policies
            if policy.api is None and not isinstance(model if policy.model is None else policy.model, str)
        ]
        serving = EngineSet(
            args,
            self.routing,
            self.team.model,
            in_memory=in_memory,
            sample=self._sample,
            tongues={agent: self._tongue_of(name) for agent, name in of_agent.items()},
        )
        if args.use_vllm:
            set_seed(args.seed, device_specific=True)  # vLLM has seeded the process anew
            self.use_vllm = True  # from here on TRL corrects for the sampler, and leaves sampling to us
        return serving

    def _tongue_of(self, name: str) -> PromptCodec:
        write, read = self._writers[name], self._readers[name]
        return PromptCodec(
            tokenize=lambda messages: write([messages])[0],
            decode=lambda ids: read([ids])[0],
            stop_token_ids=self.team.profiles[name].eos_token_ids,
        )

    def _writer_of(self, name: str) -> Encode:
        """How a policy's prompts become token ids: as TRL's do, but that texts never become control tokens."""
        voice = self.team.profiles[name]
        escape = escape_of(voice.tokenizer, self.chat_template)

        def template(prompts: Sequence[Prompt]) -> Sequence[Ids]:
            if self.processing_class is not voice.processing_class:  # else a role's own sampling would be forgotten
                self._apply_profile(voice)
            ids: Sequence[Ids] = self._tokenize_prompts([list(prompt) for prompt in prompts])[0]
            return ids

        if not is_plain(voice.processing_class):
            return lambda prompts: template([escape(prompt) for prompt in prompts])
        writer = PromptEncoder(
            template,
            self._render(voice),
            voice.processing_class,
            voice.processing_class.get_chat_template(self.chat_template),
            check_every=1 if self.args.check_groups else CHECKED_EVERY,
        )
        return lambda prompts: writer([escape(prompt) for prompt in prompts])

    def _render(self, voice: PolicyProfile) -> Callable[[Prompt], str]:
        """Messages to the text that a policy's chat template makes of them."""
        return lambda messages: voice.processing_class.apply_chat_template(
            list(messages),
            tokenize=False,
            add_generation_prompt=True,
            chat_template=self.chat_template,
            **self.chat_template_kwargs,
        )

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
        training = self.model.training
        self.model.eval()
        self._judgements = {}
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
        partners: Collection[str] | None = None,
        further: bool = False,
    ) -> list[Episode]:
        """See `rollout.play`. `partners`, whose prompts are answered once: `None`, those of policies never trained.
        `further`: of the same generation as the last, whose counts go on."""
        seed = f"{self.args.seed}/{name}"
        own = share_of(len(rows), self.accelerator.num_processes, self.accelerator.process_index)

        def play_own(engine: Engine) -> tuple[Rollout, list[RewardScores | None]]:
            rollout = play(
                rows,
                only=own,
                make_env=self._make_env,
                pool=self._envs,
                engine=engine,
                judge=self._judge if self._user_rewards else None,
                weigh=self._weigh,
                sampling=sampling,
                num_candidates=num_candidates,
                num_continuations=num_continuations,
                seed=seed,
                default_env_seed=self.args.seed,
                max_envs=max_envs or self.args.max_envs,
                max_turns=self.args.max_turns,
                num_threads=self.args.num_threads,
                env_timeout=self.args.env_timeout,
                crash_reward=self.args.crash_reward,
                follow=self._follow,
                partners=self.routing.partners if partners is None else partners,
            )
            judged = [self._judgements.get(id(completion)) for completion in _completions(rollout)]
            return rollout, [None if found is None else found[1] for found in judged]

        with self._sampling(seed) as engine:
            parts = on_all(lambda: play_own(engine))
        for part, judgements in parts:  # what other processes have played has come as copies
            for completion, judgement in zip(_completions(part), judgements, strict=True):
                if judgement is not None:
                    self._judgements[id(completion)] = (completion, judgement)
        rollout = merge([part for part, _ in parts], num_rows=len(rows))
        if self.is_world_process_zero():
            self._warn_of(rollout)
        counts: dict[str, float] = {
            "dropped": len(rollout.dropped),
            "retried": rollout.retried,
            "sampled_tokens": rollout.num_sampled_tokens,
        }
        if self.args.env_timeout is not None:
            counts["timed_out"] = rollout.timed_out
        if self.args.crash_reward is not None:
            counts["crashed_replies"] = len(rollout.crashed)
        if self._follow:
            counts["conversations_begun_anew"] = num_restarted(rollout.episodes, list(self._follow))
        metrics = self._metrics["train" if self.model.training else "eval"]
        for count, number in counts.items():
            before = metrics[f"rollout/{count}"].pop() if further else 0
            metrics[f"rollout/{count}"].append(before + number)
        return rollout.episodes

    def _warn_of(self, rollout: Rollout) -> None:
        charged = self.args.crash_reward is not None
        for reason in rollout.dropped.values():
            warnings.warn(
                f"an instance was dropped, its environment having failed three times: {reason}"
                + ("" if charged else ". If a reply is to blame, such as an illegal move, set crash_reward"),
                stacklevel=2,
            )
        if rollout.crashed:
            warnings.warn(
                f"{len(rollout.crashed)} replies crashed their environments and were given crash_reward="
                f"{self.args.crash_reward}. The first: {rollout.crashed[0]}",
                stacklevel=2,
            )

    def _conversations(self) -> dict[str, Follow | None]:
        """How the conversations of the agents that hold one go on. Refuses a chat template that does not let them."""
        of_agent = self.routing.of_agent
        policies = {
            agent: self.team.policies[of_agent[agent]]
            for agent in agents_with_history(self.args.history, list(of_agent))
        }
        follow: dict[str, Follow | None] = {
            name: self._between_turns(policy)
            for name, policy in {policy.name: policy for policy in policies.values()}.items()
        }
        return {agent: follow[policy.name] for agent, policy in policies.items()}

    def _between_turns(self, policy: Policy) -> TurnBridge | None:
        if policy.api is not None:
            return None
        voice = self.team.profiles[policy.name]
        tokenizer, added = voice.tokenizer, voice.tokenizer.added_tokens_decoder
        render, escape = self._render(voice), escape_of(tokenizer, self.chat_template)
        between = TurnBridge(
            render=lambda messages: render(escape(messages)),
            encode=lambda text: tokenizer(text, add_special_tokens=False)["input_ids"],
            special={*voice.eos_token_ids, *tokenizer.all_special_ids, *added},
            longest=self.args.max_conversation_length or self._room_for_a_prompt(policy),
        )
        between.check(policy.name)
        return between

    def _room_for_a_prompt(self, policy: Policy) -> int | None:
        """The most tokens of a prompt that leave room for a whole completion. `None`: the model names no bound."""
        context = self.args.vllm_max_model_length or self._context(policy)
        return None if context is None else context - (self.args.max_completion_length or 0)

    def _context(self, policy: Policy) -> int | None:
        return context_of(self.team.weights_of(policy.name).config.get_text_config())

    # ---- Which weights are sampled from -----------------------------------------------------------------------------

    def weights_changed(self) -> None:
        """Tell the trainer that you have changed weights by hand, of a trained policy or a frozen one.

        With vLLM an engine has weights of its own. They are given anew after each optimizer step and each checkpoint
        that the trainer loads; of any other change it knows nothing, and would go on to sample from the old ones:

        ```python
        >>> set_peft_model_state_dict(trainer.model, load_file("planner.safetensors"), adapter_name="planner")
        >>> trainer.weights_changed()
        >>> trainer.evaluate()
        ```

        Frozen full models on servers, and models in 4 bits, are the exception: no engine can be given those.
        """
        self._weights_version = self._weights_version.after_change_by_hand()

    def _count_step(self) -> None:
        self._weights_version = self._weights_version.after_step()

    @contextmanager
    def _sampling(self, seed: str) -> Iterator[Engine]:
        """What samples for a rollout, with the weights of now."""
        self._serving.renew(self.team.model, self._weights_version)
        self._last_loaded_step = self.state.global_step  # so that TRL does not load them a second time
        whole = nullcontext() if self.args.use_vllm else gathered(self.model_wrapped, self.accelerator)
        with whole, self._serving.engine.rollout(seed):
            if self._canary is not None:
                metrics = self._metrics["train" if self.model.training else "eval"]
                differences = self._canary.check(self._weights_version, self.state.global_step)
                for name, difference in differences.items():
                    metrics[f"canary/{name}/difference"].append(difference)
            yield self._serving.engine

    def _make_canary(self, args: MultiAgentGRPOConfig) -> Canary | None:
        if not args.use_vllm or args.canary is None:
            return None
        is_exact = args.vllm_mode == "colocate" and not (args.bf16 or args.fp16 or args.vllm_server_urls)
        return Canary(
            self._serving,
            self.team.policies,
            tokenize=lambda name, text: self._writers[name]([[{"role": "user", "content": text}]])[0],
            score=self._score,
            action=args.canary,
            every=args.canary_steps,
            largest_at_start=LARGEST_AT_START["float32" if is_exact else "other"],
        )

    @torch.no_grad()
    def _score(self, name: str, ids: Sequence[int]) -> Own:
        """A policy's log-probabilities of a text by the weights that the trainer holds, at temperature 1."""
        policy, training = self.team.policies[name], self.model.training
        tokens = torch.tensor([ids], device=self.accelerator.device)
        inputs = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
        model = self.team.model
        self.model.eval()
        try:
            with nullcontext() if policy.is_trained else self.team.as_frozen(policy):
                self.activate(name)
                with self.accelerator.autocast():
                    working = _scores(model(**inputs).logits, tokens)
                if any(p.dtype != torch.float32 for p in self.team.weights_of(name).parameters()):
                    return Own(working, None)
                if not (self.args.bf16 or self.args.fp16):
                    return Own(working, working)
                # accelerate puts autocasting into `forward`, and keeps the one without.
                forward = model.__dict__.get("_original_forward", model)
                return Own(working, _scores(forward(**inputs).logits, tokens))
        finally:
            self.model.train(training)

    def _sample(self, requests: Sequence[Request]) -> list[Sampled]:
        """Every request answered by its agent's policy, one policy and one setting of the generator after another."""
        answers: dict[int, Sampled] = {}
        kinds = [(self.routing.of_agent[request.agent], self.team.overrides[request.agent]) for request in requests]
        for kind in dict.fromkeys(kinds):
            name, override = kind
            own = [i for i, other in enumerate(kinds) if other == kind]
            policy = self.team.policies[name]
            with nullcontext() if policy.is_trained else self.team.as_frozen(policy):
                self.activate(name)
                with self._sampling_as(override):
                    sampled = self._generated(name, [requests[i] for i in own], override.stop or ())
            answers.update(zip(own, sampled, strict=True))
        return [answers[i] for i in range(len(requests))]

    def _generated(self, name: str, requests: Sequence[Request], stop: Sequence[str]) -> Sequence[Sampled]:
        context = self._context(self.team.policies[name])
        most = self.generation_config.max_new_tokens

        def generate(prompt_ids: list[Sequence[int]]) -> Any:
            if context is None:
                return self._generate_single_turn(prompt_ids, None, {}, 1)
            return sample_within(prompt_ids, generate_up_to, context=context, most=most)

        def generate_up_to(prompt_ids: list[Sequence[int]], limit: int | None) -> Any:
            with nullcontext() if limit is None else self._sampling_as(SamplingOverrides(max_completion_length=limit)):
                return self._generate_single_turn(prompt_ids, None, {}, 1)

        return sample(
            requests,
            tokenize=self._writers[name],
            generate=generate,
            context=context,
            decode=self._readers[name],
            stop=stop,
        )

    def _judge(self, choice: PendingDecision) -> list[Mapping[str, float]]:
        log_metric = self._log_metric if self.model.training else self._log_eval_metric
        judgements = self._user_rewards.score(choice, trainer_state=self.state, log_metric=log_metric)
        for completion, judgement in zip(choice.completions, judgements, strict=True):
            self._judgements[id(completion)] = (completion, judgement)
        return [judgement.parts for judgement in judgements]

    def _log_eval_metric(self, name: str, value: float) -> None:
        """TRL keeps what is logged until it scores a batch in training, which would be of another rollout."""
        self._metrics["eval"][name].append(value)


def _scores(logits: torch.Tensor, tokens: torch.Tensor) -> Array:
    """(1, T + 1, V) logits and (1, T + 1) token ids to (T,) log-probabilities of all tokens but the first."""
    logprobs = logits[0, :-1].float().log_softmax(-1).gather(-1, tokens[0, 1:, None])
    scores: Array = logprobs[:, 0].double().cpu().numpy()
    return scores


def _completions(rollout: Rollout) -> list[Completion]:
    """All that was sampled, partners' replies included."""
    return [c.completion for episode in rollout.episodes for d in episode.decisions for c in d.candidates]
