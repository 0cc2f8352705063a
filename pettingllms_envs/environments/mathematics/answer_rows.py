"""Problems with an answer, in columns of any name: MATH, DeepScaleR, Polaris, DAPO's prompts, and GSM8K's solutions.

An answer is used as the data set writes it, without dollar signs or a box. If a row has a worked solution and no
answer, the answer is the last box of the solution.
"""

from __future__ import annotations

import re

from pettingllms_envs.datasets import normalization, rows
from pettingllms_envs.datasets.problems import MathProblem
from pettingllms_envs.datasets.rows import BadRow, DataRow, LeftOut
from pettingllms_envs.graders.verdicts import is_readable
from pettingllms_envs.replies.boxes import boxed


_DOLLAR = re.compile(r"(?<!\\)\$")
_EIGHTHS = re.compile(r"([0-8])/8")
_FIRST_NUMBER = re.compile(r"\d+(?:\.\d+)?")
MAX_ANSWER = 1_000  # characters; the longest golden answer of OlympiadBench has 198

DAPO_INSTRUCTION = re.compile(
    r"\ASolve the following math problem step by step\. The last line of your response should be of the form"
    r" Answer: \$Answer \(without quotes\) where \$Answer is the answer to the problem\.\s*"
)
DAPO_REMINDER = re.compile(r"(?:(?<!\s)\s+)?Remember to put your answer on its own line after \"Answer:\"\.\s*\Z")


def read(row: DataRow, *, source: str, problem: str = "problem", answer: str = "answer") -> MathProblem:
    """A row with a column for the problem and one for its answer.

    Args:
        row: May also have `solution`, `level` or `difficulty`, `subject` or `type`, and `id`, `ID` or `unique_id`.
    """
    statement = rows.statement(row, problem)
    solution = rows.text(row, "solution", default="")
    written = rows.words(row, answer) if row.get(answer) is not None else boxed(solution) or ""
    if not plain(written):
        raise BadRow(f"{answer!r} is missing or blank, and 'solution' has no box; expected an answer")
    return MathProblem(
        source=source,
        id=rows.words(row, "id", "ID", "unique_id") or normalization.name(statement),
        statement=statement,
        level=_level(row),
        subject=rows.text(row, "subject", "type", default=""),
        answer=gradable(plain(written)),
        solution=solution,
    )


def polaris(row: DataRow) -> MathProblem:
    """A row of Polaris, whose `difficulty` is how many of 8 answers of a 7B model were right: 8/8 is level 1."""
    right = _EIGHTHS.fullmatch(rows.text(row, "difficulty", default="8/8"))
    if right is None:
        raise BadRow(f"'difficulty' is {row['difficulty']!r}; expected such as '3/8'")
    return read({**row, "difficulty": 9 - int(right[1])}, source="polaris")


def dapo(row: DataRow) -> MathProblem:
    """A row of DAPO-Math-17k: a prompt with an instruction around the problem, and the answer as a ground truth."""
    messages = [rows.table(message, "a message") for message in rows.items(row.get("prompt"), "'prompt'")]
    asked = [rows.text(message, "content") for message in messages if message.get("role") == "user"]
    if len(asked) != 1:
        raise BadRow(f"'prompt' has {len(asked)} messages of the user; expected one")
    problem = DAPO_REMINDER.sub("", DAPO_INSTRUCTION.sub("", asked[0]))
    truth = rows.table(row.get("reward_model"), "'reward_model'").get("ground_truth")
    return read({"problem": problem, "answer": truth}, source="dapo")


def gsm8k(row: DataRow) -> MathProblem:
    """A row of GSM8K (arXiv:2110.14168): a question, and a worked solution whose last line is `#### 1,234`."""
    solution = rows.text(row, "answer")
    _, mark, answer = solution.rpartition("####")
    if not mark:
        raise BadRow("'answer' has no '####'; expected a solution whose last line is such as '#### 42'")
    columns = {"question": row.get("question"), "answer": answer.replace(",", ""), "solution": solution}
    return read(columns, source="gsm8k", problem="question")


def plain(answer: str) -> str:
    """An answer without a box around it, dollar signs, and a period at its end."""
    answer = answer.strip()
    inside = boxed(answer) or ""
    if answer in (f"\\boxed{{{inside}}}", f"\\fbox{{{inside}}}"):
        answer = inside
    return _DOLLAR.sub("", answer).strip().removesuffix(".").strip()


def gradable(answer: str) -> str:
    """A golden answer; `LeftOut` if no answer can be compared with it."""
    if len(answer) > MAX_ANSWER or not is_readable(answer):
        raise LeftOut("its answer is too long, or nested too deeply, to be graded")
    return answer


def _level(row: DataRow) -> int:
    """The first number in the level or difficulty, such as 5 in "Level 5", at least 1."""
    number = _FIRST_NUMBER.search(rows.words(row, "level", "difficulty"))
    return max(1, int(float(number[0]))) if number else 1
