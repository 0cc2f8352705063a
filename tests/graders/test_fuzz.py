"""Whatever a model writes has a verdict, and whether two answers agree does not depend on their order."""

from hypothesis import given, settings
from hypothesis import strategies as st

from golds import Asked
from pettingllms_envs.graders.math import MathGrader, Verdict
from pettingllms_envs.graders.verdicts import Finding
from pettingllms_envs.replies.boxes import boxed


PIECES = st.sampled_from(
    [
        *"0123456789xyne+-*/^_=,;:.!%$(){}[]|<> \n",
        *(r"\frac", r"\sqrt", r"\pi", r"\text{", r"\boxed{", r"\{", r"\}", r"\cup", r"\pm", r"\in", r"\infty", r"\\"),
        *("{,}", "and", "or", "minutes", r"\%", r"^\circ", r"\left(", r"\right)", r"\dfrac12", "1,000", "\\"),
    ]
)
TEXTS = st.one_of(st.lists(PIECES, max_size=25).map("".join), st.text(max_size=40))


@settings(max_examples=400, deadline=None)
@given(answer=TEXTS, gold=TEXTS, kind=st.sampled_from(["integer", "expression"]), multiple=st.booleans())
def test_every_text_has_a_verdict(answer, gold, kind, multiple):
    grader = MathGrader(Asked(Finding.EQUAL))
    refused = ""
    try:
        grade = grader.grade(answer, gold, kind=kind, multiple=multiple)
    except ValueError as error:
        refused = str(error)
    if refused:
        assert refused.startswith("the gold is ")
        return
    assert grade.verdict in Verdict
    if not boxed(gold) and gold.strip() == answer.strip() and kind == "expression" and grade.verdict != "unparsed":
        assert grade.correct


@settings(max_examples=300, deadline=None)
@given(one=TEXTS, other=TEXTS, multiple=st.booleans(), finding=st.sampled_from(list(Finding)))
def test_whether_two_answers_agree_does_not_depend_on_their_order(one, other, multiple, finding):
    grader = MathGrader(Asked(finding))
    assert grader.same(one, other, multiple=multiple) == grader.same(other, one, multiple=multiple)


@settings(max_examples=300, deadline=None)
@given(reply=st.lists(PIECES, max_size=60).map("".join))
def test_a_box_holds_what_stands_in_the_reply(reply):
    answer = boxed(reply)
    assert answer is None or answer in reply
    assert boxed(reply + r"\boxed{7}") == "7" or reply.endswith("\\")


@settings(max_examples=40, deadline=None)
@given(answer=TEXTS)
def test_math_verify_finds_something_for_every_text(grader, answer):
    assert grader.grade(answer, r"2\sqrt{2}").verdict in Verdict
