"""`TrainingTable`: what a training prints, a line for each log; and `metrics.jsonl`, which has all that is logged.

      step  success   drafter   planner  tokens   flat   tok/s      left
         0     4.0%     -0.12      0.03                                   eval
         1    12.5%      0.03      0.11    38.2    50%     412   2:05:10
         2    15.0%      0.05      0.12    37.9    44%     430   2:01:40

| column        | of a log                                                                        |
|---------------|---------------------------------------------------------------------------------|
| `success`     | `outcome/success`                                                               |
| a role's name | `agent/<agent>/return`, the mean over the agents of the role                    |
| a function's  | `rewards/<function>/mean` of each of `reward_funcs`                             |
| `tokens`      | `completions/mean_length`                                                       |
| `flat`        | `agent/<agent>/frac_reward_zero_std`, the mean over agents                      |
| `tok/s`       | sampled tokens a second since the line before, updates included                 |
| `left`        | the time so far, for what remains of the steps, or of the tokens if these end first |

Trackers (`report_to`) and `trainer_state.json` get every log in full, as without it.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from tqdm.auto import tqdm
from transformers import ProgressCallback

from pettingllms_envs.episodes.files import lines as lines_of
from pettingllms_envs.episodes.files import write_whole
from pettingllms_trl.records import NEVER, role_of


FILE = "metrics.jsonl"
HEADING_EVERY = 20
"""Lines after which the heading is printed again."""
ENV = "environment"
"""What the logs call the rewards of the environment among those of reward functions."""
WIDTH = 10
"""Of a role's column; longer names are cut."""

Logs = Mapping[str, Any]


def heading(roles: Sequence[str], functions: Sequence[str] = ()) -> str:
    """The names of the columns: a role's mean return each, and a reward function's mean."""
    cut = [name if len(name) < WIDTH else f"{name[: WIDTH - 2]}…" for name in (*roles, *functions)]
    names = "".join([f"{name:>{WIDTH}}" for name in cut])
    return f"{'step':>6}{'success':>9}{names}{'tokens':>8}{'flat':>7}{'tok/s':>8}{'left':>10}"


def line(
    logs: Logs,
    agents: Sequence[str],
    *,
    step: int,
    prefix: str = "",
    speed: float | None = None,
    left: float | None = None,
    functions: Sequence[str] = (),
) -> str:
    """A line of the table.

    Args:
        prefix: `"eval_"` or `"eval_<data set>_"` of an evaluation, named at the end of the line, with its round.
        speed: Tokens a second.
        left: Seconds to go.
    """
    rewards: dict[str, list[float]] = defaultdict(list)
    flat = []
    of_all = "eval_" if prefix else ""  # the keys of each data set's evaluation
    for agent in agents:
        rewards[role_of(agent)] += _found(logs, f"{of_all}agent/{agent}/return")
        flat += _found(logs, f"{of_all}agent/{agent}/frac_reward_zero_std")
    shown = "".join(_mean(values, f"{WIDTH}.2f") for values in rewards.values())
    shown += "".join(_mean(_found(logs, f"{of_all}rewards/{name}/mean"), f"{WIDTH}.2f") for name in functions)
    success = _mean(_found(logs, f"{of_all}outcome/success"), "9.1%")
    length = _mean(_found(logs, f"{of_all}completions/mean_length"), "8.1f")
    rate = "" if speed is None else f"{speed:,.0f}"
    togo = "" if left is None else clock(left)
    number = logs.get(f"{of_all}imitation/round")
    what = prefix.rstrip("_") + (f" round {number:.0f}" if prefix and number is not None else "")
    return f"{step:>6}{success}{shown}{length}{_mean(flat, '7.0%')}{rate:>8}{togo:>10}  {what}".rstrip()


def roles_of(agents: Sequence[str]) -> list[str]:
    """The roles, in the order of their first agents."""
    return list(dict.fromkeys(map(role_of, agents)))


def functions_of(logs: Logs) -> list[str]:
    """The reward functions that logs have a mean of. The rewards of the environment are in the roles' columns."""
    means = (key.removeprefix("eval_").split("/") for key in logs)
    return [name for kind, *rest in means if kind == "rewards" and rest[1:] == ["mean"] and (name := rest[0]) != ENV]


