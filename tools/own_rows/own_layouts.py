"""From problems to rows: the columns of each data set of the Hub, and the files in which the package ships them.

A file is named after the Hub's id, the configuration if there are several, and the split. The Hub's sets do not all
have three splits; ours do, and a problem is in the same split in every file.
"""

from __future__ import annotations

import base64
import json
import pickle
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

from own_problems import SPLITS, AnswerProblem, CallProblem, OlympiadProblem, Solved
from pettingllms_envs.instances import seeded
from profiles import PROFILES, Profile
from questions import PARAGRAPHS, QUESTIONS, Question


Row = dict[str, Any]

WRITTEN = "2026-11-22"
"""When the problems were written: the date or year of rows that have one."""

DAPO_BEFORE = (
    "Solve the following math problem step by step. The last line of your response should be of the form Answer:"
    " $Answer (without quotes) where $Answer is the answer to the problem.\n\n"
)
DAPO_AFTER = '\n\nRemember to put your answer on its own line after "Answer:".'
"""What DAPO's rows have around every problem; its loader takes it away."""


def json_lines(rows: Iterable[Row]) -> bytes:
    """Rows as a file, the same on every machine."""
    return "".join(json.dumps(row, ensure_ascii=True) + "\n" for row in rows).encode("ascii")


def statement(solved: Solved, *, method: bool = False) -> str:
    """A coding problem's statement with its examples.

    Args:
        solved: The problem.
        method: Whether a method of `Solution` is asked for rather than a function.
    """
    problem = solved.problem
    shown = list(zip(solved.inputs, solved.outputs, strict=True))[: solved.num_public]
    if problem.fn_name is None:
        examples = [
            f"Example input {number}\n{read}\nExample output {number}\n{printed}"
            for number, (read, printed) in enumerate(shown, 1)
        ]
        return "\n\n".join((problem.statement, *examples)).rstrip() + "\n"
    names = problem.arguments
    head = f"`{problem.fn_name}({', '.join(names)})`"
    head = f"Complete the method {head} of the class `Solution`." if method else f"Write a function {head}."
    examples = []
    for number, (arguments, result) in enumerate(shown, 1):
        given = ", ".join(f"{name} = {json.dumps(value)}" for name, value in zip(names, arguments, strict=True))
        examples.append(f"Example {number}\nInput: {given}\nOutput: {json.dumps(result)}")
    written = "".join(examples)
    if any(word in written for word in ("null", "true", "false")):
        examples.append("Note: null, true and false in the examples stand for None, True and False.")
    return "\n\n".join((head, problem.statement, *examples)) + "\n"


def apps(solved: Solved) -> Row:
    """codeparrot/apps: all tests in one list, results of plain functions in a list of one, as Codewars' are."""
    problem = solved.problem
    tests: Row = {"inputs": solved.inputs, "outputs": solved.outputs}
    starter = ""
    if isinstance(problem, CallProblem):
        wrapped = solved.outputs if problem.method else [[output] for output in solved.outputs]
        tests = {"fn_name": problem.fn_name, "inputs": solved.inputs, "outputs": wrapped}
        starter = problem.starter
    return {
        "problem_id": problem.number,
        "question": statement(solved, method="class Solution" in starter),
        "solutions": json.dumps(problem.golden),
        "input_output": json.dumps(tests),
        "difficulty": ("introductory", "interview", "competition")[problem.level - 1],
        "url": "",
        "starter_code": starter,
    }


def code_contests(solved: Solved) -> Row:
    """deepmind/code_contests: the last two tests are among the generated ones."""
    problem = solved.problem
    public, last = solved.num_public, len(solved.inputs) - 2
    index = "ABC"[problem.level - 1]

    def tests(part: slice) -> Row:
        return {"input": solved.inputs[part], "output": solved.outputs[part]}

    def programs(sources: Sequence[str]) -> Row:
        python3 = 3
        return {"language": [python3] * len(sources), "solution": list(sources)}

    return {
        "name": f"own-{problem.number}_{index}. {problem.title}",
        "description": statement(solved),
        "public_tests": tests(slice(public)),
        "private_tests": tests(slice(public, last)),
        "generated_tests": tests(slice(last, None)),
        "source": 0,
        "difficulty": problem.level,
        "solutions": programs(problem.golden),
        "incorrect_solutions": programs([wrong.program for wrong in problem.wrong]),
        "cf_contest_id": 0,
        "cf_index": index,
        "cf_points": 0.0,
        "cf_rating": 0,
        "cf_tags": [],
        "is_description_translated": False,
        "untranslated_description": "",
        "time_limit": {"seconds": 2, "nanos": 0},
        "memory_limit_bytes": 512_000_000,
        "input_file": "",
        "output_file": "",
    }


