"""DataTask: a base class for tasks whose instances are the problems of a data set.

Seed s is problem s modulo their number, see `pettingllms_envs.datasets.sampling_order`. Without `data` the instances
are the rows that come with this package, which are told from the benchmark that they stand for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from pettingllms_envs.core import SPLITS, State, check_choice
from pettingllms_envs.datasets import find_source, normalization, sampling_order
from pettingllms_envs.datasets.columns import Layout, find_layout
from pettingllms_envs.datasets.problems import NO_ANSWER, MathProblem, Problem
from pettingllms_envs.datasets.rows import BadRow, DataRow, LeftOut, missing, statement
from pettingllms_envs.features import DataSet
from pettingllms_envs.tasks.base import OpenTask


Kind = TypeVar("Kind", bound=Problem)


@dataclass(frozen=True, slots=True)
class DataTask(OpenTask[State]):
    """A task on the problems of a data set.

    Args:
        data: Where the problems are from: None for the rows that come with the package, a local file, a folder that
            `pettingllms data prepare` wrote, or an id of the Hub; see `pettingllms_envs.datasets.load`.
        layout: The columns of the rows; None to tell them by the name of the data set.
    """

    data: str | None = None
    layout: str | None = None

    problem_kind: ClassVar[type[Problem]]
    own: ClassVar[str]
    """Name of the package's rows."""
    benchmark: ClassVar[str]
    """What those stand for."""
    remedy: ClassVar[str]
    """How to play the benchmark itself."""
    # Which levels and ids there are depends on the data.
    instance_fields: ClassVar[Mapping[str, tuple[object, ...]]] = {
        "split": SPLITS,
        "level": (),
        "problem": (),
        "row": (),
    }

    @property
    def data_set(self) -> DataSet:
        """Where the problems are from; the rows of this package are told from the benchmark."""
        is_own = self.data is None or str(self.data).startswith("own:")
        return DataSet(str(self.data or self.own), *((self.benchmark, self.remedy) if is_own else ()))

    def generate(
        self,
        seed: int,
        split: str | None = None,
        level: int | None = None,
        problem: str | None = None,
        row: Mapping[str, Any] | None = None,
    ) -> State:
        """The problem of a seed in a split.

        Args:
            split: `"train"` (also for None), `"validation"` or `"test"`. Data of a benchmark have the last one only.
            problem: The id of a problem of the split; the seed is not used then.
            row: The problem itself, see `drawn`.
        """
        split = self.instance_fields["split"][0] if split is None else split  # type: ignore[assignment]
        fields = {"level": level, **self.narrowing()}
        return self.begin(self.drawn(self.problem_kind, seed, split, problem=problem, row=row, **fields), seed, split)

    def begin(self, problem: Any, seed: int, split: str | None) -> State:
        """The start state of a problem, where a split has it."""
        raise NotImplementedError

    def narrowing(self) -> Mapping[str, Any]:
        """Further fields of the problems to be drawn, see `sampling_order.draw`."""
        return {}

    def drawn(
        self, kind: type[Kind], seed: int, split: str | None, *, row: Mapping[str, Any] | None = None, **fields: Any
    ) -> Kind:
        """The problem of a seed, of this kind; `fields` narrow the choice, see `sampling_order.draw`.

        With a `row` it is that problem, see `given_problem`.
        """
        if row is not None:
            return given_problem(row, kind, find_source(self.data or self.own, layout=self.layout).layout)
        splits: Sequence[Any] = self.instance_fields["split"]
        split = splits[0] if split is None else split
        check_choice("split", split, splits)
        problem = sampling_order.draw(self.data or self.own, self.layout, seed, split=split, **fields)
        if not isinstance(problem, kind):
            raise ValueError(
                f"{self.name} got data={self.data!r} with {problem}; expected {kind.__name__}s. Name another set."
            )
        return problem


def given_problem(row: object, kind: type[Kind], layout: Layout) -> Kind:
    """The problem of a row with the columns of the layout or of `Problem.simple`, or with `question` alone, which
    nothing is compared with, so that it has no verdict."""
    columns: DataRow = row if isinstance(row, dict) else {}
    try:
        for each in (layout, find_layout(kind.simple) if kind.simple else layout):
            if columns and not missing(each.columns, columns):
                found = each.read(columns)
                if isinstance(found, kind):
                    return found
        if set(columns) == {"question"} and kind.unanswered is not None:
            asked = statement(columns, "question")
            name = normalization.name(asked)
            return kind(source="row", id=name, statement=asked, unjudged=NO_ANSWER, **kind.unanswered)
    except (BadRow, LeftOut) as reason:
        raise ValueError(f"the row is {row!r}: {reason}. Fix it.") from None
    forms = [" and ".join(" or ".join(names) for names in layout.columns)]
    forms += ["question and answer"] if kind is MathProblem else []
    forms += ["question alone, for no verdict"] if kind.unanswered is not None else []
    raise ValueError(f"the row is {row!r}; expected an object with the columns {', or '.join(forms)}. Fix it.")
