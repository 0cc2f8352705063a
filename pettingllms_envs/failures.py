"""Errors of services that environments need: a grader, a retriever. No reply causes them, and none is paid."""

from __future__ import annotations


class ServiceFailed(RuntimeError):
    """A service failed, after retries, at a step whose reply is not the cause.

    A rollout treats it as a failure of the environment, also if other replies do not need the service: the instance is
    restarted, then dropped, and never scored.
    """


class EpisodeRestart(RuntimeError):
    """The episode is to be played again from its beginning; nothing is wrong with the environment or the replies.

    A rollout and an evaluation do so, and do not count it as a failure.
    """
