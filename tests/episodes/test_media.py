"""Images of prompts: in records, read again, replayed, on the page."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

import picture_plan_v0
from pettingllms_envs import cli, registry
from pettingllms_envs.agents.base import AgentRefused, Reply, Request
from pettingllms_envs.agents.openai import ChatApi, Endpoint
from pettingllms_envs.episodes import files, media
from pettingllms_envs.episodes.episode import Instance, RunLimits, episode
from pettingllms_envs.episodes.prompts import digests_of, messages_of
from pettingllms_envs.evaluation import hub
from pettingllms_envs.observations import PNG, Image
from pettingllms_envs.page.build import page
from pettingllms_envs.registry import Entry
from pettingllms_envs.testing import check


Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Exit status and output of a command, where `picture_plan` is installed."""
    monkeypatch.setattr(registry, "_plug_ins", lambda: (Entry("picture_plan", 0, "picture_plan_v0", "someone"),))
    monkeypatch.chdir(tmp_path)

    def command(*line: str) -> tuple[int, str]:
        status = cli.main(list(line))
        out, err = capsys.readouterr()
        return status, out + err

    return command


@pytest.fixture
def recorded(run: Run) -> Path:
    """Two episodes that an oracle played."""
    status, out = run("bench", "picture_plan", "--agents", "oracle", "--limit", "2", "--output", "run")
    assert status == 0, out
    return Path("run")


def in_a_run(recorded: Path) -> set[str]:
    return {file.stem for file in (recorded / "media").iterdir()}


class TextsOnly:
    """An agent by others, which says nothing of images."""

    def reply(self, request: Request) -> Reply:
        return Reply(text="Moves: U")


def test_an_image_is_recorded_by_digest_and_description_and_written_once(recorded: Path) -> None:
    rows = files.read(recorded)
    env = picture_plan_v0.env()
    env.reset(seed=rows[0]["instance"]["seed"], options=rows[0]["instance"]["options"])
    image, text = env.observe("drafter_0")["parts"]
    system, user = messages_of(rows[0]["steps"][0])
    assert user == {
        "role": "user",
        "content": [{"type": "image", "digest": image.digest, "alt": image.alt}, {"type": "text", "text": text}],
    }
    assert rows[0]["steps"][0]["prompt"] == {"system": system["content"], "text": f"[image: {image.alt}]\n{text}"}
    shown = [digest for row in rows for step in row["steps"] for digest in digests_of(step)]
    assert in_a_run(recorded) == set(shown)
    assert len(shown) > len(set(shown))  # drafter and planner of a turn see the same board
    assert media.read_image(recorded, image.digest) == image.png


def test_a_recorded_episode_with_images_is_replayed_byte_for_byte(recorded: Path, run: Run) -> None:
    status, out = run("replay", "run", "--rescore", "again")
    assert (status, "2 of 2 episodes are the same, byte for byte." in out) == (0, True), out
    assert (Path("again") / "episodes.jsonl").read_bytes() == (recorded / "episodes.jsonl").read_bytes()
    assert in_a_run(Path("again")) == in_a_run(recorded)
    status, out = run("bench", "picture_plan", "--agents", "recorded:run", "--limit", "2", "--output", "copy")
    assert status == 0, out
    assert [row["returns"] for row in files.read(Path("copy"))] == [row["returns"] for row in files.read(recorded)]


def test_another_picture_in_a_replay_is_a_difference(recorded: Path, run: Run) -> None:
    file = recorded / "episodes.jsonl"
    digest = digests_of(files.read(recorded)[0]["steps"][0])[0]
    file.write_text(file.read_text("ascii").replace(digest, "0" * 64, 1), "ascii")
    status, out = run("replay", "run")
    assert status == 1
    assert "step 0 (drafter_0): messages[1]['content'][0]['digest'] from character 0: expected '0000" in out


