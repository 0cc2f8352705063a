"""A row of each layout in the Hub's columns, of a problem made for the tests."""

import base64
import json
import pickle
import zlib
from typing import Any


TWICE = """\
Print twice the number that you read.

-----Input-----

A number.

-----Examples-----
Input
3

Output
6
"""


def packed(value: object) -> str:
    """A value as LiveCodeBench packs its private tests: base64 of zlib of a pickle of JSON text."""
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(value)))).decode()


APPS: dict[str, Any] = {
    "problem_id": 7,
    "question": TWICE,
    "solutions": json.dumps(["print(2 * int(input()))"]),
    "input_output": json.dumps({"inputs": ["10\n", "3\n"], "outputs": ["20\n", "6\n"]}),
    "difficulty": "interview",
    "url": "",
    "starter_code": "",
}
CODE_CONTESTS: dict[str, Any] = {
    "name": "12_C. Twice",
    "description": TWICE,
    "public_tests": {"input": ["3\n"], "output": ["6\n"]},
    "private_tests": {"input": ["5\n"], "output": ["10\n"]},
    "generated_tests": {"input": ["1\n", "2\n"], "output": ["2\n", "4\n"]},
    "cf_index": "C",
    "cf_rating": 0,
    "solutions": {"language": [1, 2, 3], "solution": ["print 2*input()", "int main(){}", "print(2 * int(input()))"]},
    "incorrect_solutions": {"language": [3, 4], "solution": ["print(input())", "class A {}"]},
    "time_limit": {"seconds": 2, "nanos": 500_000_000},
    "memory_limit_bytes": 256_000_000,
    "input_file": "",
    "output_file": "",
}
LIVE_CODE_BENCH: dict[str, Any] = {
    "question_title": "Twice",
    "question_content": "Return twice the sum of a list and a number.",
    "platform": "leetcode",
    "question_id": "9001",
    "contest_date": "2025-01-04T18:30:00",
    "starter_code": "class Solution:\n    def twice(self, nums: List[int], k: int) -> int:\n        ",
    "difficulty": "hard",
    "public_test_cases": json.dumps([{"input": "[1, 2]\n4", "output": "14", "testtype": "functional"}]),
    "private_test_cases": packed([{"input": "[]\n0", "output": "0", "testtype": "functional"}]),
    "metadata": json.dumps({"func_name": "twice"}),
}
CODE: dict[str, Any] = {
    "id": "twice",
    "question": "Input: n = 3\nOutput: 6",
    "fn_name": "twice",
    "starter_code": "class Solution:\n    def twice(self, n: int) -> int:",
    "inputs": [[5], [3]],
    "outputs": [10, 6],
    "solution": "class Solution:\n    def twice(self, n):\n        return 2 * n",
    "difficulty": "Medium",
    "date": "2025-01-04",
}
AIME: dict[str, Any] = {
    "id": 61,
    "problem": "What is $5^2$?",
    "solution": "It is \\boxed{25}.",
    "answer": "025",
    "url": "https://artofproblemsolving.com/wiki/index.php/2024_AIME_I_Problems/Problem_11",
    "year": "2024",
}
OLYMPIAD_BENCH: dict[str, Any] = {
    "id": 2345,
    "question": "How long does it take, to the tenth of an hour?",
    "solution": ["By the law of cosines ..."],
    "final_answer": ["$4.2$"],
    "context": None,
    **{f"image_{number}": None for number in range(1, 6)},
    "is_multiple_answer": False,
    "unit": "hours",
    "answer_type": "Numerical",
    "error": "1e-1",
    "question_type": "Open-ended",
    "subfield": "Geometry",
}
POLARIS: dict[str, Any] = {"problem": "What is $1 + 1$?", "answer": "2", "difficulty": "6/8"}
DAPO: dict[str, Any] = {
    "data_source": "math_dapo",
    "prompt": [
        {
            "role": "user",
            "content": "Solve the following math problem step by step. The last line of your response should be of the"
            " form Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\nWhat is $1 + 1$?"
            '\n\nRemember to put your answer on its own line after "Answer:".',
        }
    ],
    "ability": "MATH",
    "reward_model": {"ground_truth": "2", "style": "rule-lighteval/MATH_v2"},
    "extra_info": {"index": "0"},
}
GSM8K: dict[str, Any] = {
    "question": "A box holds 24 pens. How many pens do 50 boxes hold, and one more pen?",
    "answer": "The boxes hold 24*50=<<24*50=1200>>1200 pens.\nWith one more, 1200+1=<<1200+1=1201>>1201.\n#### 1,201",
}
MATH: dict[str, Any] = {
    "problem": "What is half of one?",
    "answer": "$\\frac{1}{2}$.",
    "level": "Level 3",
    "type": "Prealgebra",
    "solution": "It is \\boxed{\\frac{1}{2}}.",
}
HOTPOT_QA: dict[str, Any] = {
    "id": "5a7a0",
    "question": "Where was the builder of the tower born?",
    "answer": "Telmouth",
    "type": "bridge",
    "level": "medium",
    "supporting_facts": {"title": ["Tower", "Ida Corven", "Ida Corven"], "sent_id": [0, 0, 1]},
    "context": {
        "title": ["Ida Corven", "Holm", "Tower"],
        "sentences": [["She was born in Telmouth.", " She built."], ["Holm is a village."], ["Ida Corven built it."]],
    },
}
TWO_WIKI: dict[str, Any] = {
    "_id": "8813f",
    "type": "compositional",
    "question": "Where was the builder of the tower born?",
    "context": json.dumps([["Tower", ["Ida Corven built it."]], ["Ida Corven", ["She was born in Telmouth."]]]),
    "supporting_facts": json.dumps([["Tower", 0], ["Ida Corven", 0]]),
    "evidences": json.dumps([["Tower", "architect", "Ida Corven"], ["Ida Corven", "place of birth", "Telmouth"]]),
    "answer": "Telmouth",
}
MUSIQUE: dict[str, Any] = {
    "id": "2hop__1_2",
    "paragraphs": [
        {"idx": 0, "title": "Holm", "paragraph_text": "Holm is a village.", "is_supporting": False},
        {"idx": 1, "title": "Tower", "paragraph_text": "Ida Corven built it.", "is_supporting": True},
        {"idx": 2, "title": "Ida Corven", "paragraph_text": "She was born in Telmouth.", "is_supporting": True},
    ],
    "question": "Where was the builder of the tower born?",
    "question_decomposition": [
        {"id": 1, "question": "tower >> builder", "answer": "Ida Corven", "paragraph_support_idx": 1},
        {"id": 2, "question": "#1 >> place of birth", "answer": "Telmouth", "paragraph_support_idx": 2},
    ],
    "answer": "Telmouth",
    "answer_aliases": ["Port of Telmouth", "Telmouth"],
    "answerable": True,
}
FLASH_RAG: dict[str, Any] = {
    "id": "test_0",
    "question": "who built the tower",
    "golden_answers": ["Ida Corven", "Corven"],
    "metadata": {"source": "wiki"},
}
HIDDEN_BENCH: dict[str, Any] = {
    "id": 1,
    "name": "mountain_hut",
    "description": "Choose a hut.",
    "shared_information": ["Eagle has beds."],
    "hidden_information": ["Eagle has no roof.", "Otter is far.", "Fox is near."],
    "possible_answers": ["Eagle", "Fox", "Otter"],
    "correct_answer": "Fox",
}

