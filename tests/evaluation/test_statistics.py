"""Every number against one worked by hand, or against the definition spelled out."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from pettingllms_envs.evaluation.statistics import (
    MOST_STUDENTIZED,
    bootstrap,
    difference_interval,
    holm,
    majority,
    mcnemar,
    mean_interval,
    num_to_show,
    paired_interval,
    pass_at,
    shares_bootstrap,
    sign_flips,
    studentized_bootstrap,
    wilson,
)


@pytest.mark.parametrize(
    ("num_successes", "num", "low", "high"),
    [
        # z^2 = 3.841459: the middle is (p + z^2/2n) / (1 + z^2/n), the half width as Wilson has it.
        (5, 10, 0.236593, 0.763407),
        (0, 10, 0.0, 0.277533),  # z^2 / (n + z^2)
        (10, 10, 0.722467, 1.0),
        (17, 30, 0.391973, 0.726225),  # 57% of the 30 problems of an AIME
        (0, 0, 0.0, 1.0),
    ],
)
def test_wilsons_interval_by_hand(num_successes: int, num: int, low: float, high: float) -> None:
    assert wilson(num_successes, num) == pytest.approx((low, high), abs=1e-6)


def test_wilsons_interval_is_where_the_score_test_just_does_not_reject() -> None:
    low, high = wilson(7, 40)
    for share in (low, high):
        assert abs(7 / 40 - share) / math.sqrt(share * (1 - share) / 40) == pytest.approx(1.959964, abs=1e-5)


@pytest.mark.parametrize(("num", "right"), [(5, 0), (5, 2), (5, 5), (6, 3)])
@pytest.mark.parametrize("k", [1, 2, 5])
def test_pass_at_k_is_the_share_of_all_draws_with_a_right_one(num: int, right: int, k: int) -> None:
    samples = [True] * right + [False] * (num - right)
    draws = list(itertools.combinations(samples, k))
    assert pass_at(k, num, right) == pytest.approx(sum(map(any, draws)) / len(draws))


def test_pass_at_more_than_there_are_samples_is_refused() -> None:
    with pytest.raises(ValueError, match=r"pass@5 of 4 samples; expected 1 to 4"):
        pass_at(5, 4, 1)


@pytest.mark.parametrize(
    ("answers", "right", "expected"),
    [
        ("77335", "11000", 0.5),  # 7 and 3 are equally frequent
        ("77733", "00011", 0.0),
        ("77733", "11100", 1.0),
        ("-----", "00000", 0.0),  # nobody answered
        ("-7---", "01000", 1.0),  # silence is no answer, however frequent
    ],
)
def test_the_majoritys_answer_is_right_or_not(answers: str, right: str, expected: float) -> None:
    said = [None if letter == "-" else letter for letter in answers]
    assert majority(said, [letter == "1" for letter in right]) == expected


@pytest.mark.parametrize(
    ("first", "second", "p"),
    [(0, 0, 1.0), (1, 0, 1.0), (5, 5, 1.0), (0, 6, 2 / 64), (1, 8, 20 / 512), (8, 1, 20 / 512)],
)
def test_mcnemars_test_is_the_two_tails_of_a_fair_coin(first: int, second: int, p: float) -> None:
    assert mcnemar(first, second) == pytest.approx(p)


@pytest.mark.parametrize("values", [[1, 2, 3], [0, 0, 0], [1, -1, 2, 0, 3], [2, 2, -1, 1, -3, 5], [1.5, 2.25, -0.5]])
def test_sign_flips_are_the_share_of_all_sign_patterns_as_far_out(values: list[float]) -> None:
    seen = abs(sum(values))
    patterns = list(itertools.product((1, -1), repeat=len(values)))
    sums = [abs(sum(s * v for s, v in zip(signs, values, strict=True))) for signs in patterns]
    assert sign_flips(values) == pytest.approx(sum(each >= seen - 1e-12 for each in sums) / len(sums))


@pytest.mark.parametrize(("scale", "parts"), [(1e5, 11), (1e6, 13)])
def test_sign_flips_of_large_fractions_find_the_observed_signs_themselves(scale: float, parts: int) -> None:
    # Of the 2^8 sums of eight positive values, only those of equal signs are as far out.
    assert sign_flips([scale * (1 + k / parts) for k in range(1, 9)]) == 2 / 256


def test_on_single_samples_sign_flips_are_mcnemars_test() -> None:
    for first, second in [(0, 4), (3, 9), (20, 41)]:
        assert sign_flips([-1] * first + [1] * second + [0] * 50) == pytest.approx(mcnemar(first, second))


def test_sign_flips_of_many_fractions_are_close_to_the_exact_ones() -> None:
    rng = np.random.default_rng(1)
    values = rng.integers(-4, 6, 40)
    exact = sign_flips([int(value) for value in values])
    assert 0.01 < exact < 0.9
    assert sign_flips([value / 7 for value in values]) == pytest.approx(exact, abs=0.01)


def test_holms_correction_by_hand() -> None:
    # Sorted: 0.01 * 3, 0.03 * 2, 0.04 * 1, and none below the one before it.
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([0.02]) == [0.02]


@pytest.mark.parametrize(
    ("table", "low", "high"),
    [
        ((20, 12, 2, 16), 0.0562, 0.3292),  # Newcombe 1998 (paired), table III, method 10
        ((0, 0, 0, 30), -0.1135, 0.1135),  # Wilson's (0, z^2 / (n + z^2)) on either side
    ],
)
def test_newcombes_paired_interval(table: tuple[int, int, int, int], low: float, high: float) -> None:
    assert paired_interval(*table) == pytest.approx((low, high), abs=1e-4)
    both, first, second, neither = table
    assert paired_interval(both, second, first, neither) == pytest.approx((-high, -low), abs=1e-4)


@pytest.mark.parametrize("num", [20, 100])
def test_the_paired_interval_holds_as_often_as_it_says(num: int) -> None:
    rng = np.random.default_rng(0)
    tables = rng.multinomial(num, [0.4, 0.2, 0.1, 0.3], 2000)
    intervals = [paired_interval(*map(int, table)) for table in tables]
    assert 0.935 < sum(low <= 0.1 <= high for low, high in intervals) / len(intervals) < 0.98


def test_the_bootstrap_draws_problems_and_repeats_under_its_seed() -> None:
    values = [0.0, 0.25, 1.0, 0.5] * 25
    low, high = bootstrap(values)
    # The standard error of the mean is 0.37 / 10; a normal interval is 0.4375 +- 0.0727.
    assert low == pytest.approx(0.365, abs=0.01)
    assert high == pytest.approx(0.510, abs=0.01)
    assert bootstrap(values) == (low, high)
    assert bootstrap(values, 0.5)[0] > low


def test_an_interval_is_never_a_point_where_chance_was_not_seen_at_work() -> None:
    assert mean_interval([0.5] * 10) == pytest.approx(wilson(5, 10))
    assert mean_interval([1.0] * 10) == pytest.approx(wilson(10, 10))
    assert difference_interval([0.0] * 10) == pytest.approx((-0.277533, 0.277533), abs=1e-6)
    assert difference_interval([0.5] * 10) == pytest.approx((0.222467, 0.777533), abs=1e-6)
    assert difference_interval([1.0] * 10) == pytest.approx((0.722467, 1.0), abs=1e-6)
    assert difference_interval([]) == (-1.0, 1.0)
    assert mean_interval([]) == (0.0, 1.0)


def test_intervals_of_single_samples_are_wilsons_and_of_several_the_bootstraps() -> None:
    assert mean_interval([1.0, 0.0, 0.0, 1.0]) == wilson(2, 4)
    shares = [float(Fraction(1, 4)), 0.0, 1.0]
    assert mean_interval(shares) == shares_bootstrap(shares)


def test_the_bootstrap_of_shares_has_half_a_success_and_half_a_failure_more() -> None:
    # 18 problems and the two halves: each of 19 draws fails with chance 0.5/19. Two failures or more have the chance
    # 1 - 0.6025 - 0.3094 = 0.088, three or more 0.013; so the lowest 2.5% end at two.
    low, high = shares_bootstrap([1.0] * 18)
    assert (low, high) == (pytest.approx(17 / 19), 1.0)
    # Many problems: hardly another one than without.
    many = [0.0, 0.25, 1.0, 0.5] * 100
    assert shares_bootstrap(many) == pytest.approx(bootstrap(many), abs=0.005)
    assert shares_bootstrap(many) == shares_bootstrap(many)
    assert shares_bootstrap(many, 0.5)[0] > shares_bootstrap(many)[0]


@pytest.mark.parametrize(
    ("num", "a", "b", "k", "j", "least"),
    [
        (20, 1.0, 4.0, 8, 1, 0.94),
        (20, 4.0, 0.5, 8, 1, 0.94),
        (50, 0.2, 2.0, 4, 1, 0.94),
        (50, 4.0, 0.5, 8, 4, 0.94),  # pass@4 is 0.995: the plain bootstrap covers it 60 times in 100
        (50, 0.5, 0.5, 8, 8, 0.93),
    ],
)
def test_intervals_of_samples_hold_as_often_as_they_say(
    num: int, a: float, b: float, k: int, j: int, least: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pettingllms_envs.evaluation.statistics.DRAWS", 2_000)
    rng = np.random.default_rng(0)
    # Problems are solved with chances of a beta distribution; pass@j of them all is 1 - B(a, b + j) / B(a, b).
    truth = 1 - math.prod((b + i) / (a + b + i) for i in range(j))
    held = 0
    for _ in range(400):
        rights = rng.binomial(k, rng.beta(a, b, num))
        low, high = mean_interval([pass_at(j, k, int(right)) for right in rights])
        held += low <= truth <= high
    assert held / 400 >= least


# ---- Means with heavy tails -----------------------------------------------------------------------------------------

DRAWN = {
    "lognormal, sigma 1.5": (lambda rng, n: rng.lognormal(0.0, 1.5, n), math.exp(1.125)),
    "the same, downwards": (lambda rng, n: -rng.lognormal(0.0, 1.5, n), -math.exp(1.125)),
    "lognormal, sigma 1": (lambda rng, n: rng.lognormal(0.0, 1.0, n), math.exp(0.5)),
    "exponential": (lambda rng, n: rng.exponential(1.0, n), 1.0),
    "normal": (lambda rng, n: rng.normal(0.0, 1.0, n), 0.0),
    "uniform": (lambda rng, n: rng.random(n), 0.5),
    "Student, 3 degrees": (lambda rng, n: rng.standard_t(3, n), 0.0),
}


def holds(name: str, num: int, rounds: int, interval=studentized_bootstrap) -> tuple[float, float]:
    """How often an interval of such values holds their true mean, and its width, as multiples of the normal one's."""
    draw, truth = DRAWN[name]
    rng = np.random.default_rng(len(name) + num)
    held, widths = 0, []
    for _ in range(rounds):
        values = draw(rng, num)
        low, high = interval(values)
        held += low <= truth <= high
        widths.append((high - low) / (2 * 1.959964 * np.std(values, ddof=1) / math.sqrt(num)))
    return held / rounds, float(np.median(widths))


