"""Who cheats, alone beside the oracle or together with the others, is paid no more than the oracle's team."""

from collections.abc import Iterator, Mapping
from itertools import count, takewhile
from typing import Any, ClassVar

import pytest

import pettingllms_envs
from cheaters import ANSWERING, CODING, TOOLS, Row, Script, play
from pettingllms_envs.testing import check
from pettingllms_envs.testing.pairs import TOLERANCE, cheating, cheats, contents, margins
from pettingllms_envs.testing.play import Start
from test_games_conform import settings
from test_testing import BLIND, Sum


TEST = {"split": "test"}
GAMES = ("plan_path", "sokoban", "sudoku")
DATA = [
    *((name, {"workflow": "coder_tester"}, CODING) for name in ("apps", "live_code_bench", "code_contests")),
    *(
        (name, {"workflow": "coder_tester", "order": ("tester", "coder")}, CODING)
        for name in ("apps", "live_code_bench", "code_contests")
    ),
    *(
        (name, {"workflow": workflow, **more}, {})
        for name in ("apps", "live_code_bench", "code_contests")
        for workflow, more in (("single", {}), ("single", {"tools": True}), ("self_refine", {}))
    ),
    *((name, {"workflow": "tool_reasoner"}, ANSWERING) for name in ("aime", "math", "olympiad_bench")),
    *(
        (name, {"workflow": "single", "tools": tools}, {})
        for name in ("aime", "math", "olympiad_bench")
        for tools in (False, True)
    ),
]


class PaidForMistakes(Sum):
    """Whoever sees the other give a wrong number is paid for it."""

    def show(self, parts: dict[str, dict[str, float]], *, solved: bool) -> None:
        if self.note.startswith("\nThe sum is not") and not solved:
            other = next(agent for agent in self.agents if agent != self.agent_selection)
            parts = {**parts, other: {**parts.get(other, {}), "success": 0.3}}
        super().show(parts, solved=solved)


class PaidForSilence(Sum):
    """A reply that can be read costs a little, and one that cannot be read costs nothing."""

    def show(self, parts: dict[str, dict[str, float]], *, solved: bool) -> None:
        free = self.made == 0 or self.note.startswith("\nThe last reply")
        actor = self.agent_selection
        kept = {agent: {k: v for k, v in named.items() if k == "success"} for agent, named in parts.items()}
        super().show(kept if free else {**kept, actor: {**kept.get(actor, {}), "format": -0.05}}, solved=solved)


class Duel(Sum):
    """Who finds the sum wins what the other loses; no return is declared that all of them share."""

    metadata: ClassVar[dict[str, Any]] = {k: v for k, v in Sum.metadata.items() if k != "max_return"}

    def show(self, parts: dict[str, dict[str, float]], *, solved: bool) -> None:
        lost = {agent: {"success": 1.0 if agent == self.agent_selection else -1.0} for agent in self.agents}
        super().show(lost if solved else {}, solved=solved)


def judged(make: Any) -> Any:
    return check(lambda: make(), blind=BLIND, seeds=range(3), only=["pairs of roles"])["pairs of roles"]


def test_the_check_passes_a_sound_team_and_opponents_of_whom_one_gives_the_game_away() -> None:
    sound = judged(Sum)
    assert sound.status == "passed", sound.detail
    assert sound.detail == (
        "60 ways of cheating; the most that one adds to a return, or to the sum of returns, is 0.00"
    )
    duel = judged(Duel)
    assert duel.status == "passed", duel.detail


def test_the_check_fails_a_team_of_which_one_is_paid_for_the_mistakes_of_the_other() -> None:
    found = judged(PaidForMistakes)
    assert found.status == "failed"
    assert "the return of right_0 is 0.3 above what it is when the oracle plays all" in found.detail
    assert "replies so far: ['Sum: " in found.detail


def test_the_check_fails_a_team_of_which_one_is_paid_for_silence() -> None:
    found = judged(PaidForSilence)
    assert found.status == "failed"
    assert "the return of left_0 is 0.05 above what it is when the oracle plays all" in found.detail


def test_without_an_oracle_the_check_is_skipped() -> None:
    class Unsolved(Sum):
        oracle: Any = property(lambda self: self._)  # no such attribute

    found = judged(Unsolved)
    assert (found.status, found.detail) == ("skipped", "it has no oracle()")


