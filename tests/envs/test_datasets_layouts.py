"""What each layout makes of a row: columns, conventions of each set, and rows that are not as they should be."""

import base64
import json
import math
import pickle
import pickletools
import zlib
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hub_rows import (
    AIME,
    APPS,
    CODE,
    CODE_CONTESTS,
    DAPO,
    GSM8K,
    LIVE_CODE_BENCH,
    MATH,
    OLYMPIAD_BENCH,
    POLARIS,
    ROWS,
    packed,
)
from pettingllms_envs.datasets import LAYOUTS, MathProblem, answer_columns, judging
from pettingllms_envs.datasets.code_problems import CodeProblem
from pettingllms_envs.datasets.columns import find_layout
from pettingllms_envs.datasets.rows import BadRow, LeftOut, words
from pettingllms_envs.environments.coding import blobs
from pettingllms_envs.environments.mathematics.answer_rows import plain
from pettingllms_envs.environments.search.questions import QuestionProblem
from pettingllms_envs.sandbox import LEETCODE_PRELUDE
from pettingllms_envs.sandbox.values import CallTest, StdinTest


def code(layout: str, row: dict[str, Any], **changes: Any) -> CodeProblem:
    problem = LAYOUTS[layout].read({**row, **changes})
    assert isinstance(problem, CodeProblem)
    return problem


def math_problem(layout: str, row: dict[str, Any], **changes: Any) -> MathProblem:
    problem = LAYOUTS[layout].read({**row, **changes})
    assert isinstance(problem, MathProblem)
    return problem


def called(fn_name: str, inputs: list[Any], outputs: list[Any], starter: str = "") -> CodeProblem:
    tests = {"fn_name": fn_name, "inputs": inputs, "outputs": outputs}
    return code("apps", APPS, input_output=json.dumps(tests), starter_code=starter)


def test_every_layout_has_a_row_here():
    assert set(ROWS) == set(LAYOUTS)


# ------------------------------------------------------------------------------------------------------------ programs


def test_apps_puts_the_tests_that_the_statement_shows_first():
    problem = code("apps", APPS)
    assert problem.tests == (StdinTest("3\n", "6\n"), StdinTest("10\n", "20\n"))
    assert (problem.num_public, problem.level, problem.id, problem.fn_name) == (1, 2, "7", None)
    assert problem.solutions == ("print(2 * int(input()))",)


@pytest.mark.parametrize(
    ("statement", "shown"),
    [
        ("-----Sample Input-----\n3\n\n-----Sample Output-----\n6\n", 1),
        ("Sample Input 1:\n3\n\nSample Output 1:\n6\n\nSample Input 2:\n10\n\nSample Output 2:\n20\n", 2),
        ("# Input\n3\n# Output\n6\n", 1),
        ("Input\nOne number, such as 3.\n\nOutput\nIts double, such as 6.\n", 0),
        ("Input\n3\n\nOutput\n7\n", 0),
    ],
)
def test_examples_are_found_under_their_headings(statement, shown):
    assert code("apps", APPS, question=f"Print twice the number.\n\n{statement}").num_public == shown


def test_tests_of_apps_that_are_lists_of_lines_are_joined():
    problem = code("apps", APPS, input_output=json.dumps({"inputs": [["1", "2"]], "outputs": [["3", ""]]}))
    assert problem.tests == (StdinTest("1\n2", "3\n"),)


FUNCTION = "def f(n):\n\t"
INTEGER = "class Solution:\n    def f(self, n: int) -> int:\n        "
LIST = "class Solution:\n    def f(self, n: int) -> List[int]:\n        "


