"""Whatever PNG an environment shows becomes an RGB picture of a bounded size, or is an error with its digest."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image as Picture

from pettingllms_envs.observations import PNG, Image
from pettingllms_envs.pictures import opened, with_known_images


def png_of(picture: Picture.Image, **options: Any) -> Image:
    file = io.BytesIO()
    picture.save(file, "PNG", **options)
    return Image(file.getvalue(), "a board")


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def ihdr(width: int, height: int) -> bytes:
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))


def header_of(width: int, height: int) -> bytes:
    return PNG + ihdr(width, height)


def with_transparent_grey(png: bytes, grey: int) -> Image:
    """The file of 16 bits with that grey as transparent."""
    at = png.index(b"IDAT") - 4
    return Image(png[:at] + chunk(b"tRNS", struct.pack(">H", grey)) + png[at:], "a board")


RED_AND_CLEAR = Picture.fromarray(np.array([[[255, 0, 0, 255], [9, 9, 9, 0]]] * 8, dtype=np.uint8).repeat(4, 1))
GREYS = np.array([[0, 257, 257 * 128, 65535]] * 4, dtype=np.uint16)


@pytest.mark.parametrize(
    ("image", "pixels"),
    [
        (png_of(Picture.new("RGB", (8, 8), (1, 2, 3))), [(1, 2, 3), (1, 2, 3)]),
        (png_of(Picture.new("L", (8, 8), 7)), [(7, 7, 7), (7, 7, 7)]),
        (png_of(Picture.new("1", (8, 8), 1)), [(255, 255, 255), (255, 255, 255)]),
        (png_of(RED_AND_CLEAR), [(255, 0, 0), (255, 255, 255)]),
        (png_of(RED_AND_CLEAR.convert("RGB").quantize(4)), [(255, 0, 0), (9, 9, 9)]),
        (png_of(Picture.new("P", (8, 8), 0), transparency=0), [(255, 255, 255), (255, 255, 255)]),
        (png_of(Picture.fromarray(GREYS)), [(0, 0, 0), (255, 255, 255)]),
    ],
    ids=["RGB", "grey", "one bit", "transparency", "palette", "palette with transparency", "16 bits"],
)
def test_other_kinds_of_pixels_become_rgb(image: Image, pixels: list[tuple[int, int, int]]) -> None:
    picture = opened(image)
    assert picture.mode == "RGB"
    found = [picture.getpixel((0, 0)), picture.getpixel((picture.width - 1, 0))]
    assert [tuple(each) for each in found if isinstance(each, tuple)] == pixels


def test_sixteen_bits_are_scaled_and_not_clipped() -> None:
    assert [opened(png_of(Picture.fromarray(GREYS))).getpixel((x, 0)) for x in range(4)] == [
        (value, value, value) for value in (0, 1, 128, 255)
    ]


def test_a_transparent_grey_of_sixteen_bits_is_white_and_its_neighbour_is_not() -> None:
    picture = opened(with_transparent_grey(png_of(Picture.fromarray(GREYS)).png, 257))
    assert [picture.getpixel((x, 0)) for x in range(3)] == [(0, 0, 0), (255, 255, 255), (128, 128, 128)]


def test_a_transparent_colour_of_sixteen_bits_is_white() -> None:
    colours = (b"\x75\x30\xff\xff\x01\x00", bytes(6))  # (117, 255, 1) and black in 8 bits
    header = PNG + chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 4, 16, 2, 0, 0, 0)) + chunk(b"tRNS", colours[0])
    pixels = chunk(b"IDAT", zlib.compress((b"\0" + b"".join(colours) * 4) * 4))
    picture = opened(Image(header + pixels + chunk(b"IEND", b""), "a board"))
    assert [picture.getpixel((x, 0)) for x in range(2)] == [(255, 255, 255), (0, 0, 0)]


@pytest.mark.parametrize(("size", "expected"), [((1, 1), (4, 4)), ((3, 100), (6, 200)), ((4, 5), (4, 5))])
def test_a_picture_of_few_rows_is_enlarged(size: tuple[int, int], expected: tuple[int, int]) -> None:
    picture = opened(png_of(Picture.new("RGB", size, (9, 8, 7))))
    assert picture.size == expected
    assert picture.getpixel((0, 0)) == (9, 8, 7)


WHOLE = png_of(Picture.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8))).png


@pytest.mark.parametrize(
    ("png", "message"),
    [
        (PNG, "has no size"),
        (PNG + b"\0" * 40, "has no size"),
        (header_of(0, 5), "has no size"),
        (header_of(20_000, 20_000), "20000 x 20000 pixels; expected at most"),
        (header_of(2**31 - 1, 2**31 - 1), "pixels; expected at most"),
        (header_of(1, 300), "1 x 300 pixels; .* no side over 200 times the other"),
        (header_of(8, 8), "cannot be decoded"),
        (WHOLE[:200], "cannot be decoded"),
        (WHOLE[:100] + b"\xff" * 50 + WHOLE[150:], "cannot be decoded"),
        (header_of(8, 8) + ihdr(5000, 5000) + chunk(b"IDAT", b""), "a second header says 5000 x 5000"),
        (header_of(8, 8) + ihdr(20_000, 20_000) + chunk(b"IDAT", b""), "cannot be decoded .DecompressionBombError"),
    ],
    ids=[
        "empty",
        "zeros",
        "no width",
        "huge",
        "enormous",
        "narrow",
        "no pixels",
        "cut off",
        "broken",
        "grows",
        "explodes",
    ],
)
def test_what_cannot_be_shown_is_an_error_with_the_digest(png: bytes, message: str) -> None:
    image = Image(png, "a board")
    with pytest.raises(ValueError, match=message) as refused:
        opened(image)
    assert image.digest in str(refused.value)


def test_equal_images_of_observations_are_one_object_and_a_description_stays() -> None:
    png = png_of(Picture.new("RGB", (8, 8))).png
    known: dict[str, Image] = {}
    first = with_known_images({"parts": [Image(bytes(bytearray(png)), "a board"), "a"]}, known)["parts"][0]
    second = with_known_images(
        {"messages": [{"role": "user", "content": ["b", Image(bytes(bytearray(png)), "a board")]}]}, known
    )["messages"][0]["content"][1]
    other = with_known_images({"parts": [Image(bytes(bytearray(png)), "the goal")]}, known)["parts"][0]
    assert second is first
    assert (other.alt, other.png is first.png) == ("the goal", True)


@pytest.mark.parametrize("observation", ["text", {"text": "t"}, {"messages": "none"}, {"parts": 3}, None, 7])
def test_what_has_no_images_is_left_as_it_is(observation: Any) -> None:
    assert with_known_images(observation, {}) == observation
