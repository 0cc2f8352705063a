import bench_sandbox
import pytest
from bench_sandbox import Row, goals, make_tests


def found(per_test: float, per_solution: float, reference: float) -> dict[str, list[Row]]:
    return {
        "fork per test": [Row("ours", per_test, 9.0)],
        "per solution": [Row("ours", per_solution, 9.0)],
        "peers": [Row("reference's flags", reference, 9.0)],
    }


@pytest.mark.parametrize(
    ("costs", "met"),
    [
        ((0.050, 0.010, 6.0), [True, True, True]),  # 6 s are 120 times 50 ms
        ((0.101, 0.010, 11.0), [False, True, True]),
        ((0.050, 0.017, 6.0), [True, False, True]),  # 60 a second are 16.7 ms each
        ((0.050, 0.010, 4.9), [True, True, False]),  # 98 times
    ],
)
def test_the_goals_are_those_of_the_issue(costs, met):
    assert [each for _, each in goals(found(*costs))] == met


def test_without_any_confinement_no_goal_is_met():
    empty = {"fork per test": [], "per solution": [], "peers": [Row("reference's flags", 1.0, 1.0)]}
    assert [met for _, met in goals(empty)] == [False]


def test_the_solution_that_is_measured_passes_its_tests(sandbox):
    tests = make_tests()
    assert len(tests) == 20
    for isolation in ("per_test", "per_solution"):
        assert sandbox.run_tests(bench_sandbox.SOLUTION, tests, isolation=isolation).passed


def test_a_row_with_hidden_cpu_time_is_counted_by_the_clock():
    assert str(Row("x", None, 0.5)).split()[-3:] == ["hidden", "500.0", "2.0"]
    assert str(Row("x", 0.1, 0.5)).split()[-3:] == ["100.0", "500.0", "10.0"]
