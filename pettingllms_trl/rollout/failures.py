"""An environment that fails: how often its instance is played anew, and when so many fail that it is enough."""

from __future__ import annotations

from collections.abc import Mapping


RETRIES = 2
MOST_DROPPED = 0.2


class EnvironmentFailure(Exception):
    """The environment raised, which is not charged to a model: every string should be a legal action."""


def check_dropped(dropped: Mapping[int, str], num_rows: int, cause: BaseException | None = None) -> None:
    """Refuse to go on where so many of the instances had to be dropped that the environment itself is at fault.

    Raises:
        EnvironmentFailure: Caused by `cause`.
    """
    if dropped and (num_rows == 1 or len(dropped) > max(1, MOST_DROPPED * num_rows)):
        raise EnvironmentFailure(
            f"{len(dropped)} of {num_rows} instances were dropped, for their environment failed {1 + RETRIES} times; "
            f"expected at most {MOST_DROPPED:.0%}. The last: {list(dropped.values())[-1]}. Fix the environment, or "
            "what it needs, and resume. If it raises on some replies (an illegal move), set crash_reward to a number "
            "below any return: such a reply is then given that reward, and ends the episode."
        ) from cause
