"""A team of the OpenAI Agents SDK: a writer with a tool, who hands over to a critic; by each of its two APIs.

pettingllms bench examples/programs/openai_agents_team.py:team --model MODEL --base-url URL
"""

from __future__ import annotations

from typing import Any

from agents import (
    Agent,
    Model,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

from pettingllms_envs.programs import program


set_tracing_disabled(True)


@function_tool
def count_words(text: str) -> int:
    """The number of words of a text."""
    return len(text.split())


async def run(base_url: str, row: dict[str, Any], kind: type[Model]) -> float:
    """The reward is 1 for a sentence of the right length, from either of the two."""
    client = AsyncOpenAI(base_url=base_url, api_key="none")
    number = 4 + row["seed"] % 5

    def model(name: str) -> Any:
        return kind(model=name, openai_client=client)  # type: ignore[call-arg]

    critic = Agent(name="critic", instructions="Repeat the sentence, corrected.", model=model("critic"))
    writer = Agent(
        name="writer",
        instructions="Write a sentence, count its words, then hand over to the critic.",
        model=model("writer"),
        tools=[count_words],
        handoffs=[critic],
    )
    found = await Runner.run(writer, f"Write a sentence of {number} words.")
    return float(len(str(found.final_output).split()) == number)


async def by_responses(base_url: str, row: dict[str, Any]) -> float:
    """The SDK's default."""
    return await run(base_url, row, OpenAIResponsesModel)


async def by_chat(base_url: str, row: dict[str, Any]) -> float:
    """The other API."""
    return await run(base_url, row, OpenAIChatCompletionsModel)


team = program(by_responses, agents=("writer", "critic"))
chat_team = program(by_chat, agents=("writer", "critic"))
