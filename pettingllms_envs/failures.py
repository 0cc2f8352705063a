"""Errors of what environments need: a grader, a retriever, a user's program. No reply of theirs is paid."""

from __future__ import annotations


class ServiceFailed(RuntimeError):
    """A service failed, after retries, at a step whose reply is not the cause.

    A rollout treats it as a failure of the environment, also if other replies do not need the service: the instance is
    restarted, then dropped, and never scored.
    """


class Unavailable(ServiceFailed):
    """This machine lacks what the environment needs, such as a sandbox, and will the next time: the run ends."""


class EpisodeRestart(RuntimeError):
    """The episode is to be played again from its beginning; nothing is wrong with the environment or the replies.

    A rollout and an evaluation do so, and do not count it as a failure.
    """


class ProgramFailed(RuntimeError):
    """A program raised, exited with an error, did nothing in time, or gave no reward that can be read."""
