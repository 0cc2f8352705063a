"""Pages that quote figures of `make bench` quote the newest saved ones."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

import pytest


BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path += [str(BENCHMARKS), str(BENCHMARKS / "studies")]

import memory_curve  # noqa: E402
from figures import from_record  # noqa: E402
from quotes import MARKED, ROOT, STUDIED, newest, pages, quoted, table  # noqa: E402

from pettingllms_envs.evaluation.statistics import wilson  # noqa: E402
from pettingllms_envs.reports.blocks import markdown  # noqa: E402


def saved(folder: Path, name: str, date: str, ours: float, commit: str = "0123456789") -> None:
    figure = {"name": "a step", "unit": "s", "ours": [ours], "peer_name": "TRL", "peer": [4.0], "goal": ">= 1x"}
    alone = {"name": "a share", "unit": "%", "ours": [ours]}
    missed = {"name": "a reset", "unit": "ms", "ours": [9.0], "goal": "<= 5 ms", "met": False}
    absent = {"name": "a game", "unit": "s", "peer_name": "X", "goal": ">= 2x", "met": False, "absent": "no X"}
    figures = [{**figure, "met": True}, alone, missed, {**missed, "name": "a start", "met": True}, absent]
    suite = {"date": date, "load": 1.04, "figures": figures}
    (folder / name).write_text(json.dumps({"machine": {"commit": commit}, "suites": {"step": suite}}))


def test_a_table_has_the_newest_figures_of_the_machine_and_where_they_are_from(tmp_path: Path) -> None:
    saved(tmp_path, "box-89abcdef.json", "2026-11-23T10:00:00", 2.0, "89abcdef01+changes")
    saved(tmp_path, "box-01234567-changed.json", "2026-11-22T10:00:00", 1.0)
    saved(tmp_path, "other-01234567.json", "2026-11-24T10:00:00", 8.0)
    saved(tmp_path, "box-large-01234567.json", "2026-11-24T10:00:00", 8.0)
    assert table("box", "step", tmp_path / "docs", tmp_path) == (
        "| [2026-11-23, 89abcdef with changes](../box-89abcdef.json), load 1.0 | ours | beside | theirs | times as "
        "good (rounds) | goal |\n|---|---|---|---|---|---|\n"
        "| a step | 2.00 s | TRL | 4.00 s | 2.00x (2.00-2.00) | >= 1x met |\n"
        "| a reset | 9.00 ms |  |  |  | <= 5 ms MISSED |\n| a game | - | X | - |  | >= 2x NOT MEASURED |\n"
    )
    with pytest.raises(ValueError, match=r"box-\*\.json has 'update'; expected one. Run suite.py --only update."):
        table("box", "update", tmp_path, tmp_path)


def test_a_page_keeps_what_is_around_its_tables() -> None:
    text = "Before.\n\n<!-- saved: intel-xeon-processor-2-cores step -->\n| old |\n|---|\n\nAfter.\n"
    found = quoted(text, BENCHMARKS)
    assert found.startswith("Before.\n\n<!-- saved: intel-xeon-processor-2-cores step -->\n| [2026-")
    assert found.endswith(" |\n\nAfter.\n")
    assert quoted(found, BENCHMARKS) == found


def test_pages_quote_the_newest_figures_that_are_saved() -> None:
    number = 0
    for page in pages():
        text = page.read_text("utf-8")
        number += len(MARKED.findall(text))
        assert text.count("<!-- saved") == len(MARKED.findall(text)), f"{page}: a mark is not as quotes.py reads it"
        assert text.count("<!-- study") == len(STUDIED.findall(text)), f"{page}: a mark is not as quotes.py reads it"
        assert quoted(text, page.parent) == text, f"{page}: python benchmarks/quotes.py writes its tables anew"
    assert number >= 4


def test_the_speeds_of_the_results_are_the_newest_that_are_saved() -> None:
    def figures(suite: str) -> dict[str, Any]:
        _, saved, _ = newest("intel-xeon-processor-2-cores", suite, BENCHMARKS / "results")
        assert saved["date"][:10] in speed, f"docs/results.md does not have the date of {suite}"
        return {each.name: each for each in map(from_record, saved["figures"])}

    def times(figure: Any) -> float:
        return median(figure.ratios)

    _, _, speed = (ROOT / "docs" / "results.md").read_text("utf-8").partition("\n## Speed\n")
    trained, update = figures("end_to_end"), figures("update")
    as_trl = times(trained["trained, ours, samples as TRL does, 0.4M, 8 x 8 x 32"])
    whole = times(trained["trained, ours, 0.4M, 8 x 8 x 32"])
    assert f"{whole:.1f} times TRL's `GRPOTrainer`, with TRL's sampler {as_trl:.1f} |" in speed
    shapes = [times(each) for name, each in update.items() if name.startswith("update, P=")]
    least = [1 / times(each) for name, each in update.items() if name.startswith("update's peak memory, P=")]
    assert (
        f"{min(shapes):.1f} to {max(shapes):.1f} times TRL's speed, in {min(least):.1f} to {max(least):.1f} " in speed
    )
    assert f"| {times(figures('math')['a reply of a group, graded']):.0f} times TRL's |" in speed
    sandbox = figures("sandbox")["fork per test (namespaces), fork per test / reference's flags"]
    assert f"| {times(sandbox):.0f} times the reference implementation's |" in speed
    outside = figures("step")["a step's share outside, 0.4M, lora"]
    assert f"| {median(outside.ours):.1%} |" in speed


def test_the_curve_of_memory_is_what_its_command_prints() -> None:
    results, again, _, greedy = memory_curve.read(BENCHMARKS / "results" / "study" / "memory")
    assert markdown([memory_curve.table(results, again, greedy)]) in (ROOT / "docs" / "results.md").read_text("utf-8")


def test_the_quickstarts_table_and_the_headline_are_those_of_its_five_runs() -> None:
    runs = json.loads((BENCHMARKS / "results" / "quickstart.json").read_text("utf-8"))["runs"]
    lines, shares = [], []
    for run in runs:
        cells = []
        for name in ("untrained", "trained", "trained, messages cut"):
            right, of = run[name].count("1"), len(run[name])
            low, high = wilson(right, of)
            cells.append(f"{right / of:.1%} [{100 * low:.1f}, {100 * high:.1f}]")
        shares.append(f"{run['trained'].count('1') / len(run['trained']):.1%}")
        lines.append(f"| {run['seed']} | {' | '.join(cells)} |\n")
    assert "".join(lines) in (ROOT / "docs" / "quickstart.md").read_text("utf-8")
    least, most = min(shares), max(shares)
    assert f"({least[:-1]} to {most} over five seeds)" in (ROOT / "README.md").read_text("utf-8")
    assert f"at {least} to {most} (five seeds)" in (ROOT / "docs" / "results.md").read_text("utf-8")
