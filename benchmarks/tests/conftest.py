"""The scripts above this folder are importable in its tests."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pettingllms_envs.graders.math import MathGrader
from pettingllms_envs.graders.workers import MathVerify
from pettingllms_envs.sandbox import Sandbox, SandboxUnavailable


sys.path.insert(0, str(Path(__file__).parents[1]))


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    """The best sandbox of this machine."""
    with Sandbox(num_slots=2) as made:
        try:
            made.start()
        except SandboxUnavailable as error:
            pytest.skip(f"no sandbox works here: {error}")
        yield made


@pytest.fixture(scope="session")
def grader(sandbox: Sandbox) -> Iterator[MathGrader]:
    verify = MathVerify(num_slots=2)
    yield MathGrader(verify)
    verify.close()
