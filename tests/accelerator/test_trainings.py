"""Trainings on the simulated accelerator have the weights of the same trainings on the CPU."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from on_device import launched
from pettingllms_trl.estimate.simulated_autocast import LOWER_PRECISION, PROMOTED
from trainings import MATRIX, Case


def reports_of(folder: Path, names: Iterable[str]) -> dict[str, Any]:
    launched("trainings", str(folder), *names)
    found = map(json.loads, (folder / "reports.jsonl").read_text().splitlines())
    return {report["case"]: report for report in found}


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return reports_of(tmp_path_factory.mktemp("matrix"), (name for name, case in MATRIX.items() if not case.is_slow))


def check(case: Case, report: dict[str, Any]) -> None:
    assert report["error"] is None, report["error"]
    assert report["is_finite"]
    assert report["moved"] > 1e-4
    assert case.most is None or report["difference"] <= case.most


@pytest.mark.parametrize("name", [name for name, case in MATRIX.items() if not case.is_slow])
def test_a_training_has_the_weights_that_it_has_on_the_cpu(name: str, reports: dict[str, Any]) -> None:
    check(MATRIX[name], reports[name])


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
        if name in LOWER_PRECISION:
            assert types == {"torch.bfloat16"}, name
        elif name not in PROMOTED:
            assert types <= {"torch.float32", "torch.int64"}, name  # a sum of whole numbers is one
