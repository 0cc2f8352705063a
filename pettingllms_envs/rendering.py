"""Renders a game: pictures and GIFs (Pillow), arrays of pixels, and coloured boards in a terminal (rich).

A task that has `tiles` (`pettingllms_envs.boards.Board`) is drawn as a board, any other as the text of its `show`.
No other module of this package imports Pillow or rich at its top, so what is never drawn does not load them.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageColor, ImageDraw, ImageFont
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from pettingllms_envs.boards import Board, Tile
from pettingllms_envs.core import Task, check_whole
from pettingllms_envs.observations import Image as ObservedImage


__all__ = ["as_rich", "draw", "draw_text", "observed", "picture", "rgb_array", "save_gif", "to_terminal"]

PAPER: Final = "#ffffff"
INK: Final = "#1c1c1c"
SIDE: Final = 480  # pixels
LEAST_CELL: Final = 4  # pixels
MOST_COLUMNS: Final = 100  # characters

_FINER = 4  # shapes are drawn this many times as large and reduced, which smooths their edges
_GLYPHS = {"disc": "●", "square": "■", "ring": "○"}
_MARGINS = {"disc": 0.14, "square": 0.14, "ring": 0.18}  # of the cell, on each side


def draw(rows: Sequence[Sequence[Tile]], *, cell: int = 48) -> Image.Image:
    """A board as an RGB picture of `cell * columns` by `cell * rows` pixels, smooth at every size.

    Args:
        rows: The tiles, all rows of the same length.
        cell: Width and height of a tile in pixels, at least 4.
    """
    _check_board(rows)
    check_whole("cell", cell, LEAST_CELL)
    board = Image.new("RGB", (cell * len(rows[0]), cell * len(rows)))
    for y, row in enumerate(rows):
        for x, tile in enumerate(row):
            board.paste(_drawn(tile, cell), (x * cell, y * cell))
    return board


def draw_text(text: str, *, size: int = 18, paper: str = PAPER, ink: str = INK) -> Image.Image:
    """A text as a picture, every character in a column of its own, so that boards made of letters stay aligned.

    Args:
        text: Any text; lines of more than 100 characters are wrapped.
        size: Height of the letters in pixels, at least 4.
        paper: Colour behind the text, `"#rrggbb"`.
    """
    check_whole("size", size, LEAST_CELL)
    lines = [part for line in text.expandtabs().splitlines() for part in _wrapped(line)] or [""]
    font, advance, height = font_of(size), 0.64 * size, 1.35 * size
    width = max(map(len, lines))
    image = Image.new("RGB", (round(advance * width) + 2 * size, round(height * len(lines)) + 2 * size), paper)
    pen = ImageDraw.Draw(image)
    for row, line in enumerate(lines):
        for column, character in enumerate(line):
            if character.isprintable() and character != " ":
                where = (size + advance * (column + 0.5), size + height * row + size)
                pen.text(where, character, fill=ink, font=font, anchor="ms")
    return image


def picture(task: Task[Any, Any], state: Any, *, side: int = SIDE) -> Image.Image:
    """A state of a task: its board about `side` pixels on the longer side, or its text if it has none."""
    return _picture(*_drawing(task, state, side))


def rgb_array(task: Task[Any, Any], state: Any, *, side: int = SIDE) -> npt.NDArray[np.uint8]:
    """`picture` as numbers: shape (height, width, 3), from 0 to 255."""
    return np.array(picture(task, state, side=side), dtype=np.uint8)


def observed(task: Task[Any, Any], state: Any, *, side: int = SIDE, alt: str | None = None) -> ObservedImage:
    """`picture` as a part of an observation, described by `alt`, or by the task's `show`.

    The file, and so its digest, is the same on every machine with the same version of Pillow.
    """
    return ObservedImage(_png(*_drawing(task, state, side)), alt=task.show(state) if alt is None else alt)


def as_rich(rows: Sequence[Sequence[Tile]]) -> Text:
    """A board for a terminal, two columns a cell and one line a row, without a line break at the end.

    A tile's text is written on its paper, or on the fill of its disc or square; a shape without text becomes ● ■ or ○.
    """
    _check_board(rows)
    text = Text(no_wrap=True, overflow="crop")
    for y, row in enumerate(rows):
        text.append("\n" if y else "")
        for tile in row:
            text.append(*_in_terminal(tile))
    return text


def to_terminal(task: Task[Any, Any], state: Any, title: str = "", console: Console | None = None) -> None:
    """Print the title, if any, and the state: its board where the terminal shows colours, else its text."""
    console = Console() if console is None else console
    if title:
        console.print(Text(title), soft_wrap=True)
    if isinstance(task, Board) and console.color_system is not None and not console.no_color:
        console.print(as_rich(task.tiles(state)))
    else:
        console.print(Text(task.show(state)), soft_wrap=True)


def save_gif(frames: Sequence[Image.Image], file: str | Path | IO[bytes], ms: int = 600) -> None:
    """Write pictures as a film that repeats for ever; the last one stays three times as long.

    Args:
        frames: At least one. Smaller ones are filled up with white at the right and below.
        file: Where to, replaced if it is there.
        ms: How long each picture stays, in milliseconds.
    """
    if not frames:
        raise ValueError("save_gif got no frames; expected at least one picture. Record one with draw().")
    width, height = max(frame.width for frame in frames), max(frame.height for frame in frames)
    first, *rest = (_padded(frame, width, height) for frame in frames)
    durations = [ms] * len(rest) + [3 * ms]
    first.save(file, format="GIF", save_all=True, append_images=rest, duration=durations, loop=0, disposal=1)


Rows = tuple[tuple[Tile, ...], ...]


def _drawing(task: Task[Any, Any], state: Any, side: int) -> tuple[Rows | str, int]:
    """What `_picture` draws: the tiles, and the pixels of each, or a text."""
    if not isinstance(task, Board):
        return task.show(state), 0
    rows = tuple(map(tuple, task.tiles(state)))
    _check_board(rows)
    return rows, max(LEAST_CELL, side // max(len(rows), len(rows[0])))


def _picture(what: Rows | str, cell: int) -> Image.Image:
    return draw_text(what) if isinstance(what, str) else draw(what, cell=cell)


@lru_cache(maxsize=1024)
def _png(what: Rows | str, cell: int) -> bytes:
    """A picture's file; kept, because siblings are shown one board, and records and prompts have it once more."""
    file = io.BytesIO()
    _picture(what, cell).save(file, format="PNG")
    return file.getvalue()


