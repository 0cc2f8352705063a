"""Data sets of the Hub: pinned, data files only, prepared into a folder. The Hub is a server on 127.0.0.1."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from fake_hub import FakeHub, serving
from hub_rows import HOTPOT_QA, LIVE_CODE_BENCH, MUSIQUE, TWO_WIKI
from pettingllms_envs.datasets import load
from pettingllms_envs.datasets.sources import digest


ROOT = Path(__file__).parents[2]
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def apps(number: int, **changes: object) -> dict[str, object]:
    row = {
        "problem_id": number,
        "question": f"Print twice the number {number}, which you read.",
        "solutions": json.dumps(["print(2 * int(input()))"]),
        "input_output": json.dumps({"inputs": [f"{number}\n"], "outputs": [f"{2 * number}\n"]}),
        "difficulty": "interview",
        "url": "",
        "starter_code": "",
    }
    return {**row, **changes}


def json_lines(*rows: dict[str, object]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def contest(number: int) -> dict[str, object]:
    none = {"input": [], "output": []}
    return {
        "name": f"{number}_A. Twice",
        "description": f"Print twice the number {number}.",
        "public_tests": {"input": ["1\n"], "output": [f"{2 * number}\n"]},
        "private_tests": none,
        "generated_tests": none,
        "solutions": {"language": [1, 3], "solution": ["print 2", f"print({2 * number})"]},
        "incorrect_solutions": {"language": [3], "solution": ["print(0)"]},
        "time_limit": {"seconds": 1, "nanos": 500_000_000},
        "memory_limit_bytes": 256_000_000,
    }


@pytest.fixture(scope="module")
def parquets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """CodeContests in three files of train, one row in a row group, and one of each other split; two of questions."""
    folder = tmp_path_factory.mktemp("parquet")
    rows = {f"data/train-0000{part}-of-00003.parquet": [contest(2 * part), contest(2 * part + 1)] for part in range(3)}
    rows |= {"questions.parquet": [HOTPOT_QA], "dev.parquet": [TWO_WIKI]}
    rows |= {"data/valid-00000-of-00001.parquet": [contest(10)], "data/test-00000-of-00001.parquet": [contest(20)]}
    files = {}
    for name, each in rows.items():
        path = folder / "one.parquet"
        parquet.write_table(pyarrow.Table.from_pylist(each), path, row_group_size=1)
        files[name] = path.read_bytes()
    return files


def question_files(parquets: dict[str, bytes]) -> dict[str, bytes]:
    """The files of HotpotQA on the Hub: only those of `distractor` can be read."""
    names = ("train-00000-of-00002", "train-00001-of-00002", "validation-00000-of-00001")
    own = {f"distractor/{name}.parquet": parquets["questions.parquet"] for name in names}
    return own | {f"fullwiki/{name}.parquet": b"" for name in (*names, "test-00000-of-00001")}


@pytest.fixture
def hub(parquets: dict[str, bytes]) -> Iterator[FakeHub]:
    train = json_lines(*(apps(number) for number in range(60)), apps(60, input_output=""), apps(61, question=None))
    sets = {
        "codeparrot/apps": {"apps.py": b"raise SystemExit", "train.jsonl": train, "test.jsonl": json_lines(apps(99))},
        "deepmind/code_contests": {
            "README.md": b"",
            **{name: body for name, body in parquets.items() if name.startswith("data/")},
        },
        "livecodebench/code_generation_lite": {
            f"test{part}.jsonl": json_lines({**LIVE_CODE_BENCH, "question_id": f"in test{part}"})
            for part in ("", 5, 6)
        },
        "opencompass/AIME2025": {
            f"aime2025-{exam}.jsonl": json_lines({"question": f"Paper {exam}?", "answer": "1"}) for exam in ("I", "II")
        },
        "someone/sums": {"sums_train.jsonl": json_lines({"question": "1 + 1?", "final": "2"}), "info.json": b"{}"},
        "someone/nothing": {"script.py": b""},
        "hotpotqa/hotpot_qa": question_files(parquets),
        "xanhho/2WikiMultihopQA": {"train.parquet": b"", "dev.parquet": parquets["dev.parquet"], "test.parquet": b""},
        "dgslibisey/MuSiQue": {
            "musique_ans_v1.0_dev.jsonl": json_lines(MUSIQUE),
            "musique_ans_v1.0_train.jsonl": json_lines(MUSIQUE),
        },
    }
    with serving(FakeHub(sets, COMMIT)) as served:
        yield served


def python(hub: FakeHub, home: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Python with our package, the hub for the Hub and a cache of its own: the Hub's library reads these once."""
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(home / "hf"),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "COLUMNS": "300",
        **variables,
    }
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, timeout=120)


