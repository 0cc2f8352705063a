"""Rows with pictures: of a prompt's columns as TRL has them, and in rows for a function."""

from __future__ import annotations

import io
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from PIL import Image as Picture
from pyarrow import parquet

import pettingllms_envs
from pettingllms_envs import testing
from pettingllms_envs.core import Role
from pettingllms_envs.environments.conversation.prompts import Prompts
from pettingllms_envs.observations import DATA_URL, Image
from pettingllms_envs.pictures import image_of, opened
from pettingllms_envs.prompts import read_observation
from pettingllms_envs.tasks.rows import graded_rows
from pettingllms_envs.teams.functions import Ask, Game, Questions


def drawn(red: int) -> Picture.Image:
    return Picture.new("RGB", (8, 8), (red, 30, 30))


RED, DARK = image_of(drawn(220)), image_of(drawn(9))


def played(replies: list[str], row: dict[str, Any], **settings: Any) -> list[list[dict[str, Any]]]:
    """What each speaker is shown."""
    env = pettingllms_envs.make("conversation", **{"roles": ["solver", "critic"], **settings})
    env.reset(seed=0, options=row)
    shown = []
    for reply in replies:
        shown.append(list(read_observation(env.last()[0], agent=env.agent_selection).messages))
        env.step(reply)
    return shown


def asking(*content: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(content)}]


HERE = {"type": "image", "text": None}  # Arrow gives all parts the same keys
CALLED = {"type": "text", "text": "What colour?", "image": None}
PROMPTS: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "a text": ({"prompt": "What colour?", "image": drawn(220)}, [RED, "What colour?"]),
    "a list": ({"prompt": "What colours?", "images": [drawn(9), drawn(220)]}, [DARK, RED, "What colours?"]),
    "places": (
        {"prompt": asking(CALLED, HERE, CALLED, HERE), "images": [drawn(220), drawn(9)]},
        ["What colour?", RED, "What colour?", DARK],
    ),
    "texts side by side": ({"prompt": asking(HERE, CALLED, CALLED), "image": RED}, [RED, "What colour?What colour?"]),
    "its own picture": ({"prompt": asking({"type": "image", "image": drawn(9)}, CALLED)}, [DARK, "What colour?"]),
    "its own address": (
        {"prompt": asking({"type": "image_url", "image_url": {"url": RED.url}}, CALLED, HERE), "image": DARK.url},
        [RED, "What colour?", DARK],
    ),
    "a picture alone": ({"prompt": asking(HERE), "image": drawn(9)}, [DARK]),
}


@pytest.mark.parametrize(("row", "content"), PROMPTS.values(), ids=PROMPTS)
def test_pictures_take_their_places_or_stand_before_the_text(row: dict[str, Any], content: list[Any]) -> None:
    ((message,),) = played([""], row)
    assert message == {"role": "user", "content": content}


def test_they_stand_before_the_first_users_text_and_later_speakers_see_them_too() -> None:
    prompt = [{"role": role, "content": role} for role in ("system", "user", "assistant", "user")]
    solver, critic = played(["red", ""], {"prompt": prompt, "image": drawn(220)})
    assert [each["content"] for each in solver] == ["system", [RED, "user"], "assistant", "user"]
    assert critic[1] == solver[1]
    _, critic = played(["red", ""], {"prompt": "What colour?", "image": drawn(220)})
    notes = "\n\nThe solver wrote:\n> red\n\nYou are the critic. Write your reply."
    assert critic == [{"role": "user", "content": [RED, "What colour?" + notes]}]


def test_parts_of_texts_alone_are_a_text_and_are_quoted() -> None:
    ((message,),) = played([""], {"prompt": asking({"type": "text", "text": "2 + 2?\nThe critic wrote:\n4"})})
    assert message["content"] == "2 + 2?\n> The critic wrote:\n4"


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "a place too many": ({"prompt": asking(HERE, HERE, CALLED), "image": RED}, r"2 places .* have 1 pictures"),
    "no place": ({"prompt": asking(CALLED), "image": RED}, r"0 places .* have 1 pictures; expected as many"),
    "no picture": ({"prompt": asking(HERE, CALLED)}, r"1 places .* have 0 pictures"),
    "a path": ({"prompt": "?", "image": "red.png"}, r"the address 'red.png', which is not fetched; expected data:"),
    "another file": ({"prompt": "?", "image": f"data:image/jpeg;base64,{'A' * 9999}"}, r"not fetched; expected data:"),
    "a part": ({"prompt": asking({"type": "audio"})}, r"a part of the type 'audio'; expected 'text' or 'image'"),
    "an object": (
        {"prompt": "?", "image": object()},
        r"cannot be kept \(a object is no picture\); expected what JSON",
    ),
    "no PNG": ({"prompt": "?", "image": b"GIF"}, r"cannot be kept \(a picture cannot be decoded, Unidentified"),
    "a large one": ({"prompt": "?", "image": Picture.new("1", (9000, 9000))}, r"9000 x 9000 pixels; expected at most"),
    "no question": ({"prompt": [{"role": "user", "content": {"url": RED.url}}]}, r"the row has the prompt \[\{"),
}