SPIDER: dict[str, Any] = {
    "db_id": "concert_singer",
    "query": "SELECT count(*) FROM singer",
    "question": "How many singers are there?",
    "question_toks": ["How", "many", "singers"],
}
BIRD: dict[str, Any] = {
    "question_id": 7,
    "db_id": "concert_singer",
    "question": "How many singers are French?",
    "evidence": "French refers to country = 'FR'",
    "SQL": "SELECT count(*) FROM singer WHERE country = 'FR'",
    "difficulty": "moderate",
}
SYNSQL: dict[str, Any] = {
    "db_id": "concert_singer",
    "sql_complexity": "Highly Complex",
    "question_style": "Formal",
    "question": "How many singers are French?",
    "external_knowledge": "",
    "cot": "...",
    "sql": "SELECT count(*) FROM singer WHERE country = 'FR';",
}

ROWS: dict[str, dict[str, Any]] = {
    "apps": APPS,
    "code_contests": CODE_CONTESTS,
    "live_code_bench": LIVE_CODE_BENCH,
    "code": CODE,
    "aime": AIME,
    "olympiad_bench": OLYMPIAD_BENCH,
    "polaris": POLARIS,
    "dapo": DAPO,
    "gsm8k": GSM8K,
    "math": MATH,
    "hotpot_qa": HOTPOT_QA,
    "two_wiki": TWO_WIKI,
    "musique": MUSIQUE,
    "flash_rag": FLASH_RAG,
    "hidden_bench": HIDDEN_BENCH,
    "spider": SPIDER,
    "bird": BIRD,
    "synsql": SYNSQL,
}
"""By the name of the layout."""