@lru_cache(maxsize=512)
def _drawn(tile: Tile, cell: int) -> Image.Image:
    """One tile; kept, because a board has few different ones and a film shows them again and again."""
    image = Image.new("RGB", (cell, cell), tile.paper)
    if tile.shape != "none":
        image.paste(_shape(tile, cell))
    if cell >= 12:  # below, the seams would be a good part of the cell
        seam = tuple(round(0.9 * channel) for channel in ImageColor.getrgb(tile.paper))
        pen = ImageDraw.Draw(image)
        pen.line([(0, cell - 1), (cell - 1, cell - 1), (cell - 1, 0)], fill=seam)
    if tile.text.strip():
        one, plain = len(tile.text) == 1, tile.shape == "none"
        font = font_of(round(cell * (0.62 if one and plain else 0.5 if one else 0.44)))
        ImageDraw.Draw(image).text((cell / 2, cell / 2), tile.text, fill=tile.ink, font=font, anchor="mm")
    return image


def _shape(tile: Tile, cell: int) -> Image.Image:
    side = cell * _FINER
    image = Image.new("RGB", (side, side), tile.paper)
    pen, margin = ImageDraw.Draw(image), round(side * _MARGINS[tile.shape])
    box = (margin, margin, side - 1 - margin, side - 1 - margin)
    if tile.shape == "disc":
        pen.ellipse(box, fill=tile.fill)
    elif tile.shape == "ring":
        pen.ellipse(box, outline=tile.fill, width=max(_FINER, round(side * 0.1)))
    else:
        pen.rounded_rectangle(box, radius=round(side * 0.08), fill=tile.fill)
    return image.reduce(_FINER)


def _in_terminal(tile: Tile) -> tuple[str, str]:
    """The two columns of a tile and their rich style."""
    if not tile.text.strip():
        glyph = _GLYPHS.get(tile.shape, " ")
        return f"{glyph} ", f"{tile.fill if tile.shape in _GLYPHS else tile.ink} on {tile.paper}"
    paper = tile.fill if tile.shape in ("disc", "square") else tile.paper
    return tile.text + " " * (2 - cell_len(tile.text)), f"bold {tile.ink} on {paper}"


@lru_cache(maxsize=64)
def font_of(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Pillow's own font, which needs no file on this machine."""
    return ImageFont.load_default(max(size, 1))


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(line, MOST_COLUMNS, replace_whitespace=False, drop_whitespace=False) or [""]


def _padded(frame: Image.Image, width: int, height: int) -> Image.Image:
    """The frame at the film's size, in at most 256 colours of its own, without dots that imitate others."""
    page = Image.new("RGB", (width, height), PAPER)
    page.paste(frame.convert("RGB"))
    return page.quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)


def _check_board(rows: Sequence[Sequence[Tile]]) -> None:
    widths = [len(row) for row in rows]
    if not widths or not widths[0] or len(dict.fromkeys(widths)) > 1:
        raise ValueError(f"the board has rows of {widths} tiles; expected at least one row, all equally long.")
    for tile in (tile for row in rows for tile in row):
        if tile.shape != "none" and tile.shape not in _GLYPHS:
            raise ValueError(f"a tile has the shape {tile.shape!r}; expected none, {', '.join(_GLYPHS)}.")
