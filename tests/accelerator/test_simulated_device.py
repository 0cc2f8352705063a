"""The simulated accelerator behaves like one, and no other test sees it: it lives in child processes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from device_checks import CHECKS
from on_device import launched


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    file = tmp_path_factory.mktemp("device") / "failures.json"
    launched("device_checks", str(file), timeout=120)
    return json.loads(file.read_text())


@pytest.mark.parametrize("claim", CHECKS)
def test_the_simulated_device(claim: str, failures: dict[str, str]) -> None:
    assert failures.get(claim) is None, failures[claim]


def test_this_process_has_no_such_device(failures: dict[str, str]) -> None:
    assert not hasattr(torch, "mlu")
    assert torch._C._get_privateuse1_backend_name() == "privateuseone"
    assert torch.tensor.__module__ != "pettingllms_trl.estimate.simulated_device"
    assert "torch_mlu" not in sys.modules


def test_it_must_be_there_before_the_libraries_that_ask_for_devices() -> None:
    source = (
        "import accelerate\nfrom pettingllms_trl.estimate.simulated_device import SimulatedDevice\n"
        "SimulatedDevice.install()"
    )
    run = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 1
    assert "Call install() before you import them." in run.stderr


def test_training_never_imports_it() -> None:
    packages = Path(__file__).parents[2] / "pettingllms_trl"
    imports = re.compile(r"^\s*(from|import) \S*estimate\.(simulated_|stand_ins|step|planning|report)", re.MULTILINE)
    users = {path for path in packages.rglob("*.py") if imports.search(path.read_text(encoding="utf-8"))}
    assert {path.name for path in users if path.parent.name != "estimate"} == {"estimate.py"}  # the command
