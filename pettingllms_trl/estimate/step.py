"""A step of a training on the simulated device: each phase's peak of memory, and what is run in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest import mock

import torch

from pettingllms_trl.estimate.memory import Weights
from pettingllms_trl.estimate.simulated_device import NAME
from pettingllms_trl.estimate.simulated_shapes import ShapesDevice, Work
from pettingllms_trl.estimate.stand_ins import alike, standing_in
from pettingllms_trl.policies.team import Team
from pettingllms_trl.records import Candidate, Completion, Decision, Prompt


PHASES = ("creation", "references", "rollout", "scoring", "backward", "optimizer step", "save")
BETWEEN_TURNS = 40
"""Tokens of an observation after the first of a conversation: assumed."""
FIRST_ID, NUM_IDS = 10, 200
"""Ids of made-up tokens: none is special in the tokenizer of bytes."""


@dataclass(slots=True)
class Phase:
    """Bytes alive at the peak of a phase, and what was run in it."""

    peak: int = 0
    work: Work = field(default_factory=Work)


class Phases:
    """Which phase is running, and what each has taken."""

    def __init__(self, device: ShapesDevice) -> None:
        self._device, self._begun = device, device.since(Work())
        self.of = {name: Phase() for name in PHASES}
        self.current = "creation"
        device.peak = device.now

    def begin(self, name: str) -> str:
        """The phase until now ends, and is returned."""
        device, ended = self._device, self.current
        own = self.of[ended]
        own.peak, own.work = max(own.peak, device.peak), own.work.plus(device.since(self._begun))
        self.current, self._begun, device.peak = name, device.since(Work()), device.now
        return ended

    @contextmanager
    def during(self, name: str, then: str | None = None) -> Iterator[None]:
        before = self.begin(name)
        try:
            yield
        finally:
            self.begin(then or before)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Tokens of what is made up.

    Args:
        prompt: Of the first prompt.
        limit: Most of a prompt and its reply; `None`: there is no bound.
        turns: Of a conversation, whose next prompts go on from a reply; else 1.
    """

    prompt: int
    limit: int | None = None
    turns: int = 1


