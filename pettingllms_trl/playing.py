"""`Plays`: rows of the data set to episodes, played by the policies as they are now, by vLLM or by `generate`."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from accelerate.utils import set_seed
from pettingzoo import AECEnv
from trl.trainer.utils import get_config_model_id

from pettingllms_trl.config import MultiAgentGRPOConfig
from pettingllms_trl.dealing import share_of
from pettingllms_trl.engine import Engine, Request, Sampled, Waves
from pettingllms_trl.generation import sample
from pettingllms_trl.layouts import Layouts
from pettingllms_trl.partners import ask
from pettingllms_trl.policies import Policy
from pettingllms_trl.processes import gathered, on_all
from pettingllms_trl.records import Episode
from pettingllms_trl.reward_functions import Weighted, judge
from pettingllms_trl.rollout import MakeEnv, Rollout, merge, play
from pettingllms_trl.run import Choice, Row
from pettingllms_trl.serving import Server


class Plays(Layouts):
    """See the head of this file."""

    # Set by MultiAgentGRPOTrainer.
    _make_env: MakeEnv
    _envs: list[AECEnv]
    _user_rewards: list[Weighted]
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

        With several processes call it on each, with the same rows: each plays its share, and is given all episodes.

        Args:
            rows: Instances: `seed` and reset options.
            num_episodes: How often each is played.
            name: Seeds the breaking of ties.
            max_envs: Environments in play at once on a process; `None`: `args.max_envs`.

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
        own = share_of(len(rows), self.accelerator.num_processes, self.accelerator.process_index)

        def play_own(engine: Engine) -> Rollout:
            return play(
                rows,
                only=own,
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

        with self._sampling(seed) as engine:
            rollout = merge(on_all(lambda: play_own(engine)), num_rows=len(rows))
        if self.is_world_process_zero():
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
            with gathered(self.model_wrapped, self.accelerator):
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
