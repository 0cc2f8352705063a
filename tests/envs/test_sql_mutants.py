"""Wrong queries: none passes the hidden databases, where one database lets a fifth of them pass."""

from __future__ import annotations

import random

import pytest

from pettingllms_envs.environments.sql.families import FAMILIES, databases, schema_of, suite_of
from pettingllms_envs.environments.sql.questions import Question, every
from pettingllms_envs.graders.inside.queries import FIRST_STEPS, open_database, run, same_rows
from pettingllms_envs.graders.queries import golden_of, grade


NUM_OTHER = 300


def one_of_each_form(questions: list[Question]) -> list[Question]:
    """A question of each form, drawn from those that differ in their values."""
    by_form: dict[str, list[Question]] = {}
    for each in questions:
        by_form.setdefault(each.text.partition("'")[0][:60], []).append(each)
    return [random.Random("forms").choice(each) for each in by_form.values()]


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_no_mutant_passes_that_is_wrong_on_300_other_databases(family, record_property):
    mutants = pytest.importorskip("sql_mutants").mutants
    suite = suite_of(family)
    others = [open_database(schema_of(family), tables)[0] for tables in databases(family, "other", NUM_OTHER)]
    wrong, accepted, on_one = 0, [], 0
    for question in one_of_each_form(every(family)):
        due = [same_rows(run(each, question.query, FIRST_STEPS), ordered=question.ordered) for each in others]
        for mutant in mutants(question.query):
            rans = [run(each, mutant, FIRST_STEPS) for each in others]
            is_wrong = [same_rows(ran, ordered=question.ordered) for ran in rans] != due
            if not is_wrong or any(ran.reason for ran in rans):  # equal as far as is known, or no query
                continue
            graded = grade(suite, question.query, question.ordered, mutant)
            wrong += 1
            on_one += graded.one
            accepted += [mutant] if graded.right else []
    print(f"{family.name}: {wrong} wrong mutants, {len(accepted)} accepted, {on_one} by one database as a set")
    assert wrong > 100
    assert on_one > wrong / 10
    assert accepted == []


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_question_that_a_seed_can_draw_ships_and_its_golden_query_is_right(family):
    suite = suite_of(family)
    for question in every(family):
        assert golden_of(suite, question.query, question.ordered).why == "", question.query
        assert grade(suite, question.query, question.ordered, question.query).right, question.query
