from collections.abc import Iterator

import pytest

from arena import skip_unless_broken
from pettingllms_envs.sandbox import Sandbox, SandboxUnavailable


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    """The best sandbox of this machine."""
    with Sandbox(num_slots=2) as made:
        try:
            made.start()
        except SandboxUnavailable as error:
            skip_unless_broken(made, f"no sandbox works here: {error}")
        yield made
