import time

import pytest

from pettingllms_envs.replies.boxes import boxed


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        (r"so \boxed{7}.", "7"),
        (r"\boxed{ 7 }", "7"),
        (r"\boxed {7}", "7"),
        (r"\fbox{7}", "7"),
        (r"\boxed 7", "7"),
        (r"$\boxed 42$.", "42"),
        (r"\boxed{}", ""),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{8} no, \boxed{7}", "7"),
        (r"\boxed{\boxed{7}}", "7"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\left\{ x : x > 1 \right\}}", r"\left\{ x : x > 1 \right\}"),
        (r"\boxed{1 \\ {2}}", r"1 \\ {2}"),
        ("\\boxed{\n7\n}", "7"),
        (r"} } \boxed{7} {", "7"),
        (r"\boxed{7} and then \boxed{8", "7"),  # cut off: what was said before stands
        (r"\boxed{7 and then \boxed{8}", "8"),
        (r"\boxed{7", None),
        (r"\boxed", None),
        (r"\boxed \frac{1}{2}", None),
        (r"\boxedtimes{7}", None),
        ("7", None),
        ("", None),
    ],
)
def test_the_answer_is_what_the_last_closed_box_holds(reply, answer):
    assert boxed(reply) == answer


@pytest.mark.parametrize(
    "reply",
    [
        "\\boxed{" * 150_000,
        "\\boxed{" + "{" * 1_000_000,
        "\\boxed{" + "{}" * 500_000,
        "\\boxed " * 150_000,
        "\\boxed{" * 70_000 + "}" * 500_000,
        "\\" * 1_000_001 + "boxed{7}",
        "\\boxed{" + "\\" * 1_000_000 + "}",
    ],
    ids=["open", "braces", "pairs", "bare", "nested", "backslashes", "inside"],
)
def test_a_megabyte_is_read_in_linear_time(reply):
    began = time.process_time()
    boxed(reply)
    assert time.process_time() - began < 10  # 0.05 to 0.5 s where measured; a look at the rest for each box: an hour
