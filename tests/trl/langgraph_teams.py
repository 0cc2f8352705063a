"""The teams of `twin_teams.py` as graphs of LangGraph; importing this needs its library."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Annotated, Any, TypedDict

import httpx
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from twin_teams import PAIR, WRITERS, pay_judge, pay_writers, score, send, shown


class Turns(TypedDict):
    """What the nodes of the sequence share."""

    text: str
    number: int


class Texts(TypedDict):
    """What the nodes of the fan-out share."""

    texts: Annotated[list[tuple[str, str]], operator.add]


# LangChain would make two for each model, which load certificates for 17 ms each, within a node that others wait for.
CLIENTS = {"http_client": httpx.Client(trust_env=False), "http_async_client": httpx.AsyncClient(trust_env=False)}


def say(base_url: str, agent: str, messages: tuple[str, str]) -> str:
    model = ChatOpenAI(model=agent, base_url=base_url, api_key="none", **CLIENTS)  # type: ignore[arg-type]
    return str(model.invoke([*zip(("system", "user"), messages, strict=True)]).content)


def sequence(base_url: str, row: Mapping[str, Any]) -> None:
    def turn(state: Turns) -> Turns:
        number = state["number"]
        agent = PAIR[number % 2]
        text = say(base_url, agent, shown(agent, row["seed"], number, state["text"]))
        send(f"{base_url}/reward", {"reward": {agent: score(text)}})
        return {"text": text, "number": number + 1}

    graph = StateGraph(Turns)
    for agent in PAIR:
        graph.add_node(agent, turn)
    graph.add_edge(START, "writer")
    graph.add_edge("writer", "critic")
    graph.add_conditional_edges("critic", lambda state: END if state["number"] == 4 else "writer")
    graph.compile().invoke({"text": "", "number": 0})


def fan_out(base_url: str, row: Mapping[str, Any]) -> None:
    def write(state: Mapping[str, str]) -> dict[str, Any]:
        agent = state["agent"]
        return {"texts": [(agent, say(base_url, agent, shown(agent, row["seed"], 0, "")))]}

    def judge(state: Texts) -> dict[str, Any]:
        texts = [text for _, text in sorted(state["texts"])]
        pay_writers(base_url, texts)
        pay_judge(base_url, say(base_url, "judge", shown("judge", row["seed"], 1, " ".join(texts))))
        return {}

    graph = StateGraph(Texts)
    graph.add_node("write", write)
    graph.add_node("judge", judge)
    graph.add_conditional_edges(START, lambda _: [Send("write", {"agent": agent}) for agent in WRITERS], ["write"])
    graph.add_edge("write", "judge")
    graph.add_edge("judge", END)
    graph.compile().invoke({"texts": []})


TARGETS = {"sequence": sequence, "fan-out": fan_out}
