"""A LangGraph team: a writer and a critic, whose critic is streamed, and a fan-out of three writers and a judge.

    pettingllms bench examples/programs/langgraph_team.py:team --model MODEL --base-url URL

The graphs are as they would be without this package. The last two lines make environments of them.
"""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from pettingllms_envs.programs import program


def number_of(row: dict[str, Any]) -> int:
    """How many words the sentence is to have."""
    return 4 + row["seed"] % 5


class State(TypedDict):
    """What the nodes share."""

    sentence: str
    remark: str
    rounds: int


def write_and_judge(base_url: str, row: dict[str, Any]) -> float:
    """Up to two rounds. The reward is 1 for a sentence of the right length."""
    writer = ChatOpenAI(model="writer", base_url=base_url, api_key="none")
    critic = ChatOpenAI(model="critic", base_url=base_url, api_key="none", streaming=True)
    number = number_of(row)

    def write(state: State) -> dict[str, Any]:
        task = f"Write a sentence of {number} words. {state['remark']}"
        return {"sentence": writer.invoke([("system", "You write."), ("user", task)]).content}

    def judge(state: State) -> dict[str, Any]:
        task = f"Has {state['sentence']!r} {number} words? Reply yes, or what to change."
        return {
            "remark": critic.invoke([("system", "You judge."), ("user", task)]).content,
            "rounds": state["rounds"] + 1,
        }

    graph = StateGraph(State)
    graph.add_node("write", write)
    graph.add_node("judge", judge)
    graph.add_edge(START, "write")
    graph.add_edge("write", "judge")
    graph.add_conditional_edges(
        "judge", lambda s: END if s["rounds"] == 2 or s["remark"].startswith("yes") else "write"
    )
    found = graph.compile().invoke({"sentence": "", "remark": "", "rounds": 0})
    return float(len(found["sentence"].split()) == number)


class Drafts(TypedDict):
    """What the nodes of the fan-out share."""

    drafts: Annotated[list[str], operator.add]
    choice: str


def draft_at_once(base_url: str, row: dict[str, Any]) -> float:
    """Three writers at the same time, then a judge who names the best."""
    number = number_of(row)
    # Made before the graph runs: each loads certificates, and the writers would be asked late by as long.
    names = ("writer_0", "writer_1", "writer_2", "judge")
    *writers, chooser = (ChatOpenAI(model=name, base_url=base_url, api_key="none") for name in names)

    def draft(state: dict[str, Any]) -> dict[str, Any]:
        place = state["place"]
        return {"drafts": [writers[place].invoke(f"Draft {place}: write a sentence of {number} words.").content]}

    def judge(state: Drafts) -> dict[str, Any]:
        return {"choice": chooser.invoke(f"Which of {state['drafts']} has {number} words? Repeat it.").content}

    graph = StateGraph(Drafts)
    graph.add_node("draft", draft)
    graph.add_node("judge", judge)
    graph.add_conditional_edges(START, lambda _: [Send("draft", {"place": place}) for place in range(3)], ["draft"])
    graph.add_edge("draft", "judge")
    found = graph.compile().invoke({"drafts": [], "choice": ""})
    return float(len(found["choice"].split()) == number)


team = program(write_and_judge, agents=("writer", "critic"))
fan_out = program(draft_at_once, agents=("writer_0", "writer_1", "writer_2", "judge"), parallel=True)
