"""The agent `recorded`: repeats the replies of a recorded run to the same prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pettingllms_envs.agents.base import CARRIES, AgentFailed, Reply, Request
from pettingllms_envs.episodes.prompts import in_record, messages_of


class Recorded:
    """Repeats the replies of a recorded run, given whole rows, each to the same prompt."""

    carries = CARRIES

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._steps = {(row["instance"]["index"], row["sample"]): row["steps"] for row in rows}

    def reply(self, request: Request) -> Reply:
        """See `Agent`; `AgentFailed` if the record has no such step, or the step has another prompt."""
        where = f"instance {request.instance}, sample {request.sample}, step {request.step}"
        steps = self._steps.get((request.instance, request.sample), ())
        if request.step >= len(steps):
            raise AgentFailed("diverged", f"the record has no {where}; expected one for each prompt.")
        step = steps[request.step]
        if step["agent"] != request.agent or in_record(request.messages) != messages_of(step):
            raise AgentFailed("diverged", f"the record has another prompt at {where} of {request.agent}.")
        tokens = step["tokens"]
        return Reply(
            text=step["reply"],
            reasoning=step["reasoning"],
            prompt_tokens=tokens["prompt"],
            completion_tokens=tokens["completion"],
            finish=step["finish"],
            model=step["model"],
        )
