"""Continuations are played once: for a measurement that is started again, and for methods with the same decisions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset

from pettingllms_trl import MultiAgentGRPOTrainer
from pettingllms_trl.research.study.credit_fidelity.fidelity import counterfactual, judged_decisions
from pettingllms_trl.research.study.credit_fidelity.known_returns import KnownReturns, Returns, file_name
from short_runs import settings
from third_party import Relay


def test_what_a_kill_left_is_read_but_for_the_line_that_it_cut(tmp_path: Path) -> None:
    path = tmp_path / "returns.jsonl"
    KnownReturns(path).add(["a", "b"], [Returns((0.5, 1.0), 7), Returns((0.0,), 3)])
    path.write_text(path.read_text()[:-6])
    known = KnownReturns(path)
    assert (known.get("a"), known.get("b")) == (Returns((0.5, 1.0), 7), None)
    known.add(["c"], [Returns((2.0,), 1)])
    assert KnownReturns(path).get("c") == Returns((2.0,), 1)


def test_methods_share_a_file_if_they_differ_in_nothing_but_credit_and_updates() -> None:
    train = {"credit": "grpo", "sampling": "parallel", "temperature": 1.0, "env_kwargs": {"size": 5}}
    config = {"train": train, "fidelity": {"continuations": 32, "seed": 1}}
    same = {**config, "train": {**train, "credit": "loo", "learning_rate": 0.1, "num_continuations": 2}}
    assert file_name(same) == file_name(config)
    for other in (
        {**config, "train": {**train, "temperature": 0.5}},
        {**config, "train": {**train, "env_kwargs": {"size": 4}}},
        {**config, "fidelity": {"continuations": 16, "seed": 1}},
    ):
        assert file_name(other) != file_name(config)


def test_states_that_are_known_are_not_played_again(
    model_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = MultiAgentGRPOTrainer(
        model_path, Relay, settings(tmp_path), Dataset.from_dict({"seed": range(40)}), credit="at_grpo"
    )
    with trainer.team.in_eval_mode():
        judged, _, _ = judged_decisions(trainer, 4, seed=0)
        first, tokens = counterfactual(trainer, judged[:2], 2, KnownReturns(tmp_path / "returns.jsonl"))
        monkeypatch.setattr(trainer, "sampling", None)
        again, tokens_again = counterfactual(trainer, judged[:2], 2, KnownReturns(tmp_path / "returns.jsonl"))
        assert np.array_equal(first, again)
        assert tokens_again == tokens > 0
        with pytest.raises(TypeError):  # the others would be sampled for
            counterfactual(trainer, judged, 2, KnownReturns(tmp_path / "returns.jsonl"))
