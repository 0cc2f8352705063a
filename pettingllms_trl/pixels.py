"""The model's inputs of prompts with pictures: what a policy's processor makes of them, once for each picture.

A prompt's ids have a place for each of a picture's tokens, and the model takes the pixels beside them: `pixel_values`
of all pictures of a batch one after another, perhaps their `image_grid_thw`, and `mm_token_type_ids` (of Gemma
`token_type_ids`), which say which ids are such places. Types are made from the ids that were sampled on, never by
writing a prompt again, which may give others: in a conversation, and where texts are escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from threading import RLock
from typing import Any

import torch
from PIL import Image as Picture

from pettingllms_envs.observations import Image
from pettingllms_envs.pictures import opened
from pettingllms_trl.records import Message


MOST_BYTES = 512 * 2**20
PICTURE_INPUTS = ("pixel_values", "image_grid_thw", "image_sizes")
"""Inputs that can be split by pictures and joined: patches with their grids (Qwen), or a row for each picture."""
TYPE_INPUTS = ("mm_token_type_ids", "token_type_ids")
BLANK = Picture.new("RGB", (1, 1))
"""Stands in messages for each picture, whose pixels are made already."""
PLACE: Mapping[str, Any] = {"type": "image", "image": BLANK}


@dataclass(frozen=True, slots=True, eq=False)
class Pixels:
    """What a processor made of a picture.

    Args:
        made: All of it, the first dimension of each tensor patches or pictures.
        num_tokens: Places that the picture has in a prompt.
    """

    made: Mapping[str, torch.Tensor]
    num_tokens: int

    @property
    def num_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.made.values())


class PixelCache:
    """Pixels by their key, up to a number of bytes; those used longest ago are dropped, and made again when needed.

    Args:
        most_bytes: The last pixels are kept whatever their size.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.most_bytes, self.num_made = most_bytes, 0
        self._kept: dict[Hashable, Pixels] = {}
        self._num_bytes = 0

    def of(self, key: Hashable, make: Callable[[], Pixels]) -> Pixels:
        """The pixels of a key, made if they are not kept."""
        pixels = self._kept.pop(key, None)
        if pixels is None:
            pixels = make()
            self.num_made += 1
            self._num_bytes += pixels.num_bytes
        self._kept[key] = pixels  # the last one
        while self._num_bytes > self.most_bytes and len(self._kept) > 1:
            self._num_bytes -= self._kept.pop(next(iter(self._kept))).num_bytes
        return pixels


