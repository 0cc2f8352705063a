"""The rest of the matrix of trainings on the simulated accelerator, each beside the same training on the CPU."""

from __future__ import annotations

from typing import Any

import pytest

from slow_trainings import SLOW
from training_checks import check, check_waits, reports_of


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return reports_of(tmp_path_factory.mktemp("matrix"), SLOW)


@pytest.mark.parametrize("name", SLOW)
def test_a_training_has_the_weights_that_it_has_on_the_cpu(name: str, reports: dict[str, Any]) -> None:
    check(SLOW[name], reports[name])


def test_the_host_waits_in_no_pass_with_references_or_old_log_probabilities(reports: dict[str, Any]) -> None:
    check_waits(reports["a reference below an adapter"], num_passes=4)
