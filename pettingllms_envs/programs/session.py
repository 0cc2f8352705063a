"""One run of a program, as the endpoint and the environment share it: open calls, answers, posted rewards, the end.

The endpoint's threads put calls in and wait for their answers; the environment takes one call after the other. Calls
that are open at the same time are taken in a fixed order, by agent and then by what they ask, once no further call
has arrived for a while.
"""

from __future__ import annotations

import json
import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pettingllms_envs.core import Parts
from pettingllms_envs.observations import Limits, Prompt
from pettingllms_envs.programs.dialects import RequestError
from pettingllms_envs.programs.rewards import PRINTED
from pettingllms_envs.replies.counted import CountedReply


FIRST_WAIT, LONGEST_WAIT = 0.02, 1.0
"""Seconds without a further call after which a program with calls at the same time is quiet."""
MOST_WIDTHS = 10_000
"""States of which the number of open calls is remembered."""
OVER = "the episode is over: its reward was given, or it was ended. Make no call afterwards."
_REST_OF_KEY = re.compile(r"\A[\w-]+")
_DONE, _NOTHING = threading.Event(), Prompt(())
_DONE.set()


@dataclass(slots=True, eq=False)
class Call:
    """A request of a program.

    Args:
        prompt: What the agent asks; nothing once it has a reply, which is kept for a second try of its client.
        place: Of those open at the same time the least is taken: the agent, then a digest of it (`endpoint.py`).
        request: Identifies the request; a client's second try has the same.
        number: Which of the run's calls it is, in the order in which they are taken.
    """

    agent: str
    prompt: Prompt
    limits: Limits
    place: tuple[str, str]
    request: str
    is_connected: Callable[[], bool]
    number: int = -1
    reply: CountedReply | None = None
    is_delivered: bool = False
    done: threading.Event = field(default_factory=threading.Event)

    def end(self) -> None:
        """Wake up who waits for the answer, or for none."""
        done, self.done = self.done, _DONE
        done.set()


@dataclass(slots=True, eq=False)
class ProgramState:
    """What is known of a program from its runs, such as how long to wait for its next call. Thread-safe.

    Args:
        wait: Seconds without a further call. 0: no two calls of a run have been open at the same time so far.
        has_waited_longest: Whether an order was lost with the longest wait.
        has_equal_calls: Whether two open calls were the same, so that they have no order.
        widths: How many calls were open when one was answered, by state; a replay waits for as many, and no longer.
    """

    wait: float = 0.0
    has_waited_longest: bool = False
    has_equal_calls: bool = False
    widths: dict[str, int] = field(default_factory=dict)
    has_ended: bool = False
    prints_reward: bool = False

    def found_open(self, state: str, number: int) -> None:
        if len(self.widths) == MOST_WIDTHS:
            self.widths.clear()
        self.widths[state] = max(number, self.widths.get(state, 0))

    def found_parallel(self) -> None:
        self.wait = max(self.wait, FIRST_WAIT)

    def lost(self, waited: float) -> None:
        """A call arrived too late though a run had waited: wait longer, unless another run has said so before."""
        if waited == self.wait:
            self.has_waited_longest = waited >= LONGEST_WAIT
            self.wait = min(2 * waited, LONGEST_WAIT)


class Ended(NamedTuple):
    """How a run ended: the rewards that the program returned or printed, if any, or why it failed; and its output."""

    rewards: Parts | None = None
    failure: str = ""
    wrote: str = ""