def test_an_interval_of_a_mean_with_a_heavy_tail_holds() -> None:
    """Of 30 such values the plain bootstrap held 78 times in 100; 0.90 is three deviations below 0.95 of 200."""
    assert holds("lognormal, sigma 1.5", 30, 200)[0] >= 0.90


@pytest.mark.slow
@pytest.mark.parametrize("num", [30, 200])
@pytest.mark.parametrize("name", DRAWN)
def test_intervals_of_means_hold_of_every_shape(name: str, num: int) -> None:
    share, width = holds(name, num, 600)
    plain, narrow = holds(name, num, 300, bootstrap)
    print(f"{name}, {num}: {share:.1%}, width {width:.2f}; plain bootstrap {plain:.1%}, width {narrow:.2f}")
    assert share >= 0.923  # 0.95 less three deviations of 600 rounds


def test_the_studentized_interval_is_on_the_side_of_the_tail_and_the_same_every_time() -> None:
    values = [1.0] * 9 + [10.0] * 2 + [1.0] * 9
    low, high = studentized_bootstrap(values)
    assert high - 1.9 > 1.9 - low > 0  # the mean is 1.9
    assert (low, high) == studentized_bootstrap(values)
    assert studentized_bootstrap([3.0, 3.0]) == (3.0, 3.0)
    assert studentized_bootstrap([3.0]) == (3.0, 3.0)


