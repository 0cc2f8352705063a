"""Every check of an optional feature fails on an environment that is wrong in its way, and passes on a sound one."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import pytest
from pettingzoo.utils.wrappers import BaseWrapper
from PIL import Image as Picture

from pettingllms_envs.aec import TextEnv
from pettingllms_envs.core import TEAM, Role, ToolResult, Transition
from pettingllms_envs.environments.plan_path.rules import PlanPath
from pettingllms_envs.observations import Image, Prompt
from pettingllms_envs.quoting import escape
from pettingllms_envs.teams.base import TurnState, TurnWorkflow
from pettingllms_envs.teams.single import Single, SingleState
from pettingllms_envs.teams.tool_calls import ToolCalls
from pettingllms_envs.testing import check
from test_tool_calls import ECHO


TASK = PlanPath(size=4)


def png(width: int = 8) -> bytes:
    file = io.BytesIO()
    Picture.new("L", (width, 8)).save(file, "PNG")
    return file.getvalue()


@dataclass(frozen=True, slots=True)
class Draws(Single[Any, Any]):
    """Shows the planner a picture beside the text."""

    picture: Image = field(default_factory=lambda: Image(png(), "an empty board"))
    roles: ClassVar[tuple[Role, ...]] = (Role("planner", "You are the planner.", observes="parts"),)

    def observe(self, state: Any, role: str) -> Any:
        return (Single.observe(self, state, role), self.picture)


COUNTER: list[int] = []


class DrawsAnotherEachTime(Draws):
    """Its picture depends on how often it was looked at."""

    def observe(self, state: Any, role: str) -> Any:
        COUNTER.append(0)
        return ("Move.", Image(png(1 + len(COUNTER) % 50), "an empty board"))


@dataclass(frozen=True, slots=True)
class PaysTwice(Single[Any, Any]):
    """Pays the team for every turn."""

    def step(self, state: SingleState[Any], reply: str) -> Transition[SingleState[Any]]:
        after, parts, terminated, truncated = Single.step(self, state, reply)
        team = {**parts.get(TEAM, {}), "effort": 0.1}
        return after, {**parts, TEAM: team}, terminated, truncated

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        return {**Single.ranges(self), "effort": (0.0, 0.1)}


@dataclass(frozen=True, slots=True)
class PaysABonus(PaysTwice):
    """Says so."""

    bonuses: ClassVar[tuple[str, ...]] = ("effort",)


@dataclass(frozen=True, slots=True)
class PaysSuccessOnly(Single[Any, Any]):
    """Forgets the progress of all turns but the last."""

    def step(self, state: SingleState[Any], reply: str) -> Transition[SingleState[Any]]:
        after, parts, terminated, truncated = Single.step(self, state, reply)
        return after, parts if terminated or truncated else {}, terminated, truncated


@dataclass(frozen=True, slots=True)
class Advise(TurnWorkflow[Any, Any]):
    """An adviser and a player."""

    name: ClassVar[str] = "advise"
    roles: ClassVar[tuple[Role, ...]] = (
        Role("adviser", "You are the adviser.", delayed=True),
        Role("player", "You are the player."),
    )


class ShowsRawMessages(Advise):
    """Shows messages without quotation."""

    def observe(self, state: TurnState[Any], role: str) -> str:
        unquoted = [sent.text for sent in state.messages]
        return "\n".join([Advise.observe(self, state._replace(messages=()), role), *unquoted])


class ShowsEscapedMessages(ShowsRawMessages):
    """Breaks up their control tokens only."""

    def observe(self, state: TurnState[Any], role: str) -> str:
        return escape(ShowsRawMessages.observe(self, state, role))


class Whole(NamedTuple):
    """A message that was not cut."""

    text: str

    @property
    def shown(self) -> str:
        return f"> {self.text}"


class ShowsWholeMessages(Advise):
    """Does not cut messages, and quotes the first line only."""

    def step(self, state: TurnState[Any], reply: str) -> Any:
        after, *rest = Advise.step(self, state, reply)
        messages = tuple(Whole(reply.replace("\n", " ")) for _ in after.messages)
        return (after._replace(messages=messages), *rest)


class ShowsWholeResults(ToolCalls):
    """Shows everything that a tool returns."""

    def observe(self, state: Any, role: str) -> Any:
        seen = ToolCalls.observe(self, state, role)
        return seen + "".join(result.text for each in state.rounds for result in each.results)


class FailsWithItsTool(ToolCalls):
    """Raises where a tool returns an error."""

    def step(self, state: Any, reply: str) -> Any:
        after, *rest = ToolCalls.step(self, state, reply)
        assert not any(result.error for each in after.rounds for result in each.results)
        return (after, *rest)


class KnowsItsWrapper(TextEnv):
    """Counts the observations that it gave, which a wrapper asks for more often."""

    def last(self, observe: bool = True) -> Any:
        seen, *rest = super().last(observe=observe)
        return (seen, *rest)

    @property
    def rewards(self) -> dict[str, float]:
        import inspect

        is_wrapped = any(isinstance(frame.frame.f_locals.get("self"), BaseWrapper) for frame in inspect.stack()[1:4])
        return {agent: reward + is_wrapped for agent, reward in super().rewards.items()}


def env(workflow: Any, kind: type[TextEnv] = TextEnv) -> Callable[[], TextEnv]:
    return lambda: kind(workflow, name="own_v0")


def with_echo(kind: type[ToolCalls], style: str = "text") -> ToolCalls:
    return kind(Single(TASK), {"planner": (ECHO,)}, style=style)


SOUND = {
    "potential": env(PaysABonus(TASK)),
    "wrappers": env(Advise(TASK)),
    "images": env(Draws(TASK)),
    "tools": env(with_echo(ToolCalls, "native")),
    "channel": env(Advise(TASK)),
}


@pytest.mark.parametrize("name", SOUND)
def test_a_check_passes_a_sound_environment(name: str) -> None:
    result = check(SOUND[name], seeds=range(3), only=[name])[name]
    assert result.status == "passed", result.detail


@pytest.mark.parametrize(
    ("make", "name", "words"),
    [
        (env(PaysTwice(TASK)), "potential", "expected the change of potential and success"),
        (env(PaysSuccessOnly(TASK)), "potential", "expected the change of potential and success"),
        (env(Draws(TASK, picture=Image(png(), " "))), "images", "an image has no alt text"),
        (env(Draws(TASK, picture=Image(png()[:40], "cut"))), "images", "an image cannot be read"),
        (env(Draws(TASK, picture=Image(png(2000), "a line"))), "images", "has 2000 x 8 pixels; expected at most"),
        (env(Draws(TASK, picture=Image(png() + bytes(5 << 20), "big"))), "images", "expected at most 4194304"),
        (env(DrawsAnotherEachTime(TASK)), "images", "the images of an episode, twice"),
        (env(ShowsRawMessages(TASK)), "forged prompts", "observes '<image>' in its prompt, which adviser_0 wrote"),
        (env(ShowsEscapedMessages(TASK)), "forged prompts", "player_0 observes 'Turn 97 of 99. "),
        (env(ShowsWholeMessages(TASK)), "channel", "two messages that differ after 500 characters"),
        (env(with_echo(ShowsWholeResults)), "tools", "where tools return 100,000 characters"),
        (env(with_echo(FailsWithItsTool)), "tools", "AssertionError"),
        (env(Single(TASK), KnowsItsWrapper), "wrappers", "in PettingZoo's BaseWrapper"),
    ],
)
def test_a_check_fails_an_environment_that_is_wrong_in_its_way(make: Any, name: str, words: str) -> None:
    result = check(make, seeds=range(3), only=[name])[name]
    assert result.status == "failed"
    assert words in result.detail


def test_checks_of_features_that_an_environment_has_not_are_skipped_with_the_reason() -> None:
    report = check(env(Single(TASK)), seeds=range(1), only=["images", "tools", "channel"])
    assert [(result.status, result.detail) for result in report] == [
        ("skipped", "its observations have no images"),
        ("skipped", "its roles have no tools"),
        ("skipped", "its workflow has no channel"),
    ]


def test_a_workflow_that_shows_what_its_role_does_not_observe_raises() -> None:
    for shown, kind in ((Prompt([]), "parts"), (("a", "b"), "text"), ("a", "messages")):
        roles = (Role("planner", "", observes=kind),)
        workflow = type("Odd", (Single,), {"roles": roles, "observe": lambda self, state, role, shown=shown: shown})
        made = TextEnv(workflow(TASK))
        made.reset(seed=0)
        with pytest.raises(TypeError, match=rf"its role observes '{kind}'"):
            made.observe("planner_0")


def test_an_image_is_known_by_its_content() -> None:
    one, same, other = Image(png(), "a"), Image(png(), "a"), Image(png(9), "a")
    assert one == same != other
    assert one.digest == same.digest != other.digest
    with pytest.raises(ValueError, match="expected a PNG file"):
        Image(b"GIF89a", "a")
    with pytest.raises(TypeError, match="got str and str"):
        Image("png", "a")  # type: ignore[arg-type]
    assert replace(one, alt="b") != one
    assert ToolResult("x", media=(one,)).media == (same,)


@dataclass(frozen=True, slots=True)
class Tells(TurnWorkflow[Any, Any]):
    """Shows a guide, who is meant to know it, the way."""

    name: ClassVar[str] = "tells"
    roles: ClassVar[tuple[Role, ...]] = (
        Role("guide", "You are the guide.", delayed=True, informed=True),
        Role("player", "You are the player."),
    )
    shown_to: ClassVar[str] = "guide"

    def observe(self, state: TurnState[Any], role: str) -> str:
        seen = TurnWorkflow.observe(self, state, role)
        return f"{seen}\n{self.oracle(state)}" if role == self.shown_to else str(seen)


class TellsThePlayer(Tells):
    """Shows it to the player."""

    shown_to: ClassVar[str] = "player"


def test_only_informed_roles_may_be_shown_the_solution() -> None:
    board = PlanPath(size=8, min_distance=6)
    for workflow, status in ((Tells(board), "passed"), (TellsThePlayer(board), "failed")):
        result = check(env(workflow), seeds=range(3), only=["no solution shown"])["no solution shown"]
        assert result.status == status, result.detail


def test_a_reset_option_that_is_not_among_the_legal_values_raises_whatever_the_task_does() -> None:
    class Careless(PlanPath):
        def generate(self, seed: int, *args: Any, **fields: Any) -> Any:
            return PlanPath.generate(self, seed)

    made = TextEnv(Single(Careless(size=4)))
    with pytest.raises(ValueError, match="split is 'tset'; expected one of 'train', 'validation', 'test'"):
        made.reset(seed=0, options={"split": "tset"})
