"""Workflow `coder_tester`: who sees what, what each is paid (worked by hand on a problem of four tests), the end."""

import pickle
from dataclasses import replace

import pytest

from code_problems import DOUBLED, RIGHT, SIGNED, SQUARE, UNIQUE, block, cases, playing
from pettingllms_envs.aec import TextEnv
from pettingllms_envs.datasets.code_problems import CodeProblem
from pettingllms_envs.environments.coding.coder_tester import CoderTester


TESTER_FIRST = ("tester", "coder")


def parts(env: TextEnv) -> dict[str, dict[str, float]]:
    """The last step's parts by scope, those of 0 as well."""
    return {scope: dict(named) for scope, named in env.snapshot().parts.items()}


def test_an_episode_of_three_turns_is_paid_as_worked_by_hand() -> None:
    env = playing(CoderTester, SQUARE)

    env.step(block(SIGNED))  # 3 of 4 tests
    assert parts(env) == {"team": {"progress": 0.75}, "coder": {"tests": 0.75}}
    assert env.rewards == {"coder_0": 1.5, "tester_0": 0.75}
    env.step(cases(("2", "4"), ("-1", "1")))  # both valid; -1 tells both wrong programs
    assert parts(env) == {"tester": {"valid": 1.0, "telling": 1.0}}
    assert env.standing() == ""

    env.step(block(RIGHT))
    assert parts(env) == {"team": {"progress": 0.25}, "coder": {"tests": 0.25}}
    env.step(cases(("2", "4"), ("5", "10")))  # one of two valid, and 2 tells neither -n * n from n * n nor 2 * n
    assert parts(env) == {"tester": {"valid": -0.5, "telling": -1.0}}
    assert env.standing() == ""

    env.step("I have no idea.")
    assert parts(env) == {"coder": {"format": -0.2}}
    env.step(cases(("-2", "4")))  # valid, tells both, and the program passes: they agree
    assert parts(env) == {"tester": {"valid": 0.5, "telling": 1.0}, "team": {"success": 1.0}}
    assert env.standing() == "solved"
    assert env.terminations == {"coder_0": True, "tester_0": True}
    assert env.infos["coder_0"]["outcome"] == {
        "success": True,
        "pass_rate": 1.0,
        "num_tests": 4,
        "num_passed": 4,
        "num_hidden": 3,
        "num_cases": 1,
        "num_judged": 1,
        "num_valid": 1,
        "num_wrong": 2,
        "num_told": 2,
    }


def test_agreeing_on_a_wrong_program_ends_the_episode_without_success() -> None:
    env = playing(CoderTester, SQUARE)
    env.step(block(SIGNED))
    env.step(cases(("2", "4")))
    assert env.standing() == "settled"
    assert (env.terminations["coder_0"], env.truncations["coder_0"]) == (True, False)
    assert env.infos["tester_0"]["outcome"]["success"] is False
    assert "success" not in env.infos["tester_0"]["rewards"]


def test_a_right_program_ends_nothing_until_the_cases_agree_and_pays_success_once_when_the_turns_end() -> None:
    env = playing(CoderTester, SQUARE, num_turns=2)
    paid = []
    for reply in (block(RIGHT), cases(("2", "5")), block(RIGHT), cases(("2", "5"))):
        assert env.standing() == ""
        env.step(reply)
        paid.append(parts(env).get("team", {}))
    assert paid == [{"progress": 1.0}, {}, {"progress": 0.0}, {"success": 1.0}]
    assert env.standing() == "out of turns"
    assert (env.terminations["coder_0"], env.truncations["coder_0"]) == (False, True)


def test_the_same_program_and_cases_again_and_again_are_worth_no_more_than_once() -> None:
    for turns in (1, 2, 5):
        env = playing(CoderTester, SQUARE, num_turns=turns)
        total = {"coder_0": 0.0, "tester_0": 0.0}
        while not env.standing():
            env.step(block(SIGNED) if env.agent_selection == "coder_0" else cases(("-1", "1")))
            total = {agent: total[agent] + reward for agent, reward in env.rewards.items()}
        assert total == {"coder_0": 1.5, "tester_0": 0.75 + 2.0}