@pytest.mark.parametrize(
    ("starter", "outputs", "expected"),
    [
        (FUNCTION, [[False], [True]], [False, True]),  # Codewars wraps every result
        (FUNCTION, [[[1, 2]], [[3]]], [[1, 2], [3]]),
        (FUNCTION, [[1, 2], [3]], [[1, 2], [3]]),  # not all are lists of one: nothing is wrapped
        (INTEGER, [9, 4], [9, 4]),  # LeetCode wraps none
        (INTEGER, [[9], [4]], [9, 4]),  # and where it does, its annotation says so
        (LIST, [[9], [4]], [[9], [4]]),
        (LIST, [[[9]], [[4, 5]]], [[9], [4, 5]]),
    ],
)
def test_results_of_apps_are_unwrapped_where_all_of_them_are_wrapped(starter, outputs, expected):
    problem = called("f", [[0], [1]], outputs, starter)
    assert [test.expected for test in problem.tests] == expected
    assert problem.prelude == (LEETCODE_PRELUDE if starter != FUNCTION else "")


def test_texts_of_leetcode_in_apps_lose_the_quotes_of_the_statement_and_those_of_codewars_keep_them():
    assert called("f", [['"ab"', 2]], ['"b"'], INTEGER).tests == (CallTest(["ab", 2], "b"),)
    assert called("f", [['"ab"', 2]], ['"b"'], FUNCTION).tests == (CallTest(['"ab"', 2], '"b"'),)


def test_arguments_that_json_cannot_hold_are_not_judged():
    assert "keys are numbers" in called("f", [[{"1": 2}]], [3], FUNCTION).unjudged
    assert called("f", [[{"one": 2}]], [3], FUNCTION).unjudged == ""


def test_code_contests_takes_programs_of_python_3_and_limits_from_the_row():
    problem = code("code_contests", CODE_CONTESTS)
    assert problem.solutions == ("print(2 * int(input()))",)
    assert problem.wrong == ("print(input())",)
    assert (problem.cpu, problem.memory, problem.num_public, len(problem.tests)) == (2.5, 256_000_000, 1, 4)
    assert problem.tests[0] == StdinTest("3\n", "6\n")
    assert (problem.id, problem.level) == ("12_C. Twice", 3)  # the third letter


@pytest.mark.parametrize(("rating", "level"), [(800, 1), (1199, 1), (1200, 2), (3500, 7), (500, 1)])
def test_the_level_of_code_contests_goes_up_with_the_rating(rating, level):
    assert code("code_contests", CODE_CONTESTS, cf_rating=rating).level == level


def test_code_contests_without_a_time_limit_says_none():
    assert code("code_contests", CODE_CONTESTS, time_limit=None, memory_limit_bytes=0).cpu is None
    assert code("code_contests", CODE_CONTESTS, time_limit=None, memory_limit_bytes=0).memory is None


def test_a_problem_that_reads_a_file_is_not_judged():
    assert code("code_contests", CODE_CONTESTS, input_file="in.txt").unjudged == "it reads or writes the file in.txt"


def test_live_code_bench_reads_an_argument_from_each_line():
    problem = code("live_code_bench", LIVE_CODE_BENCH)
    assert problem.tests == (CallTest([[1, 2], 4], 14), CallTest([[], 0], 0))
    assert (problem.fn_name, problem.num_public, problem.level, problem.date) == ("twice", 1, 3, "2025-01-04")
    assert problem.prelude == LEETCODE_PRELUDE
    assert problem.solutions == ()


def test_live_code_bench_reads_programs_for_standard_input_and_private_tests_as_plain_json():
    test = {"input": "3\n", "output": "6\n", "testtype": "stdin"}
    written = json.dumps([test])
    problem = code("live_code_bench", LIVE_CODE_BENCH, public_test_cases=written, private_test_cases=written)
    assert problem.tests == (StdinTest("3\n", "6\n"), StdinTest("3\n", "6\n"))
    assert (problem.fn_name, problem.prelude) == (None, "")


def test_plain_code_reads_lists():
    problem = code("code", CODE)
    assert problem.tests == (CallTest([3], 6), CallTest([5], 10))
    assert (problem.num_public, problem.level, problem.date) == (1, 2, "2025-01-04")
    assert problem.solutions == (CODE["solution"],)


