"""A team from prompts and reward functions: what a GRPO script has, played as a conversation."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
import trl
import trl.rewards
from datasets import Dataset

import pettingllms_trl
import twins
from pettingllms_envs import cli, conversation, function
from pettingllms_envs.teams.functions import Ask, Game, Questions
from pettingllms_trl import MultiAgentGRPOConfig, MultiAgentGRPOTrainer
from pettingllms_trl.credit import registry, schemes
from pettingllms_trl.credit.delayed_rewards import choose_credit
from pettingllms_trl.testing import train_briefly
from short_runs import SHORT, KeepsRollouts, adapter, settings
from twins import SEEDS, asked, assert_equal, our_trainer, run, their_trainer


EXAMPLES = Path(__file__).parents[3] / "examples" / "from_grpo"
THREE = ["solver", "critic", "solver"]


def rows(number: int = 8) -> Dataset:
    return Dataset.from_list([{"prompt": f"Question {i}?", "target": i, "topic": "x"} for i in range(number)])


def letters(text: str) -> float:
    return float(sum(map(ord, text)) % 7)


def paid(completions: list[str], target: list[int], **columns: Any) -> list[float]:
    return [letters(completion) + goal for completion, goal in zip(completions, target, strict=True)]


class Trainer(KeepsRollouts, MultiAgentGRPOTrainer):
    """Keeps what was played."""


def trainer(model: str, path: Path, roles: Sequence[str] = THREE, *, options: Any = None, **given: Any) -> Trainer:
    return Trainer(
        model,
        given.pop("env", None) or conversation(roles, **given.pop("talk", {})),
        settings(path, **(options or {})),
        given.pop("train_dataset", rows()),
        reward_funcs=given.pop("reward_funcs", paid),
        **given,
    )


def test_each_adapter_has_moved_after_three_steps_and_the_first_speaker_has_advantages(
    model_path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = trainer(model_path, tmp_path, policies="lora", peft_config=adapter(), options={"max_steps": 3})
    said = capsys.readouterr().out
    assert "solver_0, critic_0 are paid at later steps, so the credit is 'return_to_go' with sampling='par" in said
    made.train()
    for role in ("solver", "critic"):  # lora_B began at 0
        assert any(f"lora_B.{role}" in name and p.any() for name, p in made.model.named_parameters())
    for episodes in made.rollouts:
        decisions = [decision for episode in episodes for decision in episode.decisions]
        advantages = made.credit(decisions)
        of_first = [a[0] for a, d in zip(advantages, decisions, strict=True) if (d.agent, d.turn) == ("solver_0", 0)]
        assert any(of_first)
        assert sum(of_first) == pytest.approx(0, abs=1e-5)


def test_the_last_reply_is_judged_with_the_rows_prompt_and_columns_and_every_role_is_paid(
    model_path: str, tmp_path: Path
) -> None:
    calls: list[dict[str, Any]] = []

    def judge(**given: Any) -> list[float]:
        calls.append(given)
        return [1.5] * len(given["completions"])

    made = trainer(model_path, tmp_path, reward_funcs=judge)
    (episode,) = made.play([{"prompt": "Why?", "target": 3, "topic": "x"}])
    last = episode.decisions[-1].played.completion
    assert len(calls) == 1
    assert {name: calls[0][name] for name in ("prompts", "completions", "target", "topic", "agent", "turn")} == {
        "prompts": ["Why?"],
        "completions": [last.text],
        "target": [3],
        "topic": ["x"],
        "agent": ["solver_0"],
        "turn": [1],
    }
    assert calls[0]["completion_ids"] == [list(last.ids)]
    assert [decision.rewards for decision in episode.decisions] == [
        {"solver_0": 0.0, "critic_0": 0.0},
        {"solver_0": 0.0, "critic_0": 0.0},
        {"solver_0": 1.5, "critic_0": 1.5},
    ]
    assert [decision.return_to_go for decision in episode.decisions] == [1.5, 1.5, 1.5]
    assert episode.decisions[-1].played.parts == {"judge": 1.5}


def test_chat_prompts_give_reward_functions_chat_completions_and_none_does_not_apply(
    model_path: str, tmp_path: Path
) -> None:
    seen: list[Any] = []

    async def judge(prompts: Any, completions: Any, **columns: Any) -> list[float]:
        seen.append((prompts, [completion[0]["role"] for completion in completions]))
        return [1.0 for _ in completions]

    def silent(completions: Any, **columns: Any) -> list[None]:
        return [None for _ in completions]

    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]
    given = Dataset.from_list([{"prompt": chat}] * 8)
    weights = {"reward_weights": [0.5, 2.0]}
    made = trainer(model_path, tmp_path, reward_funcs=[judge, silent], train_dataset=given, options=weights)
    (episode,) = made.play([{"prompt": chat}])
    assert seen == [([chat], ["assistant"])]
    assert episode.returns == {"solver_0": 0.5, "critic_0": 0.5}  # the weight of the first; the second gave None


def test_the_replies_of_named_roles_are_judged_and_in_a_tree_the_candidates_of_a_decision_together(
    model_path: str, tmp_path: Path
) -> None:
    calls: list[tuple[str, int]] = []

    def judge(completions: Any, agent: Any, **columns: Any) -> list[float]:
        calls.append((agent[0], len(completions)))
        return [letters(completion) for completion in completions]

    talk = {"rewarded": ["solver", "critic"]}
    made = trainer(model_path, tmp_path, ["solver", "critic"], talk=talk, reward_funcs=judge)
    assert made.args.sampling == "tree"  # every reply is paid at its own step
    made.train()
    assert calls == [("solver_0", 4), ("solver_0", 4), ("critic_0", 4), ("critic_0", 4)]  # 2 rows, 4 candidates each


def test_a_conversation_of_one_role_is_trained_as_by_grpo_to_the_last_bit(model_path: str, tmp_path: Path) -> None:
    given = Dataset.from_dict({"prompt": [asked(seed) for seed in SEEDS]})
    theirs = run(their_trainer(model_path, tmp_path / "theirs", {"beta": 0.1}))
    ours = our_trainer(
        model_path,
        tmp_path / "ours",
        {"beta": 0.1},
        env=conversation(["solver"]),
        reward_funcs=twins.reward,
        train_dataset=given,
    )
    assert_equal(theirs, run(ours))


@pytest.mark.parametrize(
    ("credit", "options", "delayed", "expected"),
    [
        (None, {}, [], ("at_grpo", "tree")),
        (None, {"sampling": "parallel"}, [], ("at_grpo", "parallel")),
        (None, {}, ["a_0"], ("return_to_go", "parallel")),
        (None, {"sampling": "tree"}, ["a_0"], ("return_to_go", "tree")),
        (None, {"num_continuations": 1}, ["a_0"], ("counterfactual", "tree")),
        ("at_grpo", {}, ["a_0"], ("at_grpo", "tree")),
        ("return_to_go", {}, [], ("return_to_go", "parallel")),
        ("grpo", {}, [], ("grpo", "parallel")),
        ({"loo": {"value": "reward"}}, {}, [], ({"loo": {"value": "reward"}}, "tree")),
        (schemes.gigpo, {}, [], (schemes.gigpo, "parallel")),
        (letters, {}, [], (letters, "tree")),
    ],
)
def test_credit_and_sampling_are_chosen_where_they_are_not_given(
    credit: Any, options: dict[str, Any], delayed: list[str], expected: tuple[Any, str], tmp_path: Path
) -> None:
    choice = choose_credit(credit, settings(tmp_path, **options), delayed)
    assert (choice.credit, choice.sampling) == expected
    assert bool(choice.note) == (credit is None and bool(delayed))


def test_arguments_stay_as_they_were_given_where_sampling_is_chosen(model_path: str, tmp_path: Path) -> None:
    def made(args: MultiAgentGRPOConfig) -> MultiAgentGRPOConfig:
        return Trainer(model_path, conversation(THREE), args, rows(), reward_funcs=paid).args

    chosen, given = settings(tmp_path), settings(tmp_path, sampling="parallel")
    assert (made(chosen).sampling, chosen.sampling) == ("parallel", None)
    assert made(given) is given


def test_return_to_go_compares_the_episodes_of_an_instance_at_equal_turns(tmp_path: Path) -> None:
    credit = registry.resolve("return_to_go", sampling="parallel", scale="none", num_candidates=2)
    probe = registry._probe("parallel", 2, 0)
    # Returns to go (2 - turn) * instance * episode, of two episodes, less their mean: for the first agent's first turn
    # of instance 1 these are 0 and 2, mean 1.
    found = {(d.instance, d.episode, d.agent, d.turn): a for d, a in zip(probe, credit(probe), strict=True)}
    assert (found[1, 0, "first_0", 0], found[1, 1, "first_0", 0]) == ([-1.0], [1.0])
    assert found[0, 0, "first_0", 0] == [0.0]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"train_dataset": Dataset.from_list([{"question": "?"}] * 8)}, r"fields question; expected 'prompt' among"),
        (
            {"train_dataset": Dataset.from_list([{"prompt": "?"}, {"prompt": None}] * 4)},
            r"row 1 .* no 'prompt' \(None",
        ),
        ({"reward_funcs": None}, r"conversation_v0 leaves rewards to reward functions, and there are none; expected"),
        ({"train_dataset": Dataset.from_list([{"prompt": "?"}] * 8)}, r"'paid' requires the columns \['target'\]"),
    ],
)
def test_what_cannot_be_trained_on_is_refused_in_a_line(
    given: dict[str, Any], message: str, model_path: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        trainer(model_path, tmp_path, **given)
    assert "\n" not in str(refused.value)


def test_a_reward_function_of_the_wrong_length_is_named(model_path: str, tmp_path: Path) -> None:
    made = trainer(model_path, tmp_path, reward_funcs=lambda completions, **_: [1.0] * 3)
    with pytest.raises(ValueError, match=r"returned \[1\.0, 1\.0, 1\.0\] for 1 candidates of 'solver_0', expected 1"):
        made.train()


def test_a_column_that_a_reward_function_reads_is_not_given_to_another_environments_reset(
    model_path: str, tmp_path: Path
) -> None:
    def near(completions: Any, target: Any, **columns: Any) -> list[float]:
        return [
            -abs(len(completion[0]["content"]) - goal) for completion, goal in zip(completions, target, strict=True)
        ]

    given = Dataset.from_list([{"seed": seed, "target": 3} for seed in range(8)])
    options = {"max_turns": 1}
    made = trainer(model_path, tmp_path, env="plan_path", reward_funcs=near, train_dataset=given, options=options)
    (episode,) = made.play([{"seed": 1, "target": 3}])
    assert {"near"} < set(episode.decisions[0].played.parts)
    with pytest.raises(
        ValueError, match=r"fields \['target'\], which .* def reward\(completions, target, \*\*columns"
    ):
        trainer(model_path, tmp_path, env="plan_path", reward_funcs=letters, train_dataset=given, options=options)


def test_a_run_is_evaluated_and_resumed_and_its_team_plays_a_file_of_rows(
    model_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def made(steps: int) -> Trainer:
        options = {"max_steps": steps, "save_strategy": "steps", "save_steps": 1, "log_rollouts": True}
        more: dict[str, Any] = {"eval_dataset": rows(2), "policies": "lora", "peft_config": adapter()}
        talk = {"instructions": {"critic": "Find the mistake."}}
        return trainer(model_path, tmp_path / f"run{steps}", THREE, options=options, talk=talk, **more)

    whole = made(2)
    whole.train()
    metrics = whole.evaluate()
    assert math.isfinite(metrics["eval_rewards/paid/mean"])
    again = made(2)
    again.train(resume_from_checkpoint=str(tmp_path / "run2" / "checkpoint-1"))
    for (name, one), other in zip(whole.model.named_parameters(), again.model.parameters(), strict=True):
        assert torch.equal(one, other), name
    whole.save_model("team")
    Path("rows.jsonl").write_text("".join(json.dumps({"prompt": f"{n}?", "split": "test"}) + "\n" for n in range(2)))
    line = ["bench", "conversation", "--team", "team", "--set", "data=rows.jsonl", "--output", "out"]
    assert cli.main([*line, "--max-tokens", "4"]) == 0
    played = [json.loads(each) for each in Path("out/episodes.jsonl").read_text().splitlines()]
    assert [[step["agent"] for step in each["steps"]] for each in played] == [["solver_0", "critic_0", "solver_0"]] * 2
    about = json.loads(Path("out/run.json").read_text())["config"]["settings"]
    assert about["instructions"] == {"critic": "Find the mistake."}


@function(
    [{"question": "Is 91 a prime?", "answer": "no"}],
    lambda row, reply: float(reply == row["answer"]),
    roles={"debater": "Argue.", "judge": "Decide."},
)
def debate(game: Game) -> Questions:
    argument = yield Ask("debater", game.show())
    game.play((yield Ask("judge", game.show(game.quote("debater", argument)))), "judge")


def test_brief_training_credits_as_a_real_run_would(tmp_path: Path) -> None:
    made = train_briefly(debate, tmp_path, num_steps=1)
    assert made.args.sampling == "parallel"
    assert made.credit.keywords["value"] == "return_to_go"  # type: ignore[attr-defined]


def spelt(completions: Any, solution: list[str], **columns: Any) -> list[float]:
    return [letters(completion[0]["content"]) for completion in completions]


def added_lines() -> list[str]:
    texts = [(EXAMPLES / name).read_text("utf-8").splitlines() for name in ("train_grpo.py", "train_team.py")]
    lines = list(difflib.unified_diff(*texts, lineterm=""))[2:]
    return [line for line in lines if line.startswith("+")]


def test_trls_documented_example_becomes_a_teams_in_at_most_five_lines(
    model_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(added_lines()) <= 5
    chat = [{"prompt": [{"role": "user", "content": f"{n} + 1?"}], "solution": str(n + 1)} for n in range(8)]
    monkeypatch.setattr(datasets, "load_dataset", lambda name, split: Dataset.from_list(chat))
    monkeypatch.setattr(trl.rewards, "accuracy_reward", spelt)  # a random model's answers are all wrong
    seen: dict[str, Any] = {}
    short = {**SHORT, "max_steps": 3}
    for name, module, kind, config in (
        ("train_grpo.py", trl, "GRPOTrainer", trl.GRPOConfig),
        ("train_team.py", pettingllms_trl, "MultiAgentGRPOTrainer", pettingllms_trl.MultiAgentGRPOConfig),
    ):
        made = partial(getattr(module, kind), args=config(str(tmp_path / name), **short))
        monkeypatch.setattr(module, kind, lambda made=made, kind=kind, **given: seen.setdefault(kind, made(**given)))
        code = re.sub(r'model="[^"]+"', f"model={model_path!r}", (EXAMPLES / name).read_text("utf-8"))
        exec(compile(code, name, "exec"), {"__name__": "__main__"})  # noqa: S102  # our own examples
    steps = {kind: made.state.global_step for kind, made in seen.items()}
    assert steps == {"GRPOTrainer": 3, "MultiAgentGRPOTrainer": 3}
    trained = dict(seen["MultiAgentGRPOTrainer"].model.named_parameters())
    for role in ("solver", "critic"):
        assert any(f"lora_B.{role}" in name and weight.any() for name, weight in trained.items())