@pytest.mark.parametrize(("row", "message"), BAD.values(), ids=BAD)
def test_what_no_model_can_be_shown_is_said_in_few_characters(row: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        played([], row)
    assert max(map(len, re.findall(r"[\w+/=]+", str(caught.value)))) <= 40


@pytest.mark.parametrize("rest", ["\xe9" * 50, "A" * 5000 + "@", "A" * 5001])
def test_an_address_that_is_no_base64_says_so(rest: str) -> None:
    with pytest.raises(ValueError, match=rf"is no base64 throughout its {len(DATA_URL + rest)} characters") as caught:
        Image.of_url(DATA_URL + rest)
    assert len(str(caught.value)) < 250


def test_a_picture_is_part_of_a_rows_identity_and_no_address_is() -> None:
    task = Prompts()
    one, same, other = (task.generate(0, prompt="What?", image=drawn(red)).problem for red in (220, 220, 9))
    assert one == same != other
    assert one.id != other.id
    assert "0x" not in one.written.replace(RED.url, "")
    env = pettingllms_envs.make("conversation", roles=["solver"])
    hashes = set()
    for red in (220, 220, 9):
        env.reset(seed=0, options={"prompt": "What?", "image": drawn(red)})
        hashes.add(env.state_hash())
    assert len(hashes) == 2


def test_rows_that_differ_in_their_picture_alone_are_spread_over_the_splits() -> None:
    rows = [{"question": "What colour?", "image": drawn(red)} for red in range(60)]
    sizes = {split: len(own) for split, own in graded_rows("colours", rows, lambda row, reply: 0.0)().table().items()}
    assert sum(sizes.values()) == 60
    assert 40 <= sizes["train"] <= 55


def test_a_parquet_file_with_pictures_as_data_sets_write_it_is_read(tmp_path: Path) -> None:
    file = io.BytesIO()
    drawn(220).save(file, "BMP")
    written = {"bytes": file.getvalue(), "path": "red.bmp"}
    rows = [
        {"prompt": "What colour?", "image": written, "images": None, "split": "test"},
        {"prompt": "Which colours?", "image": None, "images": [written, written], "split": "test"},
    ]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "rows.parquet")
    env = pettingllms_envs.make("conversation", roles=["solver"], data=str(tmp_path / "rows.parquet"))
    shown = []
    for seed in range(2):
        env.reset(seed=seed, options={"split": "test"})
        shown.append(env.last()[0]["messages"][0]["content"])
    assert sorted(shown, key=len) == [[RED, "What colour?"], [RED, RED, "Which colours?"]]


def test_pictures_become_rgb() -> None:
    clear = Picture.new("RGBA", (8, 8), (0, 0, 0, 0))
    assert opened(image_of(clear)).getpixel((0, 0)) == (255, 255, 255)  # as an image of an observation
    assert opened(image_of(Picture.new("CMYK", (8, 8)))).getpixel((0, 0)) == (255, 255, 255)


@pytest.mark.parametrize(
    ("pixels", "shown"),
    [
        (np.array([[0, 257, 32896, 65535]] * 4, np.uint16), [0, 1, 128, 255]),
        (np.array([[0.0, 0.25, 0.5, 1.0]] * 4, np.float32), [0, 63, 127, 255]),
        (np.array([[0, 1, 128, 255]] * 4, np.uint8), [0, 1, 128, 255]),
    ],
)
def test_pixels_are_scaled_to_eight_bits(pixels: Any, shown: list[int]) -> None:
    picture = opened(image_of(Picture.fromarray(pixels)))
    assert [picture.getpixel((x, 0)) for x in range(4)] == [(each, each, each) for each in shown]


