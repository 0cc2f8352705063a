"""Rows that processes take from a common counter: each is played once, and as one process would play it."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import PartialState
from torch import distributed
from torch.distributed import HashStore

from pettingllms_trl.processes.on_all import on_all
from pettingllms_trl.processes.row_sharing import RowSharing, row_sharing, share_of
from pettingllms_trl.processes.tensor_parallel import TensorParallelGroup
from pettingllms_trl.records import Sampled
from pettingllms_trl.rollout import Rollout, RolloutOptions, merge
from plays import play
from schedules import Patient, babble
from third_party import Relay


class Uneven(Relay):
    """A relay of one to four turns, by its seed."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        assert seed is not None
        self.num_turns = 1 + seed % 4
        super().reset(seed, options)


class Broken(Uneven):
    """Its seed 1 gives a reward that is none."""

    def step(self, action: str | None) -> None:
        super().step(action)
        if self.task == 1:
            self.rewards = dict.fromkeys(self.possible_agents, float("nan"))


ROWS = [{"seed": seed} for seed in range(9)]
MODES: dict[str, Any] = {
    "tree": {"sampling": "tree", "num_candidates": 3},
    "continuations": {"sampling": "tree", "num_candidates": 3, "num_continuations": 1, "keep_continuations": True},
    "parallel": {"sampling": "parallel", "num_candidates": 3},
}


class Waiting(Patient):
    """Answers nobody before an event."""

    def __init__(self, event: threading.Event) -> None:
        super().__init__(babble)
        self._event = event

    def step(self, timeout: float = 0.0) -> Sequence[tuple[int, Sampled]]:
        assert self._event.wait(30)
        return super().step(timeout)


def together(of_process: Callable[[int, RowSharing], Any], num_processes: int) -> list[Any]:
    """What the processes return, each of them a thread here."""
    store = HashStore()
    sharing = [RowSharing(num_processes, process, store) for process in range(num_processes)]
    with ThreadPoolExecutor(num_processes) as executor:
        return list(executor.map(of_process, range(num_processes), sharing))


def played(sharing: RowSharing, engine: Any, *, at_once: int = 1, mode: str = "tree", env: Any = Uneven) -> Rollout:
    width = 1 if mode == "tree" else 3
    with sharing.rows(len(ROWS), at_once) as own:
        return play(
            ROWS, only=own, make_env=env, engine=engine, seed="any", max_envs=width * at_once, **MODES[mode]
        )  # fmt: skip


@pytest.mark.parametrize(
    ("num_rows", "num_processes", "expected"),
    [
        (6, 2, [[0, 1, 2], [3, 4, 5]]),
        (5, 2, [[0, 1], [2, 3, 4]]),
        (2, 4, [[], [0], [], [1]]),
        (3, 1, [[0, 1, 2]]),
        (0, 2, [[], []]),
    ],
)
def test_each_instance_is_played_by_one_process_and_shares_follow_each_other(
    num_rows: int, num_processes: int, expected: list[list[int]]
) -> None:
    assert [list(share_of(num_rows, num_processes, process)) for process in range(num_processes)] == expected


@pytest.mark.parametrize("num_rows", [0, 1, 5, 17])
@pytest.mark.parametrize("at_once", [1, 2, 4, 20])
@pytest.mark.parametrize("num_processes", [1, 2, 3, 7])
def test_each_row_is_taken_once_in_whatever_order_processes_ask(
    num_processes: int, at_once: int, num_rows: int
) -> None:
    store, rng = HashStore(), random.Random(0)
    sharing = [RowSharing(num_processes, process, store) for process in range(num_processes)]
    for _ in range(3):  # rollouts
        contexts = [each.rows(num_rows, at_once) for each in sharing]
        asking: list[Iterator[int]] = [iter(context.__enter__()) for context in contexts]
        taken: list[int] = []
        while asking:
            one = rng.choice(asking)
            row = next(one, None)
            if row is None:
                asking.remove(one)
            else:
                taken.append(row)
        assert sorted(taken) == list(range(num_rows))


def test_processes_begin_with_the_same_number_and_those_with_room_go_on() -> None:
    store = HashStore()
    first, second = RowSharing(2, 0, store), RowSharing(2, 1, store)
    with first.rows(8, 2) as of_first, second.rows(8, 2) as of_second:
        of_first, of_second = iter(of_first), iter(of_second)
        assert [next(of_first) for _ in range(3)] == [0, 1, 4]
        assert [next(of_second) for _ in range(3)] == [2, 3, 5]
        assert [*of_first] == [6, 7]
        assert [*of_second] == []