def made_up(trainer: Any, lengths: Lengths) -> list[Decision]:
    """A decision of each agent with weights here in each turn of each instance of a generation, with replies of
    `max_completion_length` tokens that end by themselves."""
    args, decisions = trainer.args, list[Decision]()
    siblings = 1 if args.sampling == "parallel" else args.num_generations
    for number in range(trainer.plan.rows * args.num_generations // siblings):
        for agent, name in trainer.routing.of_agent.items():
            if trainer.team.policies[name].api is not None:
                continue
            profile = trainer.team.profiles[name]
            longest = trainer.team.overrides[agent].max_completion_length or args.max_completion_length
            ids = _ids(lengths.prompt, number, len(decisions))
            for turn in range(lengths.turns):
                longest = min(longest, longest if lengths.limit is None else lengths.limit - len(ids))
                if longest < 1:
                    break
                replies = [(*_ids(longest - 1, number, turn, k), profile.eos_token_ids[0]) for k in range(siblings)]
                decisions.append(_decision(number // (args.num_generations // siblings), agent, turn, ids, replies))
                ids = (*ids, *replies[0], *_ids(BETWEEN_TURNS, number, turn))
    return decisions


def _decision(
    instance: int, agent: str, turn: int, ids: Sequence[int], replies: Sequence[tuple[int, ...]]
) -> Decision:
    candidates = tuple(
        Candidate(
            completion=Completion(ids=reply, text="", logprobs=(0.0,) * len(reply), finish="stop"),
            reward=float(k == 0),
        )
        for k, reply in enumerate(replies)
    )
    messages = [{"role": "user", "content": "made up"}]
    return Decision(
        instance=instance,
        episode=0,
        agent=agent,
        turn=turn,
        prompt=Prompt(messages, tuple(ids)),
        candidates=candidates,
        chosen=0,
    )


def _ids(length: int, *numbers: int) -> tuple[int, ...]:
    """Ids that differ from others' in their first tokens."""
    digits = [FIRST_ID + number // NUM_IDS**place % NUM_IDS for number in numbers for place in range(2)]
    return (*digits, *[FIRST_ID] * length)[:length]


@dataclass(slots=True)
class Measured:
    """What came of a step.

    Args:
        optimizer: Bytes of the states of the optimizer.
        completion: Tokens of the longest reply, and `turns`, decisions of each agent in an episode.
        notes: What stood in.
    """

    phases: dict[str, Phase]
    held: list[Weights]
    optimizer: int
    notes: list[str]
    completion: int
    turns: int = 1
    trainer: Any = None


def parts_of(trainer: Any) -> list[Weights]:
    """The parameters that the trainer's device holds."""
    found: dict[tuple[int, bool, bool], int] = {}
    seen: set[int] = set()
    models = [(trainer.model, False), *((each.ref_model, True) for each in trainer.team.profiles.values())]
    for model, is_reference in models:
        for each in model.parameters() if isinstance(model, torch.nn.Module) else ():
            if id(each) not in seen:
                seen.add(id(each))
                key = (each.itemsize, each.requires_grad, is_reference)
                found[key] = found.get(key, 0) + each.numel()
    return [
        Weights(parameters=number, width=width, is_trained=trained, is_reference=reference)
        for (width, trained, reference), number in found.items()
    ]


def run_step(
    make: Callable[[], Any], device: ShapesDevice, lengths: Callable[[Any], Lengths], *, samples: bool
) -> Measured:
    """Create a trainer, and run a generation and an optimizer step of it as they are after the first.

    Args:
        make: Creates the trainer.
        lengths: Of what it is given.
        samples: Whether it samples with `generate`.
    """
    notes: dict[str, None] = {}
    phases, generations = Phases(device), 0
    passing = partial(phases.during, "backward", "optimizer step")
    with standing_in(device, lambda said: notes.update({said: None}), passing) as run_once:
        with mock.patch.object(Team, "attach", phases.during("references")(Team.attach)):
            trainer = make()
        held = parts_of(trainer)
        with phases.during("optimizer step", then="scoring"):
            before = device.since(Work())
            fill_optimizer(trainer)
            device.work = before
        optimizer = sum(
            each.numel() * each.itemsize
            for state in trainer.optimizer.state.values()
            for each in state.values()
            if isinstance(each, torch.Tensor) and each.device.type == NAME
        )
        decisions = made_up(trainer, lengths(trainer))

        def prepare(rows: Any) -> Any:
            nonlocal generations
            generations += 1
            if samples:
                with phases.during("rollout"):
                    _sample(trainer, decisions, run_once)
            with phases.during("scoring"):
                steps = passes_over(trainer, decisions)
            with phases.during("backward", then="backward"):
                _hold_gradients(trainer, steps)
            return steps

        trainer.prepare_generation = prepare
        trainer.train()
        for name in ("rollout", "scoring"):  # of one generation, though an optimizer step may wait for several
            phases.of[name].work = Work().plus(phases.of[name].work, 1 / max(generations, 1))
        with phases.during("save"):
            trainer.save_model(trainer.args.output_dir)
    if trainer.image_inputs:
        notes["No pictures are made up: what their tower keeps in a pass is not counted."] = None
    longest = max(len(each.completion.ids) for decision in decisions for each in decision.candidates)
    return Measured(phases.of, held, optimizer, list(notes), longest, 1 + max(d.turn for d in decisions), trainer)


def passes_over(trainer: Any, decisions: Sequence[Decision]) -> Any:
    """The forward passes of a generation's micro-steps, of all rows: each has an advantage."""
    trainer.sampling("estimate")  # so that TRL loads no engine
    advantages = [[1.0 - 2.0 * (k % 2) for k in range(len(each.candidates))] for each in decisions]
    return trainer._passes_over(decisions, advantages, sampled=0, table=lambda _: {})


def fill_optimizer(trainer: Any) -> None:
    """The states of the optimizer, which a training has from its first step on."""
    optimizer = trainer.create_optimizer()
    trained = [each for group in optimizer.param_groups for each in group["params"]]
    for each in trained:
        each.grad = torch.zeros_like(each)
    optimizer.step()
    optimizer.zero_grad()


def _hold_gradients(trainer: Any, steps: Sequence[Sequence[Any]]) -> None:
    """The gradients that a pass finds, of those before it: one of equal passes is run."""
    passes = Counter(each["policy"] for step in steps[: trainer.args.gradient_accumulation_steps] for each in step)
    for policy in trainer.routing.trained:
        if policy.adapter is not None or passes[policy.name] > 1:
            for each in trainer.team.parameters_of(policy):
                each.grad = torch.zeros_like(each)


def _sample(trainer: Any, decisions: Sequence[Decision], run_once: Callable[[Any, Callable[[], Any]], Any]) -> None:
    """Sample for the last decision of each agent, in as many instances together as may be in play."""
    args, team = trainer.args, trainer.team
    siblings = len(decisions[0].candidates)
    last = {(each.instance, each.agent, each.episode): each for each in decisions}
    for agent in dict.fromkeys(each.agent for each in decisions):
        own = [each for (_, whose, _), each in last.items() if whose == agent]
        policy, override = team.policies[trainer.routing.of_agent[agent]], team.overrides[agent]
        with nullcontext() if policy.is_trained else team.as_frozen(policy):
            trainer.activate(policy.name)
            most = args.max_envs or len(own)
            for start in range(0, len(own), most):
                prompts = [each.prompt.ids for each in own[start : start + most] for _ in range(siblings)]
                key = ("rollout", alike(team, policy.name), str(override), *map(len, prompts))
                run_once(key, partial(trainer.generate, prompts, {}, override))