# ---------------------------------------------------------------------------------------------------------- the blobs


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_packed_text_is_read_in_every_protocol_of_pickle(protocol):
    blob = base64.b64encode(zlib.compress(pickle.dumps('[{"a": "é"}]', protocol))).decode()
    assert blobs.unpacked(blob) == '[{"a": "é"}]'


class Runs:
    """Unpickled, it would run a program of the sender's."""

    def __reduce__(self) -> tuple[Any, ...]:
        return eval, ("__import__('os').abort()",)


def test_a_pickle_that_would_run_something_is_refused_and_runs_nothing():
    with pytest.raises(BadRow, match=r"pickle with (STACK_)?GLOBAL; expected one text and nothing else"):
        blobs.unpacked(base64.b64encode(zlib.compress(pickle.dumps(Runs(), 2))).decode())


@pytest.mark.parametrize(
    ("pickled", "reason"),
    [
        (pickle.dumps(["a"]), "a pickle with EMPTY_LIST"),
        (pickle.dumps(7), "a pickle with BININT1"),
        (b"\x80\x05.", "without a text"),
        (b"\x80\x05\x96" + (1 << 40).to_bytes(8, "little") + b".", "no pickle"),  # a byte array of a terabyte
        (b"\x80\x02X\x05\x00\x00\x00ab.", "no pickle"),
        (b"\xff", "no pickle"),
        (b"", "no pickle"),
    ],
)
def test_a_pickle_of_anything_but_a_text_is_refused(pickled, reason):
    with pytest.raises(BadRow, match=reason):
        blobs.unpacked(base64.b64encode(zlib.compress(pickled)).decode())


def test_a_blob_that_unpacks_to_more_than_the_limit_is_refused():
    bomb = base64.b64encode(zlib.compress(b"a" * 100_000)).decode()
    with pytest.raises(BadRow, match="unpack to more than 1000 bytes"):
        blobs.unpacked(bomb, max_bytes=1000)


@pytest.mark.parametrize("blob", ["", "%%%", "AAAA", packed([1])[:-8], base64.b64encode(b"no zlib").decode()])
def test_a_blob_that_is_damaged_is_refused(blob):
    with pytest.raises(BadRow):
        blobs.unpacked(blob)


def test_the_opcodes_of_pickle_that_hold_a_text_are_those_we_know():
    texts = {each.name for each in pickletools.opcodes if each.stack_after == [pickletools.pyunicode]}
    assert texts == blobs._TEXTS


# ----------------------------------------------------------------------------------------------------------- judging


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("This is an interactive problem. Ask questions.", "it is interactive"),
        ("Do not forget to flush the output after each line.", "it is interactive"),
        ("Call fflush(stdout) after every line.", "it is interactive"),
        ("If there are multiple answers, print any of them.", "it accepts any of several answers"),
        ("If there are several pairs, you may output any.", "it accepts any of several answers"),
        ("If multiple solutions exist, any of them will be accepted.", "it accepts any of several answers"),
        ("Print any valid permutation.", "it accepts any of several answers"),
        ("You can return the answer in any order.", "it accepts an answer in any order"),
        ("Print the edges in any order.", "it accepts an answer in any order"),
        # and what only sounds like it
        ("Choose any index and add 1 to it. Print the least number of moves.", ""),
        ("If there are multiple test cases, print each on its own line.", ""),
        ("If there are several minimums, you can choose any of them to delete. Print the greatest score.", ""),
        ("If there are multiple such strings, print the one that comes first.", ""),
        ("You may cross the given bridges in any order. Print the shortest time.", ""),
        ("The toilet flushes any number of times.", ""),
    ],
)
def test_a_statement_says_whether_text_can_judge_it(statement, reason):
    assert judging.unjudged(statement) == reason


# ----------------------------------------------------------------------------------------------------------- answers