def test_every_content_is_said_by_each_agent_and_by_all_at_every_time() -> None:
    said = contents(("a", "b"), {"x": "elsewhere"})
    names = [cheat.name for cheat in cheats(("x", "y"), said)]
    assert len(names) == len(set(names)) == len(said) * (4 * 3 + 2)
    assert names[:4] == ["x always: nothing", "y always: nothing", "all always: nothing", "x at first: nothing"]
    assert names[12:14] == ["x in reply 1, y in reply 2: nothing", "x in reply 2, y in reply 1: nothing"]
    alone = [cheat.name for cheat in cheats(("x",), said)]
    assert len(alone) == len(said) * 4


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("its first words", "Moves: R"),
        ("the first half", "Moves: R R"),
        ("without its last word", "Moves: R R D"),
        ("its words back to front", "Moves: L D R R"),
        ("its numbers raised by one", "Moves: R R D L"),
        ("twice", "Moves: R R D L\nMoves: R R D L"),
    ],
)
def test_the_oracle_s_reply_is_changed_as_the_name_says(name: str, expected: str) -> None:
    class Env:
        unwrapped = type("Unwrapped", (), {"oracle": staticmethod(lambda: "Moves: R R D L")})

    assert contents((), {})[f"the oracle's reply, {name}"](Env(), "x", ()) == expected


def test_an_agent_cheats_at_its_own_replies_and_not_at_those_of_others() -> None:
    class Env:
        unwrapped = type("Unwrapped", (), {"oracle": staticmethod(lambda: "right")})

    policy = cheating(lambda env, agent, said: "wrong", {"y": (1).__eq__})
    played = [policy(Env(), agent) for agent in ("x", "y", "x", "y", "y")]
    assert played == ["right", "right", "right", "wrong", "right"]


def test_a_margin_is_the_difference_to_the_oracle_s_returns() -> None:
    """The left one's silence costs it 0.1; then the right one finds the sum, which pays each of them 1 as before."""
    (way,) = (each for each in cheats(("left_0",), contents((), {})) if each.name == "left_0 at first: nothing")
    (margin,) = margins(Sum(), Start(0, {}), [way], 10)
    assert margin.returns == pytest.approx({"left_0": -0.1, "right_0": 0.0})
    assert (margin.most, margin.total) == pytest.approx((0.0, -0.1))


@pytest.mark.parametrize("workflow", ["draft_plan", "tool_plan"])
@pytest.mark.parametrize("name", GAMES)
def test_no_way_of_cheating_pays_in_a_game(name: str, workflow: str) -> None:
    env = pettingllms_envs.make(name, **settings(workflow))
    assert_no_gain(play(env, [Start(seed, TEST) for seed in range(2)], TOOLS if workflow == "tool_plan" else {}))


@pytest.mark.slow
@pytest.mark.parametrize("workflow", ["draft_plan", "tool_plan", "single"])
@pytest.mark.parametrize("name", GAMES)
def test_no_way_of_cheating_pays_in_200_instances_of_a_game(name: str, workflow: str) -> None:
    env = pettingllms_envs.make(name, **settings(workflow))
    assert_no_gain(play(env, [Start(seed, TEST) for seed in range(200)], TOOLS if workflow == "tool_plan" else {}))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "how", "scripts"), DATA, ids=lambda value: str(value)[:60])
def test_no_way_of_cheating_pays_on_any_row_that_is_shipped(
    name: str, how: Mapping[str, Any], scripts: Mapping[str, Script]
) -> None:
    env = pettingllms_envs.make(name, **how)
    assert_no_gain(play(env, [*rows(env)], scripts))


def rows(env: Any) -> Iterator[Start]:
    """Every row of the test split once: seed s is row s modulo their number."""
    first = problem_of(env, 0)
    yield Start(0, TEST)
    yield from (Start(seed, TEST) for seed in takewhile(lambda seed: problem_of(env, seed) != first, count(1)))


def problem_of(env: Any, seed: int) -> str:
    env.reset(seed=seed, options=TEST)
    return str(env.snapshot().play.task.problem.digest)


def assert_no_gain(row: Row) -> None:
    print("\n" + " | ".join(map(str, row)))
    assert row.most <= TOLERANCE, row
    assert row.total <= TOLERANCE, row