class ImageInputs:
    """Makes the inputs of a model with vision from ids and pictures, for one thread after another.

    Args:
        processor: The policy's, with an image part.
    """

    def __init__(self, processor: Any, cache: PixelCache) -> None:
        self._processor, self._cache, self._lock = processor, cache, RLock()
        self._part: Any = getattr(processor, "image_processor", None)  # some processors have none, see `check`

    @cached_property
    def _types(self) -> str | None:
        """The name of the input that says which ids are pictures'; `None`: the model needs none."""
        with self._answering([self._made_of(Picture.new("RGB", (64, 64)))]):
            written = self._processor(text=[self._processor.image_token], images=[[BLANK]])
        return next((name for name in TYPE_INPUTS if name in written), None)

    def check(self, who: str) -> None:
        """Validate that the processor makes inputs of pictures that can be split and joined.

        Args:
            who: Who observes images, for errors.
        """
        if self._part is None:
            raise ValueError(
                f"{who} observes images, and {type(self._processor).__name__} has no image part. Expected one with an "
                "image_processor."
            )
        self._types  # noqa: B018  # raises

    @property
    def place_tokens(self) -> tuple[str, ...]:
        """The tokens that stand for an image: in the text that a template writes, and at its places."""
        places = map(self._processor.tokenizer.convert_ids_to_tokens, self.place_ids)
        return (*self._processor.all_special_multimodal_tokens, *places)

    def pixels(self, image: Image) -> Pixels:
        with self._lock:
            return self._cache.of((id(self), image.digest), lambda: self._made_of(opened(image)))

    @contextmanager
    def writing(self, images: Sequence[Image]) -> Iterator[None]:
        """Within, the processor writes prompts that show these images in this order, `BLANK` in the place of each."""
        with self._answering([self.pixels(image) for image in images]):
            yield

    def of_rows(self, ids: Sequence[Sequence[int]], images: Sequence[Sequence[Image]]) -> dict[str, Any]:
        """The inputs beside the ids of rows: tensors of all their pictures, and a list of types for each row.

        Raises:
            ValueError: A row has another number of places than its pictures have tokens.
        """
        found = [[self.pixels(image) for image in own] for own in images]
        places = {*self.place_ids}
        for row, own in zip(ids, found, strict=True):
            num_places, expected = sum(token in places for token in row), [pixels.num_tokens for pixels in own]
            if num_places != sum(expected):
                raise ValueError(
                    f"a prompt has {num_places} places for tokens of pictures, and its {len(own)} pictures have "
                    f"{expected}, which makes {sum(expected)}. Expected the same number: is the chat template that of "
                    "the processor, and are its limits of pixels those of the server that samples?"
                )
        inputs: dict[str, Any] = self._inputs([pixels for own in found for pixels in own])
        if self._types is not None:  # all that are no places are text, also a video's that a policy sampled
            inputs[self._types] = [[int(token in places) for token in row] for row in ids]
        return inputs

    def of_batch(
        self, ids: torch.Tensor, images: Sequence[Sequence[Image]], width: int, device: torch.device | None = None
    ) -> dict[str, Any]:
        """The same as tensors on a device, and `num_images` of each row, as TRL scores a batch.

        Args:
            ids: (B, P + C). The host waits for those that it does not have.
            width: C. Nothing in a completion is a picture's.
            device: `None`: that of `ids`.
        """
        device = ids.device if device is None else device
        inputs = self.of_rows(ids.tolist(), images)
        if self._types is not None:
            types = ids.new_tensor(inputs[self._types])
            types[:, ids.size(1) - width :] = 0
            inputs[self._types] = types
        on_device = {name: tensor.to(device, non_blocking=True) for name, tensor in inputs.items()}
        return {**on_device, "num_images": [len(own) for own in images]}

    def num_tokens(self, images: Sequence[Image]) -> list[int]:
        """Places that each image has in a prompt."""
        return [self.pixels(image).num_tokens for image in images]

    @property
    def size(self) -> dict[str, int]:
        """The bounds of a picture's pixels, or its sides, by their names in the processor's configuration."""
        return dict(self._part.size)

    @property
    def place_ids(self) -> list[int]:
        """The token ids of places."""
        return [token for token in self._processor.image_token_ids if token is not None]

    def with_one_place(self, ids: Sequence[int], images: Sequence[Image]) -> list[int]:
        """The ids of a prompt with one place for each picture, as an engine takes them that adds the others itself.

        Raises:
            ValueError: The processor writes more of a picture than its places.
        """
        places, counts = {*self.place_ids}, iter(self.num_tokens(images))
        if self._processor.tokenizer.convert_tokens_to_ids(self._processor.image_token) not in places:
            raise ValueError(
                f"{type(self._processor).__name__} writes more of a picture than its places, so that an engine with a "
                "processor of its own cannot be given ids; expected one as of Qwen's models. Leave use_vllm out."
            )
        kept, num_left = list[int](), 0
        for token in ids:
            if token not in places:
                kept.append(token)
                continue
            if not num_left:
                kept.append(token)
                num_left = next(counts, 1)
            num_left -= 1
        return kept

    def _inputs(self, pixels: Sequence[Pixels]) -> dict[str, torch.Tensor]:
        unused = self._processor.unused_input_names
        return {name: tensor for name, tensor in _joined(pixels).items() if name not in unused}

    def _made_of(self, picture: Picture.Image) -> Pixels:
        options = getattr(self._processor, "images_kwargs", {})  # some classes of processors have none
        made = {**self._part(images=[picture], return_tensors="pt", **options)}
        inputs = {name: tensor for name, tensor in made.items() if name not in self._processor.unused_input_names}
        has_rows = "image_grid_thw" in made or len(made["pixel_values"]) == 1
        if not has_rows or not inputs.keys() <= set(PICTURE_INPUTS):
            shapes = {name: tuple(tensor.shape) for name, tensor in inputs.items()}
            raise ValueError(
                f"{type(self._processor).__name__} makes {shapes} of a picture; expected patches with their "
                "'image_grid_thw', as of Qwen's models, or one row of 'pixel_values', as of Gemma 3. Switch the "
                "cutting of pictures off (do_pan_and_scan=False), or choose another model."
            )
        written = self._processor.replace_image_token(made, 0)
        token_ids = self._processor.tokenizer(written, add_special_tokens=False)["input_ids"]
        return Pixels(made, sum(token in self.place_ids for token in token_ids))

    @contextmanager
    def _answering(self, pixels: Sequence[Pixels]) -> Iterator[None]:
        with self._lock:
            self._processor.image_processor = _Answer(self._part, _joined(pixels))
            try:
                yield
            finally:
                self._processor.image_processor = self._part


class _Answer:
    """An image part whose pixels are made already."""

    def __init__(self, part: Any, made: Mapping[str, torch.Tensor]) -> None:
        self._part, self._made = part, made

    def __call__(self, images: Any, **options: Any) -> dict[str, Any]:
        return dict(self._made)

    def fetch_images(self, images: Any) -> Any:
        return images

    def __getattr__(self, name: str) -> Any:
        return getattr(self._part, name)


def _joined(pixels: Sequence[Pixels]) -> dict[str, torch.Tensor]:
    names = pixels[0].made if pixels else ()
    return {name: torch.cat([each.made[name] for each in pixels]) for name in names}


@contextmanager
def naming_torchvision() -> Iterator[None]:
    """Within, what loads a processor; an error that it needs torchvision says what can be done."""
    try:
        yield
    except ImportError as error:
        if "torchvision" not in str(error).lower():
            raise
        raise ImportError(
            f"the processor of a model with vision needs torchvision, which is not installed ({str(error).strip()}). "
            "Install it, in the build of your torch (pip install torchvision --index-url ..., see pytorch.org); or "
            "take a model whose processor has no part for videos, such as Gemma 3's: transformers then needs Pillow "
            "alone."
        ) from error


def as_parts(messages: Sequence[Message], place: Mapping[str, Any] = PLACE) -> list[Message]:
    """Messages as the chat templates of processors take them, with `place` for each image."""

    def part(given: str | Image) -> dict[str, Any]:
        return {"type": "text", "text": given} if isinstance(given, str) else dict(place)

    return [
        {**message, "content": [part(each) for each in ([content] if isinstance(content, str) else content)]}
        for message in messages
        for content in [message["content"]]
    ]