def test_of_very_many_values_the_normal_interval_is_nearly_the_studentized_one() -> None:
    values = np.random.default_rng(0).exponential(size=MOST_STUDENTIZED + 1)
    half = 1.959964 * float(values.std(ddof=1)) / math.sqrt(len(values))
    normal = float(values.mean()) - half, float(values.mean()) + half
    assert studentized_bootstrap(values.tolist()) == pytest.approx(normal)
    assert studentized_bootstrap(values[1:].tolist()) == pytest.approx(normal, rel=0.005)


@pytest.mark.parametrize(
    ("difference", "deviation", "options", "num"),
    [
        (0.5, 1.0, {}, 34),  # (1.959964 + 0.841621)^2 / 0.25 = 31.396, and 1.921
        (-0.5, 1.0, {}, 34),
        (0.05, 0.5, {}, 787),  # 784.888 + 1.921
        (0.5, 1.0, {"alpha": 0.01, "power": 0.9}, 63),  # (2.575829 + 1.281552)^2 / 0.25 = 59.518, and 3.317
        (0.0, 1.0, {}, None),
    ],
)
def test_how_many_values_show_a_difference_by_hand(
    difference: float, deviation: float, options: dict[str, float], num: int | None
) -> None:
    assert num_to_show(difference, deviation, **options) == num


@pytest.mark.slow
def test_so_many_problems_show_a_difference_four_times_in_five() -> None:
    """Of 100 problems one run alone solves 15, the other alone 8: a difference of 7 points."""
    deviation = math.sqrt(0.15 + 0.08 - 0.07**2)
    num = num_to_show(0.07, deviation)
    assert num == 363  # (2.801585 * 0.474447 / 0.07)^2 = 360.6, and 1.9
    rng = np.random.default_rng(0)
    drawn = rng.multinomial(num, [0.15, 0.08, 0.77], 4000)
    shown = np.mean([mcnemar(int(first), int(second)) < 0.05 for first, second, _ in drawn])
    assert 0.74 <= shown <= 0.82  # McNemar's exact test is careful
