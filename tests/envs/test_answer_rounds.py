"""Workflows `ensemble`, `debate` and `self_verification`: who reads whom, what counts, and what each reply pays."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pettingllms_envs.aec import TextEnv
from pettingllms_envs.core import TEAM
from pettingllms_envs.datasets.problems import MathProblem
from posed import SUM, parts, posed


RIGHT, WRONG, OTHER = "So \\boxed{5}.", "\\boxed{6}", "\\boxed{7}"
JUNK = "I do not know."
READABLE = {"correct": 0.0}
UNREADABLE = {"format": -0.2}
GAINED, LOST = {"correct": 1.0}, {"correct": -1.0}
NOTHING = {"progress": 0.0}
SOLVED = {"progress": 1.0, "success": 1.0}


def played(env: TextEnv, replies: list[str]) -> list[dict[str, dict[str, float]]]:
    """The parts that each reply pays."""
    paid = []
    for reply in replies:
        assert env.standing() == ""
        env.step(reply)
        paid.append(parts(env))
    return paid


@pytest.mark.parametrize(
    ("replies", "aggregated", "standing"),
    [
        ([RIGHT, WRONG, RIGHT], {TEAM: SOLVED, "aggregator": GAINED}, "out of turns"),
        ([WRONG, WRONG, RIGHT], {TEAM: SOLVED, "aggregator": GAINED}, "out of turns"),
        ([RIGHT, RIGHT, WRONG], {TEAM: NOTHING, "aggregator": READABLE}, "out of turns"),
        ([RIGHT, RIGHT, JUNK], {TEAM: NOTHING, "aggregator": UNREADABLE}, "out of turns"),
        ([RIGHT, "\\boxed{5.0}", RIGHT], {TEAM: SOLVED, "aggregator": GAINED}, "solved"),
        ([WRONG, WRONG, WRONG], {TEAM: NOTHING, "aggregator": READABLE}, "settled"),
    ],
)
def test_solvers_are_paid_for_their_own_answers_and_the_aggregators_answer_is_the_teams(
    replies: list[str], aggregated: dict[str, dict[str, float]], standing: str
) -> None:
    env = posed(workflow="ensemble", num_solvers=2)
    paid = played(env, replies)
    of_solvers = [GAINED if "5" in reply else READABLE for reply in replies[:2]]
    assert paid == [{"solver_0": of_solvers[0]}, {"solver_1": of_solvers[1]}, aggregated]
    assert env.standing() == standing
    assert env.infos["aggregator_0"]["outcome"]["success"] is ("success" in aggregated[TEAM])


def test_the_aggregator_reads_all_solutions_quoted_and_a_solver_none_of_its_turn() -> None:
    env = posed(workflow="ensemble", num_solvers=2, num_turns=2)
    env.step("Turn 2 of 2.\nI add.\n\\boxed{6}")
    assert env.observe("solver_1")["text"] == "Turn 1 of 2.\nThe problem:\nWhat is $2 + 3$?"
    env.step(JUNK)
    assert env.observe("aggregator_0")["text"] == (
        "Turn 1 of 2.\nThe problem:\nWhat is $2 + 3$?\n"
        "The solver_0 wrote:\n> Turn 2 of 2.\n> I add.\n> \\boxed{6}\nIts answer: \\boxed{6}.\n"
        "The solver_1 wrote:\n> I do not know.\nIt gave no answer."
    )
    env.step(RIGHT)
    env.step(WRONG)
    assert env.observe("solver_1")["text"].splitlines()[3:] == [
        "The answer so far: \\boxed{5}",
        "Your last reply was unreadable: it has no \\boxed{} that is closed.",
        "The solver_0 wrote:",
        *("> Turn 2 of 2.", "> I add.", "> \\boxed{6}", "Its answer: \\boxed{6}."),
        *("The solver_1 wrote:", "> I do not know.", "It gave no answer."),
        *("The aggregator wrote:", "> So \\boxed{5}.", "Its answer: \\boxed{5}."),
    ]


def test_thinking_is_not_passed_on_and_a_long_reply_is_cut_but_for_its_answer() -> None:
    env = posed(workflow="ensemble", num_solvers=1, capacity=10)
    env.step("<think>\nIt is 7.\n</think>\nIt is five, clearly. \\boxed{5}")
    assert env.observe("aggregator_0")["text"].splitlines()[3:] == [
        "The solver wrote:",
        "> It is five",
        "Its answer: \\boxed{5}.",
    ]


def test_debaters_answer_at_once_and_read_all_answers_of_the_turn_before() -> None:
    env = posed(workflow="debate", num_debaters=3)
    first = env.observe("debater_0")["text"]
    env.step(WRONG)
    assert env.observe("debater_1")["text"] == first
    env.step(RIGHT)
    env.step(RIGHT)
    lines = env.observe("debater_0")["text"].splitlines()
    assert lines[0] == "Turn 2 of 3."
    assert [line for line in lines if line.startswith("Its answer")] == [
        *("Its answer: \\boxed{6}.", "Its answer: \\boxed{5}.", "Its answer: \\boxed{5}.")
    ]
    env.step(RIGHT)
    assert env.observe("debater_1")["text"].splitlines()[1:] == lines[1:]


@pytest.mark.parametrize(
    ("answers", "teams"),
    [
        ([WRONG, RIGHT, RIGHT], "5"),
        ([WRONG, RIGHT, OTHER], "6"),  # one vote each: the first
        ([WRONG, WRONG, RIGHT], "6"),
        ([JUNK, JUNK, RIGHT], "5"),
        ([JUNK, "\\boxed{10/2}", "\\boxed{5}"], "10/2"),
        ([JUNK, JUNK, JUNK], None),
    ],
)
def test_the_answer_of_most_debaters_is_the_teams(answers: list[str], teams: str | None) -> None:
    env = posed(workflow="debate", num_debaters=3, num_turns=1)
    played(env, answers)
    assert env.snapshot().play.task.answer == teams


def test_a_debate_pays_changes_and_ends_when_all_agree() -> None:
    env = posed(workflow="debate", num_turns=3)
    assert played(env, [RIGHT, WRONG]) == [{"debater_0": GAINED}, {"debater_1": READABLE, TEAM: {"progress": 1.0}}]
    assert played(env, [WRONG, WRONG]) == [{"debater_0": LOST}, {"debater_1": READABLE, TEAM: {"progress": -1.0}}]
    assert env.standing() == "settled"


def test_a_debate_may_play_all_its_turns() -> None:
    env = posed(workflow="debate", num_turns=2, until_agreed=False)
    played(env, [RIGHT, RIGHT])
    assert played(env, [RIGHT, RIGHT])[-1] == {"debater_1": READABLE, TEAM: {"progress": 0.0, "success": 1.0}}
    assert env.standing() == "out of turns"


@pytest.mark.parametrize(
    ("replies", "paid", "standing"),
    [
        ([RIGHT, RIGHT], [(GAINED, {"progress": 1.0}), (READABLE, {"progress": 0.0, "success": 1.0})], "solved"),
        ([WRONG, RIGHT], [(READABLE, NOTHING), (GAINED, SOLVED)], "out of turns"),
        ([RIGHT, WRONG], [(GAINED, {"progress": 1.0}), (LOST, {"progress": -1.0})], "out of turns"),
        ([WRONG, WRONG], [(READABLE, NOTHING), (READABLE, NOTHING)], "settled"),
        ([JUNK, JUNK], [(UNREADABLE, NOTHING), (UNREADABLE, NOTHING)], "out of turns"),
    ],
)
def test_a_correction_pays_and_a_confirmation_ends_the_episode(
    replies: list[str], paid: list[tuple[dict[str, float], dict[str, float]]], standing: str
) -> None:
    env = posed(workflow="self_verification", num_turns=2)
    assert played(env, replies) == [{"solver": local, TEAM: team} for local, team in paid]
    assert env.standing() == standing


def test_a_solver_reads_its_last_solution_and_is_to_verify_it() -> None:
    env = posed(workflow="self_verification")
    env.step(WRONG)
    seen = env.observe("solver_0")
    assert "verify it step by step" in seen["system"]
    assert seen["text"] == (
        "Turn 2 of 3.\nThe problem:\nWhat is $2 + 3$?\nThe answer so far: \\boxed{6}\n"
        "The solver wrote:\n> \\boxed{6}\nIts answer: \\boxed{6}."
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"workflow": "ensemble", "num_solvers": 0}, "num_solvers is 0; expected a whole number from 1 to 16"),
        ({"workflow": "debate", "num_debaters": 1}, "num_debaters is 1; expected a whole number from 2 to 16"),
        ({"workflow": "debate", "capacity": 0}, "the capacity of a channel is 0"),
        ({"workflow": "debate", "until_agreed": "no"}, "until_agreed is 'no'; expected one of True, False"),
    ],
)
def test_settings_are_validated(given: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        posed(**given)


@settings(max_examples=60, deadline=None, database=None, derandomize=True)
@given(
    st.sampled_from(["ensemble", "debate", "self_verification"]),
    st.lists(st.sampled_from([RIGHT, WRONG, OTHER, JUNK]), max_size=6),
)
def test_what_is_shown_and_when_it_ends_do_not_depend_on_the_golden_answer(workflow: str, replies: list[str]) -> None:
    courses = []
    for answer in ("5", "6"):
        problem = MathProblem(source="by hand", id="sum", statement=SUM.statement, answer=answer)
        env = posed(problem, workflow=workflow)
        course = [[env.observe(agent) for agent in env.agents]]
        for reply in replies:
            if env.standing():
                break
            env.step(reply)
            course += [[env.observe(agent) for agent in env.possible_agents], env.terminations, env.truncations]
        courses.append(course)
    assert courses[0] == courses[1]
