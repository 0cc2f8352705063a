"""Opens the images of observations: any PNG file becomes an RGB picture of a bounded size, or is an error.

`image_of` makes an image of a picture in a row of data.

Models with vision take RGB pictures of 8 bits a channel. Here, and only here, other files are converted: palettes,
greys, 16 bits and numbers from 0 to 1 to RGB, transparent pixels as on white paper, and photographs are turned as
their EXIF data say. What cannot be shown raises ValueError with the image's
digest, before its pixels are decoded where its header says so.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from PIL import Image as Picture
from PIL import ImageOps

from pettingllms_envs.observations import Image


MOST_PIXELS: Final = 4096 * 4096
MOST_ASPECT: Final = 200
"""Longest side over the shortest: Qwen's processors take no more."""
LEAST_SIDE: Final = 4
"""Smaller pictures are enlarged: one of 1 or 3 rows of pixels could be channels to a processor."""
HEADER: Final = 24  # bytes: the signature, and the length, the name, the width and the height of the first chunk
FORMATS: Final = ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF", "PPM")
"""Formats of files that are read. Pillow starts Ghostscript for others, such as EPS."""
UNREADABLE = (
    *(OSError, SyntaxError, ValueError, EOFError, IndexError, KeyError, struct.error, zlib.error),
    Picture.DecompressionBombError,
)
"""What Pillow raises for a file that is cut off, or no picture."""


def image_of(given: Any) -> Image:
    """A picture of a row, of Pillow or the bytes of its file, as an RGB image.

    Raises:
        ValueError: It cannot be decoded, is of another format than `FORMATS`, has more than `MOST_PIXELS`, or is of
            numbers outside the range from 0 to 1, if they are floats, or of 16 bits.
    """
    if isinstance(given, Image):
        return given
    file = io.BytesIO()
    try:
        picture = Picture.open(io.BytesIO(given), formats=FORMATS) if isinstance(given, bytes) else given
        if not isinstance(picture, Picture.Image):
            raise TypeError(f"a {type(given).__name__} is no picture")
        if picture.format not in (None, "MPO", *FORMATS):  # an opened file whose pixels are read later
            raise ValueError(f"it is of the format {picture.format}; expected one of {', '.join(FORMATS)}")
        if picture.width * picture.height > MOST_PIXELS:
            raise ValueError(f"{picture.width} x {picture.height} pixels; expected at most {MOST_PIXELS}")
        _as_rgb(picture).save(file, "PNG")
    except UNREADABLE as error:
        raise ValueError(f"a picture cannot be decoded, {type(error).__name__}: {error}") from None
    return Image(file.getvalue(), "an image")


def opened(image: Image) -> Picture.Image:
    """An image as an RGB picture.

    Raises:
        ValueError: The file is no whole PNG, has over `MOST_PIXELS`, or is over `MOST_ASPECT` times as long as wide.
    """
    width, height = (int.from_bytes(image.png[at : at + 4]) for at in (HEADER - 8, HEADER - 4))
    if len(image.png) < HEADER or image.png[12:16] != b"IHDR" or not width or not height:
        raise ValueError(f"{_named(image)} has no size; expected a PNG file. Save the picture again.")
    if width * height > MOST_PIXELS or max(width, height) > MOST_ASPECT * min(width, height):
        raise ValueError(
            f"{_named(image)} has {width} x {height} pixels; expected at most {MOST_PIXELS} and no side over "
            f"{MOST_ASPECT} times the other. Draw it smaller."
        )
    try:
        with Picture.open(io.BytesIO(image.png), formats=["PNG"]) as picture:
            if picture.size != (width, height):
                raise ValueError(f"a second header says {picture.width} x {picture.height}")
            rgb = _as_rgb(picture)
    except UNREADABLE as error:
        raise ValueError(
            f"{_named(image)} cannot be decoded ({type(error).__name__}: {error}); expected a whole PNG file. Save "
            "the picture again."
        ) from error
    larger = -(-LEAST_SIDE // min(width, height))
    return rgb if larger <= 1 else rgb.resize((rgb.width * larger, rgb.height * larger), Picture.Resampling.NEAREST)


def with_known_images(observation: Any, known: dict[str, Image]) -> Any:
    """An observation whose images are those of `known` with their digests; others are opened once, and added to it.

    So equal images are one object, and one that no model can be shown is found where it is observed.
    """

    def kept(content: Any) -> Any:
        return [_kept(each, known) for each in content] if isinstance(content, list | tuple) else content

    if not isinstance(observation, Mapping):
        return observation
    found = dict(observation)
    if "parts" in found:
        found["parts"] = kept(found["parts"])
    if isinstance(found.get("messages"), list | tuple):
        found["messages"] = [
            {**each, "content": kept(each.get("content"))} if isinstance(each, Mapping) else each
            for each in found["messages"]
        ]
    return found


def _kept(part: Any, known: dict[str, Image]) -> Any:
    if not isinstance(part, Image):
        return part
    if part.digest not in known:
        opened(part)
    first = known.setdefault(part.digest, part)
    return first if first.alt == part.alt else Image(first.png, part.alt)


def _as_rgb(picture: Picture.Image) -> Picture.Image:
    picture = ImageOps.exif_transpose(picture)
    if picture.mode[0] in "IF":  # whole numbers of 16 bits, or floats, which Pillow's own conversion clips at 255
        numbers, most = np.asarray(picture), 1 if picture.mode == "F" else 65535
        # Of 32 bits are PPM files of 16, and arrays, of which nothing says what is white.
        is_known = picture.mode != "I" or picture.format == "PPM"
        if not is_known or not (numbers.min() >= 0 and numbers.max() <= most):
            raise ValueError(
                f"pixels of the mode {picture.mode} from {numbers.min()} to {numbers.max()}; expected floats from 0 "
                "to 1, or 8 or 16 bits a pixel. Scale them"
            )
        greys = (numbers * (65535 // most)).astype(np.uint32)
        shown = np.where(greys == picture.info.get("transparency", -1), 255, greys // 257)
        return Picture.fromarray(shown.astype(np.uint8)).convert("RGB")
    if picture.has_transparency_data:
        key = picture.info.get("transparency")
        if isinstance(key, tuple) and max(key) > 255:  # of a file of 16 bits, whose pixels Pillow has cut to 8
            picture.info["transparency"] = tuple(value >> 8 for value in key)
        over = picture.convert("RGBA")
        return Picture.alpha_composite(Picture.new("RGBA", over.size, "white"), over).convert("RGB")
    return picture.convert("RGB")


def _named(image: Image) -> str:
    return f"the image {image.digest} ({image.alt!r}, {len(image.png)} bytes)"
