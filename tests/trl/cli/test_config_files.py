"""Configuration files inherit, are changed by the command line, and say where each line is from.

`config_digests.txt` has what each shipped one resolves to; `python tests/trl/cli/test_config_files.py` makes it.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from pettingllms_trl.cli import __main__ as cli
from pettingllms_trl.cli import arguments
from pettingllms_trl.cli.train import KINDS
from pettingllms_trl.config_files import Configuration, read, value_of
from pettingllms_trl.policies.routing import Policy


HERE = Path(__file__).resolve()
DIGESTS, CONFIGS = HERE.with_name("config_digests.txt"), HERE.parents[3] / "examples" / "configs"


def digests() -> str:
    """A line for each shipped configuration: its name, and the digest of what it resolves to."""
    lines = []
    for file in sorted(CONFIGS.glob("*.yaml")):
        resolved = json.dumps(read(file).values, sort_keys=True)
        lines.append(f"{file.name:42}{hashlib.sha256(resolved.encode()).hexdigest()[:16]}\n")
    return "".join(lines)


def written(folder: Path, **files: str) -> Path:
    """Files by name, of which the first is returned."""
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)
    return folder / f"{next(iter(files))}.yaml"


def values(folder: Path, **files: str) -> Any:
    return read(written(folder, **files)).values


# ---- Files --------------------------------------------------------------------------------------------------------


def test_the_shipped_configurations_resolve_to_what_they_are_recorded_as() -> None:
    found, recorded = digests().splitlines(), DIGESTS.read_text("utf-8").splitlines()
    assert len(recorded) == 162
    assert found == recorded, "if it is meant: python tests/trl/cli/test_config_files.py"


def test_mappings_merge_lists_and_values_replace_and_null_removes(tmp_path: Path) -> None:
    base = "a: {x: 1, y: {p: 1, q: 2}}\nb: [1, 2]\nc: 1\nd: gone\ne: {x: 1}\n"
    own = "defaults: base.yaml\na: {y: {q: 3}, z: 4}\nb: [5]\nc: {x: 1}\nd: null\ne: 7\nf: null\n"
    assert values(tmp_path, own=own, base=base) == {
        "a": {"x": 1, "y": {"p": 1, "q": 3}, "z": 4},
        "b": [5],
        "c": {"x": 1},
        "e": 7,
        "f": None,  # nothing is inherited that it could remove
    }


def test_later_defaults_win_the_file_wins_over_all_and_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    written(tmp_path, one="a: 1\nb: 1\nc: 1\nd: 1\n", two="b: 2\nc: 2\nd: 2\n")
    written(tmp_path / "deep", middle="defaults: ../two.yaml\nc: 3\nd: 3\n")
    own = "d: 4\ndefaults: [one.yaml, deep/middle.yaml]\n"  # wherever the line stands
    assert values(tmp_path, own=own) == {"a": 1, "b": 2, "c": 3, "d": 4}


def test_two_files_may_inherit_from_one(tmp_path: Path) -> None:
    files = {"own": "defaults: [left.yaml, right.yaml]", "left": "defaults: base.yaml\na: 2", "base": "a: 1\nb: 1"}
    # The base comes in again with the right one, so that its a wins.
    assert values(tmp_path, **files, right="defaults: base.yaml\nb: 3") == {"a": 1, "b": 3}


@pytest.mark.parametrize(
    ("text", "in_a_file", "on_the_command_line"),
    [
        ("1e-5", 1e-5, 1e-5),
        ("-2E+3", -2000.0, -2000.0),
        ("1e5", 1e5, 1e5),
        ("0.5", 0.5, 0.5),
        ("5", 5, 5),
        ("1e5x", "1e5x", "1e5x"),
        ("01e5", "01e5", "01e5"),  # no number in JSON either
        ("'1e5'", "1e5", "1e5"),
        ("true", True, True),
        ("no", False, "no"),
        ("On", True, "On"),
        ("null", None, None),
        ("", None, None),
        ("[1, 1e-1]", [1, 0.1], [1, 0.1]),
        ("{a: {b: 1e2}}", {"a": {"b": 100.0}}, {"a": {"b": 100.0}}),
    ],
)
def test_values_are_yaml_with_the_numbers_of_json(
    text: str, in_a_file: Any, on_the_command_line: Any, tmp_path: Path
) -> None:
    found = [values(tmp_path, own=f"a: {text}\n")["a"], value_of(text, "a")]
    assert found == [in_a_file, on_the_command_line]
    assert [type(each) for each in found] == [type(in_a_file), type(on_the_command_line)]


VALUES = {
    "text": ["1e-5", "no", "a: b", "# x", "two\nlines", "tab\t", "", " s ", "null", "ä \N{EM DASH}", "x" * 300],
    "numbers": [1e-5, 1e22, 5, -0.0, float("inf"), True, None],
    "nested": {"empty": {}, "none": None, "list": [{"a": 1}], "3": {3: "three"}, "a b": {"c": [[]]}},
}


def test_what_is_shown_is_yaml_and_says_the_same(tmp_path: Path) -> None:
    text = Configuration(VALUES).text()
    assert read(written(tmp_path, own=text)).values == VALUES


def test_each_line_says_where_it_is_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(
        tmp_path,
        own="defaults: base.yaml\nenv_kwargs:\n  size: 5\n",
        base="env_id: sokoban\nenv_kwargs:\n  size: 6\n  boxes: 1\nlearning_rate: 1e-5\n",
    )
    changes = ["env_kwargs.num_turns=2", "--max_steps", "7", "save_strategy=no", "hub_token=hf_x", "env.A_KEY=k"]
    with pytest.raises(SystemExit) as ended:
        cli.train(["--config", str(file), "--show", *changes])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    lines = [[" ".join(part.split()) for part in line.split(" # ")] for line in shown.splitlines()[1:]]
    assert lines == [
        ["env_id: sokoban", f"{tmp_path}/base.yaml, line 1"],
        ["env_kwargs:", f"{file}, line 2"],
        ["size: 5", f"{file}, line 3"],
        ["boxes: 1", f"{tmp_path}/base.yaml, line 4"],
        ["num_turns: 2", "command line"],
        ["learning_rate: 1.0e-05", f"{tmp_path}/base.yaml, line 5"],
        ["max_steps: 7", "command line"],
        ["save_strategy: 'no'", "command line"],
        ["# hub_token: left out, a secret of command line"],
        ["env: {}", "command line"],
        ["# A_KEY: left out, a secret of command line"],
    ]
    expected = {"env_id": "sokoban", "env_kwargs": {"size": 5, "boxes": 1, "num_turns": 2}, "learning_rate": 1e-5}
    shown_file = written(tmp_path, shown=shown)
    assert read(shown_file).values == {**expected, "max_steps": 7, "save_strategy": "no", "env": {}}


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"own": "a: 1\ndefaults: none.yaml"}, "own.yaml, line 2 has defaults: '{}/none.yaml': No such file"),
        ({"own": "defaults: own.yaml"}, "inherits from itself: {0}/own.yaml -> {0}/own.yaml. Remove"),
        (
            {"own": "defaults: a.yaml", "a": "x: 1\ndefaults: [b.yaml]", "b": "defaults: ./a.yaml"},
            "b.yaml, line 1 has defaults: '{0}/a.yaml', which inherits from itself: "
            "{0}/own.yaml -> {0}/a.yaml -> {0}/b.yaml -> {0}/a.yaml. Remove",
        ),
        ({"own": "a: 1\ndefaults: 5"}, "own.yaml, line 2 has defaults: 5; expected a file or a list of files"),
        ({"own": "defaults: [a.yaml, 1]"}, "own.yaml, line 1 has defaults: ['a.yaml', 1]; expected a file or"),
        ({"own": "defaults: {a: 1}"}, "line 1 has defaults: {{'a': 1}}; expected a file or"),
        ({"own": "defaults: a.yaml", "a": "- 1"}, "a.yaml has a list; expected lines such as"),
        ({"own": "defaults: a.yaml", "a": ""}, "a.yaml has nothing; expected lines such as"),
        (
            {"own": "a:\n\tsize: 5"},
            "own.yaml, line 2: '\\tsize: 5': found character '\\t' that cannot start any token",
        ),
        ({"own": "defaults: a.yaml", "a": "a: b: c"}, "a.yaml, line 1: 'a: b: c': mapping values are not allowed"),
        ({"own": "a: [1"}, "; expected YAML. Fix the file."),
        ({"own": "[1]: 2"}, "expected YAML"),
        ({"own": "a: &a {b: *a}"}, "expected YAML"),
        ({"own": "a: !!python/name:os.system ''"}, "line 1: "),
        (
            {"own": "defaults: a.yaml", "a": "a:\n  b: 1\n  b: 2"},
            "a.yaml, line 3: '  b: 2': line 2 has 'b', too; one of them would be lost; expected YAML",
        ),
        ({"own": "a: [{b: 1, 'b': 1}]"}, "line 1 has 'b', too"),
    ],
    ids=lambda each: None if isinstance(each, str) else next(iter(each.values())).replace("\t", "TAB"),
)
def test_a_mistake_is_named_with_its_file_line_and_key(files: dict[str, str], said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"expected|Remove") as error:
        values(tmp_path, **files)
    assert said.format(tmp_path) in " ".join(str(error.value).split(" "))


@pytest.mark.parametrize("base", ["no\0tes", "\xff"], ids=["a byte 0", "no UTF-8"])
def test_what_is_no_text_is_refused(base: str, tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_bytes(base.encode("latin-1"))
    with pytest.raises(ValueError, match=r"(?s)base.yaml.*expected YAML"):
        values(tmp_path, own="defaults: base.yaml")


# ---- The command line ----------------------------------------------------------------------------------------------


def parsed(*argv: str) -> tuple[Any, ...]:
    return arguments.parse([*argv, "--use_cpu", "--bf16", "false"], KINDS, prog="test")


@pytest.fixture
def game(tmp_path: Path) -> Path:
    """A team on Plan-Path."""
    text = "env_id: plan_path\nenv_kwargs: {size: 4, num_turns: 2}\npolicies: lora\nmodel_name_or_path: m\n"
    return written(tmp_path, game=f"{text}train_seeds: [0, 8]\nmax_completion_length: 8\n")


def test_dotted_keys_change_the_file_wherever_they_stand(game: Path) -> None:
    keys = ("env_kwargs.size=5", "learning_rate=1e-5", "env_kwargs.alpha=0.5")
    for argv in ([*keys, "--config", str(game)], ["--config", str(game), *keys], [keys[0], f"--config={game}", *keys]):
        given, _, args, _ = parsed(*argv)
        assert given.env_kwargs == {"size": 5, "num_turns": 2, "alpha": 0.5}
        assert args.learning_rate == 1e-5
    given, _, args, _ = parsed("--config", str(game), "env_kwargs.size=null", "max_completion_length=null")
    default = parsed("--env", "plan_path")[2].max_completion_length
    assert (given.env_kwargs, args.max_completion_length) == ({"num_turns": 2}, default)
    # An option replaces a mapping as before, a key merges with it.
    assert parsed("--config", str(game), "--env_kwargs", '{"size": 5}')[0].env_kwargs == {"size": 5}
    assert parsed("--config", str(game), "env_kwargs={size: 5}")[0].env_kwargs == {"size": 5, "num_turns": 2}
    assert parsed("--config", str(game), "--max_completion_length", "none")[2].max_completion_length is None


def test_keys_of_anchors_and_merges_are_no_second_ones(tmp_path: Path) -> None:
    own = "a: &a {x: 1}\nb: &b\n  <<: *a\n  x: 2\nc: {<<: [*a, *b], 1: 1, '1': 2}\nd: *b\ne: *b"
    assert values(tmp_path, own=own) == {
        "a": {"x": 1},
        "c": {"x": 1, 1: 1, "1": 2},
        **{key: {"x": 2} for key in "bde"},
    }


def test_no_is_a_word_as_the_value_of_a_field_and_false_in_its_parts(game: Path) -> None:
    keys = ["save_strategy=no", "chat_template_kwargs.enable_thinking=no", "policies.planner.trainable=off"]
    given, _, args, _ = parsed("--config", str(game), *keys, "--env_kwargs", "{strict_format: no}")
    assert (args.save_strategy, args.chat_template_kwargs) == ("no", {"enable_thinking": False})
    assert given.env_kwargs == {"strict_format": False}
    assert not given.policies["planner"].trainable


def test_a_value_of_an_option_is_no_key_but_what_follows_a_switch_is(game: Path) -> None:
    given, _, args, _ = parsed("--config", str(game), "--output_dir", "a=b", "--log_completions", "env_kwargs.size=6")
    assert (args.output_dir, args.log_completions, given.env_kwargs["size"]) == ("a=b", True, 6)
    assert parsed("--env", "plan_path", "save_strategy=no", "env_kwargs.size=5")[2].save_strategy == "no"


@pytest.mark.parametrize(
    ("before", "key", "expected"),
    [
        (
            "lora",
            "policies.planner.learning_rate=1e-5",
            {"drafter": Policy(adapter="drafter"), "planner": Policy(adapter="planner", learning_rate=1e-5)},
        ),
        ("shared", "policies.planner.trainable=false", {"drafter": Policy(), "planner": Policy(trainable=False)}),
        (
            "full",
            "policies.drafter.beta=0.1",
            {"drafter": Policy(name="drafter", model="m", beta=0.1), "planner": Policy(name="planner", model="m")},
        ),
        (
            "lora",
            "policies.planner_0.beta=0",
            {
                "drafter": Policy(adapter="drafter"),
                "planner": Policy(adapter="planner"),
                "planner_0": Policy(adapter="planner", beta=0),
            },
        ),
        (
            "{drafter: d, planner: p}",
            "policies.drafter.beta=0.1",
            {"drafter": Policy(adapter="d", beta=0.1), "planner": "p"},
        ),
    ],
)
def test_a_dotted_key_makes_the_policies_that_a_text_stands_for(
    before: str, key: str, expected: Any, game: Path
) -> None:
    given, *_ = parsed("--config", str(game), f"policies={before}", key)
    assert given.policies == expected


def test_a_dotted_key_makes_the_mapping_of_any_text_that_stands_for_one(game: Path, tmp_path: Path) -> None:
    given, _, args, _ = parsed("--config", str(game), "history.planner=conversation", "credit.at_grpo.group=turn")
    assert args.history == {"drafter": "none", "planner": "conversation"}
    assert given.credit == {"at_grpo": {"group": "turn"}}
    several = written(tmp_path, several="environments: {a: sokoban, b: plan_path}\n")
    given, *_ = parsed("--config", str(several), "environments.a.env_kwargs.boxes=2")
    assert [(each.env_id, each.env_kwargs) for each in given.environments.values()] == [
        ("sokoban", {"boxes": 2}),
        ("plan_path", {}),
    ]


@pytest.mark.parametrize(
    ("lines", "argv", "said"),
    [
        (
            "",
            ["env_kwarg.size=5"],
            "the command line has 'env_kwarg'; expected a field that is known. Did you mean 'env_kwargs'?",
        ),
        (
            "learning_rat: 1",
            [],
            "game.yaml, line 7 has 'learning_rat'; expected a field that is known. Did you mean 'learning_rate'?",
        ),
        ("", ["policies.planer.beta=1"], "policies names 'planer', but the environment has"),
        (
            "",
            ["policies.planner.learning_rat=1"],
            "policies['planner'] has 'learning_rat'; expected a field that is known. Did you",
        ),
        ("", ["policies=lorra", "policies.planner.beta=1"], "policies='lorra', expected 'shared'"),
        (
            "",
            ["learning_rate.x=1"],
            "the command line has learning_rate.x, but learning_rate is 1e-06; expected a mapping.",
        ),
        (
            "",
            ["train_seeds.0=1"],
            "the command line has train_seeds.0, but train_seeds is [0, 8]; expected a mapping.",
        ),
        ("", ["model_name_or_path.x=1"], "model_name_or_path is 'm'; expected a mapping"),
        ("", ["env_kwargs.size=[1"], "env_kwargs.size is '[1': while parsing"),
        ("max_steps: [1]", [], "game.yaml, line 7 has max_steps: [1]; expected a whole number"),
        ("max_steps: 1.5", [], "game.yaml, line 7 has max_steps: 1.5; expected a whole number"),
        ("use_vllm: 3", [], "game.yaml, line 7 has use_vllm: 3; expected true or false"),
        ("output_dir: {a: 1}", [], "line 7 has output_dir: {'a': 1}; expected a text."),
        ("learning_rate: fast", [], "game.yaml, line 7: argument --learning_rate: invalid"),
        ("", ["learning_rate=fast"], "command line: argument --learning_rate: invalid"),
        ("model: m", [], "has 'model'; expected a field that is known. Did you mean 'model_name_or_path'?"),
        ("seed: null", [], "game.yaml, line 7 has seed: None; expected a whole number. Correct it."),
        (
            "",
            ["policies.planner.beta=low"],
            "policies['planner']: a Policy has beta='low', expected a positive number",
        ),
        (
            "credit: at_grpo",
            ["credit.loo.value=outcome"],
            "Write credit: {loo: {value: outcome}}, and take what is inherited away: credit.at_grpo=null.",
        ),
        ("env: sokoban", [], "game.yaml, line 7 has env: 'sokoban'; TRL expected a mapping"),
        ("", ["--config"], "--config has no value; expected the path of a YAML file"),
    ],
)
def test_a_mistake_in_a_field_is_one_line(
    lines: str, argv: list[str], said: str, game: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    game.write_text(f"{game.read_text()}{lines}\n")
    assert cli.train(["--config", str(game), "--use_cpu", "--bf16", "false", "--report_to", "none", *argv]) == 2
    (line,) = [each for each in capsys.readouterr().err.splitlines() if each.startswith("error: ")]
    assert said in line


if __name__ == "__main__":
    DIGESTS.write_text(digests(), encoding="utf-8")