@pytest.mark.parametrize(
    ("row", "answer", "id", "level"),
    [
        (AIME, "25", "2024-I-11", 3),
        ({"ID": "2024-II-4", "Problem": "?", "Solution": "", "Answer": 33}, "33", "2024-II-4", 1),
        ({"id": 60, "problem": "?", "solution": "So \\boxed{204}", "year": 2024}, "204", "2024-60", 1),
        ({"question": "?", "answer": "336^\\circ", "year": "2025", "id": "5"}, "336", "2025-5", 1),
        ({"problem_idx": 7, "problem": "?", "answer": 0, "year": "2025"}, "0", "2025-7", 1),
        ({"problem": "?", "answer": "$1{,}0$", "id": "x"}, "10", "aime-x", 1),
        ({"problem": "?", "answer": "25.0", "id": "x"}, "25", "aime-x", 1),
    ],
)
def test_aime_is_read_from_each_of_its_copies(row, answer, id, level):
    problem = math_problem("aime", row)
    assert (problem.answer, problem.id, problem.level, problem.kind) == (answer, id, level, "integer")


@pytest.mark.parametrize("answer", ["1000", "-1", "25.5", "\\frac{1}{2}", "", "1 or 2", "٣"])
def test_an_answer_of_aime_is_a_whole_number_from_0_to_999(answer):
    with pytest.raises(BadRow, match="from 0 to 999"):
        LAYOUTS["aime"].read({"problem": "?", "answer": answer, "year": "2025"})


def test_olympiad_bench_is_read_with_its_unit_and_error():
    problem = math_problem("olympiad_bench", OLYMPIAD_BENCH)
    assert (problem.answer, problem.unit, problem.tolerance, problem.multiple) == ("4.2", "hours", (0.1,), False)
    assert (problem.id, problem.subject) == ("2345", "Geometry")


@pytest.mark.parametrize("nothing", [None, math.nan, "None", "nan", ""])
def test_a_unit_or_error_of_olympiad_bench_that_says_nothing_is_nothing(nothing):
    problem = math_problem("olympiad_bench", OLYMPIAD_BENCH, unit=nothing, error=nothing)
    assert (problem.unit, problem.tolerance) == ("", ())


def test_olympiad_bench_with_several_answers_and_errors():
    several = {"final_answer": ["$(1,2)$,$(2,1)$"], "is_multiple_answer": True, "error": "1e-1,1e-2", "unit": "$cm^2$"}
    problem = math_problem("olympiad_bench", OLYMPIAD_BENCH, **several)
    assert (problem.answer, problem.multiple) == ("(1,2),(2,1)", True)
    assert (problem.tolerance, problem.unit) == ((0.1, 0.01), "cm^2")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"question_type": "Theorem proof", "final_answer": None}, "it asks for a proof"),
        ({"final_answer": None}, "it asks for a proof"),
        ({"image_1": {"bytes": ""}}, "it shows an image"),
    ],
)
def test_olympiad_bench_leaves_out_proofs_and_images(changes, reason):
    with pytest.raises(LeftOut, match=reason):
        LAYOUTS["olympiad_bench"].read({**OLYMPIAD_BENCH, **changes})


def test_polaris_counts_its_levels_from_what_a_model_solved():
    levels = [math_problem("polaris", POLARIS, difficulty=f"{right}/8").level for right in (8, 7, 0)]
    assert levels == [1, 2, 9]


def test_dapo_loses_the_instruction_around_its_problem():
    problem = math_problem("dapo", DAPO)
    assert (problem.statement, problem.answer, problem.source) == ("What is $1 + 1$?", "2", "dapo")
    bare = math_problem("dapo", DAPO, prompt=[{"role": "user", "content": "What is $1 + 1$?"}])
    assert bare.statement == problem.statement


def test_gsm8ks_answer_is_what_follows_its_mark_without_commas():
    problem = math_problem("gsm8k", GSM8K)
    assert (problem.statement, problem.answer, problem.source) == (GSM8K["question"], "1201", "gsm8k")
    assert problem.solution == GSM8K["answer"]
    twice = math_problem("gsm8k", GSM8K, answer="Not #### 3 but\n#### -4")
    assert twice.answer == "-4"


