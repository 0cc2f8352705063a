"""The builder without a model: every candidate is in one micro-step, with its own advantage and its policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from decisions import decision
from pettingllms_trl.policies.routing import route
from pettingllms_trl.update import builder as builders
from pettingllms_trl.update.assignment import Assignment
from pettingllms_trl.update.builder import BatchBuilder
from short_runs import settings


ROUTING = route("lora", ["opener_0", "closer_0"], model="base", tokenizer=None)
OPENER, CLOSER = ROUTING.trained
PROFILE = SimpleNamespace(beta=0.0, aux_loss_enabled=False, eos_token_ids=[2])


class Rows:
    """Scores rows as one token each; notes what it is asked for."""

    def __init__(self) -> None:
        self.scored: list[tuple[str, int, int]] = []
        self.tables: list[Mapping[str, Sequence[Any]]] = []
        self.advantages: list[list[float]] = []
        self.corrected: list[tuple[int, int]] = []

    def score_rows(
        self,
        policy: str,
        rows: Sequence[dict[str, Any]],
        *,
        table: Any,
        columns: Any,
        group_size: int,
        chunks: Any = None,
    ) -> dict[str, Any]:
        self.scored.append((policy, len(rows), group_size))
        self.tables.append(table)
        counts = torch.tensor([[int(row["counts"])] * 2 for row in rows])
        return {
            "prompt_ids": torch.ones(len(rows), 1, dtype=torch.long),
            "prompt_mask": torch.ones(len(rows), 1, dtype=torch.long),
            "completion_ids": torch.zeros(len(rows), 2, dtype=torch.long),
            "completion_mask": counts,
            "rewards": torch.tensor([row["reward"] for row in rows]),
            **columns,
        }

    def correct_for_padding(self, rows: Sequence[Any], assignment: Assignment, *, group_size: int) -> None:
        self.corrected.append((assignment.num_padding_rows, group_size))

    def log_advantages(self, advantages: Sequence[float], *, group_size: int) -> None:
        self.advantages.append(list(advantages))


def made(path: Path, rows: Rows, *, process: int = 0, num_processes: int = 1, **options: Any) -> BatchBuilder:
    accelerator: Any = SimpleNamespace(
        num_processes=num_processes,
        process_index=process,
        device=torch.device("cpu"),
        reduce=lambda tensor, reduction: tensor * num_processes,  # every process has as many tokens
    )
    team: Any = SimpleNamespace(routing=ROUTING, profiles=dict.fromkeys(("opener", "closer"), PROFILE))
    scorer: Any = SimpleNamespace(only_vision=(), is_packable=lambda policy: False)
    args = settings(path, num_generations=2, steps_per_generation=2, **options)
    return BatchBuilder(args, team, scorer, accelerator, rows=rows, has_group_means=True)


# The reward of a candidate names it: 10 * instance + k for the opener, 100 more for the closer.
DECISIONS = [
    decision(agent, [10 * instance + k + more for k in range(2)], instance=instance)
    for instance in range(3)
    for agent, more in (("opener_0", 0.0), ("closer_0", 100.0))
]
ADVANTAGES = [[-candidate.reward for candidate in each.candidates] for each in DECISIONS]


def found(steps: Sequence[Sequence[dict[str, Any]]]) -> list[list[tuple[str, float, float]]]:
    """Policy, reward and advantage of each row that counts, by micro-step."""
    return [
        [
            (piece["policy"], float(reward), float(advantage))
            for piece in passes
            for reward, advantage, counts in zip(
                piece["rewards"], piece["advantages"], piece["completion_mask"][:, 0], strict=True
            )
            if counts
        ]
        for passes in steps
    ]


def test_every_candidate_is_in_one_micro_step_with_its_own_advantage_and_policy(tmp_path: Path) -> None:
    rows = Rows()
    built = made(tmp_path, rows).build(
        DECISIONS, ADVANTAGES, learning=(OPENER, CLOSER), table=lambda given: {"mine": [len(given)] * 6}
    )
    first, second = found(built.steps)
    assert sorted(first + second) == sorted(
        (name, reward, -reward)
        for name, more in (("opener", 0.0), ("closer", 100.0))
        for reward in (more, more + 1, more + 10, more + 11, more + 20, more + 21)
    )
    assert [sum(name == "opener" for name, *_ in step) for step in (first, second)] == [3, 3]
    assert (sum(built.num_rows), built.num_left_out) == (12, 0)
    assert rows.scored == [("opener", 6, 2), ("closer", 6, 2)]
    assert rows.advantages == [[0, -1, -10, -11, -20, -21], [-100, -101, -110, -111, -120, -121]]
    assert rows.tables[1] == {
        "agent": ["closer_0"] * 6,
        "instance": [0, 0, 1, 1, 2, 2],
        "episode": [0] * 6,
        "turn": [0] * 6,
        "chosen": [True, False] * 3,
        "mine": [3] * 6,
    }


def test_only_policies_that_learn_and_have_decisions_are_scored(tmp_path: Path) -> None:
    rows = Rows()
    built = made(tmp_path, rows).build(DECISIONS[:1], ADVANTAGES[:1], learning=(CLOSER,), table=lambda _: {})
    assert (built.steps, built.num_rows, rows.scored) == ([[], []], (), [])


@pytest.mark.parametrize("num_processes", [2, 4])
def test_the_parts_of_all_processes_are_every_candidate_once(
    num_processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builders, "broadcast_object_list", lambda values: None)
    every: list[list[tuple[str, float, float]]] = [[], []]
    num_passes = set()
    for process in range(num_processes):
        torch.manual_seed(3)  # what the first process draws reaches all of them
        rows = Rows()
        part = made(tmp_path, rows, process=process, num_processes=num_processes)
        built = part.build(DECISIONS, ADVANTAGES, learning=(OPENER,), table=lambda _: {})
        for step, more in zip(every, found(built.steps), strict=True):
            step += more
        num_passes.add(tuple(len(passes) for passes in built.steps))
        # Three rows a micro-step: of two processes one has a padding row, of four one is filled up to a row.
        assert rows.corrected == [(2, 2)]
        assert rows.scored == [("opener", 2 * -(-3 // num_processes), 1)]
    assert sorted(every[0] + every[1]) == [("opener", reward, -reward) for reward in (0, 1, 10, 11, 20, 21)]
    assert [len(step) for step in every] == [3, 3]
    assert len(num_passes) == 1