def pettingllms(hub: FakeHub, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return python(hub, home, "-m", "pettingllms_envs.cli", "data", *arguments)


def test_a_set_of_the_hub_is_prepared_at_the_commit_that_main_is_at_and_its_folder_loads(hub, tmp_path):
    run = pettingllms(hub, tmp_path, "prepare", "codeparrot/apps")
    assert run.returncode == 0, run.stderr
    folder = tmp_path / "codeparrot__apps"
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["source"], manifest["revision"], manifest["layout"]) == ("codeparrot/apps", COMMIT, "apps")
    train, validation = load(folder, split="train"), load(folder, split="validation")
    assert len(train.problems) + len(validation.problems) == 60
    assert len(validation.problems) > 0
    assert [problem.id for problem in load(folder, split="test").problems] == ["99"]
    assert train.revision == COMMIT
    both = [manifest["splits"][split] for split in ("train", "validation")]
    assert {"file": "train.jsonl", "index": 61, "reason": "'question' is missing or null; expected text"} in both[0][
        "bad"
    ]
    assert both[0]["left_out"] == {"it has no tests": 1}
    for split, part in manifest["splits"].items():
        assert part["sha256"] == digest(folder / f"{split}.jsonl.gz")
    assert "train: " in run.stdout
    asked = [request for request in hub.requests if "resolve" in request]
    assert asked
    assert all(COMMIT in request and "apps.py" not in request for request in asked)  # no script is even downloaded


def test_a_set_in_parquet_files_is_read_in_their_order_with_every_split_of_its_own(hub, tmp_path):
    assert pettingllms(hub, tmp_path, "prepare", "deepmind/code_contests", "--output", "cc").returncode == 0
    folder = tmp_path / "cc"
    assert [problem.id for problem in load(folder, split="train").problems] == [f"{n}_A. Twice" for n in range(6)]
    assert [problem.id for problem in load(folder, split="validation").problems] == ["10_A. Twice"]
    (problem,) = load(folder, split="test").problems
    assert (problem.solutions, problem.wrong, problem.cpu) == (("print(40)",), ("print(0)",), 1.5)


@pytest.mark.parametrize("data", ["hotpotqa/hotpot_qa", "xanhho/2WikiMultihopQA", "dgslibisey/MuSiQue"])
def test_questions_are_prepared_from_the_files_that_have_answers(hub, tmp_path, data):
    done = pettingllms(hub, tmp_path, "prepare", data, "--output", "copy", "--split", "validation")
    assert done.returncode == 0, done.stderr
    (problem,) = load(tmp_path / "copy", split="validation").problems
    assert problem.statement == "Where was the builder of the tower born?"


def test_what_is_prepared_twice_is_the_same_bytes(hub, tmp_path):
    for name in ("one", "other"):
        assert pettingllms(hub, tmp_path, "prepare", "codeparrot/apps", "--output", name).returncode == 0
    for file in sorted((tmp_path / "one").iterdir()):
        body = file.read_bytes()
        assert body == (tmp_path / "other" / file.name).read_bytes()
        assert file.name == "manifest.json" or body[4:8] == bytes(4)  # gzip's place for the time


@pytest.mark.parametrize(
    ("data", "statements"),
    [
        ("opencompass/AIME2025", ["Paper I?", "Paper II?"]),
        ("opencompass/AIME2025:AIME2025-I", ["Paper I?"]),
        ("opencompass/AIME2025:AIME2025-II", ["Paper II?"]),
    ],
)
def test_one_configuration_of_a_set_is_prepared_or_all(hub, tmp_path, data, statements):
    assert pettingllms(hub, tmp_path, "prepare", data, "--output", "copy").returncode == 0
    problems = load(tmp_path / "copy", split="test").problems
    assert [(problem.statement, problem.year) for problem in problems] == [(each, 2025) for each in statements]


@pytest.mark.parametrize(("data", "parts"), [("", ["in test", "in test5", "in test6"]), (":test6", ["in test6"])])
def test_one_file_of_live_code_bench_is_prepared_or_all(hub, tmp_path, data, parts):
    name = f"livecodebench/code_generation_lite{data}"
    assert pettingllms(hub, tmp_path, "prepare", name, "--output", "copy").returncode == 0
    assert [problem.id for problem in load(tmp_path / "copy", split="test").problems] == parts


