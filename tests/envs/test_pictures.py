"""Pictures and coloured boards: what is drawn, at which size, in which colours."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from pettingllms_envs.features import Tile
from pettingllms_envs.rendering import as_rich, draw, draw_text, picture, rgb_array, save_gif, to_terminal


WHITE, RED, BLUE = (255, 255, 255), (200, 30, 30), (20, 60, 200)
FLOOR = Tile("", "#ffffff")
WALL = Tile("", "#c81e1e")
DISC = Tile("", "#ffffff", shape="disc", fill="#143cc8")
RING = Tile("", "#ffffff", shape="ring", fill="#143cc8")
SQUARE = Tile("", "#ffffff", shape="square", fill="#143cc8")


class Boarded:
    """As much of a task as drawing asks for; its state is the rows of its board."""

    def tiles(self, state: Any) -> Any:
        return state

    def show(self, state: Any) -> str:
        return "the board in words"


class Worded:
    """The same without a board; its state is its text."""

    def show(self, state: str) -> str:
        return state


def pixel(image: Image.Image, x: int, y: int) -> Any:
    return image.getpixel((x, y))


def test_a_board_has_a_tile_of_the_asked_size_for_each_cell_each_in_its_place() -> None:
    image = draw([[FLOOR, WALL, FLOOR], [WALL, FLOOR, FLOOR]], cell=20)
    assert (image.mode, image.size) == ("RGB", (60, 40))
    middles = [[pixel(image, 20 * x + 10, 20 * y + 10) for x in range(3)] for y in range(2)]
    assert middles == [[WHITE, RED, WHITE], [RED, WHITE, WHITE]]


@pytest.mark.parametrize("cell", [7, 48, 301])
@pytest.mark.parametrize(
    ("tile", "middle"),
    [(DISC, BLUE), (SQUARE, BLUE), (RING, WHITE), (FLOOR, WHITE)],
    ids=["disc", "square", "ring", "none"],
)
def test_a_shape_fills_the_middle_of_its_tile_unless_it_is_a_ring(cell: int, tile: Tile, middle: object) -> None:
    image = draw([[tile]], cell=cell)
    assert pixel(image, cell // 2, cell // 2) == middle
    assert pixel(image, 0, 0) == WHITE


def test_a_disc_has_the_area_of_a_circle_and_smooth_edges() -> None:
    # Radius 0.36 of a cell of 200 pixels: pi * 72**2 = 16286 pixels.
    colours = np.asarray(draw([[DISC]], cell=200))[:, :, 0]
    covered = float((255 - colours[:-1, :-1]).sum() / (255 - 20))
    assert covered == pytest.approx(16286, rel=0.01)
    assert set(np.unique(colours)) - {255, 20}


def test_text_is_written_in_its_ink_in_the_middle_of_its_tile() -> None:
    plain, written = (np.asarray(draw([[Tile(text, "#ffffff", "#ff0000")]], cell=60)) for text in ("", "8"))
    changed = np.argwhere((plain != written).any(axis=2))
    assert len(changed) > 100
    middle = (changed.min(axis=0) + changed.max(axis=0)) / 2
    assert middle == pytest.approx([30, 30], abs=4)
    assert (written[..., 0][5:-5, 5:-5] == 255).all()  # red on white: no pixel has less red than either


@pytest.mark.parametrize("text", ["8", "12", "@", "W", "WW"])
@pytest.mark.parametrize("cell", [24, 60])
def test_text_stays_within_its_tile(text: str, cell: int) -> None:
    plain, written = (np.asarray(draw([[FLOOR, Tile(t, "#ffffff"), FLOOR]], cell=cell)) for t in ("", text))
    columns = np.flatnonzero((plain != written).any(axis=(0, 2)))
    assert cell <= columns.min()
    assert columns.max() < 2 * cell


@pytest.mark.parametrize(
    ("rows", "cell", "message"),
    [
        ([], 20, "expected at least one row, all equally long"),
        ([[]], 20, "expected at least one row, all equally long"),
        ([[FLOOR], [FLOOR, FLOOR]], 20, r"rows of \[1, 2\] tiles"),
        ([[FLOOR]], 3, "cell is 3; expected a whole number of at least 4"),
        ([[FLOOR]], 20.0, "cell is 20.0; expected a whole number"),
        ([[FLOOR._replace(shape="star")]], 20, "shape 'star'; expected none, disc, square, ring"),
        ([[FLOOR._replace(paper="white-ish")]], 20, "white-ish"),
    ],
)
def test_what_is_no_board_is_refused(rows: list[list[Tile]], cell: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draw(rows, cell=cell)


def test_letters_that_stand_below_each_other_in_a_text_do_so_in_its_picture() -> None:
    lines = np.asarray(draw_text("i#\nW#", size=20))[..., 0]
    first, second = lines[: len(lines) // 2], lines[len(lines) // 2 :]
    right = [np.flatnonzero((half < 200).any(axis=0)).max() for half in (first, second)]
    assert right[0] == right[1]


def test_a_text_grows_by_lines_and_wraps_after_100_characters() -> None:
    one, two = draw_text("a" * 100, size=10), draw_text("a" * 101, size=10)
    assert one.width == two.width
    assert two.height > one.height
    assert draw_text("a\n\nb", size=10).height == draw_text("a\nb\nc", size=10).height


@pytest.mark.parametrize("text", ["", "\x00\x1b\ud800\u2028", "\N{GRINNING FACE}"])
def test_every_text_can_be_drawn(text: str) -> None:
    assert draw_text(text).width > 0


@pytest.mark.parametrize(
    ("columns", "rows", "size"), [(6, 6, (480, 480)), (10, 5, (480, 240)), (100, 100, (400, 400)), (200, 1, (800, 4))]
)
def test_a_picture_is_about_480_pixels_wide_with_whole_pixels_of_at_least_4_a_cell(
    columns: int, rows: int, size: tuple[int, int]
) -> None:
    assert picture(Boarded(), [[FLOOR] * columns] * rows).size == size


def test_pixels_come_as_an_array_of_height_width_and_three_colours() -> None:
    array = rgb_array(Boarded(), [[FLOOR, WALL]], side=40)
    assert (array.shape, array.dtype) == ((20, 40, 3), np.uint8)
    assert array[10, 30].tolist() == list(RED)
    array[0, 0] = 0  # a caller's own, to write on


def test_a_task_without_a_board_is_drawn_as_its_text() -> None:
    assert rgb_array(Worded(), "hello\nthere").tolist() == np.asarray(draw_text("hello\nthere")).tolist()


@pytest.mark.parametrize(
    ("tile", "text", "style"),
    [
        (FLOOR, "  ", "#000000 on #ffffff"),
        (Tile("7", "#ffffff", "#0000ff"), "7 ", "bold #0000ff on #ffffff"),
        (Tile("12", "#ffffff"), "12", "bold #000000 on #ffffff"),
        (Tile("箱", "#ffffff"), "箱", "bold #000000 on #ffffff"),
        (DISC, "● ", "#143cc8 on #ffffff"),
        (SQUARE, "■ ", "#143cc8 on #ffffff"),
        (RING, "○ ", "#143cc8 on #ffffff"),
        (DISC._replace(text="@", ink="#ffffff"), "@ ", "bold #ffffff on #143cc8"),
        (RING._replace(text="@"), "@ ", "bold #000000 on #ffffff"),
    ],
)
def test_a_cell_takes_two_columns_of_a_terminal(tile: Tile, text: str, style: str) -> None:
    board = as_rich([[tile]])
    assert board.plain == text
    assert [str(span.style) for span in board.spans] == [style]


def test_a_row_of_cells_is_a_line_of_the_terminal() -> None:
    assert as_rich([[DISC, FLOOR], [WALL, Tile("3", "#ffffff")]]).plain == "●   \n  3 "


def printed(colours: bool, task: Any, state: Any, title: str = "", **settings: Any) -> str:
    console = Console(force_terminal=colours, color_system="truecolor" if colours else None, width=20, **settings)
    with console.capture() as capture:
        to_terminal(task, state, title, console)
    return capture.get()


def test_a_terminal_with_colours_shows_the_board_and_any_other_the_text() -> None:
    assert "48;2;200;30;30" in printed(True, Boarded(), [[WALL]])  # ANSI for a background of #c81e1e
    assert printed(False, Boarded(), [[WALL]]) == "the board in words\n"
    assert printed(True, Boarded(), [[WALL]], no_color=True) == "the board in words\n"


def test_a_text_is_printed_as_it_is_below_its_title() -> None:
    text = "[bold]no markup[/bold] :smile: and no line break of ours"
    assert printed(False, Worded(), text, title="Turn 1") == f"Turn 1\n{text}\n"


def test_a_film_has_its_pictures_in_order_and_keeps_the_last_one_for_longer(tmp_path: Path) -> None:
    boards = [[[WALL, FLOOR, FLOOR]], [[FLOOR, WALL, FLOOR]], [[FLOOR, FLOOR, WALL]]]
    save_gif([draw(rows, cell=20) for rows in boards], tmp_path / "game.gif", ms=100)
    with Image.open(tmp_path / "game.gif") as film:
        assert (film.n_frames, film.size, film.info["loop"]) == (3, (60, 20), 0)
        for frame, where in enumerate((0, 1, 2)):
            film.seek(frame)
            assert film.info["duration"] == (300 if frame == 2 else 100)
            colours = [pixel(film.convert("RGB"), 20 * x + 10, 10) for x in range(3)]
            assert colours == [RED if x == where else WHITE for x in range(3)]


def test_a_film_is_as_large_as_its_largest_picture(tmp_path: Path) -> None:
    save_gif([draw([[WALL]], cell=20), draw([[WALL], [WALL]], cell=20)], tmp_path / "game.gif")
    with Image.open(tmp_path / "game.gif") as film:
        assert film.size == (20, 40)
        assert [pixel(film.convert("RGB"), 10, y) for y in (10, 30)] == [RED, WHITE]


def test_a_film_without_pictures_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no frames; expected at least one"):
        save_gif([], tmp_path / "game.gif")
    assert list(tmp_path.iterdir()) == []
