"""What a statement says about comparing answers: a table of phrasings, each recognised or rightly refused."""

from dataclasses import replace

import pytest

from pettingllms_envs.datasets import judging
from pettingllms_envs.datasets.code_problems import CodeProblem
from pettingllms_envs.datasets.judging import Rules
from pettingllms_envs.sandbox import StdinTest
from pettingllms_envs.sandbox.compare import same_tokens


ANY = Rules(unjudged="it accepts any of several answers")
ORDER = Rules(unjudged="it accepts an answer in any order")
OPEN = Rules(unjudged=judging.VAGUE)
CASE = Rules(ignore_case=True)
EXACT = Rules()


def absolute(size: float) -> Rules:
    return Rules(tolerance=size, tolerance_kind="absolute")


def relative(size: float) -> Rules:
    return Rules(tolerance=size, tolerance_kind="relative")


def either(size: float) -> Rules:
    return Rules(tolerance=size, tolerance_kind="either")


TOLERANCES = (
    ("Answers within 10^-5 of the actual answer will be accepted.", absolute(1e-5)),
    ("Answers within 10^{-5} of the actual answer will be accepted.", absolute(1e-5)),
    ("Answers within $10^{-5}$ of the actual value will be accepted as correct.", absolute(1e-5)),
    ("Answers within 10<sup>-5</sup> of the actual answer will be accepted.", absolute(1e-5)),
    ("Answers within <code>10<sup>-5</sup></code> of the actual answer will be accepted.", absolute(1e-5)),
    ("Answers within 10^(-5) of the actual answer will be accepted.", absolute(1e-5)),
    ("Answers within 1e-5 of the actual answer will be accepted.", absolute(1e-5)),
    ("Answers within 0.00001 of the actual answer will be accepted.", absolute(1e-5)),
    ("Answers within 10⁻⁵ of the actual answer will be accepted.", absolute(1e-5)),
    ("Answers within $10^{−5}$ of the actual answer will be accepted.", absolute(1e-5)),
    ("Answers within `10``-5` of the actual answer will be accepted.", absolute(1e-5)),
    ("Answers within 10-5 of the actual answer will be accepted.", absolute(1e-5)),
    ("Your answer will be accepted if it differs from the correct answer by at most **1e-5**.", absolute(1e-5)),
    ("The absolute or relative error should not exceed $10^{-6}$.", either(1e-6)),
    ("Your answer is correct if its absolute or relative error doesn't exceed 10 ^ { - 4}.", either(1e-4)),
    ("its absolute or relative error does not exceed 10 - 9.", either(1e-9)),
    ("Your answer is accepted if and only if \\frac{|a - b|}{max{(1, |b|)}} ≤ 10^{-4}.", either(1e-4)),
    ("Output the ratio with a relative error of at most 10**-7.", relative(1e-7)),
    ("Print the area with an absolute error of at most 1E-3.", absolute(1e-3)),
    ("The output must be within 10^-6 absolute or relative error of the judge's output.", either(1e-6)),
    ("The output should not contain an error greater than 0.00001.", absolute(1e-5)),
    ("Print the expected value with precision $10^{-6}$.", absolute(1e-6)),
    ("An error of at most $5 \\times 10^{-7}$ in your output is allowed.", absolute(5e-7)),
    ("Your output is correct if it is accurate to within 0.001.", absolute(1e-3)),
    ("Print the mean. Your answer may have a relative error of 1%.", OPEN),
    ("Print the answer with at least 6 digits after the decimal point.", OPEN),
    ("Small rounding errors in your output will be ignored.", OPEN),
    # and what only sounds like it
    ("Print the answer within 10^5 characters.", EXACT),
    ("A program that is accepted runs within 0.05 seconds of processor time.", EXACT),
    ("Print the answer modulo 10^9+7.", EXACT),
    ("Print the absolute value of the smallest error that a clerk made.", EXACT),
    ("If there was an error, print -1 and the line 10-5 of the log.", EXACT),
    ("Print the price, rounded to exactly 2 digits after the decimal point.", EXACT),
    ("The relative error is small. Print 10 - 6.", EXACT),
    ("Each sensor has an error of 0.01 metres. Print the number of sensors.", EXACT),
    ("Each measured value has an absolute error of at most 0.1. Print the sum with two decimals.", EXACT),
    ("The absolute error of each reading does not exceed 0.1. Print the sum with two decimals.", EXACT),
    ("Each measured value is within 0.1 of the true value. Print the sum of the readings.", EXACT),
    ("The sensor's result has a relative error of at most 0.05. Print the interval with 3 decimals.", EXACT),
    ("The scale shows the weight with an absolute error of at most 0.1; print the smallest total.", EXACT),
    ("It is guaranteed that the answer is unique; the error of the input is at most 0.1.", EXACT),
    ("Print the mean of the values, where the error of the input is at most 0.1.", EXACT),
    ("Two values are equal if they differ from the true value by less than 0.01. Print the equal ones.", EXACT),
    ("Two numbers are considered equal if the difference of their values is less than 0.01.", EXACT),
    ("A value is good if it differs from the answer of the oracle by at most 0.05.", EXACT),
    # which speaks of the answer all the same
    ("An absolute error of at most 0.001 is tolerated by the checker.", absolute(1e-3)),
    ("The result must have a relative error of at most 1e-6.", relative(1e-6)),
    ("Print the area; the absolute error must be at most 1e-6.", absolute(1e-6)),
    ("It is considered correct if it differs from the value of the jury by less than 1e-6.", absolute(1e-6)),
)

