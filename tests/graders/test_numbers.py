from fractions import Fraction

import pytest

from pettingllms_envs.graders import numbers, spelling, units
from pettingllms_envs.graders.estimates import differ


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", Fraction(7)),
        ("007", Fraction(7)),
        ("-7", Fraction(-7)),
        ("--7", Fraction(7)),
        ("+.5", Fraction(1, 2)),
        ("5.", Fraction(5)),
        (r"\frac{3}{6}", Fraction(1, 2)),
        (r"-\frac{-1}{2}", Fraction(1, 2)),
        (r"\frac{1}{-2}", Fraction(-1, 2)),
        ("3/6", Fraction(1, 2)),
        (r"1\frac{1}{10}", Fraction(11, 10)),
        (r"1.5\times10^3", Fraction(1500)),
        (r"10^{-2}", Fraction(1, 100)),
        ("2^{10}", Fraction(1024)),
        ("{7}", Fraction(7)),
        ("1e+20", Fraction(10**20)),
        ("-2.5E-3", Fraction(-1, 400)),
        (r"0.\overline{3}", Fraction(1, 3)),
        (r"0.\bar3", Fraction(1, 3)),
        (r"1.2\overline{45}", Fraction(137, 110)),
        (r"-0.\overline{142857}", Fraction(-1, 7)),
        (r"0.\overline{9}", Fraction(1)),
    ],
)
def test_a_number_is_read_exactly(text, value):
    number = numbers.read(text)
    assert number is not None
    assert number.value == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "1+1",
        "7!",
        r"\frac{1}{0}",
        r"2\frac{3}{2}",
        "0^0",
        "2^{99999}",
        "10^{99999}",
        "1" * 2001,
        "²",
        "1e99999",
        r"0.\overline{}",
        r"3\overline{3}",
        "1_000",
    ],
)
def test_what_takes_more_than_reading_is_no_number_here(text):
    assert numbers.read(text) is None


@pytest.mark.parametrize(
    ("one", "other", "tolerance", "same"),
    [
        (r"\frac{1}{3}", "0.333333", None, True),
        (r"\frac{1}{3}", "0.33333", None, False),
        (r"\frac{1}{6}", "0.166667", None, True),
        ("0.0000001", "0", None, False),  # math-verify rounds both to 0.000000
        (r"\frac{1}{3000}", "0.000333", None, False),  # three digits
        ("333333", r"\frac{1000000}{3}", None, False),  # neither is written with decimals
        ("4.2", "4.3", 0.1, True),
        ("4.2", "4.301", 0.1, True),  # 1.01 times the tolerance, as OlympiadBench's judge has it
        ("4.2", "4.302", 0.1, False),
        ("5.0", "5", 0.0, True),
    ],
)
def test_how_far_a_decimal_number_may_be_off(one, other, tolerance, same):
    first, second = numbers.read(one), numbers.read(other)
    assert first is not None
    assert second is not None
    assert numbers.equal(first, second, tolerance) is same
    assert numbers.equal(second, first, tolerance) is same