@pytest.mark.parametrize(
    ("written", "text"),
    [(1234567.0, "1234567"), (0.246913578, "0.246913578"), (0.5, "0.5"), (math.nan, ""), (math.inf, "inf")],
)
def test_a_number_with_decimals_keeps_its_digits(written, text):
    assert words({"id": written}, "id") == text


def test_several_answers_of_olympiad_bench_lose_their_thousands_and_one_answer_keeps_its_commas():
    several = {"final_answer": ["$1,000$", "2,000"], "is_multiple_answer": True, "error": None}
    assert math_problem("olympiad_bench", OLYMPIAD_BENCH, **several).answer == "1000,2000"
    assert math_problem("olympiad_bench", OLYMPIAD_BENCH, **{**several, "final_answer": ["1,234"]}).answer == "1,234"


def test_any_columns_may_hold_the_problem_and_its_answer():
    layout = answer_columns("question", "final")
    problem = layout.read({"question": "What is half of one?", "final": 0.5})
    assert isinstance(problem, MathProblem)
    assert (problem.statement, problem.answer) == ("What is half of one?", "0.5")
    assert find_layout("math:question,final").columns == layout.columns == (("question",), ("final", "solution"))


def test_math_takes_the_answer_or_else_the_last_box_of_the_solution():
    problem = math_problem("math", MATH)
    assert (problem.answer, problem.level, problem.subject) == ("\\frac{1}{2}", 3, "Prealgebra")
    assert math_problem("math", MATH, answer=None).answer == "\\frac{1}{2}"
    assert math_problem("math", MATH, answer=None, solution="It is $\\boxed 7$.").answer == "7"


@pytest.mark.parametrize(
    ("written", "answer"),
    [
        ("$7$", "7"),
        ("\\boxed{7}", "7"),
        ("\\$4813.24", "\\$4813.24"),
        ("$69$,$84$", "69,84"),
        ("7.", "7"),
        ("\\boxed{1}, \\boxed{2}", "\\boxed{1}, \\boxed{2}"),
    ],
)
def test_an_answer_is_without_its_dressing(written, answer):
    assert plain(written) == answer


# --------------------------------------------------------------------------------------------------------- malformed


FUNCTIONAL_X = '[{"input": "x", "output": "1", "testtype": "functional"}]'
STDIN_1 = '[{"input": "1", "output": "1", "testtype": "stdin"}]'


