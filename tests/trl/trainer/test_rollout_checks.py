"""The checks of `pettingllms audit` while a run trains, and the files of real runs under them."""

from __future__ import annotations

import json
import random
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from decisions import candidate, decision_of, episode_of
from pettingllms_envs import plan_path_v0
from pettingllms_envs.audit import RunFacts
from pettingllms_envs.cli import main
from pettingllms_trl import MultiAgentGRPOTrainer
from pettingllms_trl.credit import facts_of, resolve
from pettingllms_trl.credit.registry import Sampling
from pettingllms_trl.records import Completion, Decision, Episode, Prompt
from pettingllms_trl.trainer.rollout_checks import RolloutAudit, UnsoundRollouts, rows_of
from short_runs import SHORT, settings


AGENTS = ("drafter_0", "planner_0")
TREE = RunFacts(
    kind="rollouts",
    is_tree=True,
    num_candidates=4,
    credit="at_grpo",
    sums="siblings",
    judges_own_step=True,
    scale="group",
)
ADVANTAGES = [0.866, -0.866, -0.866, 0.866]


def generation(num_rows: int = 8) -> list[Episode]:
    """Trees of two decisions; rewards 1, 0, 0, 1, the first candidate is played on."""
    episodes = []
    for instance in range(num_rows):
        decisions, state = [], "start"
        for number, agent in enumerate(AGENTS):
            group = [
                candidate((1.0, 0.0, 0.0, 1.0)[k], (instance, number, k), "reply", state=f"{state} {k}")
                for k in range(4)
            ]
            prompt = Prompt([{"role": "system", "content": f"You are {agent}."}], (instance, number))
            decisions.append(decision_of(agent, group, instance=instance, prompt=prompt, state=state))
            state = f"{state} 0"
        episodes.append(episode_of(*decisions, instance=instance))
    return episodes


def changed(episodes: list[Episode], at: int, decision: int, **changes: Any) -> None:
    decisions = list(episodes[at].decisions)
    decisions[decision] = replace(decisions[decision], **changes)
    episodes[at] = replace(episodes[at], decisions=tuple(decisions))


def missing(episodes: list[Episode]) -> None:
    changed(episodes, 3, 1, candidates=episodes[3].decisions[1].candidates[:2])


def other_state(episodes: list[Episode]) -> None:
    changed(episodes, 3, 1, state="start 2")


def twice(episodes: list[Episode]) -> None:
    changed(episodes, 3, 1, agent="drafter_0", prompt=episodes[3].decisions[0].prompt)


def swapped(episodes: list[Episode]) -> None:
    changed(episodes, 3, 1, prompt=episodes[3].decisions[0].prompt)


def copied(episodes: list[Episode]) -> None:
    for i, episode in enumerate(episodes):
        for j, decision in enumerate(episode.decisions):
            first = Completion(ids=(i, j, *range(38)), text="a long reply")
            changed(episodes, i, j, candidates=tuple(replace(c, completion=first) for c in decision.candidates))


def team_return(episodes: Sequence[Episode], shift: float = 0.0) -> dict[int, list[float]]:
    return {
        id(d): [a + shift for a in ADVANTAGES[: len(d.candidates)]] for episode in episodes for d in episode.decisions
    }


def test_sound_generations_give_no_warning() -> None:
    watching = RolloutAudit(TREE, raises=True)
    for _ in range(3):
        episodes = generation()
        assert watching.observe(episodes, team_return(episodes)) == []


def test_states_that_are_histories_are_not_compared() -> None:
    episodes = generation()
    other_state(episodes)
    watching = RolloutAudit(TREE, raises=True, histories=[episodes[0].environment])
    assert watching.observe(episodes, team_return(episodes)) == []


