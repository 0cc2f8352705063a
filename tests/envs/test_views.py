"""Boards as text, as a picture, or both: what agents observe of each, and that nothing else depends on it."""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
from PIL import Image as Picture

import pettingllms_envs
from pettingllms_envs.aec import TextEnv
from pettingllms_envs.assembly import assemble
from pettingllms_envs.boards import Tile
from pettingllms_envs.core import Role
from pettingllms_envs.environments.plan_path.rules import FLOOR, GOAL, WALKER, WALL, PlanPath
from pettingllms_envs.observations import Image
from pettingllms_envs.prompts import text_of
from pettingllms_envs.teams.base import TurnWorkflow
from pettingllms_envs.teams.single import Single
from pettingllms_envs.testing import check, conforms
from pettingllms_envs.views import SIDE


BOARDS = ("plan_path", "sokoban", "sudoku", "blocksworld", "eight_queens")
BOARD = "@ . .\n. # .\n. . G"
PUZZLES = ("blocksworld", "eight_queens")
every_board = pytest.mark.parametrize("name", BOARDS)


def seen(view: str, **settings: Any) -> Any:
    """What the planner of a Plan-Path of 3 x 3 cells observes first."""
    env = pettingllms_envs.make("plan_path", workflow="single", size=3, view=view, **settings)
    env.reset(seed=0, options={"board": BOARD})
    return env.observe("planner_0")


def rgb(colour: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(colour[1:]))


def test_each_view_shows_the_board_in_its_own_way() -> None:
    text = seen("text")["text"]
    assert BOARD in text
    picture, words = seen("image")["parts"]
    assert words == (
        "Turn 1 of 4.\nThe board is in the picture. '@' is the blue disc, 'G' the green square, '#' a dark cell, "
        "'.' a light one, with or without a ring."
    )
    assert picture.alt == "the board"
    assert seen("both")["parts"] == (picture, text)
    assert seen("image")["system"] == seen("both")["system"] == seen("text")["system"]


