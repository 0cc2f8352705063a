"""A film of one training episode: its frames, which episode, and what has no film."""

from pathlib import Path

import pytest
from PIL import Image

from pettingllms_envs.cli import main
from pettingllms_envs.episodes import files
from pettingllms_envs.page.film import FRAMES_OF_CANDIDATES, _frame, film
from pettingllms_envs.replies.moves import last_line


def test_a_decision_shows_its_candidates_then_the_best_then_its_moves(rollouts: Path) -> None:
    rows = files.read(rollouts / files.EPISODES)
    at = next(at for at, row in enumerate(rows) if row["success"])
    frames = film(rollouts, at + 1)
    decisions = [frame.tobytes() for frame in frames]
    assert len(set(decisions[:FRAMES_OF_CANDIDATES])) == 1
    assert decisions[0] != decisions[FRAMES_OF_CANDIDATES]
    moves = sum(len(last_line(step["reply"]).removeprefix("Moves: ").split()) for step in rows[at]["steps"][1::2])
    # Each decision twice, each move but the last of a reply, which the next decision's board shows, and the end.
    assert len(frames) <= 2 * FRAMES_OF_CANDIDATES * len(rows[at]["steps"]) + moves + 1
    assert len({frame.size for frame in frames}) == 1


def test_without_a_number_it_is_a_success_and_the_command_writes_it(rollouts: Path, tmp_path: Path) -> None:
    file = tmp_path / "game.gif"
    assert main(["view", str(rollouts), "--film", str(file)]) == 0
    with Image.open(file) as image:
        assert image.n_frames > 2
    assert not (rollouts / "page.html").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--episode", "0"], "--episode is 0; expected 1 to 8, the episodes of"),
        (["--episode", "9"], "--episode is 9; expected 1 to 8, the episodes of"),
    ],
)
def test_an_episode_that_is_not_there_is_refused(
    rollouts: Path, tmp_path: Path, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["view", str(rollouts), "--film", str(tmp_path / "game.gif"), *options]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "game.gif").exists()


@pytest.mark.parametrize(
    "options", [["--episode", "1"], ["--film", "a.gif", "--serve"], ["--film", "a.gif", "--output", "b"]]
)
def test_options_that_do_not_go_together_are_refused(
    rollouts: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["view", str(rollouts), *options]) == 2
    assert capsys.readouterr().err.startswith("error: --")


def test_of_more_candidates_than_have_room_the_best_one_is_shown() -> None:
    board, tile = Image.new("RGB", (300, 300)), Image.new("RGB", (116, 116), "#123456")
    candidates = [{"reply": f"Moves: {'U' * at}", "reward": 0.0, "chosen": at == 11} for at in range(12)]
    pictures = [Image.new("RGB", (116, 116), "#ffffff")] * 11 + [tile]
    shown = _frame(board, "", candidates, pictures, chosen=True)
    assert (0x12, 0x34, 0x56) in {color for _, color in shown.getcolors(1 << 20)}


def test_a_benchmark_has_no_candidates_and_no_film(bench: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no episode with candidates; expected a training's"):
        film(bench)
