"""The report of the conformance suite: one line for each check, and an example for each failed one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple


Status = Literal["passed", "warning", "failed", "skipped"]


class Result(NamedTuple):
    """The result of one check.

    Args:
        status: `"passed"`, `"warning"`, `"failed"` or `"skipped"`.
        detail: What was played, with numbers; or the expected and actual values and the play that reproduces them; or
            why the check does not apply.
    """

    name: str
    status: Status
    detail: str


@dataclass(frozen=True, slots=True)
class Report:
    """All results of one environment; `str` of it is a table."""

    env: str
    results: tuple[Result, ...]

    @property
    def ok(self) -> bool:
        return not self.failed

    @property
    def failed(self) -> tuple[Result, ...]:
        return tuple(result for result in self.results if result.status == "failed")

    def raise_if_failed(self) -> None:
        """Raise AssertionError with the report as its message if a check failed."""
        if not self.ok:
            raise AssertionError(f"the environment does not conform.\n{self}")

    def __getitem__(self, name: str) -> Result:
        return {result.name: result for result in self.results}[name]

    def __iter__(self) -> Iterator[Result]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    def __str__(self) -> str:
        width = max(len(result.name) for result in self.results)
        rows = [f"Conformance of {self.env}"]
        for name, status, detail in self.results:
            first, *more = detail.splitlines() or [""]
            word = status.upper() if status == "failed" else status
            rows += [f"  {word:7}  {name:{width}}  {first}", *(f"  {'':7}  {'':{width}}  {line}" for line in more)]
        counts = [f"{sum(r.status == status for r in self.results)} {status}" for status in ("passed", "failed")]
        if warnings := sum(r.status == "warning" for r in self.results):
            counts.append(f"{warnings} with a warning")
        rows.append(f"{', '.join(counts)}, {sum(r.status == 'skipped' for r in self.results)} skipped")
        return "\n".join(rows)