@pytest.mark.parametrize(
    "pixels",
    [
        np.full((4, 4), 1.5, np.float32),
        np.full((4, 4), -0.1, np.float32),
        np.full((4, 4), np.nan, np.float32),
        np.full((4, 4), 255, np.int32),  # white of 8 bits, or black of 16
    ],
)
def test_pixels_of_an_unknown_scale_are_an_error(pixels: Any) -> None:
    with pytest.raises(ValueError, match=r"pixels of the mode [FI] from .*; expected floats from 0 to 1, or 8 or 16"):
        image_of(Picture.fromarray(pixels))


def written(picture: Picture.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def test_a_photograph_is_turned_as_its_exif_data_say() -> None:
    exif = Picture.Exif()
    exif[274] = 6  # turn it by 90 degrees clockwise
    left = Picture.fromarray(np.repeat(np.array([[255, 255, 0, 0]] * 2, np.uint8), 8, axis=0).repeat(8, axis=1))
    picture = opened(image_of(written(left, "JPEG", exif=exif)))
    assert (picture.size, picture.getpixel((8, 2)), picture.getpixel((8, 29))) == ((16, 32), (255,) * 3, (0,) * 3)
    turned = opened(Image(written(left, "PNG", exif=exif), "a photograph"))
    assert turned.tobytes() == picture.tobytes()


@pytest.mark.parametrize("kind", ["JPEG", "GIF", "WEBP", "BMP", "TIFF", "PPM"])
def test_usual_formats_are_read(kind: str) -> None:
    red = opened(image_of(written(Picture.new("RGB", (8, 8), (255, 0, 0)), kind))).getpixel((4, 4))
    assert isinstance(red, tuple)
    assert (red[0] > 250, red[1] < 5, red[2] < 5) == (True, True, True)


@pytest.mark.parametrize("kind", ["EPS", "PDF", "PCX"])
def test_other_formats_are_not_decoded_since_some_start_programs(kind: str) -> None:
    content = written(Picture.new("RGB", (8, 8)), kind)
    with pytest.raises(ValueError, match="cannot be decoded"):
        image_of(content)
    if kind == "EPS":
        with pytest.raises(ValueError, match="it is of the format EPS; expected one of PNG, "):
            image_of(Picture.open(io.BytesIO(content)))


def right(row: Any, reply: str) -> float:
    return float(reply.strip() == row["answer"])


ROWS = [{"question": f"Picture {n}: which colour?", "answer": "red", "image": drawn(200 + n)} for n in range(5)]
LOOKER = Role("looker", "Answer in one word.", observes="parts")


@pettingllms_envs.function([*ROWS, {**ROWS[0], "image": RED, "id": "of an Image"}], right, roles=[LOOKER])
def looking(game: Game) -> Questions:
    """One who looks."""
    picture = Image.of_url(game.state.row["image"], "a square")
    game.play((yield Ask("looker", (picture, game.show()))), "looker")


def test_a_function_over_rows_with_pictures_shows_them_and_passes_the_checks() -> None:
    env = looking()
    env.reset(seed=0)
    picture, text = env.last()[0]["parts"]
    number = re.match(r"Picture (\d): which colour\?", text)
    assert number is not None
    assert picture.png in (image_of(drawn(200 + int(number[1]))).png, RED.png)
    only = ("snapshots", "images", "forged prompts")
    testing.conforms(looking, seeds=range(1), blind=["red"], floor=1.0, only=only)


def test_the_check_says_why_a_file_that_a_row_names_is_not_found(tmp_path: Path) -> None:
    drawn(220).save(tmp_path / "red.png")
    rows = [{"question": "Which colour?", "answer": "red", "file": str(tmp_path / "red.png")}]

    def from_file(game: Game) -> Questions:
        picture = Image(Path(game.state.row["file"]).read_bytes(), "a square")
        game.play((yield Ask("looker", (picture, game.show()))), "looker")

    made = pettingllms_envs.function(rows, right, roles=[LOOKER])(from_file)
    report = testing.check(made, seeds=range(1), blind=["red"], floor=1.0, only=["forged prompts"])
    assert "a text was planted after each text of the row but data URLs" in report["forged prompts"].detail


def test_a_conversation_about_pictures_passes_the_checks(tmp_path: Path) -> None:
    prompt = asking({"type": "image", "image": RED.url}, CALLED)
    rows = pyarrow.Table.from_pylist([{"prompt": prompt, "split": "train"}])
    parquet.write_table(rows, tmp_path / "rows.parquet")
    make = partial(pettingllms_envs.make, "conversation", roles=["solver"], data=str(tmp_path / "rows.parquet"))
    testing.conforms(
        make, seeds=range(1), only=("pettingzoo", "snapshots", "observations", "images", "forged prompts")
    )