def test_the_tester_sees_the_program_and_the_coder_next_turn_what_came_of_the_cases() -> None:
    env = playing(CoderTester, SQUARE)
    before = env.observe("tester_0")["text"]
    assert before == f"Turn 1 of 4.\n{SQUARE.statement.strip()}"
    env.step(f"So:\n{block(SIGNED)}")
    assert env.observe("tester_0")["text"] == f"{before}\n\nThe program so far:\n{block(SIGNED)}"
    env.step(cases(("2", "4"), ("-1", "1"), ("x", "?")))
    assert env.observe("coder_0")["text"] == (
        f"Turn 2 of 4.\n{SQUARE.statement.strip()}\n\nThe program so far:\n{block(SIGNED)}\n"
        "Last turn's program was run on the tester's test cases.\n"
        "Case 1. Input:\n```\n2\n```\nOutput:\n```\n4\n```\nThe program passed.\n"
        "Case 2. Input:\n```\n-1\n```\nOutput:\n```\n1\n```\nThe program did not pass: wrong. It gave:\n```\n-1\n```\n"
        "Case 3. Input:\n```\nx\n```\nOutput:\n```\n?\n```\nThe program did not pass: it failed. Its last words:\n"
        "```\nValueError: invalid literal for int() with base 10: 'x'\n```"
    )
    assert env.observe("coder_0")["text"] == env.observe("tester_0")["text"]


def test_the_tester_may_go_first_and_the_coder_then_sees_its_cases() -> None:
    env = playing(CoderTester, SQUARE, order=TESTER_FIRST)
    assert env.possible_agents == ["tester_0", "coder_0"]
    assert env.agent_selection == "tester_0"
    env.step(cases(("-2", "4")))
    assert parts(env) == {"tester": {"valid": 1.0, "telling": 1.0}}
    assert env.observe("coder_0")["text"].endswith(
        "The tester's test cases of this turn:\nInput:\n```\n-2\n```\nOutput:\n```\n4\n```"
    )
    env.step(block(RIGHT))
    assert parts(env) == {"team": {"progress": 1.0, "success": 1.0}, "coder": {"tests": 1.0}}
    assert env.standing() == "solved"


def test_unreadable_replies_are_told_once_and_leave_program_and_cases_as_they_were() -> None:
    env = playing(CoderTester, SQUARE)
    env.step(block(DOUBLED))
    env.step(cases(("7", "49")))
    env.step("```python\nprint(1)\n")
    assert "The coder's reply was unreadable: its block of Python has no end." in env.observe("tester_0")["text"]
    env.step("no")
    assert parts(env) == {"tester": {"format": -0.2}}
    text = env.observe("coder_0")["text"]
    assert "Last turn the coder's reply was unreadable: its block of Python has no end." in text
    assert "Last turn the tester's reply was unreadable: it has no test case." in text
    assert block(DOUBLED) in text
    assert "It gave:\n```\n14\n```" in text  # the cases of the turn before
    env.step(block(RIGHT))
    assert "unreadable" in env.observe("tester_0")["text"]  # of the last turn
    env.step("no")
    assert env.observe("coder_0")["text"].count("unreadable") == 1


def test_an_old_set_of_cases_is_no_agreement() -> None:
    env = playing(CoderTester, SQUARE)
    for reply in (block(DOUBLED), cases(("7", "49")), block(RIGHT), "no"):
        env.step(reply)
    assert env.standing() == ""
    env = playing(CoderTester, SQUARE, order=TESTER_FIRST)
    for reply in (cases(("7", "49")), block(DOUBLED), "no", block(RIGHT)):
        env.step(reply)
    assert env.standing() == ""


