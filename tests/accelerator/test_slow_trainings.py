"""The rest of the matrix of trainings on the simulated accelerator, each beside the same training on the CPU."""

from __future__ import annotations

from typing import Any

import pytest

from pettingllms_trl.estimate.simulated_autocast import LOWER_PRECISION, PROMOTED
from slow_trainings import SLOW
from training_checks import STEPS, check, check_waits, of_files, reports_of


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return reports_of(tmp_path_factory.mktemp("matrix"), SLOW)


@pytest.mark.parametrize("name", SLOW)
def test_a_training_has_the_weights_that_it_has_on_the_cpu(name: str, reports: dict[str, Any]) -> None:
    check(SLOW[name], reports[name])


def test_the_host_waits_in_no_pass_with_references_or_old_log_probabilities(reports: dict[str, Any]) -> None:
    check_waits(reports["a reference below an adapter"], num_passes=4)


def test_under_autocast_products_are_in_bfloat16_and_what_cuda_lists_for_float32_is(reports: dict[str, Any]) -> None:
    found: dict[str, set[str]] = {}
    for name, dtype in reports["autocast"]["autocast"]:
        found.setdefault(name, set()).add(dtype)
    assert found.keys() >= {
        "linear",
        "scaled_dot_product_attention",
        "pow.Tensor_Scalar",
        "rsqrt",
        "exp",
        "log",
        "sum",
    }
    for name, types in found.items():
        if LOWER_PRECISION.fullmatch(name):
            assert types == {"torch.bfloat16"}, name
        elif not PROMOTED.fullmatch(name):
            assert types <= {"torch.float32", "torch.int64"}, name  # a sum of whole numbers is one


def test_in_conversations_it_waits_three_times_more_for_each_batch_that_is_sampled(reports: dict[str, Any]) -> None:
    check_waits(reports["conversation"], num_passes=2 * STEPS)
    calls = len(reports["conversation"]["phases"]["sample to sampled"])
    assert of_files(reports["conversation"]) == {
        "engines/transformers.py": calls,
        # What the prompts are, when equal ones are read once and when they are gone on from; and what was sampled.
        "engines/prefix_cache.py": 3 * calls,
        "update/micro_batches.py": 2 * STEPS,
        "policies/optim.py": STEPS,
    }