def test_the_picture_is_the_board_in_its_tiles_colours_within_224_pixels() -> None:
    picture, _ = seen("image")["parts"]
    image = Picture.open(io.BytesIO(picture.png))
    cell = SIDE // 3
    assert image.size == (3 * cell, 3 * cell) == (222, 222)
    # In a disc or a square, left of its letter.
    colours = [[image.getpixel((x * cell + 20, y * cell + cell // 2)) for x in range(3)] for y in range(3)]
    floor, wall, goal, walker = map(rgb, (FLOOR, WALL, GOAL, WALKER))
    assert colours == [[walker, floor, floor], [floor, wall, floor], [floor, floor, goal]]


@every_board
def test_a_view_changes_no_state_and_text_is_what_it_is_without_a_view(name: str) -> None:
    envs = {view: pettingllms_envs.make(name, view=view) for view in ("text", "image", "both")}
    plain = pettingllms_envs.make(name)
    for env in (plain, *envs.values()):
        env.reset(seed=3)
    assert "view" not in plain.metadata["settings"]
    assert envs["text"].metadata["settings"] == plain.metadata["settings"]
    assert envs["image"].metadata["settings"] == {**plain.metadata["settings"], "view": "image"}
    while not any(plain.terminations.values()):
        agent, reply = plain.agent_selection, plain.oracle()
        assert envs["text"].observe(agent) == plain.observe(agent)
        for env in envs.values():
            assert env.state_hash() == plain.state_hash()
            env.step(reply)
        plain.step(reply)
        assert all(env.rewards == plain.rewards for env in envs.values())
    envs["image"].restore(plain.snapshot())
    assert envs["image"].state_hash() == plain.state_hash()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in PUZZLES else ()) for name in BOARDS]
)
@pytest.mark.parametrize("view", [pytest.param("image", marks=pytest.mark.slow), "both"])
def test_an_environment_conforms_in_every_view(name: str, view: str) -> None:
    only = ["observations", "no solution shown", "images", "forged prompts", "another process", "wrappers"]
    conforms(partial(pettingllms_envs.make, name, view=view), seeds=range(2), only=only)


def test_a_view_is_the_same_problems_so_that_the_published_set_is_played_and_runs_are_compared() -> None:
    from pettingllms_envs.evaluation.bench import choose, without_defaults

    env = pettingllms_envs.make("sudoku", view="image")
    assert choose(env, "sudoku_v0", {"view": "image"}).source == "published"
    assert without_defaults({"view": "text"}, env) == {}


@dataclass(frozen=True, slots=True)
class Adviser(TurnWorkflow[Any, Any]):
    """An adviser who does not see the board, and a player who does."""

    name: ClassVar[str] = "adviser"
    roles: ClassVar[tuple[Role, ...]] = (Role("adviser", "Advise.", delayed=True), Role("player", "Play."))

    def observe(self, state: Any, role: str) -> str:
        return f"Turn {state.turn}." if role == "adviser" else TurnWorkflow.observe(self, state, role)


def test_an_agent_from_whom_the_workflow_hides_the_board_is_shown_no_picture() -> None:
    env = TextEnv(Adviser(PlanPath(size=4)), view="image")
    env.reset(seed=0)
    assert env.observe("adviser_0")["parts"] == ("Turn 1.",)
    assert [type(part) for part in env.observe("player_0")["parts"]] == [Image, str]


def test_text_of_a_partner_stays_beside_the_picture() -> None:
    env = TextEnv(Adviser(PlanPath(size=4)), view="image")
    env.reset(seed=0)
    env.step("# . #")
    _, words = env.observe("player_0")["parts"]
    assert words.endswith("The adviser wrote:\n> # . #")


class Quotes(Single):
    """A planner whose prompt has the board a second time."""

    between: ClassVar[str] = " "  # as the task writes it

    def observe(self, state: Any, role: str) -> str:
        rows = "\n".join(self.between.join(row) for row in self.task.rows(state.task))  # type: ignore[attr-defined]
        return f"{Single.observe(self, state, role)}\nAgain, as a list:\n{rows[2:]}"


class QuotesSymbols(Quotes):
    """The same without the spaces between cells."""

    between = ""


@dataclass(frozen=True, slots=True)
class Tells(Single):
    """A planner whose picture is described by the board's text."""

    roles: ClassVar[tuple[Role, ...]] = (replace(Single.roles[0], observes="parts"),)

    def observe(self, state: Any, role: str) -> Any:
        from pettingllms_envs.rendering import observed

        return observed(self.task, state.task, side=80), f"Turn {state.turn}."


@pytest.mark.parametrize("workflow", [Quotes, QuotesSymbols])
def test_the_suite_finds_rows_of_the_board_in_prompts_that_show_it_as_a_picture(workflow: Any) -> None:
    report = check(lambda: TextEnv(workflow(PlanPath(size=4)), view="image"), seeds=range(1), only=["images"])
    assert "of the board, which view='image' shows as a picture; expected the picture alone" in str(report)
    assert check(lambda: TextEnv(workflow(PlanPath(size=4)), view="both"), seeds=range(1), only=["images"]).ok


def test_the_suite_finds_rows_of_the_board_in_the_description_of_a_picture() -> None:
    def make() -> TextEnv:
        env = TextEnv(Tells(PlanPath(size=4)))
        env.metadata["view"] = "image"
        return env

    report = check(make, seeds=range(1), only=["images"])
    assert "of the board, which view='image' shows as a picture" in str(report)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            partial(pettingllms_envs.make, "plan_path", view="picture"),
            "view is 'picture'; expected one of 'text', 'im",
        ),
        (partial(pettingllms_envs.make, "math", view="image"), "the task 'math' draws no board; expected a task with"),
        (
            partial(pettingllms_envs.make, "plan_path", workflow="describer_solver", view="both"),
            "view is 'both', but the role 'describer' observes more than a text; expected roles that are shown",
        ),
        (
            lambda: assemble(PlanPath, __name__).env(view="image", role_tools=["python"], tool_calls="native"),
            "view is 'image', but the role 'drafter' observes more than a text",
        ),
    ],
)
def test_what_cannot_be_viewed_is_an_error_in_words(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_a_picture_is_drawn_once_for_all_who_are_shown_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from pettingllms_envs import rendering

    env = pettingllms_envs.make("plan_path", size=5, view="image")
    env.reset(seed=1)
    rendering._png.cache_clear()
    shown = [env.observe("drafter_0")["parts"][0].png for _ in range(3)]
    env.step("nothing")
    shown += [env.observe(agent)["parts"][0].png for agent in env.possible_agents for _ in range(3)]
    assert len(set(shown)) == 1
    assert rendering._png.cache_info().misses == 1


def test_text_of_parts_is_searched_for_solutions_and_planted_texts() -> None:
    from pettingllms_envs.testing.play import texts

    parts = {"system": "Rules.", "parts": ("Look.", Image(b"\x89PNG\r\n\x1a\n", "a board"))}
    assert texts(parts) == ("Rules.", "Look.\n[image: a board]")
    assert texts({"messages": [{"role": "user", "content": list(parts["parts"])}]}) == (text_of(parts["parts"]),)


@every_board
def test_symbols_and_tiles_are_of_one_board(name: str) -> None:
    env = pettingllms_envs.make(name)
    looks: dict[str, set[Tile]] = {}
    for seed in range(20):
        env.reset(seed=seed)
        state, task = env.snapshot().play.task, env.workflow.task
        rows, tiles = task.rows(state), task.tiles(state)
        assert [*map(len, rows)] == [*map(len, tiles)]
        assert set("".join(rows)) <= set(task.symbols)
        for symbol, tile in zip("".join(rows), (tile for row in tiles for tile in row), strict=True):
            looks.setdefault(symbol, set()).add(tile)
    # No two symbols look the same; a symbol may have two looks, as a cell in either shade of Sudoku.
    assert all(not one & other for a, one in looks.items() for b, other in looks.items() if a < b), looks


def test_the_picture_of_the_documentation_is_the_one_that_its_code_makes() -> None:
    env = pettingllms_envs.make("plan_path", workflow="single", size=6, view="image")
    env.reset(seed=0)
    shown = Picture.open(io.BytesIO(env.observe("planner_0")["parts"][0].png))
    kept = Picture.open(Path(__file__).parents[2] / "docs" / "views.png")
    # Letters depend on the version of Pillow, cells do not.
    cell = kept.width // 6
    corners = [(x * cell + 2, y * cell + 2) for x in range(6) for y in range(6)]
    assert kept.size == shown.size
    assert [*map(kept.getpixel, corners)] == [*map(shown.getpixel, corners)]