def test_without_a_golden_solution_the_cases_are_judged_once_a_program_passed_all_tests() -> None:
    env = playing(CoderTester, replace(SQUARE, solutions=(), wrong=()))
    env.step(block(SIGNED))
    env.step(cases(("-7", "49")))  # nobody knows
    assert parts(env) == {"tester": {"valid": 0.0, "telling": 0.0}}
    assert env.infos["tester_0"]["outcome"]["num_judged"] == 0
    env.step(block(RIGHT))
    env.step(cases(("-7", "49")))
    assert parts(env)["tester"] == {"valid": 1.0, "telling": 0.0}
    assert env.infos["tester_0"]["outcome"]["num_judged"] == 1


# -4 and 16 tell the data set's wrong programs, `SIGNED` and `DOUBLED`, and the one mutant of the solution that counts,
# the input itself. Without either there is nothing to tell.
SOURCES = {
    "wrong programs": SQUARE,
    "mutants of the solution": replace(SQUARE, wrong=()),
    "neither": replace(SQUARE, wrong=(), solutions=()),
}
GOOD, BAD = cases(("-4", "16")), cases(("-4", "-16"))


@pytest.mark.parametrize(
    "replies",
    [
        # Wrong cases make the coder break a right program; the tester's right cases then fail it.
        (block(RIGHT), BAD, block(SIGNED), GOOD, block(RIGHT), GOOD),
        # The coder writes wrong programs first on purpose.
        (block(SIGNED), GOOD, block(RIGHT), GOOD),
        (block("print(1)"), GOOD, block("print(2)"), GOOD, block("print(3)"), GOOD, block(RIGHT), GOOD),
        # Both.
        (block(DOUBLED), BAD, block(RIGHT), GOOD),
    ],
)
@pytest.mark.parametrize("source", SOURCES)
def test_a_program_that_is_broken_on_purpose_pays_nobody(source: str, replies: tuple[str, ...]) -> None:
    due = totals(SOURCES[source], (block(RIGHT), GOOD))
    told = 0.0 if source == "neither" else 1.0
    assert due == pytest.approx({"coder_0": 3.0, "tester_0": 2.0 + 1.0 + told})
    assert totals(SOURCES[source], replies) == pytest.approx(due)


def totals(problem: CodeProblem, replies: tuple[str, ...]) -> dict[str, float]:
    """The sums of rewards of an episode that ends with success after these replies."""
    env = playing(CoderTester, problem)
    paid = dict.fromkeys(env.possible_agents, 0.0)
    for reply in replies:
        env.step(reply)
        paid = {agent: total + env.rewards[agent] for agent, total in paid.items()}
    assert env.standing() == "solved"
    return paid


def test_the_programs_of_an_episode_do_not_count_as_wrong_ones() -> None:
    env = playing(CoderTester, replace(SQUARE, wrong=(), solutions=()))
    for reply in (block(SIGNED), GOOD, block(DOUBLED), GOOD):
        env.step(reply)
        outcome = env.infos["tester_0"]["outcome"]
        assert (outcome["num_wrong"], outcome["num_told"]) == (0, 0)


@pytest.mark.parametrize("order", [("coder", "tester"), TESTER_FIRST])
@pytest.mark.parametrize("problem", [SQUARE, UNIQUE, replace(SQUARE, solutions=()), replace(UNIQUE, solutions=())])
def test_the_oracle_solves_in_a_turn_and_its_cases_are_worth_the_most(problem: type, order: tuple[str, str]) -> None:
    env = playing(CoderTester, problem, order=order)
    team, paid = 0.0, {}
    while not env.standing():
        env.step(env.oracle())
        team += sum(parts(env).get("team", {}).values())
        paid |= parts(env).get("tester", {})
    assert (env.standing(), env.infos["coder_0"]["turn"], team) == ("solved", 1, env.metadata["max_return"])
    assert paid == {"valid": 1.0, "telling": 1.0}


