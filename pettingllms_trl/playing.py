"""`Plays`: rows of the data set to episodes, played by the policies as they are now, by vLLM or by `generate`."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from accelerate.utils import set_seed
from pettingzoo import AECEnv
from trl.trainer.utils import get_config_model_id

from pettingllms_trl.between_turns import BetweenTurns
from pettingllms_trl.branches import Weigh
from pettingllms_trl.config import MultiAgentGRPOConfig
from pettingllms_trl.conversation import Follow, num_begun_anew, remembering
from pettingllms_trl.engine import Engine, Request, Sampled, Waves
from pettingllms_trl.generation import sample
from pettingllms_trl.layouts import Layouts
from pettingllms_trl.partners import ask
from pettingllms_trl.policies import Policy
from pettingllms_trl.records import Completion, Episode
from pettingllms_trl.reward_functions import Judgement, RewardFunctions
from pettingllms_trl.rollout import play
from pettingllms_trl.run import Choice
from pettingllms_trl.schedules import Once
from pettingllms_trl.serving import Server
from pettingllms_trl.stock import MakeEnv, Row
from pettingllms_trl.weights import weights_of


class Plays(Layouts):
    """See the head of this file."""

    # Set by MultiAgentGRPOTrainer.
    _make_env: MakeEnv | Mapping[str, MakeEnv]
    _envs: Mapping[str, list[AECEnv]]
    _follow: dict[str, Follow | None]  # how conversations go on, of the agents that hold one
    _user_rewards: RewardFunctions
    _judgements: dict[int, tuple[Completion, Judgement]]
    """Of the latest rollout, by the completion's id; with the completion, so that no other takes its id."""
    _weigh: Weigh | None
    _server: Server | None

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

    def play(
        self, rows: Sequence[Row], *, num_episodes: int = 1, name: str = "play", max_envs: int | None = None
    ) -> list[Episode]:
        """Play each row `num_episodes` times with the current policies: training's sampling, dropout switched off.

        Args:
            rows: Instances: `seed` and reset options, and of several environments the `environment`.
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
        once: Collection[str] = (),
    ) -> list[Episode]:
        """See `rollout.play`; of the agents in `once` each prompt is answered once, for all its candidates."""
        seed = f"{self.args.seed}/{name}"
        self._judgements = {}
        with self._sampling(seed) as engine:
            rollout = play(
                rows,
                make_env=self._make_env,
                pool=self._envs,
                engine=Once(engine, once) if once else engine,
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
            )
        for reason in rollout.dropped.values():
            warnings.warn(
                f"an instance was dropped, its environment having failed three times: {reason}", stacklevel=2
            )
        if rollout.crashed:
            warnings.warn(
                f"{len(rollout.crashed)} replies crashed their environments and were given crash_reward="
                f"{self.args.crash_reward}. The first: {rollout.crashed[0]}",
                stacklevel=2,
            )
        metrics = self._metrics["train" if self.model.training else "eval"]
        metrics["rollout/dropped"].append(len(rollout.dropped))
        metrics["rollout/retried"].append(rollout.retried)
        if self.args.env_timeout is not None:
            metrics["rollout/timed_out"].append(rollout.timed_out)
        if self.args.crash_reward is not None:
            metrics["rollout/crashed_replies"].append(len(rollout.crashed))
        if self._follow:
            metrics["rollout/conversations_begun_anew"].append(num_begun_anew(rollout.episodes, list(self._follow)))
        return rollout.episodes

    def _conversations(self) -> dict[str, Follow | None]:
        """How the conversations of the agents that hold one go on. Refuses a chat template that does not let them."""
        of_agent = self.routing.of_agent
        policies = {agent: self._policies[of_agent[agent]] for agent in remembering(self.args.history, list(of_agent))}
        follow: dict[str, Follow | None] = {
            name: self._between_turns(policy)
            for name, policy in {policy.name: policy for policy in policies.values()}.items()
        }
        return {agent: follow[policy.name] for agent, policy in policies.items()}

    def _between_turns(self, policy: Policy) -> BetweenTurns | None:
        if policy.api is not None:
            return None
        voice = self._voices[policy.name]
        tokenizer, added = voice.tokenizer, voice.tokenizer.added_tokens_decoder
        between = BetweenTurns(
            render=lambda messages: voice.processing_class.apply_chat_template(
                messages,
                tokenize=False,
                add_generation_prompt=True,
                chat_template=self.chat_template,
                **self.chat_template_kwargs,
            ),
            encode=lambda text: tokenizer(text, add_special_tokens=False)["input_ids"],
            special={*voice.eos_token_ids, *tokenizer.all_special_ids, *added},
            longest=self.args.max_conversation_length or self._room_for_a_prompt(policy),
        )
        between.check(policy.name)
        return between

    def _room_for_a_prompt(self, policy: Policy) -> int | None:
        """The most tokens of a prompt that leave room for a whole completion. `None`: the model names no bound."""
        config = weights_of(self.accelerator.unwrap_model(self.model), policy).config.get_text_config()
        context = self.args.vllm_max_model_length or getattr(config, "max_position_embeddings", None)
        return None if context is None else context - (self.args.max_completion_length or 0)

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

    def _judge(self, choice: Choice) -> list[Mapping[str, float]]:
        log_metric = self._log_metric if self.model.training else self._log_eval_metric
        judgements = self._user_rewards.judge(choice, trainer_state=self.state, log_metric=log_metric)
        for completion, judgement in zip(choice.completions, judgements, strict=True):
            self._judgements[id(completion)] = (completion, judgement)
        return [judgement.parts for judgement in judgements]

    def _log_eval_metric(self, name: str, value: float) -> None:
        """TRL keeps what is logged until it scores a batch in training, which would be of another rollout."""
        self._metrics["eval"][name].append(value)
