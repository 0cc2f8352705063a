"""`pettingllms push`: a run becomes a data set of the Hub, and only if asked."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import DatasetCard, HfApi
from huggingface_hub.errors import HfHubHTTPError

from pettingllms_envs.cli import main
from pettingllms_envs.episodes.origin import without_paths
from pettingllms_envs.evaluation import hub
from taking_hub import FakeHub, serving


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)  # this one is on this machine
    with serving() as fake:
        yield fake


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20 episodes of Plan-Path, played by the oracle."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    assert main(["bench", "plan_path", "--agents", "oracle", "--limit", "20", "--output", str(folder)]) == 0
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "run")
    (tmp_path / "run" / "secrets.env").write_text("TOKEN=1")
    return tmp_path / "run"


def test_a_run_is_uploaded_whole_with_a_card_and_nothing_else(fake: FakeHub, run: Path) -> None:
    address = hub.push(run, "me/plan-path", api=HfApi(endpoint=fake.endpoint, token="hf_fake"))
    assert address.startswith(f"{fake.endpoint}/datasets/me/plan-path/commit/")
    files = fake.files["dataset/me/plan-path"]
    assert sorted(files) == ["README.md", "episodes.jsonl", "report.json", "run.json"]
    for name in ("episodes.jsonl", "report.json"):
        assert files[name] == (run / name).read_bytes()
    assert json.loads(files["run.json"]) == without_paths(json.loads((run / "run.json").read_text()))
    assert fake.private["dataset/me/plan-path"]
    card = DatasetCard(files["README.md"].decode("utf-8"))
    assert card.data.to_dict()["configs"] == [{"config_name": "default", "data_files": "episodes.jsonl"}]
    assert "| success | 100.0%, 95% interval [83.9, 100.0] (wilson) |" in card.text  # 20 of 20
    assert "| `planner_0` | oracle | 20 |" in card.text


def test_a_second_push_is_one_more_commit(fake: FakeHub, run: Path) -> None:
    api = HfApi(endpoint=fake.endpoint, token="hf_fake")
    hub.push(run, "me/plan-path", api=api)
    (run / "page.html").write_text("<html></html>")
    hub.push(run, "me/plan-path", api=api)
    assert "page.html" in fake.files["dataset/me/plan-path"]


def test_a_hub_that_refuses_is_an_error_and_nothing_is_lost(fake: FakeHub, run: Path) -> None:
    fake.refuse = True
    with pytest.raises(HfHubHTTPError, match="403"):
        hub.push(run, "me/plan-path", api=HfApi(endpoint=fake.endpoint, token="hf_fake"))
    assert json.loads((run / "report.json").read_text())["episodes"]["ended"] == 20


def test_the_command_asks_first(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pushed: list[tuple[Path, str, bool]] = []

    def noted(folder: Path, repo: str, *, private: bool) -> str:
        pushed.append((folder, repo, private))
        return "https://hub/commit"

    monkeypatch.setattr(hub, "push", noted)
    monkeypatch.setattr("rich.console.Console.input", lambda *_: "n")
    assert main(["push", str(run), "me/plan-path"]) == 1
    assert not pushed
    assert "To the data set me/plan-path (private, if it is new): run.json" in capsys.readouterr().out
    assert main(["push", str(run), "me/plan-path", "--yes", "--public"]) == 0
    assert pushed == [(run, "me/plan-path", False)]


def command_to(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command push there."""
    push, api = hub.push, HfApi(endpoint=endpoint, token="hf_fake")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub, "push", lambda folder, repo, *, private: push(folder, repo, private=private, api=api))


def test_a_hub_that_is_not_there_or_refuses_is_told_in_one_line(
    fake: FakeHub, run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.refuse = True
    with monkeypatch.context() as patch:
        command_to("http://127.0.0.1:1", patch)
        assert main(["push", str(run), "me/plan-path", "--yes"]) == 2
    unreachable = capsys.readouterr().err
    with monkeypatch.context() as patch:
        command_to(fake.endpoint, patch)
        assert main(["push", str(run), "me/plan-path", "--yes"]) == 2
    refused = capsys.readouterr().err
    with monkeypatch.context() as patch:
        patch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        assert main(["push", str(run), "me/plan-path", "--yes"]) == 2
    offline = capsys.readouterr().err
    for said, why in ((unreachable, "Connection refused"), (refused, "403"), (offline, "ffline")):
        assert said.startswith("error: nothing was uploaded to me/plan-path (")
        assert why in said
        assert "expected the Hub, and a token that may write there. `hf auth login` gives one" in said
        assert said.count("\n") == 1
        assert "hf_fake" not in said


def test_paths_of_this_machine_that_would_be_uploaded_are_shown(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    main(["push", str(run), "me/plan-path"])
    assert "run.json names" not in capsys.readouterr().out
    header = json.loads((run / "run.json").read_text())
    header["config"]["agents"]["planner_0"] |= {"target": "/home/ada/model", "adapter": "C:\\ada\\lora"}
    (run / "run.json").write_text(json.dumps(header))
    main(["push", str(run), "me/plan-path"])
    assert "of which the last names are uploaded: /home/ada/model, C:\\ada\\lora" in capsys.readouterr().out


def test_no_file_that_is_uploaded_has_a_path_of_this_machine(fake: FakeHub, run: Path) -> None:
    for name in ("run.json", "report.json"):
        content = json.loads((run / name).read_text()) | {"data": {"name": "/home/ada/rows.jsonl", "note": ""}}
        (run / name).write_text(json.dumps(content))
    hub.push(run, "me/plan-path", api=HfApi(endpoint=fake.endpoint, token="hf_fake"))
    files = fake.files["dataset/me/plan-path"]
    assert json.loads(files["report.json"])["data"]["name"] == "rows.jsonl"
    assert [name for name, content in files.items() if b"/home/ada" in content] == []


def test_where_nobody_can_be_asked_nothing_is_uploaded(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert main(["push", str(run), "me/plan-path"]) == 1
    assert "Nothing was uploaded. --yes does not ask." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["push", "nowhere", "me/it"], "run.json: No such file or directory"),
        (["push", ".", "it"], "the repository is 'it'; expected NAME/REPOSITORY"),
    ],
)
def test_a_wrong_call_is_refused(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert message in capsys.readouterr().err
