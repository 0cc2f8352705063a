from collections.abc import Iterator

import pytest

from pettingllms_envs.graders.math import MathGrader
from pettingllms_envs.graders.workers import MathVerify
from pettingllms_envs.sandbox import SandboxUnavailable


@pytest.fixture(scope="session")
def verify() -> Iterator[MathVerify]:
    """math-verify in two slots of the best sandbox of this machine."""
    verify = MathVerify(num_slots=2)
    try:
        verify.sandbox.start()
    except SandboxUnavailable as error:
        pytest.skip(f"no sandbox works here: {error}")
    yield verify
    verify.close()


@pytest.fixture(scope="session")
def grader(verify: MathVerify) -> MathGrader:
    return MathGrader(verify)
