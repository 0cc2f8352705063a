"""The check of states: what keeps too little fails, what keeps too much is warned of, and right ones pass."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from gymnasium.spaces import Text

import pettingllms_envs
from pettingllms_envs import cli, testing
from pettingllms_envs.teams.functions import Ask
from pettingllms_envs.testing import Result, check
from planted_states import PLANTED, keeps_reply, of_function, rounds
from third_party import PlainEnv


def found(make: Callable[[], Any], seeds: int = 4) -> Result:
    (result,) = check(make, seeds=range(seeds), only=["states"])
    return result


@pytest.mark.parametrize(("name", "make", "kind"), PLANTED, ids=[name for name, _, _ in PLANTED])
def test_a_state_that_keeps_too_little_or_too_much_is_found(name: str, make: Callable[..., Any], kind: str) -> None:
    assert found(partial(make, True)).status == "passed"
    result = found(partial(make, False))
    assert (result.status, f"the state keeps too {kind}" in result.detail.replace("The", "the")) == (
        "failed" if kind == "little" else "warning",
        True,
    )


def test_both_histories_are_said_and_what_differs() -> None:
    detail = found(partial(of_function, rounds, False)).detail
    first, *more = detail.splitlines()
    assert first.startswith("the state keeps too little: after '")
    assert "state_hash() is the same, and after [" in first
    assert more[0].startswith("seed 0, replies so far: [")


@pytest.mark.parametrize(("kept", "status"), [(True, "warning"), (False, "passed")])
def test_what_nothing_reads_is_found_in_episodes_of_one_question_to_each_role(kept: bool, status: str) -> None:
    rows = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(40)]

    @pettingllms_envs.function(
        rows, lambda row, reply: float(reply == row["answer"]), roles={"adviser": "Advise.", "judge": "Answer."}
    )
    def unread(game: Any) -> Any:
        note = yield Ask("adviser", game.show(), keeps=())
        game.play((yield Ask("judge", game.show(), keeps=note if kept else ())), "judge")

    result = found(unread)
    assert result.status == status
    assert ("two messages of adviser_0 led to one state" in result.detail) == kept


def test_histories_are_not_checked() -> None:
    make = partial(pettingllms_envs.make, "conversation", roles=["solver"], grader="exact")
    assert found(make).status == "skipped"


class Countdown(PlainEnv):
    """A third-party game: two players in turn take 1, 2 or 3 of the stones, whoever takes the last one is paid."""

    space = Text(4)

    def __init__(self, kept: str, stones: int = 12) -> None:
        self.kept, self.stones_at_first = kept, stones
        self.possible_agents = ["first", "second"]
        self.metadata = {"name": "countdown_v0", "branching": "copy"}

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self.begin()
        self.stones, self.said = self.stones_at_first, ""

    def observe(self, agent: str) -> str:
        return f"{self.stones} stones."

    def state_hash(self) -> str:
        seen = {"all": (self.stones, self.agent_selection), "no stones": self.agent_selection}
        return repr(seen.get(self.kept, (self.stones, self.agent_selection, self.said)))

    def step(self, action: str | None) -> None:
        agent = self.agent_selection
        if self.terminations[agent]:
            self._was_dead_step(action)
            return
        self.said = action or ""
        self.stones -= min(int(self.said) if self.said in ("1", "2", "3") else 1, self.stones)
        self.rewards = {each: float(self.stones == 0 and each == agent) for each in self.agents}
        self.terminations = dict.fromkeys(self.agents, self.stones == 0)
        self.agent_selection = self.possible_agents[agent == "first"]


@pytest.mark.parametrize(("kept", "status"), [("all", "passed"), ("no stones", "failed"), ("the reply", "warning")])
def test_the_state_hash_of_a_third_party_environment_is_checked(kept: str, status: str) -> None:
    (result,) = check(partial(Countdown, kept), seeds=range(2), only=["states"], blind=["1", "2", "3"])
    assert result.status == status, result.detail


def test_of_long_episodes_few_decisions_are_tried_and_the_report_says_how_many() -> None:
    (result,) = check(partial(Countdown, "all", 120), seeds=range(2), only=["states"], blind=["1", "2", "3"])
    assert "14 pairs of replies at 2 decisions" in result.detail
    assert result.detail.endswith("stopped after 3000 steps")


def too_much() -> Any:
    return of_function(keeps_reply, False)


def too_little() -> Any:
    return of_function(rounds, False)


@pytest.mark.parametrize(("name", "status"), [("too_much", 0), ("too_little", 1)])
def test_check_ends_with_status_1_on_a_failure_and_0_on_a_warning(
    name: str, status: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(testing.check, "__kwdefaults__", {**testing.check.__kwdefaults__, "only": ("states",)})
    assert cli.main(["check", f"{__name__}:{name}", "--seeds", "4"]) == status
    out = capsys.readouterr().out
    assert ("1 with a warning" in out, "1 failed" in out) == (status == 0, status == 1)
