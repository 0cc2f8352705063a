"""Forms of answers that are right in several ways, each with answers like it that are wrong."""

import pytest


APPROXIMATIONS = (
    (r"\frac{1}{3}", r"\frac{1}{3} \approx 0.333", True),
    (r"\sqrt{2}", r"\sqrt{2}\approx 1.414", True),
    (r"\sqrt{2}", r"1.414 \approx \sqrt{2}", True),
    (r"x=\frac{1}{3}", r"x=\frac{1}{3}\approx 0.33", True),
    (r"\frac{1}{3}", r"x = \frac13 ≈ 0.33", True),
    (r"12\pi", r"12\pi \approx 37.7", True),
    ("3.14159", r"3.14159 \approx 3.14", True),
    ("0.75", r"x \approx 0.75", True),
    (r"\sqrt{2}\approx 1.41", r"\sqrt{2}", True),
    (r"(\sqrt{2},1)", r"(\sqrt{2} \approx 1.41, 1)", True),
    (r"2\pi", r"2\pi \simeq 6.28", True),
    (r"1+\sqrt{2}, 1-\sqrt{2}", r"1+\sqrt{2} \approx 2.414, 1-\sqrt{2} \approx -0.414", True),
    (r"\frac{1}{3}", r"\frac{2}{3} \approx \frac13", False),
    ("0.33", r"\frac{1}{3} \approx 0.33", False),
    ("3.14", r"3.14159 \approx 3.14", False),
    ("7", r"6.8 \approx 7", False),
    (r"\sqrt{2}", r"\sqrt{3} \approx 1.414", False),
    (r"\sqrt{2}", r"1.5 \approx \sqrt{3}", False),
    (r"x=\frac{1}{3}", r"y=\frac{1}{3}\approx 0.33", False),
    ("7", r"7 \approx x^2", False),
    (r"\pi", r"\frac{22}{7} \approx \pi", False),
    ("x = 1234", r"x \approx 1,234", True),
    ("3.14", r"\approx 3.14", True),
    (r"x=0.333 \approx \frac13", r"\frac13", True),
    (r"x=\frac13", r"x=0.333\approx\frac13", True),
    (r"\frac13", r"\frac13=0.333\approx 0.33", False),
    ("7", r"7 \approx 8", True),
    ("8", r"7 \approx 8", False),
)

EXPONENTIALS = (
    (r"e^{i\pi/3}", r"e^{\frac{\pi i}{3}}", True),
    (r"e^{i\pi/3}", r"\frac{1}{2}+\frac{\sqrt{3}}{2}i", True),
    (r"\frac{1+i\sqrt{3}}{2}", r"e^{i\pi/3}", True),
    (r"2e^{i\pi/4}", r"\sqrt{2}+\sqrt{2}i", True),
    (r"e^{i\pi}", "-1", True),
    ("-1", r"e^{i\pi}", True),
    ("i", r"e^{i\pi/2}", True),
    (r"e^{i\pi/3}", r"\cos\frac{\pi}{3}+i\sin\frac{\pi}{3}", True),
    (r"e^{i\pi/3}", r"\exp(i\pi/3)", True),
    (r"e^{i\pi/3}", r"\exp\left(\frac{i\pi}{3}\right)", True),
    (r"e^{2\pi i/5}", r"e^{\frac{2i\pi}{5}}", True),
    (r"e^{i\theta}", r"\cos\theta+i\sin\theta", True),
    (r"\sqrt{2}e^{-i\pi/4}", "1-i", True),
    (r"e^{i\pi/6},e^{5\pi i/6},-i", r"-i,e^{\frac{5i\pi}{6}},e^{\frac{i\pi}{6}}", True),
    (r"e^{i\pi/3}", r"e^{-i\pi/3}", False),
    (r"e^{i\pi/3}", r"e^{\pi/3}", False),
    (r"e^{i\pi/3}", r"\frac{\sqrt{3}}{2}+\frac{1}{2}i", False),
    (r"2e^{i\pi/4}", r"e^{i\pi/4}", False),
    ("1", r"e^{i\pi}", False),
    ("-i", r"e^{i\pi/2}", False),
    (r"e^{i\pi/3}", r"\cos\frac{\pi}{3}-i\sin\frac{\pi}{3}", False),
    (r"e^{2\pi i/5}", r"e^{\frac{4i\pi}{5}}", False),
    (r"e^{i\theta}", r"\cos\theta-i\sin\theta", False),
)

