"""How many optimizer steps must a vLLM engine stay behind before the canary finds it? In float32 and bfloat16.

    OMP_NUM_THREADS=1 PYTHONPATH=.:examples/quickstart python benchmarks/bench_canary.py

Two adapters on a small random Qwen3 (that of `bench_sampling.py`) are trained with real vLLM, all optimizer steps on
one generation. After each step the trainer is compared with two engines: one that still has the weights of the start
("stale"), whose scores are those of then, and the real one, which was given the new weights ("fresh"). Printed are,
for each precision and learning rate, the number of stale steps at which the canary stops, by how much the trainer's
log-probabilities had moved by then, and the most that it took the engine with the right weights to be behind, in
standard errors (6 is an alarm).
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench_sampling import make_model
from bench_step import letters
from datasets import Dataset
from figures import Figure, parser_of, write
from peft import LoraConfig
from transformers import TrainerCallback
from transformers.utils import logging

from pettingllms_trl import MultiAgentGRPOConfig, MultiAgentGRPOTrainer
from pettingllms_trl.engines import canary as canaries
from pettingllms_trl.engines.canary import Agreement, begin, compare


ENV = "pettingllms/plan_path-v0"


class Compares(TrainerCallback):
    """After each step, both comparisons of each policy; ends the run when the stale engine is found.

    Args:
        least: Steps to take in any case.
    """

    def __init__(self, least: int) -> None:
        self.trainer: Any = None
        self.least = least
        self.agreements: dict[tuple[str, str], Agreement] = {}
        self.found_at: int | None = None
        self.moved = 0.0
        self.most = {"stale": 0.0, "fresh": 0.0}
        self.false_alarms = 0
        self.difference = 0.0
        self.seconds: list[float] = []
        self.stale: dict[str, canaries.Array] = {}

    def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
        """Both have the same weights."""
        trainer = self.trainer
        trainer.engines.sync()
        for policy in trainer.engines.engine_set.served:
            here, there = self.scores(policy)
            self.stale[policy] = there
            for kind in self.most:
                self.agreements[policy, kind] = begin(0, here, there, largest=1.0).agreement
            self.difference = max(self.difference, canaries._rms(here.working - there))

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Scores of the stale engine are what they were: nothing has been given to it."""
        trainer = self.trainer
        trainer.engines.sync()
        for policy in trainer.engines.engine_set.served:
            here, there = self.scores(policy)
            for kind, engine in (("stale", self.stale[policy]), ("fresh", there)):
                found = compare(self.agreements[policy, kind], state.global_step, here, engine)
                self.agreements[policy, kind] = found.agreement
                self.most[kind] = max(self.most[kind], found.certainty)
                if kind == "fresh":
                    self.false_alarms += found.is_stale
                elif found.is_stale and self.found_at is None:
                    self.found_at, self.moved = state.global_step, found.moved
        control.should_training_stop = self.found_at is not None and state.global_step >= self.least

    def scores(self, policy: str) -> tuple[canaries.Own, canaries.Array]:
        """The log-probabilities of the fixed text here and in the engine."""
        trainer, began = self.trainer, time.perf_counter()
        text = trainer.engines.scored_text(policy)
        here = trainer.engines.own_logprobs(policy, text)
        (scored,) = trainer.engines.engine_set.score(policy, text)
        self.seconds.append(time.perf_counter() - began)
        return here, canaries.np.array(scored.logprobs)


def make_trainer(path: str, output_dir: Path, *, precision: str, rate: float, num_steps: int, least: int) -> Compares:
    """A trainer whose steps are all of one generation."""
    args = MultiAgentGRPOConfig(
        str(output_dir),
        use_vllm=True,
        vllm_max_model_length=1024,
        num_generations=4,
        per_device_train_batch_size=8,
        num_iterations=num_steps,
        max_completion_length=8,
        max_turns=1,
        learning_rate=rate,
        lr_scheduler_type="constant",
        max_steps=num_steps,
        logging_steps=1000,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        bf16=precision == "bf16",
        canary="warn",
    )
    compares = Compares(least)
    compares.trainer = MultiAgentGRPOTrainer(
        path,
        ENV,
        args,
        Dataset.from_dict({"seed": range(1000)}),
        reward_funcs=letters,
        policies="lora",
        peft_config=LoraConfig(r=8, target_modules="all-linear", task_type="CAUSAL_LM"),
        callbacks=[compares],
    )
    return compares


def main() -> int:
    """Prints the table. Status 1 where an engine with the right weights was taken for a stale one."""
    parser = parser_of(__doc__)
    parser.add_argument("--steps", type=int, default=1000, help="at most")
    parser.add_argument("--least", type=int, default=100, help="steps in which the right weights are compared")
    parser.add_argument("--only", default="", help="precisions with this text in their names")
    given = parser.parse_args()
    logging.set_verbosity_error()
    kept, figures, false_alarms = [], list[Figure](), 0
    with tempfile.TemporaryDirectory() as folder:
        path = make_model(Path(folder) / "model")
        for precision in ("float32", "bf16"):
            for rate in (1e-2, 1e-5):
                if given.only not in precision:
                    continue
                compares = make_trainer(
                    path,
                    Path(folder) / "run",
                    precision=precision,
                    rate=rate,
                    num_steps=given.steps,
                    least=given.least,
                )
                kept.append(compares)  # an engine that is forgotten takes the process groups of the others along
                compares.trainer.train()
                false_alarms += compares.false_alarms
                last = compares.trainer.state.global_step
                found = compares.found_at or f"not within {last}"
                figures.append(
                    Figure(
                        name=f"stale steps until the canary stops, {precision}, learning rate {rate:g}",
                        unit="steps",
                        ours=(float(compares.found_at or "inf"),),
                        better="neither",
                    )
                )
                milliseconds = 1000 * sum(compares.seconds) / len(compares.seconds)
                print(
                    f"{precision}, {rate:g}: found after {found} stale steps (log-probabilities moved by "
                    f"{compares.moved:.1e} nats, {compares.difference:.1e} is rounding); with the right weights "
                    f"{compares.false_alarms} alarms in {last} steps x {len(compares.stale)} policies, at most "
                    f"{compares.most['fresh']:.1f} standard errors; {milliseconds:.0f} ms a comparison",
                    flush=True,
                )
    write(given.json, figures)
    return int(false_alarms > 0)


if __name__ == "__main__":
    sys.exit(main())