def clock(seconds: float) -> str:
    """`65` as `1:05`, `7265` as `2:01:05`."""
    hours, rest = divmod(round(seconds), 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"


class TrainingTable(ProgressCallback):
    """Prints the table above the progress bar, and writes `metrics.jsonl` into the output folder.

    A resumed training keeps the file's lines of earlier steps; any other training begins a new one, with what was
    logged just before it (an evaluation of the untrained team, say).

    Args:
        now: Clock, in seconds.
    """

    def __init__(
        self,
        agents: Sequence[str],
        tokens: Callable[[], int],
        *,
        done: Callable[[], float] = lambda: 0.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._agents, self._tokens, self._share_done, self._now = list(agents), tokens, done, now
        self._waiting: list[str] = []
        self._file: Path | None = None
        self._num_lines = 0
        self._functions: list[str] = []
        self._begun = self._last = (0.0, 0.0)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not args.disable_tqdm:
            super().on_train_begin(args, state, control, **kwargs)
        if self.training_bar is not None and state.max_steps >= NEVER:
            self.training_bar.total = None  # else it would say how many years are left
        self._begun = self._now(), self._done(state)
        self._last = self._now(), float(self._tokens())
        self._num_lines = 0
        if state.is_world_process_zero:
            self._file = Path(args.output_dir) / FILE
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._file, "".join([*_before(self._file, state.global_step), *self._waiting]))
            self._waiting.clear()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.training_bar is not None or not state.is_world_process_zero:
            super().on_step_end(args, state, control, **kwargs)

    def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not args.disable_tqdm:
            super().on_prediction_step(args, state, control, **kwargs)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.training_bar is not None:
            super().on_train_end(args, state, control, **kwargs)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if not state.is_world_process_zero or logs is None:
            return
        written = json.dumps({"step": state.global_step, **logs}, default=float) + "\n"
        if self._file is None:
            self._waiting.append(written)
        else:
            with open(self._file, "a", encoding="ascii") as stream:
                stream.write(written)
        if "train_runtime" in logs:
            taken = f"{state.global_step} steps in {clock(logs['train_runtime'])}, {self._tokens():,} tokens sampled"
            tqdm.write(f"{taken}. All that was logged: {self._file}")
            return
        new = [name for name in functions_of(logs) if name not in self._functions]
        self._functions += new
        if self._num_lines % HEADING_EVERY == 0 or new:
            tqdm.write(heading(roles_of(self._agents), self._functions))
        self._num_lines += 1
        shown = partial(line, logs, self._agents, step=state.global_step, functions=self._functions)
        prefix = next((key.removesuffix("runtime") for key in logs if key.endswith("_runtime")), "")
        now, tokens = self._now(), float(self._tokens())
        if prefix:
            tqdm.write(shown(prefix=prefix))
            self._last = now, tokens
            return
        speed = (tokens - self._last[1]) / max(now - self._last[0], 1e-9)
        self._last = now, tokens
        done = self._done(state)
        left = (now - self._begun[0]) * (1 - done) / max(done - self._begun[1], 1e-9)
        tqdm.write(shown(speed=speed, left=left))

    def _done(self, state: Any) -> float:
        """The share of the training that is done."""
        return min(1.0, max(self._share_done(), state.global_step / max(state.max_steps, 1)))


def _before(file: Path, step: int) -> list[str]:
    """The whole lines of a file that an earlier training wrote up to a step, if this one goes on with it."""
    if step == 0 or not file.is_file():
        return []
    found = (each.decode("ascii") for each in lines_of(file))
    return [each for each in found if each.endswith("\n") and json.loads(each)["step"] <= step]


def _found(logs: Logs, key: str) -> list[float]:
    return [logs[key]] if logs.get(key) is not None else []  # None: a reward function that never applied


def _mean(values: Sequence[float], form: str) -> str:
    width = int(form.partition(".")[0])
    return format(fmean(values), form) if values else " " * width
