"""Programs are trained like environments: on the ids that were sampled, and to the same weights."""

from __future__ import annotations

import copy
import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from gymnasium import spaces
from pettingzoo import AECEnv

from pettingllms_envs.programs import program
from pettingllms_trl import MultiAgentGRPOTrainer
from short_runs import KeepsBatches, KeepsRollouts, adapter, around_generation, keep_all_rows, settings


AGENTS = ("writer", "critic")
SEEDS = Dataset.from_dict({"seed": range(8)})
TREE = {"sampling": "tree", "num_continuations": 1, "choose": "value"}


class Team(KeepsRollouts, KeepsBatches, MultiAgentGRPOTrainer):
    """Keeps rollouts and batches."""


def send(url: str, body: Any) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def ask(base_url: str, agent: str, *texts: str) -> str:
    roles = ("system", "user", "assistant", "user", "assistant", "user")
    messages = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]
    answer = send(f"{base_url}/chat/completions", {"model": agent, "messages": messages})
    content: str = answer["choices"][0]["message"]["content"] or ""
    return content


def score(text: str) -> float:
    """A reward that differs from text to text."""
    return sum(text.encode()) % 7 / 7


def rewriting(base_url: str, row: Any) -> float:
    """A writer whose history is lower-cased, stripped and cut before it is shown again."""
    first = ask(base_url, "writer", "You write.", f"Poem {row['seed']}?")
    second = ask(base_url, "writer", "You write.", f"Poem {row['seed']}?", first.lower().strip()[:4], "Go on.")
    return score(ask(base_url, "critic", "You judge.", (first + second).upper()))


def team(env: Any, model: str, path: Path, credit: Any = "grpo", **options: Any) -> Team:
    given = {"sampling": "parallel", "num_generations": 2, "per_device_train_batch_size": 2, **options}
    return Team(model, env, settings(path, **given), SEEDS, credit=credit, policies="lora", peft_config=adapter())


@pytest.mark.parametrize("options", [{}, TREE])
def test_what_a_program_does_to_the_text_changes_no_id_that_is_trained_on(
    model_path: str, tmp_path: Path, options: dict[str, Any]
) -> None:
    trainer = team(
        program(rewriting, agents=AGENTS),
        model_path,
        tmp_path,
        **options,
        credit="counterfactual" if options else "grpo",
    )
    keep_all_rows(trainer)
    sampled: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()

    def keep(prompts: Any, sample: Any) -> Any:
        ids, *rest = sample()
        sampled.update((tuple(prompt), tuple(own)) for prompt, own in zip(prompts, ids, strict=True))
        return (ids, *rest)

    around_generation(trainer, keep)
    trainer.train()
    decisions = [d for episode in trainer.rollouts[0] for d in episode.decisions]
    assert len(decisions) >= 3
    for decision in decisions:
        for candidate in decision.candidates:
            assert (decision.prompt.ids, candidate.completion.ids) in sampled
    whole = {(*d.prompt.ids, *c.completion.ids) for d in decisions for c in d.candidates}
    assert trained(trainer) <= whole
    assert trained(trainer)
    logged = trainer.state.log_history[0]
    assert 0.0 < logged["agent/writer/prefix_share"] < 1.0  # the history is the first prompt's, then rewritten
    assert "agent/critic/prefix_share" not in logged  # asked once


def test_a_request_bounds_its_reply_from_above(model_path: str, tmp_path: Path) -> None:
    def brief(base_url: str, row: Any) -> float:
        body = {"model": "writer", "messages": [{"role": "user", "content": "?"}]}
        for most in (3, 1000):
            answer = send(f"{base_url}/chat/completions", {**body, "max_tokens": most})
            assert answer["usage"]["completion_tokens"] <= min(most, 8)
            finishes.append(answer["choices"][0]["finish_reason"])
        return score(answer["choices"][0]["message"]["content"] or "")

    finishes = list[str]()
    trainer = team(program(brief, agents=("writer",)), model_path, tmp_path)
    trainer.train()
    decisions = [d for episode in trainer.rollouts[0] for d in episode.decisions]
    lengths = [len(d.candidates[0].completion.ids) for d in decisions]
    assert max(lengths[::2]) == 3 < max(lengths[1::2]) <= 8
    assert "length" in finishes


def trained(trainer: Team) -> set[tuple[int, ...]]:
    """Prompt and completion of each row that was trained on."""
    found = set()
    for batch in trainer.batches:
        for k in range(len(batch["prompt_ids"])):
            prompt = batch["prompt_ids"][k][batch["prompt_mask"][k].bool()]
            completion = batch["completion_ids"][k][batch["completion_mask"][k].bool()]
            found.add((*prompt.tolist(), *completion.tolist()))
    return found


def by_step(base_url: str, row: Any) -> None:
    """The team below, as a program that posts each reward."""
    text = ""
    for number in range(4):
        agent = AGENTS[number % 2]
        text = ask(base_url, agent, f"You are the {agent}.", f"{row['seed']}.{number} {text}")
        send(f"{base_url}/reward", {"reward": {agent: score(text)}})