class Session:
    """One run of a program, see `Program` for its arguments; `agents` has the agent of each name."""

    def __init__(
        self,
        agents: Mapping[str, str],
        state: ProgramState,
        normalize: Callable[[str], str] | None,
        *,
        is_paid_by_step: bool,
    ) -> None:
        self.key = secrets.token_urlsafe(16)
        self.agents, self._normalize, self._is_paid_by_step = agents, normalize, is_paid_by_step
        self.asked_for: dict[str, dict[str, Any]] = {}
        """Settings of the sampling that each agent has asked for, which others replace."""
        self.callers: set[str] = set()
        """Agents whose calls were taken."""
        self.has_posted = self.has_marked_reply = False
        """Whether rewards were posted, and whether a reply has what a printed reward begins with."""
        self.num_calls = self.num_refused = 0
        """Calls that were taken, and requests that were answered with an error."""
        self.found = state
        self._changed = threading.Condition()
        self._open: list[Call] = []
        self._taken: Call | None = None
        self._state = ""
        self._calls: dict[str, list[Call]] = {}
        self._posted: list[Parts] = []
        self._last_post: Parts | None = None
        self._has_answered = False
        self._ended: Ended | None = None
        self._is_out_of_order = False
        self._waited = self._latest = 0.0

    # ---- The endpoint's side

    def agent_of(self, name: str) -> str | None:
        """The agent of a name; with one agent every name is its."""
        only = set(self.agents.values())
        return self.agents.get(name) or (only.pop() if len(only) == 1 else None)

    def ask(self, call: Call, *, is_retry: bool) -> Call:
        """Put a call in. Returns the one whose answer is to be sent: an earlier one for a second try of its client.

        Raises:
            RequestError: The run has ended.
        """
        with self._changed:
            if self._ended is not None:
                raise RequestError(OVER, 409)
            asked = self._calls.get(call.request, [])
            left = [each for each in asked if not (each.is_delivered or each.is_connected())]
            if left or (is_retry and asked):
                known = left[0] if left else asked[-1]
                known.is_connected, known.is_delivered = call.is_connected, False
                return known
            self._calls[call.request] = [each for each in asked if not each.is_delivered] + [call]
            others = self._waiting()
            self._open.append(call)
            self._latest = time.monotonic()
            if others:
                self.found.found_parallel()
                if self._taken in others and call.place < self._taken.place and not self._is_out_of_order:
                    self._is_out_of_order = True
                    self.found.lost(self._waited)  # now, so that runs which have not taken their call wait longer
            self._changed.notify_all()
            return call

    def post(self, rewards: Parts, *, is_retry: bool) -> None:
        """Add rewards to the step that goes on, or to the last one of a run that is paid at its end; but not again for
        a second try of a client.

        Raises:
            RequestError: The run has ended, or it has no step yet.
        """
        with self._changed:
            if self._ended is not None:
                raise RequestError(OVER, 409)
            if self._is_paid_by_step and not self._has_answered:
                raise RequestError("a reward before the first reply belongs to no step; send it after a reply.")
            if not (is_retry and rewards == self._last_post):
                self._posted.append(rewards)
            self._last_post, self.has_posted = rewards, True

    def comparable(self, prompt: Prompt, limits: Limits) -> str:
        """What is compared of a request between runs: all of it, without what `normalize` takes out."""
        text = json.dumps(
            [list(prompt.messages), list(prompt.tools), limits], ensure_ascii=False, indent=1, default=repr
        )
        return self.hidden(text if self._normalize is None else self._normalize(text))

    def hidden(self, text: str) -> str:
        """A text without the key, also where it was cut within the key but for its first characters."""
        first, *others = text.split(self.key[:8])
        return "***".join([first, *(_REST_OF_KEY.sub("", each) for each in others)])

    # ---- The environment's side

    def take(self, timeout: float, state: str) -> tuple[Call | Ended, list[Parts]]:
        """The next call, or the end of the run, or a failure if there is neither within `timeout` seconds.

        `state` identifies the row and all that the program was replied so far. Also returns the rewards that were
        posted since the last call of this method.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._open or self._ended is not None, timeout):
                return Ended(failure=f"it hangs: no call and no end within timeout={timeout:g} s."), []
            self._state = state
            self._wait_until_quiet()
            posted = []
            if self._is_paid_by_step or self._ended is not None:
                posted, self._posted = self._posted, []
            if self._ended is not None:
                return self._ended, posted
            among = self._waiting() or self._open
            call = self._taken = min(among, key=lambda each: each.place)
            self.found.has_equal_calls |= sum(each.place == call.place for each in among) > 1
            call.number, self.num_calls = self.num_calls, self.num_calls + 1
            self.callers.add(call.agent)
            return call, posted

    def _wait_until_quiet(self) -> None:
        """Wait until no further call has arrived for a while, longer where this thread itself is kept waiting.

        In a state in which another run has been, wait for as many calls as it made.
        """
        self._waited, width = self.found.wait, self.found.widths.get(self._state, 0)
        begun = quiet_since = time.monotonic()
        while self._waited and self._open and self._ended is None:
            now = time.monotonic()
            left = begun + LONGEST_WAIT - now if width else max(self._latest, quiet_since) + self._waited - now
            if left <= 0 or 1 < width <= len(self._open):
                return
            self._changed.wait(left)
            woken = time.monotonic()
            if woken - now - left > self._waited / 4 and woken - begun < LONGEST_WAIT:
                quiet_since = woken  # the machine is busy: the program's threads may be as late
            self._waited = self.found.wait  # by now a call of another run may have come too late

    def _waiting(self) -> list[Call]:
        """The open calls but those that were given up, such as of agents that were slower than another."""
        return [each for each in self._open if each.is_connected()]

    def answer(self, reply: CountedReply) -> bool:
        """Answer the call that was taken, or return False if another one should have been taken in its place."""
        with self._changed:
            call, self._taken = self._taken, None
            assert call is not None, "an answer without a call"
            if self._is_out_of_order:
                return False
            self._has_answered, self._last_post = True, None
            self.has_marked_reply |= PRINTED in reply
            if (number := len(self._waiting())) > 1:
                self.found.found_open(self._state, number)
            if call in self._open:  # else the run has ended meanwhile, and its client was told so
                self._open.remove(call)
                call.reply, call.prompt = reply, _NOTHING
        call.end()
        return True

    def end(self, ended: Ended) -> None:
        """The run has ended; a call that is still open gets no answer."""
        with self._changed:
            self._ended = self._ended or Ended(ended.rewards, self.hidden(ended.failure), self.hidden(ended.wrote))
            left, self._open = self._open, []
            self._changed.notify_all()
        for call in left:
            call.end()

    def close(self) -> None:
        """The environment is done with the run; who waits in `take` is woken up."""
        self.end(Ended(failure="it was interrupted."))