def test_a_set_that_is_not_known_is_read_with_a_layout_and_the_names_of_its_columns(hub, tmp_path):
    run = pettingllms(
        hub, tmp_path, "prepare", "math:question,final=someone/sums", "--split", "train", "--output", "s"
    )
    assert run.returncode == 0, run.stderr
    assert [(each.statement, each.answer) for each in load(tmp_path / "s").problems] == [("1 + 1?", "2")]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("prepare", "someone/sums"), "the columns of someone/sums are unknown"),
        (("prepare", "math=someone/nothing"), "has no data files for any split; it has script.py"),
        (
            ("prepare", "livecodebench/code_generation_lite:test7"),
            "has no data files test7 for test; it has test.jsonl",
        ),
        (("prepare", "someone/else"), "someone/else cannot be had (RepositoryNotFoundError: 404"),
        (("prepare", "codeparrot/apps", "--revision", "v9"), "codeparrot/apps at 'v9' cannot be had"),
        (("prepare", "codeparrot/apps", "--split", "tests"), "has no 'tests' split; expected 'train'"),
        (("show", "codeparrot/apps"), "codeparrot/apps has no revision; expected a commit of 40 hex digits"),
        (("show", "codeparrot/apps@main"), "codeparrot/apps has the revision 'main'; expected a commit"),
    ],
)
def test_what_cannot_be_had_is_said_in_one_line(hub, tmp_path, arguments, error):
    run = pettingllms(hub, tmp_path, *arguments)
    assert run.returncode == 2
    assert run.stderr.startswith("error: ")
    assert error in run.stderr
    assert run.stderr.count("\n") == 1
    assert {path.name for path in tmp_path.iterdir()} <= {"hf"}


@pytest.mark.slow  # the Hub's client tries for 20 s
def test_a_hub_out_of_reach_is_said_in_one_line(hub, tmp_path):
    hub.url = "http://127.0.0.1:9"  # nobody listens on the port `discard`
    run = pettingllms(hub, tmp_path, "prepare", "codeparrot/apps")
    assert run.returncode == 2
    assert run.stderr.startswith("error: codeparrot/apps cannot be had (ConnectError")
    assert (
        "The network failed, not the id. Where there is one, run `pettingllms data prepare codeparrot/apps`"
        in run.stderr
    )
    exam = python(hub, tmp_path, "-c", "import pettingllms_envs as p; p.make('aime', year=2024).reset(seed=0)")
    assert "run `pettingllms data prepare HuggingFaceH4/aime_2024`; copy the folder here" in exam.stderr


def test_a_set_at_a_commit_is_loaded_without_being_prepared(hub, tmp_path):
    program = (
        "from pettingllms_envs.datasets import load\n"
        f"loaded = load('codeparrot/apps@{COMMIT}', split='test')\n"
        "print(loaded.revision, [problem.id for problem in loaded.problems])"
    )
    assert python(hub, tmp_path, "-c", program).stdout == f"{COMMIT} ['99']\n"
    assert not [request for request in hub.requests if "train" in request]  # what is not asked for is not downloaded


@pytest.mark.parametrize("library", ["huggingface_hub", "pyarrow"])
def test_a_library_that_is_not_installed_is_asked_for_by_the_name_of_the_extra(hub, tmp_path, library):
    (tmp_path / f"{library}.py").write_text("raise ImportError('not here')\n")
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from pettingllms_envs.datasets import load\n"
        "try:\n"
        f"    load('deepmind/code_contests@{COMMIT}')\n"
        "except ImportError as error:\n"
        "    print(error)"
    )
    said = python(hub, tmp_path, "-c", program).stdout
    assert f"{library} is not installed" in said
    assert "pip install -e '.[data]' in a checkout of PettingLLMs" in said


def test_a_kill_leaves_no_folder_and_the_next_run_clears_up(hub, tmp_path):
    slow = (
        "import sys, time; from pathlib import Path; from pettingllms_envs.datasets import preparing, sources\n"
        f"source = sources.find_source('codeparrot/apps@{COMMIT}')\n"
        "def told(split, read, problems):\n"
        "    if problems: print('begun', flush=True); time.sleep(60)\n"
        "preparing.prepare(source, Path('apps'), told=told)"
    )
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(tmp_path / "hf"),
    }
    command = [sys.executable, "-c", slow]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        begun = process.stdout.readline()
        process.kill()
    assert begun == b"begun\n"
    assert process.returncode == -signal.SIGKILL
    assert not (tmp_path / "apps").exists()
    assert len(list(tmp_path.glob(".apps.*.unfinished"))) == 1
    assert pettingllms(hub, tmp_path, "prepare", "codeparrot/apps", "--output", "apps").returncode == 0
    assert list(tmp_path.glob(".apps.*")) == []
    assert len(load(tmp_path / "apps", split="test").problems) == 1
