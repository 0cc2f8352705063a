"""The examples run with their real libraries: in parallel and as trees, and their calls are what was sampled.

Each needs the requirements of its file in examples/programs, so these tests have a marker of their own.
"""

from __future__ import annotations

import importlib.util
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import pettingllms_envs
from pettingllms_trl.engines.batched import BatchedEngine
from pettingllms_trl.records import Completion, Prompt, Request, RolloutOptions, Sampled
from pettingllms_trl.rollout.play import play


EXAMPLES = Path(__file__).parents[2] / "examples" / "programs"
TEAMS = [
    ("langgraph_team", "team", "langgraph", ["writer", "critic", "writer", "critic"]),
    ("langgraph_team", "fan_out", "langgraph", ["writer_0", "writer_1", "writer_2", "judge"]),
    ("openai_agents_team", "team", "agents", ["writer", "writer", "critic"]),
    ("openai_agents_team", "chat_team", "agents", ["writer", "writer", "critic"]),
    ("llama_index_team", "team", "llama_index", ["writer", "writer", "critic"]),
    ("ag2_team", "team", "ag2", ["writer", "writer", "critic"]),
    ("autogen_team", "team", "autogen_agentchat", ["writer", "writer", "critic"]),
    ("curl_team", "team", "json", ["writer", "critic"]),
]


def reply(request: Request, number: int) -> str:
    """A call of a tool that was not called yet, counting words first; else a sentence of five words."""
    called = {call["function"]["name"] for m in request.prompt.messages for call in m.get("tool_calls", ())}
    for tool in request.prompt.tools:
        name = tool["function"]["name"]
        if name not in called and ("count" in name or "transfer" in name or "handoff" in name):
            needed = {
                "count_words": {"text": f"one two {number}"},
                "handoff": {"to_agent": "critic", "reason": "done"},
            }
            arguments = json.dumps(needed.get(name, {}))
            return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'
    return f"one two three four five{' six' * number}"


def ids_of(prompt: Prompt) -> tuple[int, ...]:
    """A token for each byte of the messages and tools."""
    return tuple(json.dumps([list(prompt.messages), list(prompt.tools)]).encode())


class Engine:
    """Keeps the ids that it was given and that it sampled, for which it takes a while, as a model does."""

    def __init__(self) -> None:
        self.sampled = list[tuple[tuple[int, ...], tuple[int, ...]]]()

    def sample(self, requests: Sequence[Request]) -> list[Sampled]:
        time.sleep(0.05)
        return [self._sampled(request, ids_of(request.prompt)) for request in requests]

    def _sampled(self, request: Request, prompt: tuple[int, ...]) -> Sampled:
        texts = [reply(request, k) for k in range(request.num_candidates)]
        completions = tuple(Completion(ids=(k, *text.encode()), text=text) for k, text in enumerate(texts))
        self.sampled += [(prompt, completion.ids) for completion in completions]
        return Sampled(Prompt(request.prompt.messages, ids=prompt, tools=request.prompt.tools), completions)


@pytest.mark.frameworks
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("file", "name", "library", "agents"), TEAMS)
def test_an_example_is_played_in_parallel_and_as_a_tree(file: str, name: str, library: str, agents: list[str]) -> None:
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    make = lambda: pettingllms_envs.make(f"program:{EXAMPLES / file}.py:{name}")  # noqa: E731
    settings: list[dict[str, Any]] = [
        {"sampling": "parallel", "num_candidates": 1},
        {"sampling": "tree", "num_candidates": 2, "num_continuations": 1, "choose": "value"},
    ]
    for options in settings:
        engines = [Engine(), Engine()]
        rollouts = [
            play(
                [{"seed": 1}],
                BatchedEngine(engine.sample),
                RolloutOptions(**options, num_threads=4),
                make_env=make,
                seed="0",
            )
            for engine in engines
        ]
        assert rollouts[0].episodes == rollouts[1].episodes
        assert rollouts[0].dropped == {}
        first = rollouts[0].episodes[0]
        for decision in first.decisions:
            assert decision.prompt.ids == ids_of(decision.prompt)
            for completion in (candidate.completion for candidate in decision.candidates):
                assert (decision.prompt.ids, completion.ids) in engines[0].sampled
                assert bytes(completion.ids[1:]).decode() == completion.text
        if options["sampling"] == "parallel":
            assert len(engines[0].sampled) == len(first.decisions)
            assert [decision.agent for decision in first.decisions] == agents
            assert set(first.returns) == set(agents)
