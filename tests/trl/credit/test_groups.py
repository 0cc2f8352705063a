"""What decisions `at_grpo`'s groups compare: by prompt, turn, role, phase and several of them, worked by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from decisions import decision
from pettingllms_trl import MultiAgentGRPOTrainer
from pettingllms_trl.credit import Sampling, at_grpo, facts_of, resolve
from pettingllms_trl.credit.grouping import GroupExactness, group_exactness, peers_of
from pettingllms_trl.records import Decision, Prompt
from short_runs import KeepsRollouts, settings
from third_party import Relay


# Two agents of one role in parallel episodes of one instance; the last is of another instance, with nobody to compare.
PLAYED = [  # agent, episode, turn, prompt, phase, reward
    ("p_0", 0, 0, "P", "x", 9.0),  # A
    ("p_0", 1, 0, "P", "x", 1.0),  # B
    ("p_0", 0, 1, "Q", "x", 5.0),  # C
    ("p_0", 1, 1, "R", "y", 3.0),  # D
    ("p_1", 0, 0, "P", "x", 8.0),  # E
    ("p_1", 1, 0, "R", "y", 2.0),  # F
    ("p_1", 0, 1, "R", "y", 4.0),  # G
    ("p_1", 1, 1, "S", "x", 12.0),  # H
    ("p_0", 2, 0, "Q", "x", 8.0),  # I
    ("p_0", 3, 0, "P", "y", 2.0),  # J
]


def made(agent: str, episode: int, turn: int, prompt: str, phase: str | None, reward: float) -> Decision:
    prompted = Prompt([{"role": "user", "content": prompt}], (ord(prompt),))
    return replace(decision(agent, [reward], episode=episode, turn=turn), prompt=prompted, phase=phase)


DECISIONS = [*(made(*each) for each in PLAYED), replace(made(*PLAYED[0]), instance=1)]
# The advantages of the members of each group of two or more, whose means are on the right.
WORKED = {
    "prompt": "A5 B-3 J-2",  # 4
    "turn": "A4 B-4 I3 J-3  C1 D-1  E3 F-3  G-4 H4",  # 5; 4; 5; 8
    "role": "A3.6 B-4.4 C-0.4 D-2.4 E2.6 F-3.4 G-1.4 H6.6 I2.6 J-3.4",  # 5.4
    "phase": "A3.25 B-4.75 C-0.75 I2.25  D0.5 J-0.5  E-2 H2  F-1 G1",  # 5.75; 2.5; 10; 3
    ("role", "turn"): "A4 B-4 E3 F-3 I3 J-3  C-1 D-3 G-2 H6",  # 5; 6
    ("role", "phase"): "A11/6 B-37/6 C-13/6 E5/6 H29/6 I5/6  D0.25 F-0.75 G1.25 J-0.75",  # 43 / 6; 11 / 4
    ("role", "prompt"): "A4 B-4 E3 J-3  D-0.5 G0.5",  # 5; 3.5
    ("turn", "phase"): "A3 B-5 I2",  # 6
    ("prompt", "phase"): "A4 B-4",  # 5
}


def expected(groups: str) -> list[float]:
    """`"A5 B-3"` is 5 for the first decision, -3 for the second, and 0 for those that have no peers."""
    found = dict.fromkeys("ABCDEFGHIJ", 0.0)
    for word in groups.split():
        number, _, divisor = word[1:].partition("/")
        found[word[0]] = float(number) / float(divisor or 1)
    return [*found.values(), 0.0]


@pytest.mark.parametrize("group", WORKED, ids=str)
def test_decisions_of_one_instance_with_equal_keys_are_compared(group: Any) -> None:
    advantages = [value for (value,) in at_grpo(DECISIONS, group=group, scale="none")]
    assert advantages == pytest.approx(expected(WORKED[group]), abs=1e-6)
    if not isinstance(group, str):  # in any order, and as YAML has it
        assert at_grpo(DECISIONS, group=[*group[::-1]], scale="none") == [[value] for value in advantages]


def test_the_nine_examples_differ_and_a_prompt_is_one_at_a_turn() -> None:
    assert len({tuple(expected(groups)) for groups in WORKED.values()}) == len(WORKED) == 9
    assert peers_of(("turn", "prompt")) is peers_of("prompt")


def test_the_batch_that_a_role_divides_by_is_the_roles() -> None:
    # Rewards 0, 2 and 4, 6 of two agents: means by turn 1 and 5. Each agent's own deviation is sqrt(2); the role's,
    # over 0, 2, 4, 6, is sqrt((9 + 1 + 1 + 9) / 3) = 2.582.
    decisions = [made(f"p_{n // 2}", n % 2, n // 2, "P", None, 2.0 * n) for n in range(4)]
    alone = at_grpo(decisions, group="turn", scale="batch")
    pooled = at_grpo(decisions, group=("role", "turn"), scale="batch")
    assert alone == [[pytest.approx(sign / (2**0.5 + 1e-4))] for sign in (-1, 1, -1, 1)]
    assert pooled == [[pytest.approx(sign / ((20 / 3) ** 0.5 + 1e-4))] for sign in (-1, 1, -1, 1)]


def test_the_exactness_of_pooled_groups_counts_the_members_of_other_agents() -> None:
    decisions = [made("p_0", 0, 0, "P", None, 0), made("p_1", 0, 0, "P", None, 0), made("p_1", 0, 1, "Q", None, 0)]
    alone = group_exactness(decisions, peers_of("turn"))
    assert alone == {"p_0": GroupExactness(None, 1.0), "p_1": GroupExactness(None, 1.0)}
    pooled = group_exactness(decisions, peers_of(("role", "turn")))  # P and P, and Q alone
    assert pooled == {"p_0": GroupExactness(1.0, 1 / 3), "p_1": GroupExactness(1.0, 1 / 3)}


@pytest.mark.parametrize(
    ("group", "said"),
    [
        ("rolle", r"group='rolle', expected one or several of prompt, turn, role, phase. Did you mean 'role'\?"),
        (["turn", "agent"], r"group=\['turn', 'agent'\], expected one or several of"),
        ([], r"group=\[\], expected one or several of"),
        (None, "group=None, expected one or several of"),
        (5, "group=5, expected one or several of"),
        (["role", ["turn"]], r"group=\['role', \['turn'\]\], expected one or several of"),
        (["role", None], r"group=\['role', None\], expected one or several of"),
    ],
)
@pytest.mark.parametrize("credit", ["at_grpo", "best", "return_to_go"])
def test_a_group_of_something_else_is_refused_when_the_credit_is_resolved(credit: str, group: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        resolve({credit: {"group": group}}, sampling="parallel", scale="group", num_candidates=2)


@pytest.mark.parametrize(
    ("group", "tree", "parallel"),
    [
        ("prompt", "siblings", "turn"),
        (["turn", "phase"], "siblings", "turn"),
        ("phase", None, None),
        ("role", None, None),
        (["role", "turn"], None, None),
    ],
)
def test_where_advantages_sum_to_zero_is_known_of_each_group(group: Any, tree: Any, parallel: Any) -> None:
    both: list[tuple[Sampling, Any]] = [("tree", tree), ("parallel", parallel)]
    for sampling, sums in both:
        scheme = resolve({"at_grpo": {"group": group}}, sampling=sampling, scale="group", num_candidates=2)
        facts = facts_of(scheme, sampling)
        assert (facts.sums_to_zero, facts.reads_phases) == (sums, "phase" in group)


def test_a_decision_without_a_phase_is_refused() -> None:
    with pytest.raises(ValueError, match=r"p_0 decided at turn 1 in no phase, expected infos\[agent\]\['phase'\]"):
        at_grpo([made("p_0", 0, 1, "P", None, 1.0)], group="phase")


# ---- Phases of an environment --------------------------------------------------------------------------------------


class Phased(Relay):
    """A relay that says whether it is opened, goes on or closes: a phase of one, two and one decisions."""

    @property
    def infos(self) -> dict[str, dict[str, Any]]:
        phase = {0: "open", 3: "close"}.get(len(self.written), "go on")
        return {agent: {"phase": phase} for agent in self.possible_agents}

    @infos.setter
    def infos(self, value: Any) -> None:
        """Set by the relay."""


class Trainer(KeepsRollouts, MultiAgentGRPOTrainer):
    """Keeps its episodes."""


def trainer(env: Any, model_path: str, path: Path, *group: str) -> Trainer:
    return Trainer(
        model=model_path,
        env=env,
        args=settings(path, sampling="parallel", generation_batch_size=8, log_rollouts=True, audit="stop"),
        train_dataset=Dataset.from_dict({"seed": range(8)}),
        credit={"at_grpo": {"group": list(group)}},
    )


@pytest.mark.parametrize("group", [("phase",), ("role", "phase")])
def test_an_environment_without_phases_is_refused_when_the_trainer_is_created(
    group: tuple[str, ...], model_path: str, tmp_path: Path
) -> None:
    said = r"the credit's group has 'phase', but relay says none; expected infos\['opener_0'\]\['phase'\]"
    with pytest.raises(ValueError, match=said):
        trainer(Relay, model_path, tmp_path, *group)


def test_a_training_compares_the_decisions_of_a_phase_that_are_recorded(model_path: str, tmp_path: Path) -> None:
    made = trainer(Phased, model_path, tmp_path, "phase")
    made.train()
    (episode, *_) = made.rollouts[0]
    assert [(each.agent, each.turn, each.phase) for each in episode.decisions] == [
        ("opener_0", 0, "open"),
        ("closer_0", 0, "go on"),
        ("opener_0", 1, "go on"),
        ("closer_0", 1, "close"),
    ]
    assert made.state.global_step == 1
