"""Training agents that remember: the tokens prompted, sampled and trained on are one and the same, turn after turn."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM

from pettingllms_trl.config import MultiAgentGRPOConfig
from pettingllms_trl.policies.routing import Policy
from pettingllms_trl.records import Decision
from short_runs import KeepsRollouts, adapter, around_generation, settings
from third_party import Relay


def team(model: Any, path: Path, *, env: Any = Relay, kind: Any = None, policies: Any = "lora", **options: Any) -> Any:
    from pettingllms_trl.trainer.trainer import (
        MultiAgentGRPOTrainer,  # where vLLM is installed, importing TRL warns of much
    )

    class Keeps(KeepsRollouts, kind or MultiAgentGRPOTrainer):
        pass

    args = settings(path, **{"audit": "stop", "history": "conversation", **options})
    peft_config = adapter() if policies == "lora" else None
    return Keeps(model, env, args, Dataset.from_dict({"seed": range(64)}), policies=policies, peft_config=peft_config)


def decisions(trainer: Any, agent: str | None = None) -> list[Decision]:
    return [d for e in trainer.rollouts[-1] for d in e.decisions if agent in (None, d.agent)]


def goes_on(decision: Decision) -> bool:
    return any(message["role"] == "assistant" for message in decision.prompt.messages)


@pytest.mark.parametrize(
    "policies", ["lora", *(pytest.param(each, marks=pytest.mark.slow) for each in ("shared", "full"))]
)
def test_what_the_generator_is_given_is_what_it_was_given_and_sampled_before(
    policies: str, model_path: str, tmp_path: Path
) -> None:
    trainer = team(model_path, tmp_path, policies=policies)
    given: list[tuple[int, ...]] = []

    def noted(prompts: Sequence[Sequence[int]], generate: Any) -> Any:
        given.extend(map(tuple, prompts))
        return generate()

    around_generation(trainer, noted)
    trainer.train()
    assert sorted(given) == sorted(d.prompt.ids for d in decisions(trainer) for _ in d.candidates)
    for episode in trainer.rollouts[0]:
        for agent in ("opener_0", "closer_0"):
            first, second = (d for d in episode.decisions if d.agent == agent)
            spoken = first.prompt.ids + first.played.completion.ids
            assert second.prompt.ids[: len(spoken)] == spoken
            text = trainer.processing_class.decode(second.prompt.ids[len(spoken) :])
            ended = "" if spoken[-1] == trainer.processing_class.eos_token_id else "<|end|>"
            assert text == f"{ended}<|user|>{second.prompt.messages[-1]['content']}<|end|><|assistant|>"
    assert trainer.state.log_history[0]["rollout/conversations_begun_anew"] == 0


def test_log_probabilities_of_the_first_step_are_those_before_it_and_the_ratio_is_one(
    model_path: str, tmp_path: Path
) -> None:
    from pettingllms_trl.trainer.trainer import MultiAgentGRPOTrainer

    class Compares(MultiAgentGRPOTrainer):
        ratios: list[torch.Tensor] = []  # one run

        def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
            if self.state.global_step == 0:
                self.activate(inputs["policy"])
                ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
                mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
                width = inputs["completion_ids"].size(1)
                with torch.no_grad():
                    now, *_ = self.scorer.score(model, ids, mask, width)
                ratio = torch.exp(now - inputs["old_per_token_logps"])
                self.ratios.append(ratio[inputs["completion_mask"].bool()])
            return super().compute_loss(model, inputs, *args, **kwargs)

    trainer = team(model_path, tmp_path, kind=Compares, num_iterations=2, max_steps=2)
    trainer.train()
    ratios = torch.cat(trainer.ratios)
    assert len(ratios) == sum(len(c.completion.ids) for d in decisions(trainer) for c in d.candidates)
    print("largest |ratio - 1| of the first step:", float((ratios - 1).abs().max()))
    assert torch.allclose(ratios, torch.ones_like(ratios), rtol=0, atol=2e-6)  # the passes are cut otherwise: rounding


def test_a_reply_is_as_likely_in_its_own_row_as_in_the_conversation_that_goes_on_from_it(
    model_path: str, tmp_path: Path
) -> None:
    trainer = team(model_path, tmp_path, env=partial(Relay, 3), policies="shared")
    trainer.train()
    model = trainer.model.eval()

    def logps(prompt: tuple[int, ...], completion: tuple[int, ...], whole: tuple[int, ...]) -> torch.Tensor:
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([whole])).logits[0]
        places = range(len(prompt) - 1, len(prompt) + len(completion) - 1)
        return torch.stack([logits[i].log_softmax(-1)[whole[i + 1]] for i in places])

    episode = trainer.rollouts[0][0]
    first, _, last = (d for d in episode.decisions if d.agent == "opener_0")
    said = first.played.completion.ids
    own = logps(first.prompt.ids, said, first.prompt.ids + said)
    later = logps(first.prompt.ids, said, last.prompt.ids)
    assert torch.allclose(own, later, atol=1e-5)


def test_one_role_may_remember_and_a_partner_behind_an_api_is_given_messages(model_path: str, tmp_path: Path) -> None:
    asked: list[list[dict[str, str]]] = []

    def partner(messages: list[dict[str, str]]) -> str:
        asked.append(messages)
        return "AZ"

    for history, lengths in (("conversation", {1, 3}), ({"opener": "conversation"}, {1})):
        asked.clear()
        policies = {"opener": "open", "closer": Policy(api=partner)}
        trainer = team(model_path, tmp_path, policies=policies, history=history)
        trainer.train()
        assert {len(messages) for messages in asked} == lengths
        assert {goes_on(d) for d in decisions(trainer, "opener_0") if d.turn} == {True}


def test_the_context_of_the_model_bounds_a_conversation_and_that_is_logged(model_path: str, tmp_path: Path) -> None:
    # First prompts have about 20 and 30 tokens, second ones 38 and 47; a conversation has 20 + 8 + 38 and more.
    model = AutoModelForCausalLM.from_pretrained(model_path, max_position_embeddings=64)
    trainer = team(model, tmp_path, policies="shared")
    trainer.train()
    assert not any(goes_on(d) for d in decisions(trainer))
    assert trainer.state.log_history[0]["rollout/conversations_begun_anew"] == 2 * 2  # rows, agents


def test_each_role_begins_anew_where_its_own_reply_would_not_fit_also_in_evaluation(
    model_path: str, tmp_path: Path
) -> None:
    model = AutoModelForCausalLM.from_pretrained(model_path, max_position_embeddings=64)
    sampling = {
        "role_sampling": {"opener": {"max_completion_length": 40}},
        "role_sampling_eval": {"closer": {"max_completion_length": 16}},
    }
    trainer = team(model, tmp_path, policies="shared", **sampling)

    def longest(agent: str) -> int:
        extend, message = trainer.collector._extensions[agent], {"role": "user", "content": "x"}
        return max(len(ids) for number in range(64) if (ids := extend((200,) * number, message)) is not None)

    assert (longest("opener_0"), longest("closer_0")) == (64 - 40, 64 - 8)
    with trainer.team.as_evaluated():
        assert (longest("opener_0"), longest("closer_0")) == (64 - 40, 64 - 16)


def test_what_evaluation_says_of_thinking_holds_in_every_turn(model_path: str, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    other = AutoTokenizer.from_pretrained(model_path)
    other.chat_template += "{% if not enable_thinking %}<none>{% endif %}"
    trainer = team(
        model_path,
        tmp_path,
        policies={role: Policy(tokenizer=other, adapter=f"{role}s") for role in ("opener", "closer")},
        chat_template_kwargs={"enable_thinking": False},
        role_sampling_eval={"opener": {"enable_thinking": True}},
    )
    trainer.evaluate(Dataset.from_dict({"seed": [5]}))
    ends = [other.decode(d.prompt.ids).endswith("<none>") for d in decisions(trainer)]
    assert ends == [False, True, False, True]  # opener, closer, opener, closer


def test_where_nobody_remembers_no_conversation_is_counted(model_path: str, tmp_path: Path) -> None:
    trainer = team(model_path, tmp_path, policies="shared", history="none")
    trainer.train()
    assert not any(goes_on(d) for d in decisions(trainer))
    assert "rollout/conversations_begun_anew" not in trainer.state.log_history[0]


def test_the_table_of_completions_shows_the_conversation(model_path: str, tmp_path: Path) -> None:
    import pandas

    trainer = team(model_path, tmp_path, policies="shared", log_completions=True)
    trainer.train()
    table = pandas.read_parquet(tmp_path / "completions" / "completions_00001.parquet")
    said = {
        turn: {m["content"] for prompt in rows["prompt"] for m in prompt if m["role"] == "assistant"}
        for turn, rows in table.groupby("turn")
    }
    assert said == {0: set(), 1: {d.played.completion.text for d in decisions(trainer) if d.turn == 0}}


def test_evaluation_remembers_too(model_path: str, tmp_path: Path) -> None:
    trainer = team(model_path, tmp_path)
    episodes = trainer.play([{"seed": 1}])
    assert [goes_on(d) for d in episodes[0].decisions] == [False, False, True, True]


# ---- At the door ----------------------------------------------------------------------------------------------------


def test_history_is_given_by_role_in_a_configuration_too(tmp_path: Path) -> None:
    args = MultiAgentGRPOConfig(str(tmp_path), use_cpu=True, bf16=False, history='{"opener": "conversation"}')
    assert args.history == {"opener": "conversation"}


@pytest.mark.parametrize("where", ["command line", "yaml"])
def test_history_by_role_comes_from_the_command_line_and_from_yaml(where: str, tmp_path: Path) -> None:
    from pettingllms_trl.cli import arguments

    given = ["--output_dir", str(tmp_path), "--use_cpu", "--bf16", "false"]
    if where == "yaml":
        path = tmp_path / "run.yaml"
        path.write_text("history: {opener: conversation}\nenv_timeout: 20\nnum_threads: 2\ncrash_reward: -1\n")
        given += ["--config", str(path)]
    else:
        given += ["--history", '{"opener": "conversation"}', "--env_timeout", "20", "--num_threads", "2"]
        given += ["--crash_reward", "-1"]
    (args,) = arguments.parse(given, [MultiAgentGRPOConfig], prog="test")
    assert (args.history, args.env_timeout, args.crash_reward) == ({"opener": "conversation"}, 20, -1)


def test_a_role_that_nobody_plays_is_refused_before_a_model_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="history is given for 'writer', but the environment has the agents opener_0"):
        team(str(tmp_path / "no model"), tmp_path, history={"writer": "conversation"})


def test_a_chat_template_that_cannot_be_gone_on_with_is_refused(
    model_path: str, tokenizer: Any, tmp_path: Path
) -> None:
    from transformers import AutoTokenizer

    other = AutoTokenizer.from_pretrained(model_path)
    other.chat_template = tokenizer.chat_template.replace("in messages %", "in messages[-1:] %")
    trainer = partial(
        team, model_path, tmp_path, policies={"opener": "open", "closer": Policy(tokenizer=other, adapter="close")}
    )
    trainer(history={"opener": "conversation"})  # the other policy's conversations are not gone on with
    with pytest.raises(ValueError, match="for policy 'close', whose chat template writes a reply 0 times"):
        trainer()


# ---- Failures that are charged, and limits, in a run ----------------------------------------------------------------


class Fragile(Relay):
    def __init__(self) -> None:
        super().__init__(1)

    def step(self, action: str | None) -> None:
        if action is not None and len(action) % 2:
            raise RecursionError("an odd number of letters")
        super().step(action)


def test_a_charge_for_crashes_is_warned_of_and_logged(model_path: str, tmp_path: Path) -> None:
    trainer = team(model_path, tmp_path, env=Fragile, crash_reward=-1.0, history="none", num_threads=2, env_timeout=30)
    with pytest.warns(UserWarning, match=r"replies crashed their .* crash_reward=-1.0. The first: RecursionError at"):
        trainer.train()
    log = trainer.state.log_history[0]
    charged = [c for d in decisions(trainer) for c in d.candidates if "crash" in c.parts]
    assert log["rollout/crashed_replies"] == len(charged) > 0
    assert {c.reward for c in charged} == {-1.0}
    assert (log["rollout/timed_out"], log["rollout/dropped"]) == (0, 0)


# ---- With vLLM ------------------------------------------------------------------------------------------------------


@pytest.mark.vllm
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")
def test_vllm_samples_after_the_tokens_of_a_conversation(
    base_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    trainer = team(base_path, tmp_path, max_steps=3, use_vllm=True, vllm_max_model_length=512)
    trainer.train()
    assert {goes_on(d) for d in decisions(trainer) if d.turn} == {True}
    differences = [log["sampling/sampling_logp_difference/max"] for log in trainer.state.log_history[:-1]]
    assert len(differences) == 3
    assert max(differences) < 1e-3
    print("largest |log-prob(train) - log-prob(vLLM)|:", max(differences))
