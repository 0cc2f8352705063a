"""What data sets lack, or have too much, is told before a model is loaded: the model of every case does not exist."""

from __future__ import annotations

import functools
import random
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
from datasets import Dataset, IterableDataset

from pettingllms_trl import Curriculum, MultiAgentGRPOTrainer
from short_runs import settings
from third_party import OneShot, Relay


def create(path: Path, rows: Any, evaluated: Any = None, *, env: Any = Relay, **given: Any) -> None:
    """Create a trainer as far as the model, which there is not."""
    with pytest.raises(OSError, match="/no/such/model"):
        MultiAgentGRPOTrainer("/no/such/model", env, settings(path), rows, evaluated, **given)


def dataset(number: int = 8, **columns: Any) -> Dataset:
    return Dataset.from_dict({"seed": range(number), **{name: [value] * number for name, value in columns.items()}})


def stream(*rows: dict[str, Any]) -> IterableDataset:
    return IterableDataset.from_generator(lambda: iter(rows))


# ---- Columns of reward functions ------------------------------------------------------------------------------------

ARGUMENTS = ("prompts", "completions", "completion_ids", "trainer_state", "log_metric", "log_extra")


def constant(completions: Any, **_: Any) -> list[float]:
    return [0.0] * len(completions)


def judge(completions: Any, answer: Any, **_: Any) -> list[float]:
    return [0.0] * len(completions)


async def judge_later(prompts: Any, completions: Any, *, answer: Any, **_: Any) -> list[float]:
    return [0.0] * len(completions)


class Judge:
    def __call__(self, completions: Any, answer: Any, agent: Any, turn: Any, trainer_state: Any, **_: Any) -> Any:
        return [0.0] * len(completions)


def scaled(scale: float, completions: Any, answer: Any, **_: Any) -> list[float]:
    return [scale] * len(completions)


REQUIRING = [judge, judge_later, Judge(), partial(scaled, 0.5)]


@pytest.mark.parametrize("column", ARGUMENTS)
@pytest.mark.parametrize("where", ["train", "eval", "stream"])
def test_a_column_named_like_an_argument_is_refused(column: str, where: str, tmp_path: Path) -> None:
    wrong = stream({"seed": 1, column: "x"}) if where == "stream" else dataset(**{column: "x"})
    rows = (dataset(), {"a": dataset(), "b": wrong}) if where == "eval" else (wrong, None)
    with pytest.raises(ValueError, match=rf"rows have the columns \['{column}'\]; expected other .* Rename them: "):
        create(tmp_path, *rows, reward_funcs=constant)


@pytest.mark.parametrize("column", [*ARGUMENTS, "prompt", "completion", "agent", "turn"])
def test_such_a_column_is_any_other_without_reward_functions(column: str, tmp_path: Path) -> None:
    create(tmp_path, dataset(**{column: "x"}))


@pytest.mark.parametrize("column", ["prompt", "completion", "agent", "turn"])
def test_prompt_and_what_decisions_replace_are_legal_columns(column: str, tmp_path: Path) -> None:
    create(tmp_path, dataset(**{column: "x"}), reward_funcs=constant)


@pytest.mark.parametrize("function", REQUIRING, ids=["function", "async", "object", "partial"])
@pytest.mark.parametrize(
    ("rows", "evaluated", "where"),
    [
        (dataset(), dataset(answer="4"), "train_dataset, which has the columns seed"),
        (dataset(answer="4"), dataset(level=1), "eval_dataset, which has the columns seed, level"),
        (dataset(answer="4"), {"a": dataset(answer="4"), "b": dataset()}, r"eval_dataset\['b'\]"),
        (stream({"seed": 1, "solution": "4"}), None, "train_dataset, which has the columns seed, solution"),
    ],
    ids=["train", "eval", "one of several", "stream"],
)
def test_a_column_that_a_function_requires_must_be_in_every_data_set(
    function: Any, rows: Any, evaluated: Any, where: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=rf"requires the columns \['answer'\]; expected them in {where}.* Add them, "):
        create(tmp_path, rows, evaluated, reward_funcs=[constant, function])


def optional(completions: Any, answer: Any = None, *rest: Any, seed: Any, **_: Any) -> list[float]:
    return [0.0] * len(completions)


