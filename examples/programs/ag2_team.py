"""A team of AG2: a writer with a tool, then a critic who is shown what it wrote.

pettingllms bench examples/programs/ag2_team.py:team --model MODEL --base-url URL
"""

from __future__ import annotations

from typing import Any

from ag2 import Agent, tool
from ag2.config import OpenAIConfig

from pettingllms_envs.programs import program


@tool
async def count_words(text: str) -> int:
    """The number of words of a text."""
    return len(text.split())


async def write_and_correct(base_url: str, row: dict[str, Any]) -> float:
    """The reward is 1 if the critic's sentence has the right length."""

    def config(name: str) -> OpenAIConfig:
        return OpenAIConfig(model=name, base_url=base_url, api_key="none")

    number = 4 + row["seed"] % 5
    writer = Agent("writer", prompt="You write.", config=config("writer"), tools=[count_words])
    critic = Agent("critic", prompt="Repeat the sentence, corrected.", config=config("critic"))
    draft = await writer.ask(f"Write a sentence of {number} words.")
    found = await critic.ask(f"The sentence: {draft.body}")
    return float(len(str(found.body).split()) == number)


team = program(write_and_correct, agents=("writer", "critic"))