EQUATIONS = (
    ("x^2+y^2=1", "y^2+x^2=1", True),
    ("x^2+y^2=1", "x^2+y^2-1=0", True),
    ("x^2+y^2=1", "1=x^2+y^2", True),
    ("x^2+y^2=1", "2x^2+2y^2=2", True),
    ("x^2+y^2=1", "x^{2} = 1 - y^{2}", True),
    ("(x-1)^2+(y+2)^2=9", "x^2-2x+y^2+4y-4=0", True),
    (r"\frac{x^2}{4}+\frac{y^2}{9}=1", "9x^2+4y^2=36", True),
    ("2x+4y=3", r"y=-\frac12 x+\frac34", True),
    ("y^2=4x", r"x=\frac{y^2}{4}", True),
    ("xy=1", r"y=\frac{1}{x}", True),
    ("f(x)=x^2+1", "f(x)=1+x^2", True),
    ("f(x)=x^2+1", "f(t)=t^2+1", True),
    ("f(x)=x^2+1", "x^2+1", True),
    ("f(x)+f(y)=xy", "f(x)+f(y)=yx", True),
    ("a+b=c", "c=a+b", True),
    ("x+y=5", "x=5-y", True),
    ("x+y=5", "x+y-5=0", True),
    ("AB^2+AC^2=BC^2", "BC^2=AB^2+AC^2", True),
    ("x^2+y^2=1", "x^2+y^2=2", False),
    ("x^2+y^2=1", "x^2-y^2=1", False),
    ("x^2+y^2=1", "1", False),
    ("x^2+y^2=1", "x^2+y^2", False),
    ("x^2+y^2=1", "x+y=1", False),
    ("x^2+y^2=1", "0=0", False),
    ("x^2+y^2=1", "2x^2+2y^2=1", False),
    ("x+y=5", "x+y=6", False),
    ("x+y=5", "5", False),
    ("(x-1)^2+(y+2)^2=9", "(x+1)^2+(y-2)^2=9", False),
    ("f(x)=x^2+1", "f(x)=x^2-1", False),
    ("f(x)=x^2+1", "g(x)=x^2+1", False),
    ("y^2=4x", "x^2=4y", False),
    ("xy=1", "y=x", False),
    (r"\frac{AB}{CD}=3", "3", True),
    ("f(2)+f(3)=7", "7", True),
    ("f^{-1}(x)=2x", "2x", True),
    (r"\frac{dy}{dx}=2x", "2x", True),
    (r"AB \cdot CD=12", "12", True),
    ("3", r"\frac{AB}{CD}=3", True),
    ("AB^2+AC^2=BC^2", "BC^2", False),
    ("x+y=1", "1", False),
    ("2x=6", "6", False),
    ("a+3z=0", "0", False),
    (r"\frac{AB}{CD}=3", "4", False),
    ("X+Y=1", "1", False),
    ("3", r"\frac{AB}{CD}=4", False),
    ("f(2)+f(3)=7", "f(2)+f(4)=7", False),
)

SEMICOLONS = (
    ("(1,2)", "(1;2)", True),
    ("(1;2)", "(1,2)", True),
    ("(1,2,3)", "(1; 2; 3)", True),
    ("[0,1]", "[0;1]", True),
    (r"\{1,2,3\}", r"\{3;1;2\}", True),
    (r"(\frac12,\sqrt{2})", r"\left(\frac{1}{2};\sqrt2\right)", True),
    ("(1,2),(3,4)", "(1;2),(3;4)", True),
    ("(1,2),(3,4)", "(3;4);(1;2)", True),
    (r"(-\infty,2]", r"(-\infty;2]", True),
    ("(1,2)", "(2;1)", False),
    ("(1,2)", "(1;2;3)", False),
    ("[0,1]", "(0;1)", False),
    ("(1,2)", "[1;2]", False),
    ("(1,2,3)", "(1;2,3)", False),
    ("(0.5,1)", "(0,5;1)", False),
    (r"\{1,2\}", r"\{1;3\}", False),
    ("(1,23)", "(1,2;3)", False),
    ("(1,2)", "(1,2;3)", False),
    ("23", "2;3", False),
)

BACKSLASHES = (
    ("5", "5\\", True),
    (r"\frac{1}{2}", "\\frac{1}{2}\\", True),
    ("5", r"5 \ ", True),
    ("x=7", "x=7\\", True),
    ("5\\", "5", True),
    ("(1,2)", "(1,2)\\", True),
    ("5", "6\\", False),
    (r"\frac{1}{2}", "\\frac{1}{3}\\", False),
    ("5", "\\", False),
    ("5", r"5\6", False),
)

REALS = (
    (r"(-\infty,\infty)", r"\mathbb{R}", True),
    (r"\mathbb{R}", r"(-\infty,+\infty)", True),
    (r"\mathbb{R}", r"x\in\mathbb R", True),
    (r"(-\infty,\infty)", "ℝ", True),
    (r"(-\infty,\infty)", r"\text{all real numbers}", True),
    (r"\mathbb{R}", r"-\infty<x<\infty", True),
    (r"\mathbb{R}", r"(-\infty;\infty)", True),
    (r"x\in(-\infty,\infty)", r"\mathbb{R}", True),
    (r"\mathbb{R}", r"(0,\infty)", False),
    (r"(-\infty,\infty)", r"\mathbb{Q}", False),
    (r"(-\infty,\infty)", r"\mathbb{Z}", False),
    (r"\mathbb{R}", r"(\infty,-\infty)", False),
    (r"\mathbb{R}", r"[-\infty,\infty]", False),
    (r"(-\infty,\infty)", "R", False),
    (r"\mathbb{R}", r"(-\infty,0)\cup(0,\infty)", False),
    (r"(-\infty,\infty)", r"\mathbb{R}\setminus\{0\}", False),
    (r"\mathbb{R}^2", r"(-\infty,\infty)", False),
    (r"\mathbb{R}", r"\infty", False),
    (r"(0,\infty)", r"\mathbb{R}", False),
)