@pytest.mark.parametrize(
    ("layout", "changes", "reason"),
    [
        ("apps", {"question": None}, "'question' is missing or null"),
        ("apps", {"question": "  "}, "'question' is blank"),
        ("apps", {"input_output": "{"}, "'input_output' is no JSON"),
        ("apps", {"input_output": "[]"}, "'input_output' is a list; expected a mapping"),
        ("apps", {"input_output": '{"inputs": ["1"], "outputs": []}'}, "has 1 inputs and 0 outputs"),
        ("apps", {"input_output": '{"inputs": [1], "outputs": ["1"]}'}, "a test has a int; expected text"),
        ("apps", {"input_output": "[" * 100_000}, "nested too deeply"),
        ("apps", {"input_output": '{"fn_name": "f", "inputs": [[NaN]], "outputs": [1]}'}, "has NaN"),
        ("apps", {"solutions": "[1]"}, "'solutions' has something else than texts"),
        ("code_contests", {"public_tests": {"input": ["1"]}}, "the outputs of 'public_tests' is a NoneType"),
        ("code_contests", {"public_tests": {"input": [1], "output": [1]}}, "something else than texts"),
        ("code_contests", {"solutions": {"language": [3], "solution": []}}, "1 languages for 0 programs"),
        ("code_contests", {"time_limit": {"seconds": "2"}}, "expected whole seconds"),
        ("live_code_bench", {"metadata": "{}"}, "'func_name' is missing"),
        ("live_code_bench", {"public_test_cases": FUNCTIONAL_X}, "an argument of a test is no JSON"),
        ("live_code_bench", {"private_test_cases": None}, "'private_test_cases' is missing or null"),
        ("live_code_bench", {"public_test_cases": ""}, "'public_test_cases' is no JSON"),
        ("live_code_bench", {"private_test_cases": STDIN_1}, "'testtype' is 'functional', 'stdin'"),
        ("olympiad_bench", {"final_answer": []}, "expected a list of texts"),
        ("olympiad_bench", {"error": "a bit"}, "'error' is 'a bit'"),
        ("polaris", {"difficulty": "9/8"}, "'difficulty' is '9/8'"),
        ("polaris", {"answer": ""}, "'answer' is missing or blank"),
        ("gsm8k", {"answer": "It is 42."}, "'answer' has no '####'"),
        ("gsm8k", {"answer": "####"}, "'answer' is missing or blank"),
        ("dapo", {"prompt": []}, "has 0 messages of the user"),
        ("dapo", {"reward_model": None}, "'reward_model' is a NoneType"),
        ("math", {"answer": None, "solution": ""}, "'answer' is missing or blank, and 'solution' has no box"),
        ("math", {"answer": ["1"]}, "'answer' is a list"),
        ("hotpot_qa", {"context": None}, "'context' is a NoneType; expected a list"),
        ("hotpot_qa", {"context": {"title": ["a"], "sentences": []}}, "'context' has 1 inputs and 0 outputs"),
        ("hotpot_qa", {"context": [["a", ["b"], 0]]}, "'context' has an entry that is no pair"),
        ("hotpot_qa", {"context": [["a", [1]]]}, "a paragraph of 'context' has something else than texts"),
        ("two_wiki", {"context": "[["}, "'context' is no JSON"),
        ("musique", {"answerable": "yes"}, "'answerable' is a str; expected true or false"),
        ("musique", {"paragraphs": [{"title": "a", "is_supporting": True}]}, "'paragraph_text' is missing or null"),
        ("musique", {"answer_aliases": [1]}, "the list of its answers has something else than texts"),
        ("flash_rag", {"golden_answers": "Corven"}, "'golden_answers' is a str; expected a list"),
        ("hidden_bench", {"correct_answer": "Bear"}, "'correct_answer' is 'Bear'; expected one of the options"),
        ("hidden_bench", {"hidden_information": ["a"]}, "expected 2 to 1000 texts"),
    ],
)  # fmt: skip
def test_a_malformed_row_is_refused_with_its_reason(layout, changes, reason):
    with pytest.raises(BadRow) as refused:
        LAYOUTS[layout].read({**ROWS[layout], **changes})
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    ("layout", "changes"),
    [
        ("apps", {"input_output": ""}),
        ("apps", {"input_output": None}),
        ("apps", {"input_output": '{"inputs": [], "outputs": []}'}),
        ("code_contests", dict.fromkeys(("public_tests", "private_tests", "generated_tests"))),
        ("live_code_bench", {"public_test_cases": "[]", "private_test_cases": packed([])}),
        ("code", {"inputs": [], "outputs": []}),
    ],
)
def test_a_problem_without_tests_is_left_out(layout, changes):
    with pytest.raises(LeftOut, match="it has no tests"):
        LAYOUTS[layout].read({**ROWS[layout], **changes})


@pytest.mark.parametrize(
    ("layout", "changes", "reason"),
    [
        ("hotpot_qa", {"answer": None}, "it has no answer"),
        ("hotpot_qa", {"answer": " "}, "it has no answer"),
        ("hotpot_qa", {"answer": "a" * 301}, "too long"),
        ("hotpot_qa", {"supporting_facts": [["Telmouth", 0]]}, "it lacks a paragraph that it needs"),
        ("musique", {"answerable": False}, "it cannot be answered from its paragraphs"),
        ("flash_rag", {"golden_answers": []}, "it has no answer"),
        ("hidden_bench", {"hidden_information": ["a"] * 5}, "more than 4 hidden facts"),
        ("math", {"answer": "x+" * 500 + "1"}, "its answer is too long"),
        ("math", {"answer": "(" * 61 + "1" + ")" * 61}, "its answer is too long, or nested too deeply"),
        ("olympiad_bench", {"final_answer": ["(" * 61 + "1" + ")" * 61]}, "nested too deeply"),
    ],
)
def test_a_question_that_cannot_be_graded_is_left_out(layout, changes, reason):
    with pytest.raises(LeftOut, match=reason):
        LAYOUTS[layout].read({**ROWS[layout], **changes})


