"""TRL's loop of tool calls (`GRPOTrainer._tool_call_loop`, what `environment_factory` runs in) on a simulated clock.

The loop is TRL's own code, run as it is installed. What it calls is made up: `_generate_single_turn` is the simulated
engine, which decodes all that it is given together; a tool is a step of the environment, which takes its time; and
every reply but an episode's last calls it once. No trainer, tokenizer or model is made.

In TRL's favour: a prompt's prefill takes as long in a later turn as in the first, though TRL's has the history in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

from simulation import SimulatedClock, SimulatedEngine, Speed, Workload

from pettingllms_trl.records import Prompt, Request


class Episodes:
    """What the loop takes for a trainer: samples, each an episode of one agent who decides turn after turn.

    Args:
        speed: The engine's.
        workload: Its instances are the samples, `candidates` has to be 1; each place of an instance is a turn.
    """

    # Of a text model without vLLM, and no bound on lengths.
    use_vllm = _is_vlm = False
    environment_factories = None
    tools = ("step",)
    max_completion_length = 10**9
    model = SimpleNamespace(config=SimpleNamespace(max_position_embeddings=10**9))
    _tokenizer = None

    def __init__(self, speed: Speed, workload: Workload) -> None:
        self.clock = SimulatedClock()
        self.engine = SimulatedEngine(self.clock, speed, workload, is_batched=True)
        self._workload = workload
        self._places = [workload.places(instance) for instance in range(workload.instances)]
        self._answered = [0] * workload.instances
        self.max_tool_calling_iterations = max(map(len, self._places))
        self._sync_tool_dicts = [{"step": partial(self._step, sample)} for sample in range(workload.instances)]
        self._async_tool_dicts: list[dict[str, Any]] = [{} for _ in self._places]

    def run(self) -> float:
        """Seconds until every episode is over."""
        from trl.trainer import grpo_trainer

        samples = range(self._workload.instances)
        ids, _ = self._generate_single_turn([[sample] for sample in samples], None, {}, 1)
        completions = [[self._reply(sample)] for sample in samples]
        with mock.patch.object(grpo_trainer, "parse_response", self._parse):
            grpo_trainer.GRPOTrainer._tool_call_loop(
                self, [[{}] for _ in samples], [[sample] for sample in samples], ids, completions, None, None, {}
            )
        # The last reply ends an episode by its step, which is no tool call any more.
        for sample in samples:
            self._step(sample)
        return self.clock.now()

    def _generate_single_turn(
        self, prompt_ids: Sequence[Sequence[int]], images: Any, fields: Any, num_generations: int, **_: Any
    ) -> tuple[list[list[int]], None]:
        """All prompts decoded together; a prompt's first id is its sample."""
        for ticket, (sample, *_rest) in enumerate(prompt_ids):
            place = self._places[sample][self._answered[sample]]
            self.engine.submit(ticket, Request("agent", Prompt([{"role": "user", "content": place}]), 1))
            self._answered[sample] += 1
        self.engine.step()
        return [[0] for _ in prompt_ids], None

    def _get_tool_suffix_ids(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        return [0]

    def _parse(self, tokenizer: Any, ids: Sequence[int], *, prefix: Sequence[int], tools: Any) -> dict[str, Any]:
        return self._reply(prefix[0])

    def _reply(self, sample: int) -> dict[str, Any]:
        """Calls the tool while another turn is to come."""
        call = {"type": "function", "function": {"name": "step", "arguments": {}}}
        more = self._answered[sample] < len(self._places[sample])
        return {"role": "assistant", "content": "", "tool_calls": [call] if more else []}

    def _step(self, sample: int) -> str:
        """The environment's step for the reply before, on the loop's own thread."""
        self.clock.spend(self._workload.step_seconds(self._places[sample][self._answered[sample] - 1], 0))
        return ""
