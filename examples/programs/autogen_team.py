"""A team of AutoGen: a writer with a tool and a critic take turns, two messages each.

pettingllms bench examples/programs/autogen_team.py:team --model MODEL --base-url URL
"""

from __future__ import annotations

from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_ext.models.openai import OpenAIChatCompletionClient

from pettingllms_envs.programs import program


def count_words(text: str) -> int:
    """The number of words of a text."""
    return len(text.split())


async def take_turns(base_url: str, row: dict[str, Any]) -> float:
    """The reward is 1 if the last sentence has the right length."""

    def client(name: str) -> OpenAIChatCompletionClient:
        info: Any = {"vision": False, "function_calling": True, "json_output": False, "structured_output": False}
        return OpenAIChatCompletionClient(
            model=name, base_url=base_url, api_key="none", model_info={**info, "family": "unknown"}
        )

    number = 4 + row["seed"] % 5
    writer = AssistantAgent("writer", client("writer"), tools=[count_words], reflect_on_tool_use=True)
    critic = AssistantAgent("critic", client("critic"), system_message="Repeat the sentence, corrected.")
    team = RoundRobinGroupChat([writer, critic], termination_condition=MaxMessageTermination(3))
    found = await team.run(task=f"Write a sentence of {number} words.")
    said = [message.content for message in found.messages if isinstance(message, TextMessage)]
    return float(len(said[-1].split()) == number)


team = program(take_turns, agents=("writer", "critic"))
