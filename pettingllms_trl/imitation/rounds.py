"""`Rounds`: the rounds of expert iteration, the replies that they have kept, and when they are over.

    round 1: play its share of the tokens or rows | keep replies | num_iterations passes over them | evaluate, save
    round 2: play with the new weights            | keep more    | passes over all that was kept   | evaluate, save

A pass is to TRL's loop what a generation is elsewhere, of as many optimizer steps as its replies need. Optimizer and
learning-rate schedule go on from round to round. Checkpoints have all of this state.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pettingllms_trl.config import MultiAgentGRPOConfig
from pettingllms_trl.records import Candidate, Completion, Decision, Prompt
from pettingllms_trl.update.token_budget import TokenBudget


MOST_EMPTY = 4
"""Rounds in a row that keep nothing, each of other instances, after which training ends."""
COUNTS = ("number", "num_empty", "num_kept", "passes_left", "num_steps", "steps_left", "is_over")
PLACE = ("instance", "episode", "agent", "turn", "environment")
WHY = {
    "best": "in no group are there numbers that differ",
    "success": "no episode succeeded, or with keep_fraction no return was higher than the lowest",
}
REMEDIES = (
    "Look at some (log_rollouts=True); then choose easier instances, warm up on demonstrations (pettingllms sft), "
    "raise num_generations or max_completion_length, or keep by other numbers (imitate='best', keep_fraction)."
)


class NothingToImitate(RuntimeError):
    """No round of an expert iteration has kept a reply."""


class Rounds(TokenBudget):
    """Counts rounds, passes and optimizer steps, and holds the replies that are imitated.

    Args:
        num_rows: Rows of the training data that all rounds play, where no number of tokens is given.
    """

    def __init__(self, args: MultiAgentGRPOConfig, *, num_rows: float, num_processes: int) -> None:
        super().__init__(args.max_generated_tokens, micro_steps_per_generation=1)
        self._args, self._num_rows = args, num_rows
        self._batch_size = args.per_device_train_batch_size * args.gradient_accumulation_steps * num_processes
        self.number = self.num_empty = 0  # the round in progress, from 1; the latest ones that have kept nothing
        self.generation = self.num_kept = self._num_episodes = 0  # of the round
        self.passes_left = self.num_steps = self.steps_left = 0  # of the round; optimizer steps of the pass
        self.is_over = False  # with this pass
        self.decisions: list[Decision] = []  # their candidates are imitated

    def begin(self) -> None:
        self.number += 1
        self.generation = self.num_kept = self._num_episodes = 0
        if self._args.replay == "last":
            self.decisions = []

    def is_played(self, num_rows: int) -> bool:
        """Whether the round's share is spent: of the tokens, or of the rows, of which `num_rows` were played yet."""
        done = num_rows / self._num_rows if self.max_tokens is None else self.num_generated / self.max_tokens
        return self.generation > 0 and done >= self.number / self._args.num_rounds

    def keep(self, decisions: Sequence[Decision], advantages: Sequence[Sequence[float]], num_episodes: int) -> None:
        """Keep the replies of a generation that have an advantage. One that was cut off is left out, or the policy
        would learn not to come to an end."""
        for decision, values in zip(decisions, advantages, strict=True):
            pairs = zip(decision.candidates, values, strict=True)
            if replies := [each for each, value in pairs if value > 0 and each.completion.finish != "length"]:
                self.decisions.append(_decision_of(_state_of(decision, replies)))  # as a resumed run has it
                self.num_kept += len(replies)
        self.generation += 1
        self._num_episodes += num_episodes

    def end_play(self) -> str:
        """Go on to the passes. Of a round that has kept nothing, and has none, it returns what to say.

        Raises:
            NothingToImitate: Training would end without an update.
        """
        if self.num_kept:
            self.num_empty, self.passes_left = 0, self._args.num_iterations
            return ""
        self.num_empty += 1
        self.is_over = self.num_empty == MOST_EMPTY or self._is_last
        words = (
            f"round {self.number} played {self._num_episodes} episodes and kept none of their replies: "
            f"{WHY[self._args.imitate or '']}, or what is to be kept was cut off."
        )
        if not self.is_over:
            return f"{words} The next round plays other instances, and nothing is trained before."
        words += f" Training ends, as the last {self.num_empty} rounds have kept nothing. {REMEDIES}"
        if self.number == self.num_empty:
            raise NothingToImitate(words)
        return words

    @property
    def _is_last(self) -> bool:
        return self.number == self._args.num_rounds or super().done >= 1.0

    def micro_steps_for(self, num_rows: int) -> int:
        """Micro-steps of a pass over this number of a policy's replies, in mini-batches of the ordinary size."""
        return math.ceil(num_rows / self._batch_size) * self._args.gradient_accumulation_steps

    def begin_pass(self, num_micro_steps: int) -> None:
        self.num_steps = self.steps_left = num_micro_steps // self._args.gradient_accumulation_steps

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Count an optimizer step; after a round evaluate and save, and after the last one stop."""
        self.steps_left -= 1
        if self.steps_left == 0 and self.passes_left:
            self.passes_left -= 1
            if self.passes_left == 0:
                self.is_over = self._is_last
                control.should_log = True
                control.should_evaluate = args.eval_strategy != "no"
                control.should_save = args.save_strategy not in ("no", "best")
        control.should_training_stop |= self.is_spent(state.global_step)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # The data loader's rows only count steps: what other trainings do after its epochs is done after rounds.
        control.should_evaluate = control.should_save = False

    def is_spent(self, micro_step: int) -> bool:
        return self.is_over and self.steps_left == 0

    @property
    def done(self) -> float:
        left = self.passes_left - (self.steps_left > 0) + self.steps_left / max(self.num_steps, 1)
        return (self.number - left / self._args.num_iterations) / self._args.num_rounds

    def metrics(self) -> dict[str, float]:
        """What is logged of a round, by the names of docs/metrics.md."""
        num_replies = sum(len(decision.candidates) for decision in self.decisions)
        found = {"round": self.number, "kept": self.num_kept, "replies": num_replies}
        return {f"imitation/{name}": float(value) for name, value in found.items()}

    def state_dict(self) -> dict[str, Any]:
        decisions = [_state_of(decision, decision.candidates) for decision in self.decisions]
        return {**super().state_dict(), **{name: getattr(self, name) for name in COUNTS}, "decisions": decisions}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        for name in COUNTS:
            setattr(self, name, state[name])
        self.decisions = [_decision_of(each) for each in state["decisions"]]


def _state_of(decision: Decision, replies: Sequence[Candidate]) -> dict[str, Any]:
    prompt = decision.prompt
    return {
        **{name: getattr(decision, name) for name in PLACE},
        "prompt": [[dict(message) for message in prompt.messages], [*prompt.ids], [*prompt.images]],
        "replies": [[[*c.completion.ids], c.completion.text, c.completion.finish, c.reward] for c in replies],
    }


def _decision_of(state: Mapping[str, Any]) -> Decision:
    messages, ids, images = state["prompt"]
    return Decision(
        **{name: state[name] for name in PLACE},
        prompt=Prompt(messages, tuple(ids), tuple(images)),
        candidates=tuple(
            Candidate(completion=Completion(ids=tuple(ids), text=text, finish=finish), reward=reward)
            for ids, text, finish, reward in state["replies"]
        ),
        chosen=0,
    )