UNITS = (
    (r"3 \text{ kg}", r"3 \text{ pounds}", False),
    (r"5 \text{ dollars}", r"5 \text{ euros}", False),
    (r"3:45 \text{ a.m.}", r"3:45 \text{ p.m.}", False),
    (r"3:45 \text{ a.m.}", r"3:45 \text{ am}", True),
    (r"5 \text{ cm}", "5 centimeters", True),
    (r"5 \text{ hours}", "5 hr", True),
    (r"5 \text{ boxes}", r"5 \text{ box}", True),
    (r"5 \text{ candies}", r"5 \text{ candy}", True),
    (r"45 \text{ degrees}", r"45^\circ", True),
    (r"60 \text{ mph}", "60 miles per hour", True),
    (r"30 \text{ cm}^2", r"30\,\mathrm{cm^2}", True),
    (r"30\,\mathrm{cm^2}", r"30 \text{ square centimeters}", True),
    (r"30 \text{ cm}^2", r"30\,\mathrm{cm^3}", False),
    (r"9.8 \text{ m/s}^2", r"9.8 \text{ meters per second squared}", True),
    ("9", r"9 \text{ ways}", True),
    ("3", "3 times", True),
)

COUNTS = (
    *(("5", f"5 {word}", False) for word in ("million", "dozen", "halves", "squared", "times seven", "half-hours")),
    ("5", r"5\text{ million}", False),
    ("3 million", "3 billion", False),
    ("3 million", "3", False),
    ("3 million", r"3 \text{ million}", True),
)

RELATIONS = (
    ("[-2,2]", r"x^2 \le 4", False),
    ("[-2,2]", r"|x| \le 2", False),
    ("[-2,2]", r"-2 \le x \le 2", True),
    (r"(3,\infty)", "x>3", True),
    (r"(3,\infty)", "3<x", True),
    (r"(3,\infty)", "2x>6", False),
    (r"(-\infty,-5]\cup(-2,\infty)", r"\frac{x-1}{x+2} \le 2", False),
    (r"\emptyset", "x^2<0", False),
    (r"(-\infty,2)\cup(3,\infty)", r"x<2 \text{ or } x>3", True),
    (r"(-\infty,2)\cup(3,\infty)", "x > 3 or x < 2", True),
    (r"x<2 \text{ or } x>3", r"(-\infty,2)\cup(3,\infty)", True),
    (r"(-\infty,2)\cup(3,\infty)", r"x \le 2 \text{ or } x>3", False),
    (r"(-\infty,2)\cup(3,\infty)", r"x<2 \text{ or } y>3", False),
    (r"(-\infty,2)\cup(3,\infty)", r"x<2", False),
    (r"(-2,2)\cup(3,\infty)", r"x^2<4 \text{ or } x>3", False),
)

TABLES = {
    "the exact side of an approximation counts": APPROXIMATIONS,
    "powers of e with imaginary exponents are numbers": EXPONENTIALS,
    "an equation has many forms, and its right side is an answer only to a quantity on its left": EQUATIONS,
    "a semicolon separates within brackets as a comma does": SEMICOLONS,
    "a backslash at the end is nothing": BACKSLASHES,
    "the reals are an interval": REALS,
    "another unit is another answer": UNITS,
    "a word that changes the number is no unit": COUNTS,
    "a solved relation is an interval, and one that is not solved is no answer": RELATIONS,
}


def test_each_table_has_right_answers_and_wrong_ones():
    assert sum(map(len, TABLES.values())) >= 60
    assert all({correct for _, _, correct in table} == {True, False} for table in TABLES.values())


def cases(rule: str, table: tuple[tuple[str, str, bool], ...]) -> list[object]:
    """Those of the two tables that math-verify has to be asked about are many seconds of work."""
    marks = [pytest.mark.slow] if table in (EXPONENTIALS, EQUATIONS) else []
    return [pytest.param(*case, id=f"{rule}: {case[1]} for {case[0]}", marks=marks) for case in table]


@pytest.mark.parametrize(
    ("gold", "answer", "correct"), [case for rule, table in TABLES.items() for case in cases(rule, table)]
)
def test_a_form_is_right_or_wrong(grader, gold, answer, correct):
    assert grader.grade(answer, gold).correct is correct
