"""Ids of prompts with pictures for engines that have a processor of their own."""

from __future__ import annotations

import pytest

from pettingllms_trl.pixels import ImageInputs, PixelCache
from picture_books import as_image, drawn
from tiny_vlms import gemma_processor, qwen_processor


PLACE = 5
SMALL, LARGE = as_image(drawn(1, (56, 56))), as_image(drawn(2, (84, 56)))  # of 4 and of 6 places of 28 x 28 pixels


@pytest.mark.parametrize(
    ("ids", "images", "expected"),
    [
        ([9, 8], [], [9, 8]),
        ([9, *[PLACE] * 4, 8], [SMALL], [9, PLACE, 8]),
        ([*[PLACE] * 6, 9, *[PLACE] * 4], [LARGE, SMALL], [PLACE, 9, PLACE]),
        ([*[PLACE] * 10, 9], [SMALL, LARGE], [PLACE, PLACE, 9]),  # one after the other
    ],
)
def test_each_picture_has_one_place_in_the_ids_for_an_engine(
    ids: list[int], images: list, expected: list[int]
) -> None:
    assert ImageInputs(qwen_processor(), PixelCache()).with_one_place(ids, images) == expected


def test_a_processor_that_writes_more_around_the_places_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Gemma3Processor writes more of a picture than its places.* as of Qwen's"):
        ImageInputs(gemma_processor(), PixelCache()).with_one_place([PLACE], [SMALL])
