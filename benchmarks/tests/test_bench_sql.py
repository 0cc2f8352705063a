"""The benchmark of queries runs, and says what it measured."""

from __future__ import annotations

import bench_sql
import pytest


def test_it_prints_both_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench_sql.main(["--rounds", "2", "--episodes", "2"]) == 0
    printed = capsys.readouterr().out
    assert "grade / empty" in printed
    assert "silos, 2 more" in printed