def live_code_bench(solved: Solved) -> Row:
    """livecodebench/code_generation_lite: the private tests of odd numbers are packed."""
    problem = solved.problem
    called = isinstance(problem, CallProblem)
    tests = []
    for read, printed in zip(solved.inputs, solved.outputs, strict=True):
        if called:
            read, printed = "\n".join(map(json.dumps, read)), json.dumps(printed)
        tests.append({"input": read, "output": printed, "testtype": "functional" if called else "stdin"})
    private = json.dumps(tests[solved.num_public :])
    return {
        "question_title": problem.title,
        "question_content": statement(solved, method=called),
        "platform": "own",
        "question_id": f"own_{problem.number}",
        "contest_id": "own",
        "contest_date": f"{WRITTEN}T00:00:00",
        "starter_code": f"{problem.solution_class}\n" if called else "",
        "difficulty": ("easy", "medium", "hard")[problem.level - 1],
        "public_test_cases": json.dumps(tests[: solved.num_public]),
        "private_test_cases": packed(private) if problem.number % 2 else private,
        "metadata": json.dumps({"func_name": problem.fn_name} if called else {}),
    }


def packed(text: str) -> str:
    """As LiveCodeBench has it: Base64 of zlib of a pickle of the text."""
    return base64.b64encode(zlib.compress(pickle.dumps(text, protocol=4), 9)).decode("ascii")


def aime_huggingface(number: int, problem: AnswerProblem) -> Row:
    """HuggingFaceH4/aime_2024: the answer is text of three digits."""
    return {
        "id": number,
        "problem": problem.problem,
        "solution": problem.solution,
        "answer": problem.answer.zfill(3),
        "url": "",
        "year": WRITTEN[:4],
    }


def aime_maxwell(number: int, problem: AnswerProblem) -> Row:
    """Maxwell-Jia/AIME_2024: the answer is a number."""
    return {
        "ID": f"own-{number}",
        "Problem": problem.problem,
        "Solution": problem.solution,
        "Answer": int(problem.answer),
    }


def aime24_math_ai(number: int, problem: AnswerProblem) -> Row:
    """math-ai/aime24: the answer stands in a box in `solution`, and nowhere else."""
    return {"id": number, "problem": problem.problem, "solution": rf"\boxed{{{problem.answer}}}", "url": ""}


def aime25_math_ai(number: int, problem: AnswerProblem) -> Row:
    """math-ai/aime25."""
    return {"problem": problem.problem, "answer": problem.answer, "id": str(number)}


def aime25_opencompass(number: int, problem: AnswerProblem) -> Row:
    """opencompass/AIME2025."""
    return {"question": problem.problem, "answer": problem.answer}


def aime25_math_arena(number: int, problem: AnswerProblem) -> Row:
    """MathArena/aime_2025."""
    return {"problem_idx": number, "problem": problem.problem, "answer": int(problem.answer)}


def olympiad(number: int, problem: OlympiadProblem) -> Row:
    """Hothan/OlympiadBench, OE_TO_maths_en_COMP: several answers are one string, in dollar signs."""
    number_alone = problem.answer.replace(".", "").isdigit()
    return {
        "id": number,
        "question": problem.problem,
        "solution": [problem.solution],
        "final_answer": [problem.answer if number_alone else f"${problem.answer}$"],
        "context": None,
        **{f"image_{place}": None for place in range(1, 6)},
        "modality": "Text-only",
        "difficulty": "Competition",
        "is_multiple_answer": problem.multiple,
        "unit": problem.unit,
        "answer_type": problem.kind,
        "error": problem.error,
        "question_type": "Open-ended",
        "subfield": problem.subject,
        "subject": "Math",
        "language": "English",
    }


def polaris(number: int, problem: AnswerProblem) -> Row:
    """POLARIS-Project/Polaris-Dataset-53K: its difficulty is how many of 8 answers were right; ours says the level."""
    return {"problem": problem.problem, "answer": problem.answer, "difficulty": f"{9 - problem.level}/8"}


def dapo(number: int, problem: AnswerProblem) -> Row:
    """BytedTsinghua-SIA/DAPO-Math-17k: only problems whose answer is a whole number."""
    return {
        "data_source": "math_dapo",
        "prompt": [{"content": f"{DAPO_BEFORE}{problem.problem}{DAPO_AFTER}", "role": "user"}],
        "ability": "MATH",
        "reward_model": {"ground_truth": problem.answer, "style": "rule-lighteval/MATH_v2"},
        "extra_info": {"index": f"own-{number}"},
    }


