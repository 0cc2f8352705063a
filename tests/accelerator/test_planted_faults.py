"""What a first run on a GPU would find is found on the simulated accelerator: faults planted in a training."""

from __future__ import annotations

import json
from typing import Any

import pytest

from faults import NONE, RAISES, WAITS
from on_device import launched


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("faults")
    launched("faults", str(folder))
    reports: dict[str, Any] = json.loads((folder / "found.json").read_text())
    return reports


def test_a_training_without_a_fault_is_reported_for_none(found: dict[str, Any]) -> None:
    assert found[NONE] == {"error": None, "waits": []}


@pytest.mark.parametrize("name", RAISES)
def test_a_tensor_that_was_left_on_the_cpu_ends_the_training(name: str, found: dict[str, Any]) -> None:
    assert found[name]["error"] is not None
    assert "to be on the same device" in found[name]["error"]


@pytest.mark.parametrize("name", WAITS)
def test_a_hidden_wait_is_counted_with_its_place(name: str, found: dict[str, Any]) -> None:
    assert found[name]["error"] is None
    assert found[name]["waits"]
    assert all("faults.py:" in place for _, place in found[name]["waits"])