@pytest.mark.parametrize("store", [None, HashStore()])
def test_shares_are_fixed_without_a_store_and_where_all_rows_are_in_play_at_once(store: Any) -> None:
    for at_once in (None, 3) if store else (None, 1, 3):
        with RowSharing(2, 1, store).rows(5, at_once) as own:
            assert own == range(2, 5)


def test_of_processes_that_share_their_engines_the_leader_plays_and_counts_as_one() -> None:
    store = HashStore()
    first, _, third, fourth = (
        RowSharing(4, i, store, TensorParallelGroup(size=2, is_leader=i % 2 == 0, broadcast=lambda step: step))
        for i in range(4)
    )
    with first.rows(5, 1) as of_first, third.rows(5, 1) as of_third, fourth.rows(5, 1) as of_fourth:
        of_first, of_third = iter(of_first), iter(of_third)
        assert [next(of_first), next(of_third), *of_first, *of_third] == [0, 1, 2, 3, 4]
        assert [*of_fourth] == []
    with third.rows(5, None) as of_third, fourth.rows(5, None) as of_fourth:
        assert [*of_third] == [2, 3, 4]
        assert [*of_fourth] == []


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("num_processes", "at_once"), [(2, 1), (3, 2)])
def test_episodes_are_those_of_one_process_in_the_same_order(mode: str, num_processes: int, at_once: int) -> None:
    whole = play(ROWS, make_env=Uneven, engine=Patient(babble), seed="any", **MODES[mode])
    parts = together(
        lambda process, sharing: played(sharing, Patient(babble), at_once=at_once, mode=mode), num_processes
    )
    assert merge(parts, num_rows=len(ROWS)) == whole
    assert sorted(e.instance for part in parts for e in part.episodes) == [e.instance for e in whole.episodes]


def test_a_slow_process_plays_fewer_rows_and_the_result_is_the_same() -> None:
    others_are_done = threading.Event()

    def of_process(process: int, sharing: RowSharing) -> Rollout:
        rollout = played(sharing, Waiting(others_are_done) if process else Patient(babble), at_once=2)
        others_are_done.set()
        return rollout

    fast, slow = together(of_process, 2)
    assert [episode.instance for episode in fast.episodes] == [0, 1, 4, 5, 6, 7, 8]
    assert [episode.instance for episode in slow.episodes] == [2, 3]
    whole = play(ROWS, make_env=Uneven, engine=Patient(babble), seed="any", **MODES["tree"])
    assert merge([fast, slow], num_rows=len(ROWS)) == whole


def test_where_one_process_fails_the_others_take_no_further_rows() -> None:
    store = HashStore()
    failing, other = RowSharing(2, 1, store), RowSharing(2, 0, store)
    with other.rows(len(ROWS), 1) as own:
        taken = iter(own)
        assert next(taken) == 0
        with pytest.raises(ValueError, match="rewards must be finite"):
            played(failing, Patient(babble), env=Broken)
        assert [*taken] == []


@pytest.mark.parametrize(
    ("mode", "max_envs", "expected"),
    [("tree", None, None), ("tree", 4, 4), ("parallel", 7, 2), ("continuations", 6, 2), ("parallel", 1, 1)],
)
def test_rows_at_once_are_those_whose_environments_there_is_room_for(
    mode: str, max_envs: int | None, expected: int | None
) -> None:
    assert RolloutOptions(**MODES[mode], max_envs=max_envs).rows_at_once == expected


# ---- Two processes --------------------------------------------------------------------------------------------------


def worker(process: int, folder: str) -> None:
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=process, world_size=2, timeout=timedelta(seconds=30)
    )
    PartialState._shared_state.update(
        {"num_processes": 2, "process_index": process, "backend": "gloo", "_cpu": True}
        | {"device": torch.device("cpu"), "distributed_type": "MULTI_CPU", "debug": False}
    )
    for _ in range(2):  # trainers
        sharing = row_sharing(is_seeded=True)
        for _ in range(2):  # rollouts
            parts = on_all(partial(played, sharing, Patient(babble)))
    torch.save(merge(parts, num_rows=len(ROWS)), f"{folder}/{process}.pt")
    distributed.destroy_process_group()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_two_processes_share_the_rows_of_every_rollout_of_several_trainers(tmp_path: Path) -> None:
    context = torch.multiprocessing.get_context("fork")
    processes = [context.Process(target=worker, args=(i, str(tmp_path))) for i in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    whole = play(ROWS, make_env=Uneven, engine=Patient(babble), seed="any", **MODES["tree"])
    for process in range(2):
        assert torch.load(tmp_path / f"{process}.pt", weights_only=False) == whole
