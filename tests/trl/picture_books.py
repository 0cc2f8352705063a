"""Pictures, and environments of one agent that shows them, as TRL is given them and as ours observes them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from datasets import Dataset
from gymnasium import spaces
from PIL import Image as Picture
from PIL import ImageDraw

from pettingllms_envs.episodes.episode import Instance, RunLimits, episode
from pettingllms_envs.observations import Image
from third_party import OneShot, letters


def drawn(number: int, size: tuple[int, int] = (56, 56)) -> Picture.Image:
    """A picture that differs from those of all other numbers."""
    picture = Picture.new("RGB", size, (37 * number % 256, 91 * number % 256, 160))
    ImageDraw.Draw(picture).ellipse((number % 20, 5, 30 + number % 20, 40), fill=(255, 13 * number % 256, 40))
    return picture


def as_image(picture: Picture.Image, alt: str = "a board") -> Image:
    """A picture as an environment shows it."""
    file = io.BytesIO()
    picture.save(file, "PNG")
    return Image(file.getvalue(), alt)


def parts_of(seed: int) -> list[str | Picture.Image]:
    """What row `seed` shows: pictures of three sizes, two in one row, none in another, and text before a picture."""
    first = drawn(seed, ((56, 56), (112, 84), (84, 56))[seed % 3])
    if seed % 4 == 1:
        return [first, "Then", drawn(seed + 100), "Moves?"]
    if seed % 12 == 2:  # never all of a forward pass, where TRL gives the model no pixels, and it raises
        return ["No picture. Moves?"]
    return ["Look:", first, "Moves?"] if seed % 4 == 3 else [first, "Moves?"]


def rows_of_trl(num_rows: int) -> Dataset:
    """The rows as TRL's columns `prompt` and `images`."""
    rows = []
    for seed in range(num_rows):
        shown = parts_of(seed)
        content = [{"type": "text", "text": part} if isinstance(part, str) else {"type": "image"} for part in shown]
        images = [part for part in shown if not isinstance(part, str)]
        rows.append({"prompt": [{"role": "user", "content": content}], "images": images})
    return Dataset.from_list(rows)


class PictureBook(OneShot):
    """Shows what `parts_of` says to one agent, and pays for the different letters of its reply."""

    metadata = {"name": "picture_book_v0", "branching": "copy", "render_modes": []}

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Text(8)

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        super().reset(seed, options)
        self.shown = self.show(seed or 0)

    def show(self, seed: int) -> Any:
        return {"parts": [part if isinstance(part, str) else as_image(part) for part in parts_of(seed)]}

    def observe(self, agent: str) -> Any:
        return self.shown


class Describer(PictureBook):
    """One agent sees the picture and says what it shows; the other is told."""

    def __init__(self) -> None:
        super().__init__()
        self.possible_agents = ["seer_0", "teller_0"]

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        super().reset(seed, options)
        self.said = ""

    def observe(self, agent: str) -> Any:
        return self.shown if agent == "seer_0" else f"It says: {self.said}"

    def step(self, action: str | None) -> None:
        if action is None:
            self.agents = self.agents[1:]
            self.agent_selection = self.agents[0] if self.agents else ""
            return
        acting = self.agent_selection
        self.rewards = {agent: letters(action) if agent == acting else 0.0 for agent in self.agents}
        self.said = action
        if acting == "seer_0":
            self.agent_selection = "teller_0"
        else:
            self.terminations = dict.fromkeys(self.agents, True)
            self.agent_selection = "seer_0"


def played(agent: Any, seeds: Sequence[int]) -> list[str]:
    """The replies of episodes that are played at once."""

    def reply(seed: int) -> str:
        row = episode(PictureBook(), Instance(seed, seed), 0, {"solver_0": agent}, RunLimits())
        return str(row["steps"][0]["reply"])

    with ThreadPoolExecutor(len(seeds)) as threads:
        return list(threads.map(reply, seeds))