@pytest.mark.parametrize(
    ("broken", "name"),
    [
        (missing, "missing candidates"),
        (other_state, "changed state"),
        (twice, "mixed turns"),
        (swapped, "swapped agents"),
        (copied, "copied siblings"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_broken_generation_is_said_once_in_a_run(broken: Callable[[list[Episode]], None], name: str) -> None:
    watching = RolloutAudit(TREE, raises=False)
    episodes = generation()
    broken(episodes)
    (words,) = watching.observe(episodes, team_return(episodes))
    assert words.startswith(f"the rollouts have {name}: ")
    assert watching.observe(episodes, team_return(episodes)) == []
    with pytest.raises(UnsoundRollouts, match=name):
        RolloutAudit(TREE, raises=True).observe(episodes, team_return(episodes))


@pytest.mark.parametrize("factor", [-1.0, 0.0, 1e4])
def test_advantages_that_do_not_follow_from_the_rewards_end_the_training(factor: float) -> None:
    episodes = generation()
    advantages = {key: [factor * a for a in values] for key, values in team_return(episodes).items()}
    with pytest.raises(UnsoundRollouts, match="the rollouts have wrong advantages: 16 of 16 groups"):
        RolloutAudit(TREE, raises=True).observe(episodes, advantages)


def test_forced_moves_are_warned_of_and_do_not_end_the_training() -> None:
    episodes = generation()
    for i, episode in enumerate(episodes):
        for j, decision in enumerate(episode.decisions):
            only = Completion(ids=(i, j, 0), text="move")
            changed(episodes, i, j, candidates=tuple(replace(c, completion=only) for c in decision.candidates))
    (words,) = RolloutAudit(TREE, raises=True).observe(episodes, team_return(episodes))
    assert words.startswith("the rollouts have copied siblings: ")


def test_what_is_not_trained_on_is_no_group_with_missing_candidates() -> None:
    episodes = generation()
    for i in range(len(episodes)):
        changed(episodes, i, 0, candidates=episodes[i].decisions[0].candidates[:1])
    advantages = {id(episode.decisions[1]): ADVANTAGES for episode in episodes}
    assert RolloutAudit(TREE, raises=False).observe(episodes, advantages) == []
    decisions = next(iter(rows_of(episodes, advantages))).decisions
    assert [decision.learns for decision in decisions] == [False, True]


# ---- Which sums are zero --------------------------------------------------------------------------------------------


def drawn(sampling: Sampling) -> list[Episode]:
    """Three instances with returns at random; of parallel episodes some are longer than others."""
    rng = random.Random(0)
    width, num_episodes = (4, 1) if sampling == "tree" else (1, 4)
    episodes = []
    for instance in range(3):
        for number in range(num_episodes):
            total = rng.random()
            decisions = [
                decision_of(
                    agent,
                    [
                        candidate(rng.random(), (instance, number, turn, k), continuations=(rng.random(),))
                        for k in range(width)
                    ],
                    instance=instance,
                    episode=number,
                    turn=turn,
                    prompt=Prompt([], (instance, turn)),
                    state=f"{instance} {turn}",
                    episode_return=total,
                    return_to_go=total / (turn + 1),
                )
                for turn in range(1 + number % 3)
                for agent in AGENTS
            ]
            episodes.append(episode_of(*decisions, instance=instance, episode=number))
    return episodes


@pytest.mark.parametrize(
    ("credit", "sampling", "expected"),
    [
        ("at_grpo", "tree", "siblings"),
        ({"at_grpo": {"value": "return_to_go"}}, "tree", "siblings"),
        ("counterfactual", "tree", "siblings"),
        ("loo", "tree", "siblings"),
        ("max_rl", "tree", "siblings"),
        ("magrpo", "tree", "siblings"),
        ("rae", "tree", None),
        ("best", "tree", None),
        ("grpo", "parallel", "episodes"),
        ("loo", "parallel", "episodes"),
        ({"loo": {"value": "return_to_go"}}, "parallel", "turn"),
        ("max_rl", "parallel", "episodes"),
        ("magrpo", "parallel", "turn"),
        ("dr_mas", "parallel", "instance"),
        ("gigpo", "parallel", None),
        ("best", "parallel", None),
        ("rae", "parallel", None),
        (lambda decisions: [[0.0] * len(d.candidates) for d in decisions], "tree", None),
    ],
)
def test_the_advantages_of_a_scheme_sum_to_zero_where_it_says_so_and_a_shift_is_found(
    credit: Any, sampling: Sampling, expected: Any
) -> None:
    scheme = resolve(credit, sampling=sampling, scale="group", num_candidates=4, num_continuations=1)
    facts = facts_of(scheme, sampling)
    assert facts.sums_to_zero == expected
    run = RunFacts(
        kind="rollouts",
        is_tree=sampling == "tree",
        num_candidates=4,
        credit="it",
        sums=expected,
        judges_own_step=facts.value == "reward",
        scale=facts.scale,
    )
    episodes = drawn(sampling)
    decisions = [decision for episode in episodes for decision in episode.decisions]
    advantages = [list(values) for values in scheme(decisions)]
    sound = RolloutAudit(run, raises=True).observe(episodes, dict(zip(map(id, decisions), advantages, strict=True)))
    assert sound == []
    advantages[0][0] += 0.1
    shifted = dict(zip(map(id, decisions), advantages, strict=True))
    found = RolloutAudit(run, raises=False).observe(episodes, shifted)
    names = [words.removeprefix("the rollouts have ").split(":")[0] for words in found]
    assert "wrong advantages" in names or not (run.judges_own_step and expected)
    assert [name for name in names if name != "wrong advantages"] == (
        [] if expected is None else ["wrong sums of advantages"]
    )
    negated = dict(zip(map(id, decisions), [[-a for a in values] for values in scheme(decisions)], strict=True))
    found = RolloutAudit(run, raises=False).observe(episodes, negated)
    assert any("wrong advantages" in words for words in found) == (
        credit in ("at_grpo", "loo", "max_rl") and sampling == "tree"
    )


# ---- In a run -------------------------------------------------------------------------------------------------------


def trainer(model: str, path: Path, *, credit: str = "at_grpo", **options: Any) -> MultiAgentGRPOTrainer:
    return MultiAgentGRPOTrainer(
        model=model,
        env=partial(plan_path_v0.env, size=4, num_turns=2),
        args=settings(path, **{"log_rollouts": True, **options}),
        train_dataset=Dataset.from_dict({"seed": range(64)}),
        credit=credit,
    )


def statuses(path: Path, tmp_path: Path) -> dict[str, str]:
    main(["audit", str(path), "--json", str(tmp_path / "findings.json")])
    return {each["name"]: each["status"] for each in json.loads((tmp_path / "findings.json").read_text())["findings"]}


GROUPS = ("mixed prompts", "mixed turns", "missing candidates", "wrong sums of advantages", "changed state")


@pytest.mark.parametrize(
    ("sampling", "credit"), [("tree", "at_grpo"), pytest.param("parallel", "grpo", marks=pytest.mark.slow)]
)
def test_the_rollouts_of_a_training_are_sound(sampling: str, credit: str, model_path: str, tmp_path: Path) -> None:
    made = trainer(model_path, tmp_path, credit=credit, sampling=sampling, audit="stop", log_completions=True)
    made.train()
    found = statuses(tmp_path, tmp_path)
    assert [found[name] for name in GROUPS] == ["passed"] * 5
    of_tables = statuses(tmp_path / "completions", tmp_path)
    if sampling == "tree":
        expected = ["passed", "passed", "passed", "not recorded", "not recorded"]
        assert [of_tables[name] for name in GROUPS] == expected


def shifted(decisions: Sequence[Decision]) -> list[list[float]]:
    return [[0.5] * len(decision.candidates) for decision in decisions]


def test_a_training_with_shifted_advantages_warns_and_its_files_say_so_too(model_path: str, tmp_path: Path) -> None:
    made = trainer(model_path, tmp_path / "warn")
    made.credit = shifted
    with pytest.warns(UserWarning, match="step 0: the rollouts have wrong sums of advantages: ") as caught:
        made.train()
    assert sum("wrong sums" in str(each.message) for each in caught) == 1
    assert statuses(tmp_path / "warn", tmp_path)["wrong sums of advantages"] == "failed"


@pytest.mark.slow
def test_a_training_with_shifted_advantages_stops_or_goes_on_as_it_is_told(model_path: str, tmp_path: Path) -> None:
    made = trainer(model_path, tmp_path / "stop", audit="stop")
    made.credit = shifted
    with pytest.raises(UnsoundRollouts, match="wrong sums of advantages"):
        made.train()
    made = trainer(model_path, tmp_path / "none", audit=None, max_completion_length=4, log_rollouts=False)
    made.credit = shifted
    with warnings.catch_warnings(record=True) as silent:
        warnings.simplefilter("always")
        made.train()
    assert not any("wrong sums" in str(each.message) for each in silent)


def test_an_unknown_audit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="audit='yes', expected 'warn', 'stop' or None"):
        settings(tmp_path, audit="yes")


@pytest.mark.slow
def test_the_tables_of_a_plain_grpo_trainer_are_audited(
    model_path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")

    def length(completions: list[Any], **_: Any) -> list[float]:
        return [float(len(set(str(completion)))) for completion in completions]

    GRPOTrainer(
        model=model_path,
        reward_funcs=length,
        args=GRPOConfig(str(tmp_path), **{**SHORT, "max_steps": 8, "log_completions": True}),
        train_dataset=Dataset.from_dict({"prompt": [f"Question {i}?" for i in range(64)]}),
    ).train()
    capsys.readouterr()
    assert main(["audit", str(tmp_path)]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[0].endswith("64 completions in 8 tables of a training by TRL")
    assert "mixed prompts passed 16 groups: one prompt in each." in lines
    assert "missing candidates passed 16 groups: 4 in each." in lines
    assert "wrong sums of advantages passed 16 groups: the advantages sum to zero in each." in lines
    for name in ("cut-off replies", "changed state"):
        assert any(line.startswith(f"{name} not recorded") for line in lines)
