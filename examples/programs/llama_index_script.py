"""A team of LlamaIndex as a script of its own, which knows nothing of this package; `llama_index_team.py` names it.

It is given OPENAI_BASE_URL and its row as a line of JSON, and prints its reward.
"""

import asyncio
import json
import os

from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent
from llama_index.llms.openai_like import OpenAILike


def count_words(text: str) -> int:
    """The number of words of a text."""
    return len(text.split())


def llm(name: str) -> OpenAILike:
    """A client of the endpoint."""
    base = os.environ["OPENAI_BASE_URL"]
    return OpenAILike(model=name, api_base=base, api_key="none", is_chat_model=True, is_function_calling_model=True)


async def main() -> None:
    """A writer who can hand over to a critic."""
    number = 4 + json.loads(input())["seed"] % 5
    writer = FunctionAgent(
        name="writer",
        description="writes",
        system_prompt="You write sentences.",
        tools=[count_words],
        llm=llm("writer"),
        can_handoff_to=["critic"],
    )
    critic = FunctionAgent(name="critic", description="corrects", system_prompt="You correct.", llm=llm("critic"))
    workflow = AgentWorkflow(agents=[writer, critic], root_agent="writer")
    said = str(await workflow.run(user_msg=f"Write a sentence of {number} words."))
    print("reward:", float(len(said.split()) == number))


asyncio.run(main())