def test_a_run_that_was_killed_goes_on_with_the_images_that_it_has(recorded: Path, run: Run) -> None:
    whole = (recorded / "episodes.jsonl").read_bytes()
    first, second = files.read(recorded)
    (recorded / "episodes.jsonl").write_bytes(whole[: whole.index(b"\n") + 100])
    lost = {digest for step in second["steps"] for digest in digests_of(step)}
    lost -= {digest for step in first["steps"] for digest in digests_of(step)}
    for digest in lost:
        media.image_file(recorded, digest).unlink()
    assert run("bench", "picture_plan", "--agents", "oracle", "--limit", "2", "--output", "run")[0] == 0
    assert [row["digest"] for row in files.read(recorded)] == [first["digest"], second["digest"]]
    assert lost <= in_a_run(recorded)


def test_a_missing_or_altered_image_is_an_error_in_words(recorded: Path, run: Run) -> None:
    rows = files.read(recorded)
    digest = digests_of(rows[0]["steps"][0])[0]
    file = media.image_file(recorded, digest)
    png = file.read_bytes()
    file.write_bytes(png + b"\n")
    with pytest.raises(ValueError, match=r"is not the image that a prompt of the run shows: .* Restore the file."):
        media.images_of_run(recorded, rows)
    file.unlink()
    with pytest.raises(ValueError, match=r"there is no run/media/.*png, which a prompt of the run shows"):
        hub.push(recorded, "me/it", api=object())
    status, out = run("view", "run")
    assert (status, "there is no run/media/" in out) == (2, True)


def test_no_path_is_read_from_a_digest(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"an image has the digest '\.\./\.\./etc/passwd'; expected 64 hex digits"):
        media.read_image(tmp_path, "../../etc/passwd")


def test_the_page_holds_every_image_once(recorded: Path) -> None:
    text = page(recorded)
    for digest in in_a_run(recorded):
        assert text.count(f'id="image-{digest}"') == 1


def test_info_describes_images_in_their_place(run: Run) -> None:
    status, out = run("info", "picture_plan")
    assert status == 0, out
    assert "[image: " in out
    assert "Image(" not in out


def test_a_server_is_sent_the_image_of_a_prompt() -> None:
    bodies: list[dict[str, Any]] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        bodies.append(json.loads(request.content))
        return httpx2.Response(200, json={"choices": [{"message": {"content": "Moves: U"}}]})

    client = httpx2.Client(transport=httpx2.MockTransport(answer))
    agent = ChatApi(Endpoint(base_url="http://host/v1", model="m"), client)
    env = picture_plan_v0.env()
    kept: list[Image] = []
    row = episode(
        env, Instance(0, 0), 0, dict.fromkeys(env.possible_agents, agent), RunLimits(max_steps=1), keep=kept.append
    )
    shown, text = bodies[0]["messages"][1]["content"]
    assert base64.b64decode(shown["image_url"]["url"].partition(",")[2]) == kept[0].png
    assert text["type"] == "text"
    assert digests_of(row["steps"][0]) == [kept[0].digest]


def test_an_agent_that_reads_texts_only_is_refused_before_it_is_asked() -> None:
    env = picture_plan_v0.env()
    agents = dict.fromkeys(env.possible_agents, TextsOnly())
    with pytest.raises(AgentRefused, match="drafter_0 observes images, which TextsOnly cannot be given; expected"):
        episode(env, Instance(0, 0), 0, agents, RunLimits())


def test_an_environment_with_images_passes_the_checks_of_what_it_shows() -> None:
    only = ("observations", "snapshots", "no solution shown")
    check(picture_plan_v0.env, seeds=range(1), only=only).raise_if_failed()


@pytest.mark.slow
def test_an_environment_with_images_passes_check() -> None:
    check(picture_plan_v0.env).raise_if_failed()


def test_a_run_that_is_discarded_leaves_no_images(tmp_path: Path) -> None:
    media.write_image(tmp_path / "run", Image(PNG, "nothing"))
    media.remove_images(tmp_path / "run")
    assert not any((tmp_path / "run").iterdir())
