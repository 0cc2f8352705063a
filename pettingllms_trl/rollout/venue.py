"""An environment in which an instance is played; where it fails, a fresh one takes its place."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from pettingzoo import AECEnv

from pettingllms_trl.rollout.env_pool import Setup
from pettingllms_trl.rollout.timeouts import Calls


class Venue:
    """See the head of this file.

    Args:
        env: Not reset yet, unless it is a copy of one that was.
        setup: Of the instance.
    """

    def __init__(self, env: AECEnv, setup: Setup) -> None:
        self.env, self.setup = env, setup

    def reset(self) -> None:
        """Go to the beginning of the instance."""
        self.env.reset(seed=self.setup.seed, options=self.setup.options)

    def renew(self, fresh: Callable[[str], AECEnv], calls: Calls) -> AECEnv:
        """In the middle of a call that has failed: go to the beginning of the instance in a fresh environment."""
        self.close(calls)
        self.env = fresh(self.setup.environment)
        calls.begin()
        self.reset()
        calls.next()
        return self.env

    def close(self, calls: Calls) -> None:
        """Close an environment that has failed."""
        calls.begin()
        with suppress(Exception):  # it may fail in this, too
            self.env.close()
        calls.end()