@pytest.mark.parametrize("layout", ["hotpot_qa", "two_wiki", "musique"])
def test_a_question_has_its_paragraphs_and_knows_which_it_needs(layout):
    problem = LAYOUTS[layout].read(ROWS[layout])
    assert isinstance(problem, QuestionProblem)
    assert {problem.passages[index].title for index in problem.support} == {"Tower", "Ida Corven"}
    assert problem.statement == "Where was the builder of the tower born?"
    assert problem.answers[0] == "Telmouth"


def test_sentences_are_joined_and_aliases_are_answers():
    hotpot, musique = LAYOUTS["hotpot_qa"].read(ROWS["hotpot_qa"]), LAYOUTS["musique"].read(ROWS["musique"])
    assert isinstance(hotpot, QuestionProblem)
    assert isinstance(musique, QuestionProblem)
    assert hotpot.passages[0] == ("Ida Corven", "She was born in Telmouth. She built.")
    assert (hotpot.level, hotpot.subject, hotpot.id, hotpot.support) == (2, "bridge", "5a7a0", (0, 2))
    assert (musique.answers, musique.level) == (("Telmouth", "Port of Telmouth"), 1)


def test_paragraphs_as_pairs_as_json_and_as_the_hub_has_them_are_the_same_problem():
    row = ROWS["hotpot_qa"]
    facts = [list(pair) for pair in zip(*row["supporting_facts"].values(), strict=True)]
    context = [list(pair) for pair in zip(*row["context"].values(), strict=True)]
    pairs = {**row, "supporting_facts": facts, "context": context}
    written = {**row, "supporting_facts": json.dumps(facts), "context": json.dumps(context)}
    read = LAYOUTS["hotpot_qa"].read
    assert read(row) == read(pairs) == read(written)


def test_integers_that_the_sandbox_cannot_compare_leave_a_problem_out():
    tests = f'{{"fn_name": "f", "inputs": [[1]], "outputs": [{"9" * 5000}]}}'
    with pytest.raises(LeftOut, match="more than 4300 digits"):
        LAYOUTS["apps"].read({**APPS, "input_output": tests})
    stdin = {"inputs": ["1\n"], "outputs": ["9" * 5000]}  # as text they are compared as text
    assert code("apps", APPS, input_output=json.dumps(stdin)).unjudged == ""


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["[]", "{}", "[1]"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["input", "output", "language"]), inner)
    ),
    max_leaves=6,
)


@pytest.mark.parametrize("layout", ROWS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_whatever_a_column_holds_a_row_is_a_problem_or_refused(layout, data):
    column = data.draw(st.sampled_from(sorted(ROWS[layout])))
    row = {**ROWS[layout], column: data.draw(JSON)}
    with suppress(BadRow, LeftOut):  # and no other error
        problem = LAYOUTS[layout].read(row)
        assert problem.statement
        assert len(problem.digest) == 64


def test_reading_a_row_leaves_it_as_it_was():
    for layout, row in ROWS.items():
        before = json.dumps(row, sort_keys=True)
        LAYOUTS[layout].read(row)
        assert json.dumps(row, sort_keys=True) == before


def test_an_unknown_layout_is_answered_with_those_there_are():
    with pytest.raises(
        ValueError, match=r"no layout 'app'; expected one of 'apps', 'code_contests'.* Name one of them"
    ):
        find_layout("app")