class Native(AECEnv):  # type: ignore[misc]  # pettingzoo ships no types
    """The same team as an environment."""

    metadata = {"name": "native_v0"}

    def __init__(self) -> None:
        self.possible_agents = list(AGENTS)

    def observation_space(self, agent: str) -> Any:
        return spaces.Text(100)

    action_space = observation_space

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.seed, self.number, self.text = seed, 0, ""
        self.agents, self.agent_selection = list(AGENTS), AGENTS[0]
        self.rewards = dict.fromkeys(AGENTS, 0.0)
        self._cumulative_rewards = dict(self.rewards)
        self.terminations, self.truncations = dict.fromkeys(AGENTS, False), dict.fromkeys(AGENTS, False)
        self.infos: dict[str, Any] = {agent: {} for agent in AGENTS}

    def observe(self, agent: str) -> Any:
        texts = f"You are the {agent}.", f"{self.seed}.{self.number} {self.text}"
        return {
            "messages": [{"role": role, "content": text} for role, text in zip(("system", "user"), texts, strict=True)]
        }

    def step(self, action: str | None) -> None:
        if action is None:
            self._was_dead_step(action)
            return
        agent, self.text, self.number = self.agent_selection, action, self.number + 1
        self.rewards = {**dict.fromkeys(AGENTS, 0.0), agent: score(action)}
        self.agent_selection = AGENTS[self.number % 2]
        if self.number == 4:
            self.terminations = dict.fromkeys(AGENTS, True)


@pytest.mark.parametrize(
    ("options", "credit"), [({}, "grpo"), ({"sampling": "tree"}, "at_grpo"), (TREE, "counterfactual")]
)
def test_a_team_as_a_program_and_as_an_environment_is_trained_to_the_same_weights(
    model_path: str, tmp_path: Path, options: dict[str, Any], credit: str
) -> None:
    makers = {"program": program(by_step, agents=AGENTS, rewards="by step"), "native": Native}
    found = {}
    for name, make in makers.items():
        trainer = team(make, model_path, tmp_path / name, credit, **options, max_steps=3)
        trainer.train()
        weights = {k: v.detach().clone() for k, v in trainer.model.named_parameters() if v.requires_grad}
        episodes = [
            [
                (d.agent, d.prompt, [c.completion for c in d.candidates], d.chosen, d.rewards, d.return_to_go)
                for d in e.decisions
            ]
            for rollout in trainer.rollouts
            for e in rollout
        ]
        found[name] = weights, episodes
    assert found["program"][1] == found["native"][1]
    assert found["program"][0].keys() == found["native"][0].keys()
    assert all(torch.equal(weight, found["native"][0][k]) for k, weight in found["program"][0].items())
    start = team(Native, model_path, tmp_path / "start").model.named_parameters()
    assert not all(torch.equal(weight, found["native"][0][k]) for k, weight in start if weight.requires_grad)


@pytest.mark.parametrize(
    ("options", "credit"),
    [
        ({"sampling": "tree"}, "at_grpo"),
        ({"sampling": "tree"}, {"at_grpo": {"value": "return_to_go"}}),
        (TREE, "at_grpo"),
    ],
)
def test_a_tree_over_a_program_that_is_paid_at_its_end_needs_continuations_and_a_credit_that_reads_returns(
    model_path: str, tmp_path: Path, options: dict[str, Any], credit: Any
) -> None:
    with pytest.raises(ValueError, match=r"(?s)expected continuations.*sampling='parallel' with credit='grpo'"):
        team(program(rewriting, agents=AGENTS), model_path, tmp_path, credit, **options)


def test_a_program_has_its_own_history(model_path: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="history='conversation' for 'writer', an agent of a program"):
        team(program(rewriting, agents=AGENTS), model_path, tmp_path, history="conversation")


def test_a_program_whose_requests_differ_from_run_to_run_is_refused_before_training_a_tree(
    model_path: str, tmp_path: Path
) -> None:
    numbers = iter(range(1000))

    def forgetful(base_url: str, row: Any) -> float:
        return score(ask(base_url, "writer", "You write.", f"Request {next(numbers)}"))

    with pytest.raises(RuntimeError, match=r"(?s)Request >>>\d+<<<.*normalize="):
        team(program(forgetful, agents=("writer",)), model_path, tmp_path, "counterfactual", **TREE)


def test_two_messages_of_a_user_in_a_row_are_one_where_the_template_refuses_two(
    model_path: str, tmp_path: Path, tokenizer: Any
) -> None:
    def twice(base_url: str, row: Any) -> float:
        messages = [{"role": "user", "content": "One."}, {"role": "user", "content": "Two."}]
        send(f"{base_url}/chat/completions", {"model": "writer", "messages": messages})
        return 1.0

    strict = copy.deepcopy(tokenizer)
    alternate = "{% if loop.previtem and loop.previtem.role == message.role %}{{ raise_exception('no') }}{% endif %}"
    loop = "{% for message in messages %}"
    strict.chat_template = tokenizer.chat_template.replace(loop, f"{loop}{alternate}")
    args = settings(tmp_path, sampling="parallel", num_generations=2, per_device_train_batch_size=2)
    env = program(twice, agents=("writer",))
    trainer = Team(model_path, env, args, SEEDS, credit="grpo", policies="shared", processing_class=strict)
    trainer.train()
    decision = trainer.rollouts[0][0].decisions[0]
    assert [message["content"] for message in decision.prompt.messages] == ["One.", "Two."]
    assert strict.decode(decision.prompt.ids) == "<|user|>One.\n\nTwo.<|end|><|assistant|>"