def answering(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def given(*args: Any, **kwargs: Any) -> Any:
        return function(*args, answer=4, **kwargs)

    return given


@pytest.mark.parametrize(
    "function",
    [optional, partial(judge, answer="4"), answering(judge), constant, "/no/such/classifier"],
    ids=["default", "given by partial", "given by a decorator", "kwargs", "model"],
)
def test_what_is_given_otherwise_is_no_column(function: Any, tmp_path: Path) -> None:
    create(tmp_path, dataset(), reward_funcs=function)


def test_a_column_that_a_curriculum_writes_is_in_the_rows_that_are_trained_on(tmp_path: Path) -> None:
    def by_level(completions: Any, level: Any, **_: Any) -> list[float]:
        return [0.0] * len(completions)

    curriculum = Curriculum(levels=(1, 2))
    create(tmp_path, dataset(), reward_funcs=by_level, curriculum=curriculum)
    with pytest.raises(ValueError, match=r"requires the columns \['level'\]; expected them in eval_dataset"):
        create(tmp_path, dataset(), dataset(), reward_funcs=by_level, curriculum=curriculum)


def test_looking_at_a_stream_takes_no_row_from_it(tmp_path: Path) -> None:
    rows = stream(*({"seed": seed, "answer": "4"} for seed in range(4)))
    create(tmp_path, rows, reward_funcs=judge)
    assert [row["seed"] for row in rows] == [0, 1, 2, 3]


# ---- Rows without a seed --------------------------------------------------------------------------------------------


class Puzzle(OneShot):
    """Shows its seed and the reset options that it reads."""

    READ: ClassVar[tuple[str, ...]] = ("text",)
    num_resets: ClassVar[list[int]] = [0]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        super().reset(seed, options)
        type(self).num_resets[0] += 1
        self.read = [(options or {}).get(name) for name in self.READ]

    def observe(self, agent: str) -> str:
        return f"{self.question} {self.read}"


class Speedy(Puzzle):
    READ = ("speed",)


class Strict(Puzzle):
    READ = ("speed",)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        if (options or {})["speed"] > 3:
            raise ValueError("too fast")
        super().reset(seed, options)


class Drawing(Puzzle):
    """Draws an instance at each reset, whatever the seed."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        super().reset(seed, options)
        self.question = self.num_resets[0]


class Declaring(Puzzle):
    metadata = {**OneShot.metadata, "reset_options": ["seeds", "text"]}


def of(**columns: Any) -> Dataset:
    return Dataset.from_dict(columns)


MISSPELT = r"have no column 'seed', and .* whatever their column '{}' says; expected a seed .* Rename it: "
ALIKE = r"the rows of {} have no seed, and those that were tried begin alike; expected a column 'seed', .* Add dataset"


@pytest.mark.parametrize(
    ("rows", "evaluated", "message"),
    [
        (of(seeds=range(20)), None, MISSPELT.format("seeds")),
        (of(Seed=range(20)), None, MISSPELT.format("Seed")),
        (of(sede=[3] * 20), None, MISSPELT.format("sede")),
        (of(env_seed=range(20), text="ab" * 10), None, MISSPELT.format("env_seed")),
        (of(seeds=range(20), text=list("abcdefghijklmnopqrst")), None, MISSPELT.format("seeds")),
        (of(sede=range(20), text="ab" * 10), None, MISSPELT.format("sede")),
        (of(seed=range(8)), of(seeds=range(8)), MISSPELT.format("seeds")),
        (stream({"seeds": 1}), None, MISSPELT.format("seeds")),
        (of(number=range(20)), None, ALIKE.format("train_dataset")),
        (of(seed=[None] * 20, number=range(20)), None, ALIKE.format("train_dataset")),
        (of(text=["the same"] * 20), None, ALIKE.format("train_dataset")),
        (of(seed=range(8)), {"hard": of(number=range(2))}, ALIKE.format(r"eval_dataset\['hard'\]")),
    ],
)
def test_rows_that_no_seed_tells_apart_are_warned_of(rows: Any, evaluated: Any, message: str, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=message) as told:
        create(tmp_path, rows, evaluated, env=Puzzle)
    assert len([warning for warning in told if warning.category is UserWarning]) == 1


@pytest.mark.parametrize(
    ("env", "rows"),
    [
        (Puzzle, of(seed=range(8))),
        (Puzzle, of(seed=[7] * 8)),  # one instance, on purpose
        (Puzzle, of(seed=range(8), seeds=range(8))),
        (Puzzle, of(text=["a", "b", "c", "d"])),
        (Puzzle, of(text=["a"] * 7 + ["b"])),
        (Speedy, of(speed=[1, 2, 3])),  # much like `seed`, but read
        (Strict, of(speed=[3, 2, 1])),
        (Puzzle, of(text=list("abcdefgh"), speed=[1, 2] * 4)),  # read later; each row has a text of its own
        (Drawing, of(number=range(8))),
        (Drawing, of(numbers=[[1, 2]] * 8).with_format("numpy")),
        (
            Drawing,
            of(numbers=[[1, 2]] * 8, speed=range(8)).with_format(
                "torch", columns=["numbers"], output_all_columns=True
            ),
        ),
        (Declaring, of(seeds=range(8))),
        (Declaring, of(text=["the same"] * 8)),
        (Puzzle, stream({"text": "a"})),
        (Puzzle, None),
        ({"a": Puzzle, "b": Puzzle}, of(environment=["a", "b"] * 4, seed=range(8))),
        ({"a": Puzzle, "b": Puzzle}, of(environment=["a", "b"] * 4, text=list("qrstuvwx"))),
    ],
)
def test_other_rows_are_not_warned_of(env: Any, rows: Any, tmp_path: Path) -> None:
    create(tmp_path, rows, env=env)  # a warning would be an error


def test_a_single_row_is_like_no_other(tmp_path: Path) -> None:
    create(tmp_path, None, of(text=["a"]), env=Puzzle)


def test_of_several_environments_each_is_looked_at(tmp_path: Path) -> None:
    rows = of(environment=["a"] * 4 + ["b"] * 4, seed=[1, 2, 3, 4, None, None, None, None], number=range(8))
    with pytest.warns(UserWarning, match=ALIKE.format("train_dataset for 'b'")):
        create(tmp_path, rows, env={"a": Puzzle, "b": Puzzle})


def resets(path: Path, rows: Any, evaluated: Any, env: Any) -> int:
    before = Puzzle.num_resets[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        create(path, rows, evaluated, env=env)
    return Puzzle.num_resets[0] - before


@pytest.mark.parametrize("number", [1, 5])
@pytest.mark.parametrize("column", ["seeds", "number", "text"])
def test_construction_takes_at_most_eight_more_resets(number: int, column: str, tmp_path: Path) -> None:
    names = [str(i) for i in range(number)]
    env: Any = dict.fromkeys(names, Puzzle) if number > 1 else Puzzle
    where = {"environment": names * 8} if number > 1 else {}

    def rows(**columns: Any) -> tuple[Dataset, dict[str, Dataset]]:
        return of(**where, **columns), {
            str(i): of(**where, **columns, **{f"more{i}": columns[column]}) for i in (1, 2)
        }

    values = [str(i) for i in range(8 * number)] if column == "text" else range(8 * number)
    with_seed = resets(tmp_path, *rows(**{column: values}, seed=range(8 * number)), env)
    assert resets(tmp_path, *rows(**{column: values}), env) - with_seed in range(1, 9)


def test_the_environment_is_left_as_it_was_reset(tmp_path: Path) -> None:
    seen: list[tuple[int | None, Any]] = []

    class Last(Puzzle):
        def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
            super().reset(seed, options)
            seen.append((seed, options))

    with pytest.warns(UserWarning, match="begin alike"):
        create(tmp_path, of(text=["a", "b"]), of(number=range(8)), env=Last)
    assert seen[-1] == (42, {"text": "a"})


def test_the_random_numbers_that_follow_are_the_same(tmp_path: Path) -> None:
    class Chance(Puzzle):
        def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
            super().reset(seed, options)
            self.question = random.randrange(100)

    def after(rows: Any) -> float:
        random.seed(1)
        create(tmp_path, rows, env=Chance)
        return random.random()

    assert after(of(number=range(8))) == after(of(seed=range(8)))