CODE = {
    "codeparrot__apps": (apps, ("stdin", "calls"), SPLITS),
    "deepmind__code_contests": (code_contests, ("stdin",), ("train", "valid", "test")),
    "livecodebench__code_generation_lite": (live_code_bench, ("stdin", "calls"), ("train", "validation", "test6")),
}
"""For each layout how a row is made, of which families, and what its train, validation and test are called."""

NUM_PARAGRAPHS = 10
"""Of a question, as in HotpotQA in the distractor setting."""


def hotpot_qa(number: int, question: Question) -> Row:
    """hotpotqa/hotpot_qa: the paragraphs that are needed among others, all of whose sentences are supporting facts."""
    rng = seeded("own", "questions", question.question)
    others = rng.sample(sorted(set(PARAGRAPHS) - set(question.titles)), NUM_PARAGRAPHS - len(question.titles))
    titles = rng.sample([*question.titles, *others], NUM_PARAGRAPHS)
    facts = [(title, sentence) for title in question.titles for sentence in range(len(PARAGRAPHS[title]))]
    return {
        "id": f"own-{number}",
        "question": question.question,
        "answer": question.answer,
        "type": question.kind,
        "level": question.level,
        "supporting_facts": {"title": [title for title, _ in facts], "sent_id": [index for _, index in facts]},
        "context": {"title": titles, "sentences": [list(PARAGRAPHS[title]) for title in titles]},
    }


def hidden_bench(number: int, profile: Profile) -> Row:
    """YuxuanLi1225/HiddenBench."""
    return {
        "id": number,
        "name": profile.name,
        "description": profile.description,
        "shared_information": list(profile.shared),
        "hidden_information": list(profile.hidden),
        "possible_answers": list(profile.options),
        "correct_answer": profile.answer,
    }


def other_files() -> dict[str, list[Row]]:
    """The rows of questions on passages and of hidden profiles, which no file of the Hub that we have can be compared to."""
    numbered = list(enumerate(QUESTIONS, 1))
    made = {
        f"search/data/hotpotqa__hotpot_qa__distractor__{split}.jsonl": [
            hotpot_qa(number, each) for number, each in numbered if each.split == split
        ]
        for split in SPLITS
    }
    return made | {
        "hidden_bench/data/YuxuanLi1225__HiddenBench__test.jsonl": [
            hidden_bench(number, each) for number, each in enumerate(PROFILES, 1)
        ]
    }


ANSWERS = {
    "HuggingFaceH4__aime_2024": (aime_huggingface, "aime", lambda number, problem: True),
    "Maxwell-Jia__AIME_2024": (aime_maxwell, "aime", lambda number, problem: True),
    "math-ai__aime24": (aime24_math_ai, "aime", lambda number, problem: True),
    "math-ai__aime25": (aime25_math_ai, "aime", lambda number, problem: True),
    "opencompass__AIME2025__AIME2025-I": (aime25_opencompass, "aime", lambda number, problem: number <= 12),
    "opencompass__AIME2025__AIME2025-II": (aime25_opencompass, "aime", lambda number, problem: number > 12),
    "MathArena__aime_2025": (aime25_math_arena, "aime", lambda number, problem: True),
    "Hothan__OlympiadBench__OE_TO_maths_en_COMP": (olympiad, "olympiad", lambda number, problem: True),
    "POLARIS-Project__Polaris-Dataset-53K": (polaris, "arithmetic", lambda number, problem: True),
    "BytedTsinghua-SIA__DAPO-Math-17k": (
        dapo,
        "arithmetic",
        lambda number, problem: problem.answer.removeprefix("-").isdigit(),
    ),
}
"""For each layout how a row is made, of which family, and of which of its problems, numbered from 1."""


def files(coding: dict[str, Sequence[Solved]], answers: dict[str, Sequence[Any]]) -> dict[str, list[Row]]:
    """The rows of every file that the package ships, by its path from the folder of all environments.

    Args:
        coding: The solved problems of `"stdin"` and of `"calls"`.
        answers: The problems of `"aime"`, `"olympiad"` and `"arithmetic"`.
    """
    made: dict[str, list[Row]] = {}
    for name, (row, families, called) in CODE.items():
        for split, word in zip(SPLITS, called, strict=True):
            chosen = [each for family in families for each in coding[family] if each.problem.split == split]
            made[f"coding/data/{name}__{word}.jsonl"] = [row(each) for each in chosen]
    for name, (row, family, wanted) in ANSWERS.items():
        for split in SPLITS:
            numbered = enumerate(answers[family], 1)
            made[f"mathematics/data/{name}__{split}.jsonl"] = [
                row(number, problem)
                for number, problem in numbered
                if problem.split == split and wanted(number, problem)
            ]
    return made | other_files()
