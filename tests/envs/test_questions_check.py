"""The check of questions: it finds a function that shows an agent what another's question held."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import pettingllms_envs
from pettingllms_envs.aec import TextEnv
from pettingllms_envs.core import Role, ToolResult, ToolSpec
from pettingllms_envs.environments.plan_path.rules import PlanPath
from pettingllms_envs.observations import Prompt
from pettingllms_envs.teams.functions import Ask, Game, Questions, function_workflow
from pettingllms_envs.teams.tool_calls import ToolCalls
from pettingllms_envs.testing import Result, check


ROLES = (Role("guide", "You know the map.", delayed=True), Role("walker", "You walk.", count=2))
CHAT = tuple(Role(name, "", delayed=True, observes="messages") for name in ("guide", "walker"))


def judged(make: Callable[[], Any]) -> Result:
    (result,) = check(make, seeds=range(2), only=["questions"])
    return result


def secret(game: Game) -> str:
    return f"The goal is at {game.task.oracle(game.state)}."


def walks(game: Game, guided: Callable[..., str], blind: Callable[..., str]) -> Questions:
    """A guide who knows the way, and two walkers who are told what it says."""
    said, count = "", 0
    while game.turns_left:
        told = game.quote("guide", (yield Ask("guide", guided(game), keeps=(said, count), private=[secret(game)])))
        for walker in ("walker_0", "walker_1"):
            count += 1
            text = blind(game, walker, count, told)
            said = yield Ask(walker, text, keeps=(told, said, count))
        game.play(said, "walker_1")


def sees(game: Game) -> str:
    return f"Turn {game.turn}.\n{secret(game)}"


def hears(game: Game, walker: str, count: int, told: str) -> str:
    return f"Turn {game.turn}.\n{told}"


def made(guided: Callable[..., str] = sees, blind: Callable[..., str] = hears) -> Any:
    def script(game: Game) -> Questions:
        yield from walks(game, guided, blind)

    return function_workflow(*ROLES)(script)


def test_a_function_that_keeps_a_secret_passes() -> None:
    result = judged(lambda: TextEnv(made()(PlanPath(size=4))))
    assert (result.status, "private texts were shown to nobody else" in result.detail) == ("passed", True)


class ShowsAnyAgent(made()):  # type: ignore[misc]
    def observe(self, state: Any, role: str) -> Any:
        return state.ask.text


class ShowsTheTask(made()):  # type: ignore[misc]
    def observe(self, state: Any, role: str) -> Any:
        return state.ask.text if role == state.ask.role else self.task.show(state.task)


class ShowsTheRole(made()):  # type: ignore[misc]
    """The last question to any agent of the role."""

    def observe(self, state: Any, role: str) -> Any:
        return next((text for name, text, _ in reversed(state.seen) if name[:6] == role[:6]), "")


class ShowsTheNextTurn(made()):  # type: ignore[misc]
    """A question that was never asked."""

    def observe(self, state: Any, role: str) -> Any:
        shown = super().observe(state, role)
        return shown if role == state.ask.role else shown.replace("Turn 1", "Turn 2")


def feeds_back(game: Game) -> Questions:
    while game.turns_left:
        yield Ask("guide", sees(game), keeps=(), private=[secret(game)])
        game.feedback = secret(game)
        game.play((yield Ask("walker_0", f"{game.turn} {game.feedback}", keeps=())), "walker_0")


def quotes_its_own_question(game: Game) -> Questions:
    while game.turns_left:
        yield Ask("guide", sees(game), keeps=(), private=[secret(game)])
        game.play((yield Ask("walker_0", game.quote("guide", sees(game)), keeps=())), "walker_0")


def keeps_one_list_of_notes(game: Game) -> Questions:
    notes: list[str] = []
    while game.turns_left:
        for name in ("guide", "walker_0", "walker_1"):
            notes += [secret(game)] if name == "guide" else []
            reply = yield Ask(name, "\n".join(notes), keeps=notes, private=[secret(game)] if name == "guide" else ())
        game.play(reply, name)


def after(when: Callable[[str, int, str], bool]) -> Any:
    """A walker is shown the secret now and then."""
    return made(blind=lambda game, *now: f"{hears(game, *now)}\n{secret(game) if when(*now) else ''}")


def shares_a_list_of_messages(game: Game) -> Questions:
    messages: list[Any] = []
    while game.turns_left:
        messages.append({"role": "user", "content": sees(game)})
        yield Ask("guide", Prompt(messages), keeps=(), private=[secret(game)])
        messages[-1] = {"role": "user", "content": f"Turn {game.turn}."}
        game.play((yield Ask("walker", Prompt(messages), keeps=())), "walker")


@pytest.mark.parametrize(
    ("planted", "words"),
    [
        (ShowsAnyAgent, "was asked nothing yet and observes"),
        (ShowsTheTask, "was asked nothing yet and observes"),
        (ShowsTheRole, "was asked nothing yet and observes"),
        (ShowsTheNextTurn, "observes something else than its last question"),
        (function_workflow(*ROLES)(feeds_back), "which is private in a question to guide"),
        (function_workflow(*ROLES)(quotes_its_own_question), "which is private in a question to guide"),
        (function_workflow(*ROLES)(keeps_one_list_of_notes), "which is private in a question to guide"),
        (after(lambda walker, count, told: walker == "walker_1"), "walker_1 is shown"),
        (after(lambda walker, count, told: count == 4), "walker_1 is shown"),
        (after(lambda walker, count, told: "nonsense" in told), "which is private in a question to guide"),
        (function_workflow(*CHAT)(shares_a_list_of_messages), "observes something else than its last question"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_it_finds_a_function_that_shows_an_agent_what_anothers_question_held(planted: Any, words: str) -> None:
    result = judged(lambda: TextEnv(planted(PlanPath(size=4))))
    assert result.status == "failed", result.detail
    assert words in result.detail


class Echo:
    spec, digest, deterministic = ToolSpec("echo", "Says it again.", {"type": "object"}), "", True

    def __call__(self, request: str) -> ToolResult:
        return ToolResult(request)


@pytest.mark.parametrize(("blind", "status"), [(hears, "passed"), (lambda game, *_: secret(game), "failed")])
def test_it_looks_through_the_tools_of_roles(blind: Callable[..., str], status: str) -> None:
    team = made(blind=blind)(PlanPath(size=4))
    assert judged(lambda: TextEnv(ToolCalls(team, {"guide": (Echo(),)}))).status == status


@pytest.mark.parametrize("name", ["hidden_bench", "archives", "note_taking", "plan_path"])
def test_ours_pass(name: str) -> None:
    result = judged(lambda: pettingllms_envs.make(name))
    assert result.status == "passed", result.detail
    assert ("private texts" in result.detail) == (name in ("hidden_bench", "note_taking"))