LETTERS = (
    ("You can print each letter in any case (upper or lower).", CASE),
    ("You may print every letter in any case you want (so, for example, yEs and YES will be accepted).", CASE),
    ('You can output the answer in any case (for example, "yEs" and "Yes" will be recognized as positive).', CASE),
    ("You can print your answer in any case.", CASE),
    ("You can output each letter in any letter case.", CASE),
    ("Each letter may be printed in any register.", CASE),
    ("Output is case-insensitive.", CASE),
    ("Note that the checker is case insensitive.", CASE),
    ('Print "YES" or "NO" (case insensitive).', CASE),
    ('Thus, the strings "Yes", "YES", "yes", and "yeS" are all considered identical.', CASE),
    # and what only sounds like it
    ("For each test case, print YES or NO. In any case, print one word.", EXACT),
    ("Print -1 in any case in which there is no path.", EXACT),
    ("The search is case-insensitive: a and A are the same letter. Print how often the word occurs.", EXACT),
    ("The output is case-sensitive: print YES and not yEs, which is considered wrong.", EXACT),
    ("The string has upper or lower case letters. Print it in upper case.", EXACT),
)

SEVERAL = (
    ("If there are multiple answers, print any of them.", ANY),
    ("If more than one solution exists, you may output any one.", ANY),
    ("If there are several solutions, print one of them.", ANY),
    ("Any of the optimal solutions will be accepted.", ANY),
    ("You may return the pairs in any order.", ORDER),
    ("The lines of the output may appear in any order.", ORDER),
    ("Print the indices of the chosen books, in arbitrary order.", ORDER),
    ("The order of the edges in the output does not matter.", ORDER),
    ("There may be multiple optimal routes; output one of them.", ANY),
    ("Output one such permutation.", ANY),
    ("Print a possible arrangement.", ANY),
    ("If there is more than one solution, your program can print whichever it likes.", ANY),
    ("If the answer is not unique, print whichever one you like.", ANY),
    ("Print the edges; the order of edges is arbitrary.", ORDER),
    ("Print the chosen edges, one on a line. The order of the edges is arbitrary.", ORDER),
    ("Print the indices in the order you like.", ORDER),
    # and what only sounds like it
    ("Print one of these: YES, NO.", EXACT),
    ("There are two such strings. Output one of them, the lexicographically smaller one.", EXACT),
    ("Output one such permutation: the lexicographically smallest.", EXACT),
    ("Alice takes whichever pile she likes. Print the winner.", EXACT),
    ("You are given m edges; the order of edges is arbitrary. Print the length of the path.", EXACT),
    ("Print the number of paths; the order of the edges is arbitrary.", EXACT),
    ("The roads are given in any order. Print the length of the shortest path.", EXACT),
    ("You may remove the stones in any order. Print the least number of moves.", EXACT),
    ("Return the minimum cost to cut the bars in any order.", EXACT),
    ("Do not print any extra spaces.", EXACT),
    ("If there are several solutions, print the smallest one of them.", EXACT),
    ("The order of the operations does not matter. Print the sum.", EXACT),
)


