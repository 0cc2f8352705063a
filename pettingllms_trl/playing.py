"""`Plays`: rows of the data set to episodes, played by the policies as they are now, by vLLM or by `generate`."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from accelerate.utils import set_seed
from pettingzoo import AECEnv

from pettingllms_trl.config import MultiAgentGRPOConfig
from pettingllms_trl.engine import Engine, Request, Sampled
from pettingllms_trl.generation import sample
from pettingllms_trl.layouts import Layouts
from pettingllms_trl.records import Episode, Message
from pettingllms_trl.reward_functions import Weighted, judge
from pettingllms_trl.rollout import MakeEnv, play
from pettingllms_trl.run import Choice, Row
from pettingllms_trl.serving import Serving
from pettingllms_trl.vllm_sampling import Tongue


class Plays(Layouts):
    """See the head of this file."""

    # Set by MultiAgentGRPOTrainer.
    _make_env: MakeEnv
    _envs: list[AECEnv]
    _user_rewards: list[Weighted]
    _serving: Serving

    def _serve(self, args: MultiAgentGRPOConfig, model: Any) -> Serving:
        of_agent = {a: n for a, n in self.routing.of_agent.items() if self._policies[n].api is None}
        in_memory = [
            policy.name
            for policy in self.routing.policies
            if policy.api is None and not isinstance(model if policy.model is None else policy.model, str)
        ]
        serving = Serving(
            args,
            self.routing,
            self.accelerator.unwrap_model(self.model),
            in_memory=in_memory,
            sample=self._sample,
            tongues={agent: self._tongue_of(name) for agent, name in of_agent.items()},
        )
        if args.use_vllm:
            set_seed(args.seed, device_specific=True)  # vLLM has seeded the process anew
            self.use_vllm = True  # from here on TRL corrects for the sampler, and leaves sampling to us
        return serving

    def _tongue_of(self, name: str) -> Tongue:
        voice = self._voices[name]

        def tokenize(messages: Sequence[Message]) -> Sequence[int]:
            self._speak_as(name)
            return self._tokenize_prompts([list(messages)])[0][0]

        return Tongue(
            tokenize=tokenize,
            decode=lambda ids: voice.processing_class.decode(ids, skip_special_tokens=True),
            stop_token_ids=voice.eos_token_ids,
        )

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
                partners=self.routing.partners,
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
        self._serving.renew(self.accelerator.unwrap_model(self.model), self.state.global_step)
        self._last_loaded_step = self.state.global_step  # so that TRL does not load them a second time
        with self._serving.engine.rollout(seed):
            yield self._serving.engine

    def _sample(self, requests: Sequence[Request]) -> list[Sampled]:
        """Every request answered by its agent's policy, one policy and one setting of the generator after another."""
        answers: dict[int, Sampled] = {}
        kinds = [(self.routing.of_agent[request.agent], self._overrides[request.agent]) for request in requests]
        for kind in dict.fromkeys(kinds):
            name, override = kind
            own = [i for i, other in enumerate(kinds) if other == kind]
            policy = self._policies[name]
            with nullcontext() if policy.is_trained else self._as_it_is(policy):
                self._activate(name)
                with self._sampling_as(override):
                    sampled = self._generated([requests[i] for i in own], override.stop or ())
            answers.update(zip(own, sampled, strict=True))
        return [answers[i] for i in range(len(requests))]

    def _generated(self, requests: Sequence[Request], stop: Sequence[str]) -> Sequence[Sampled]:
        return sample(
            requests,
            tokenize=lambda prompts: self._tokenize_prompts(prompts)[0],
            generate=lambda prompt_ids: self._generate_single_turn(prompt_ids, None, {}, 1),
            decode=lambda ids: self.processing_class.batch_decode(ids, skip_special_tokens=True),
            stop=stop,
        )

    def _judge(self, choice: Choice) -> list[dict[str, float]]:
        return judge(choice, self._user_rewards, trainer_state=self.state)
