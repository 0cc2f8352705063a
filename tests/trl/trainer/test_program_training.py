"""Programs are trained like environments: on the ids that were sampled, and to the same weights."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset

from pettingllms_envs.programs import program
from pettingllms_trl import MultiAgentGRPOTrainer
from short_runs import KeepsBatches, KeepsRollouts, adapter, around_generation, keep_all_rows, settings
from twin_teams import NATIVE, WAIT, as_program, ask, score, send


AGENTS = ("writer", "critic")
SEEDS = Dataset.from_dict({"seed": range(8)})
TREE = {"sampling": "tree", "num_continuations": 1, "choose": "value"}


class Team(KeepsRollouts, KeepsBatches, MultiAgentGRPOTrainer):
    """Keeps rollouts and batches."""


def rewriting(base_url: str, row: Any) -> float:
    """A writer whose history is lower-cased, stripped and cut before it is shown again."""
    first = ask(base_url, "writer", "You write.", f"Poem {row['seed']}?")
    second = ask(base_url, "writer", "You write.", f"Poem {row['seed']}?", first.lower().strip()[:4], "Go on.")
    return score(ask(base_url, "critic", "You judge.", (first + second).upper()))


def team(env: Any, model: str, path: Path, credit: Any = "grpo", **options: Any) -> Team:
    given = {"sampling": "parallel", "num_generations": 2, "per_device_train_batch_size": 2, **options}
    return Team(model, env, settings(path, **given), SEEDS, credit=credit, policies="lora", peft_config=adapter())


@pytest.mark.parametrize("masks", [False, True])
def test_a_reply_that_a_stop_word_ended_is_not_truncated_and_is_trained_on(
    model_path: str, tmp_path: Path, masks: bool
) -> None:
    def stopping(base_url: str, row: Any) -> float:
        body = {"model": "writer", "messages": [{"role": "user", "content": "?"}], "stop": list(map(chr, range(256)))}
        answer = send(f"{base_url}/chat/completions", body)
        finishes.append(answer["choices"][0]["finish_reason"])
        return float(len(finishes) % 2)

    finishes = list[str]()
    env = program(stopping, agents=("writer",))
    trainer = team(env, model_path, tmp_path, mask_truncated_completions=masks)
    trainer.train()
    logged = trainer.state.log_history[0]
    assert set(finishes) == {"stop"}
    assert logged["completions/clipped_ratio"] == 0.0
    assert logged["grad_norm"] > 0.0


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


def fails_on_odd_replies(base_url: str, row: Any) -> float:
    """A program that does not survive some of the replies."""
    said = ask(base_url, "writer", "You write.", f"Poem {row['seed']}?")
    if sum(map(ord, said)) % 2:
        raise ValueError("odd")
    return 1.0


def test_declared_ranges_pay_a_reply_that_makes_the_program_fail_their_least(model_path: str, tmp_path: Path) -> None:
    env = program(fails_on_odd_replies, agents=("writer",), reward_ranges={"reward": (-1.0, 1.0)})
    trainer = team(env, model_path, tmp_path)
    with pytest.warns(UserWarning, match=r"replies crashed their environments and were given crash_reward=-1\.0"):
        trainer.train()
    paid = [(c.reward, c.parts) for e in trainer.rollouts[0] for d in e.decisions for c in d.candidates]
    assert {reward for reward, _ in paid} == {-1.0, 1.0}
    assert all(parts == {"crash": -1.0} for reward, parts in paid if reward == -1.0)
    assert trainer.state.log_history[0]["rollout/dropped"] == 0.0


def test_a_program_that_cannot_be_repeated_is_trained_without_and_that_is_said(
    model_path: str, tmp_path: Path
) -> None:
    def counts(base_url: str, row: Any) -> float:
        number.append(0)
        return score(ask(base_url, "writer", "You write.", f"Poem {len(number)}?"))

    number = list[int]()
    env = program(counts, agents=("writer",), reward_ranges={"reward": (-9.0, 9.0)})
    with pytest.warns(UserWarning, match="is not paid its least reward: .* is not the same when an episode is played"):
        assert team(env, model_path, tmp_path).args.crash_reward is None


def test_a_training_of_which_more_than_a_hundredth_fails_says_what_to_declare(model_path: str, tmp_path: Path) -> None:
    def fails_once(base_url: str, row: Any) -> float:
        said = ask(base_url, "writer", "You write.", f"Poem {row['seed']}?")
        runs.append(0)
        if len(runs) == 2:
            raise ValueError("no paper")
        return score(said)

    runs = list[int]()
    with pytest.warns(
        UserWarning, match=r"1 of \d+ episodes of program_fails_once failed\..*reward_ranges=\{"
    ) as caught:
        team(program(fails_once, agents=("writer",)), model_path, tmp_path, max_steps=2).train()
    assert sum("reward_ranges" in str(each.message) for each in caught) == 1


def trained(trainer: Team) -> set[tuple[int, ...]]:
    """Prompt and completion of each row that was trained on."""
    found = set()
    for batch in trainer.batches:
        for k in range(len(batch["prompt_ids"])):
            prompt = batch["prompt_ids"][k][batch["prompt_mask"][k].bool()]
            completion = batch["completion_ids"][k][batch["completion_mask"][k].bool()]
            found.add((*prompt.tolist(), *completion.tolist()))
    return found


WAYS = [({}, "grpo"), ({"sampling": "tree"}, "at_grpo"), (TREE, "counterfactual")]


def trained_for_five_steps(make: Any, model: str, path: Path, credit: str, **options: Any) -> tuple[Any, Any, Any]:
    """The episodes, the batches of the loss, advantages among them, and the weights."""
    trainer = team(make, model, path, credit, **options, max_steps=5)
    trainer.train()
    episodes = [
        [
            (d.agent, d.prompt, [c.completion for c in d.candidates], d.chosen, d.rewards, d.return_to_go)
            for d in episode.decisions
        ]
        for rollout in trainer.rollouts
        for episode in rollout
    ]
    weights = {name: p.detach().clone() for name, p in trainer.model.named_parameters() if p.requires_grad}
    return episodes, trainer.batches, weights


def check_equal(one: tuple[Any, Any, Any], other: tuple[Any, Any, Any]) -> None:
    """To the last bit."""
    assert one[0] == other[0]
    for mine, theirs in ((one[2], other[2]), *zip(one[1], other[1], strict=True)):
        assert mine.keys() == theirs.keys()
        for name, value in mine.items():
            assert torch.equal(value, theirs[name]) if torch.is_tensor(value) else value == theirs[name]
    assert any(batch["advantages"].any() for batch in one[1])


def check_twins(name: str, model: str, path: Path, options: Any, credit: str, *graphs: Any) -> None:
    """A team as a program, or as `graphs`, is trained as it is as an environment, and is trained at all."""
    made = {"program": as_program(name, *graphs), "native": NATIVE[name]}
    found = [trained_for_five_steps(make, model, path / kind, credit, **options) for kind, make in made.items()]
    check_equal(*found)
    start = team(NATIVE[name], model, path / "start").model.named_parameters()
    assert not all(torch.equal(weight, found[0][2][k]) for k, weight in start if weight.requires_grad)


@pytest.mark.parametrize(
    ("name", "options", "credit"),
    [
        ("sequence", *WAYS[0]),
        pytest.param("fan-out", *WAYS[0], marks=pytest.mark.slow),
        *(pytest.param(name, *way, marks=pytest.mark.slow) for name in ("sequence", "fan-out") for way in WAYS[1:]),
    ],
)
def test_a_team_as_a_program_and_as_an_environment_is_trained_to_the_same_weights(
    name: str, model_path: str, tmp_path: Path, options: dict[str, Any], credit: str
) -> None:
    check_twins(name, model_path, tmp_path, options, credit)


@pytest.mark.slow
def test_a_run_that_is_resumed_is_as_one_that_was_not_interrupted(model_path: str, tmp_path: Path) -> None:
    saved = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2}
    whole = team(as_program("sequence"), model_path, tmp_path, **saved)
    whole.train()
    again = team(as_program("sequence"), model_path, tmp_path, **saved)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    weights = [{k: p for k, p in each.model.named_parameters() if p.requires_grad} for each in (whole, again)]
    assert all(torch.equal(weight, weights[1][name]) for name, weight in weights[0].items())


@pytest.mark.frameworks
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("options", "credit"), WAYS)
@pytest.mark.parametrize("name", NATIVE)
def test_so_is_a_team_as_a_graph_of_langgraph(
    name: str, model_path: str, tmp_path: Path, options: dict[str, Any], credit: str
) -> None:
    pytest.importorskip("langgraph")
    from langgraph_teams import TARGETS

    check_twins(name, model_path, tmp_path, options, credit, TARGETS, WAIT)


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