def test_the_table_has_sixty_phrasings_and_more():
    assert len({statement for statement, _ in (*TOLERANCES, *LETTERS, *SEVERAL)}) >= 60


@pytest.mark.parametrize(("statement", "said"), [*TOLERANCES, *LETTERS, *SEVERAL])
def test_a_phrasing_is_recognised_or_rightly_refused(statement, said):
    assert judging.rules(statement) == said


@pytest.mark.parametrize(("statement", "said"), [*TOLERANCES, *LETTERS, *SEVERAL])
def test_a_phrasing_says_the_same_within_a_statement(statement, said):
    before, after = "You are given n numbers (1 ≤ n ≤ 10^{5}).\n\nOutput", "Example\n\nInput\n3\n1 2 3\n\nOutput\n2.5"
    whole = f"{before}\n\n{statement}\n\n{after}"
    assert judging.rules(whole) == said


def test_of_several_bounds_the_smallest_counts():
    statement = "The absolute error must not exceed 0.01. Your answer may have a relative error of at most 1e-6."
    assert judging.rules(statement) == relative(1e-6)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ('Print "RED" or "BLUE" (you can print each letter in any case).', {"red", "blue"}),
        ("Print 'Red' or “BLUE”, or `Gold`, in any letter case; it's Bob's turn.", {"red", "blue", "gold"}),
        (r"Print $\texttt{Red}$, <samp>Blue</samp> or **GOLD** in any letter case.", {"red", "blue", "gold"}),
        ("Print \"Red wins\" or `` Blue''. You can print each letter in any case.", {"red", "wins", "blue"}),
        ('Print "RED" in any letter case.\n\nExamples\n\nInput\n"aB"\n\nNote\n\nIt is "bA".', {"red"}),
        # None is named: it is the answer itself, whatever it is.
        ("Print the number in base 16. You can print each letter in any case.", set()),
    ],
)
def test_letters_may_be_of_any_case_in_the_words_that_the_statement_names(statement, words):
    assert judging.verdict_words(statement) == (judging.VERDICTS | words if words else set())


@pytest.mark.parametrize("verdict", ["YES", '"YES"', "`Yes`"])
def test_the_letter_case_of_what_is_printed_beside_a_verdict_counts(verdict):
    statement = f"First print {verdict} (you can print each letter in any case), then print the string itself."
    problem = CodeProblem(
        source="s", id="1", statement=statement, tests=(StdinTest("", "YES\naBBa"),), ignore_case=True
    )
    assert same_tokens(b"yEs\naBBa", b"YES\naBBa", ignore_case=problem.case_free)
    assert not same_tokens(b"YES\nABBA", b"YES\naBBa", ignore_case=problem.case_free)


def test_without_a_named_word_letters_of_all_words_may_be_of_any_case():
    statement = "Print the number in base 16. You can print each letter in any case."
    problem = CodeProblem(source="s", id="1", statement=statement, tests=(StdinTest("", "ff"),), ignore_case=True)
    assert problem.case_free is True
    assert replace(problem, ignore_case=False).case_free is False
