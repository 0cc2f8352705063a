"""Trainings on the simulated accelerator have the weights of the same trainings on the CPU."""

from __future__ import annotations

from typing import Any

import pytest

from training_checks import STEPS, check, check_waits, of_files, reports_of
from trainings import MATRIX


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return reports_of(tmp_path_factory.mktemp("matrix"), MATRIX)


@pytest.mark.parametrize("name", MATRIX)
def test_a_training_has_the_weights_that_it_has_on_the_cpu(name: str, reports: dict[str, Any]) -> None:
    check(MATRIX[name], reports[name])


# ---- What the host waits for ----------------------------------------------------------------------------------------


def test_the_host_waits_in_no_pass_and_once_to_log_a_step(reports: dict[str, Any]) -> None:
    check_waits(reports["L2"], num_passes=2 * STEPS)
    calls = len(reports["L2"]["phases"]["sample to sampled"])
    assert of_files(reports["L2"]) == {
        "engines/transformers.py": calls,  # which rows of a batch are equal
        "update/micro_batches.py": 2 * STEPS,  # of each policy's generation: ids and masks as TRL has padded them
        "policies/optim.py": STEPS,
    }
