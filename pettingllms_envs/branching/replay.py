"""Returns an environment to a state by playing the same actions again, for one that can be neither saved nor copied.

A client of a server holds the number of its session, which copies share; a simulator may take long to copy. If such an
environment is deterministic, it comes to the same state when it is reset with the same seed and options and the same
actions are stepped again, dead steps included. It declares so by `metadata["branching"] = "replay"`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from pettingzoo import AECEnv
from pettingzoo.utils import BaseWrapper

from pettingllms_envs.branching.views import View, described, differences, is_same, look, name_of, told
from pettingllms_envs.failures import EpisodeRestart


class ReplayError(RuntimeError):
    """The same seed, options and actions led to another state, or to an error."""


@dataclass(frozen=True, slots=True)
class ReplayPoint:
    """A state, as the way that leads to it. It is good for any environment that is made the same way.

    Args:
        actions: The actions stepped since, with `None` for dead steps.
    """

    seed: int
    options: Mapping[str, Any] | None
    actions: tuple[Any, ...]
    view: View


@dataclass(frozen=True, slots=True)
class _Course:
    """What was played since, and including, the last reset."""

    seed: int | None
    options: Mapping[str, Any] | None
    actions: tuple[Any, ...] = ()

    def leads_to(self, point: ReplayPoint) -> bool:
        """Whether the state is reached from here by further steps."""
        begun = (point.seed, point.options, point.actions[: len(self.actions)])
        return is_same((self.seed, self.options, self.actions), begun)


class ReplayWrapper(BaseWrapper):  # type: ignore[misc]  # pettingzoo ships no types
    """Gives a deterministic environment `snapshot()` and `restore()`, which plays the same actions again.

    Restoring takes as many steps as led to the state, or only the missing ones where the environment is on the way to
    it, and reads what is observable once.
    """

    def __init__(self, env: AECEnv) -> None:
        super().__init__(env)
        self._course: _Course | None = None  # None: unknown, after an error or before the first reset
        self._arrival: Future[None] | None = None  # at the state to which another thread brings it

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self._course = None
        super().reset(seed=seed, options=options)
        self._course = _Course(seed, options)

    def step(self, action: Any) -> None:
        before, self._course = self._course, None
        super().step(action)
        if before is not None:
            self._course = _Course(before.seed, before.options, (*before.actions, action))

    def snapshot(self) -> ReplayPoint:
        """The state, to be restored any number of times."""
        course = self._course
        if course is None:
            raise RuntimeError("snapshot() before reset(), or after an error. Call reset(seed=...) first.")
        if course.seed is None:
            raise ValueError("reset() got no seed; expected one, to replay the episode. Call reset(seed=0), say.")
        return ReplayPoint(course.seed, course.options, course.actions, look(self.env))

    def send(self, snapshot: ReplayPoint, on_call: Callable[[], object]) -> Callable[[], None]:
        """A function that resets the environment and brings it to a state, to be called on another thread.

        The next `restore` waits for it, and raises what it has raised; if it has not begun by then, it does nothing.
        """
        self._course, arrival = None, Future[None]()
        self._arrival = arrival

        def bring() -> None:
            if arrival.set_running_or_notify_cancel():
                on_call()
                try:
                    self._restore(snapshot, on_call)
                except BaseException as error:  # noqa: BLE001  # raised by `restore`
                    arrival.set_exception(error)
                else:
                    arrival.set_result(None)

        return bring

    @property
    def is_on_its_way(self) -> bool:
        """Whether another thread brings it to a state."""
        return self._arrival is not None and self._arrival.running()

    def recall(self, close: Callable[[], object]) -> bool:
        """It is not needed there. Returns whether it is on its way, or has failed; then it is closed in the end."""
        arrival, self._arrival = self._arrival, None
        if arrival is None or arrival.cancel() or (arrival.done() and arrival.exception() is None):
            return False
        arrival.add_done_callback(lambda _: close())
        return True

    def restore(self, snapshot: ReplayPoint, on_call: Callable[[], object] = lambda: None) -> None:
        """Return to a state.

        Args:
            on_call: Called after each call of the environment: a rollout measures each of them.

        Raises:
            ReplayError: The environment is in another state afterwards, or has raised.
        """
        arrival, self._arrival = self._arrival, None
        if arrival is not None and not arrival.cancel():
            arrival.result()
            on_call()
        self._restore(snapshot, on_call)

    def _restore(self, snapshot: ReplayPoint, on_call: Callable[[], object]) -> None:
        try:
            self._replay(snapshot, on_call)
        except EpisodeRestart:
            raise
        except Exception as error:  # the environment is not ours
            raise ReplayError(
                f"the environment {name_of(self)!r} raised {told(error)} when {_way_to(snapshot)} were played again, "
                'as metadata["branching"] = "replay" requires.'
            ) from error
        found = look(self.env)
        if names := list(differences(snapshot.view, found)):
            again = look(self.env)
            unstable = set(differences(found, again))  # two readings of one state differ in it, too
            if name := next((name for name in names if name not in unstable), None):
                raise ReplayError(
                    f'the environment {name_of(self)!r} declares metadata["branching"] = "replay", but is not '
                    f"deterministic: {_way_to(snapshot)}, played again, led to another state "
                    f"({described(name, snapshot.view, found)}).{self.metadata.get('replay_remedy', '')}"
                )

    def _replay(self, point: ReplayPoint, on_call: Callable[[], object]) -> None:
        if self._course is None or not self._course.leads_to(point):
            self.reset(seed=point.seed, options=None if point.options is None else dict(point.options))
            on_call()
        assert self._course is not None
        for action in point.actions[len(self._course.actions) :]:
            self.step(action)
            on_call()


def _way_to(point: ReplayPoint) -> str:
    steps = len(point.actions)
    return f"reset(seed={point.seed}) and {steps} {'step' if steps == 1 else 'steps'}"