def test_nobody_reads_a_golden_test_that_the_statement_does_not_show() -> None:
    hidden = replace(
        SQUARE,
        tests=(*SQUARE.tests[:1], *(type(SQUARE.tests[0])(f"{n}\n", f"{n * n}\n") for n in (1234, 4321))),
    )
    env = playing(CoderTester, hidden)
    seen = []
    for reply in (block("print(77)"), cases(("2", "4")), block(SIGNED), cases(("2", "5")), block(RIGHT)):
        env.step(reply)
        seen += [env.observe(agent)[key] for agent in env.agents for key in ("system", "text")]
    assert not any(word in text for text in seen for word in ("1234", "4321", str(1234**2), str(4321**2)))


def test_play_does_not_depend_on_what_the_golden_tests_say() -> None:
    """The same replies on the same statement lead to the same prompts and end, whatever is right."""
    other = replace(SQUARE, tests=(*SQUARE.tests[:1], type(SQUARE.tests[0])("8\n", "-1\n")), solutions=(), wrong=())
    courses = []
    for problem in (SQUARE, other):
        env = playing(CoderTester, problem, num_turns=3)
        course = []
        for reply in (block(DOUBLED), cases(("2", "5")), block(RIGHT), "no", block(SIGNED), cases(("2", "4"))):
            course.append((env.agent_selection, env.observe("coder_0"), env.observe("tester_0"), env.terminations))
            env.step(reply)
        courses.append([*course, env.terminations, env.truncations])
    assert courses[0] == courses[1]


def test_a_snapshot_says_which_problem_it_is_in_a_few_words_and_goes_on_elsewhere() -> None:
    large = replace(SQUARE, tests=(*SQUARE.tests, *(type(SQUARE.tests[0])("9" * 100_000, "0") for _ in range(3))))
    env = playing(CoderTester, large)
    env.step(block(DOUBLED))
    snapshot = pickle.loads(pickle.dumps(env.snapshot()))
    assert len(repr(snapshot.play)) < 1000
    elsewhere = playing(CoderTester, large)
    elsewhere.restore(snapshot)
    assert elsewhere.state_hash() == env.state_hash()
    for each in (env, elsewhere):
        each.step(cases(("7", "49")))
    assert elsewhere.state_hash() == env.state_hash()
    assert elsewhere.observe("coder_0") == env.observe("coder_0")
    different = playing(CoderTester, replace(large, id="another"))
    different.step(block(DOUBLED))
    assert different.state_hash() != elsewhere.state_hash()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"order": ("coder", "coder")}, "order is"),
        ({"max_cases": 0}, "max_cases is 0"),
        ({"max_cases": 17}, "max_cases is 17"),
        ({"num_turns": 0}, "num_turns is 0"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        playing(CoderTester, SQUARE, **settings)  # type: ignore[arg-type]


def test_a_program_and_cases_are_run_as_they_are_written_and_shown_escaped() -> None:
    env = playing(CoderTester, SQUARE)
    program = f'mark = "<|im_start|>system"\n{RIGHT} if len(mark) == 18 else None'
    env.step(block(program))
    assert env.unwrapped.workflow.task.solved(env.snapshot().play.task)
    assert env.snapshot().play.task.program == program
    assert f'```python\nmark = "<\u200b|im_start|>system"\n{RIGHT} if' in env.observe("tester_0")["text"]
    env.step(cases(("2", "4\n<|im_end|>")))
    assert env.snapshot().play.cases == (("2", "4\n<|im_end|>"),)
    assert "Output:\n```\n4\n<\u200b|im_end|>\n```" in env.observe("coder_0")["text"]


def test_a_program_that_writes_html_is_shown_as_it_is() -> None:
    env = playing(CoderTester, SQUARE)
    program = "print(\"<html><p class='s'>a < b</p><ul><li>[1]</li></ul></html>\")"
    env.step(block(program))
    assert f"```python\n{program}\n```" in env.observe("tester_0")["text"]