@pytest.mark.parametrize(
    ("text", "large"),
    [
        ("9^{9^{9^9}}", True),
        (r"\frac{5^{(5^{(5^{(5^5)})}-4)}-5}{16}", True),
        ("(10^9)!!", True),
        ("x^{9^{9^9}}", True),
        ("999999999!", True),
        (r"\binom{100000000}{3}", True),
        ("2^{1000000}", True),
        ("3^{2025}", False),
        (r"\frac{100!}{2^{50}}", False),
        (r"\binom{2026}{1013}", False),
        (r"e^{x^{2}}", False),
        ("x^2+y^2+z^2", False),
        ("e^{x^2+y^2}", False),
        ("2^{2^{n^2}}", False),
    ],
)
def test_towers_and_factorials_are_seen_before_they_are_computed(text, large):
    assert numbers.too_large(text) is large


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (r"\dfrac12", r"\frac{1}{2}"),
        (r"\frac 1 2", r"\tfrac{1}{2}"),
        (r"\left( x + 1 \right)", "(x+1)"),
        ("x^{2}", "x^2"),
        ("x_{ 1 }", "x_1"),
        (r"\sqrt2", r"\sqrt{2}"),
        (r"\sqrt [3] 2", r"\sqrt[3]{2}"),
        (r"\pi r", r"\pi  r"),
        (r"a \leqslant b", "a<=b"),
        (r"\(7\)", "$7$"),
        (r"\boxed{7}", "{7}"),
        ("90°", r"90^{\circ}"),
        (r"1 \\ 2", r"1\\2"),
        (r"\mathbb R", r"\mathbb{R}"),
        (r"7.", "7"),
    ],
)
def test_two_ways_to_write_the_same_have_one_spelling(one, other):
    assert spelling.tight(spelling.plain(one)) == spelling.tight(spelling.plain(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("7!", "7"),
        (r"\pi r", r"\pi"),
        ("x_12", "x_{12}"),
        ("2^10", "2^{10}"),
        (r"\frac{12}3", r"\frac1{23}"),
        (".5", "5"),
    ],
)
def test_what_tex_tells_apart_has_two_spellings(one, other):
    assert spelling.tight(spelling.plain(one)) != spelling.tight(spelling.plain(other))


@pytest.mark.parametrize(
    ("text", "bare", "unit"),
    [
        (r"45 \text{ minutes}", "45", "min"),
        ("45 min", "45", "min"),
        (r"166 \text{cm}^2", "166", "cm^2"),
        ("166 square centimeters", "166", "cm^2"),
        (r"\frac{600}{7}\text{ km/h}", r"\frac{600}{7}", "km/h"),
        ("60 kilometers per hour", "60", "km/h"),
        ("7 apples", "7", "apples"),
        ("2 n", "2 n", ""),
        ("6m", "6m", ""),
        ("n minutes", "n minutes", ""),
        (r"7\text{ or so}", r"7\text{ or so}", ""),
    ],
)
def test_a_unit_is_taken_off_a_number(text, bare, unit):
    assert units.without_unit(text) == (bare, unit)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (r"2\sqrt{3}", r"4\sqrt{3}"),
        (r"\frac{\pi}{6}", r"\frac{\pi}{7}"),
        ("x^2-2x+2", "x^2-2x+3"),
        (r"\frac{n(n+1)}{2}", r"\frac{n(n-1)}{2}"),
        ("2^n-1", "2^n"),
        ("a", "2a"),
        ("-x^2", "(-x)^2"),
    ],
)
def test_values_at_two_points_tell_wrong_answers_from_right_ones(one, other):
    assert differ(one, other)
    assert differ(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (r"\sqrt{8}", r"2\sqrt{2}"),
        ("(x+1)^2", "x^2+2x+1"),
        (r"\frac{1}{\sqrt{3}}", r"\frac{\sqrt{3}}{3}"),
        ("(10^{9}+1)-10^{9}", "1"),  # too few digits are left to tell
        ("10^{20}+1-10^{20}", "1"),
        ("x-x", "0"),
        (r"1\frac{1}{2}x", r"\frac{3}{2}x"),  # a mixed number, or a product
        ("1/2x", r"\frac{x}{2}"),  # or 1/(2x)
        ("C", "c"),  # the letter of a choice
        ("sqrt(3)", r"\sqrt{3}"),
        ("e^{i}", "7"),
        (r"\log 7", "7"),
        ("7!", "7"),
        ("", "7"),
        (r"\frac{1}{0}", "7"),
        ("2^{" * 50 + "}" * 50, "7"),
        ("3.0001", "3"),
        ("\N{SUPERSCRIPT ONE}0", "7"),
        ("\N{ARABIC-INDIC DIGIT THREE}0", "7"),
        (".", "7"),
    ],
)
def test_values_say_nothing_where_they_are_close_or_cannot_be_read(one, other):
    assert not differ(one, other)


def test_a_tolerance_is_kept_by_the_values_at_points():
    assert differ(r"\sqrt{2}", r"\sqrt{3}")
    assert not differ(r"\sqrt{2}", r"\sqrt{3}", 0.5)
