"""`study.yaml`: which runs it asks for, how their fields are put together, and what raises."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from pettingllms_envs.research.studies.results import Cell, CellResult, read_all
from pettingllms_trl.research.study.cells import as_recorded
from pettingllms_trl.research.study.plans.plan import filled, merged, selected
from pettingllms_trl.research.study.plans.study_file import read_study, study_of


GIVEN: dict[str, Any] = {
    "base": {"model_name_or_path": "{folder}/base", "learning_rate": 0.1, "env_kwargs": {"size": 4}},
    "environments": {
        "grid": {"env_id": "plan_path", "env_kwargs": {"workflow": "draft_plan"}},
        "boxes": {"env_id": "sokoban"},
    },
    "methods": {
        "ours": None,
        "theirs": {"credit": "loo", "only": ["grid"]},
        "single": {"per_environment": {"grid": {"env_kwargs": {"workflow": "single"}}}},
        "untrained": {"trained": False},
    },
    "seeds": [1, 2],
    "tokens": 1000,
    "evaluation": {"split": "test", "instances": [100, 120]},
    "tuning": {"vary": {"learning_rate": [0.2, 0.4]}, "seeds": [7], "split": "validation", "instances": 10},
    "prepare": "make {folder} {seed}",
}


def given(**fields: Any) -> dict[str, Any]:
    return {**copy.deepcopy(GIVEN), **fields}


def config(cell: Cell, **fields: Any) -> Any:
    return study_of(given(**fields), name="made").run(cell).config


def cell(method: str = "ours", environment: str = "grid", **fields: Any) -> Cell:
    return Cell(**{"phase": "evaluation", "environment": environment, "method": method, "seed": 1, **fields})


def test_a_study_has_a_run_for_each_seed_method_and_environment_and_for_each_setting_that_is_tuned() -> None:
    study = study_of(given(), name="made")
    assert [each.name for each in study.tuning_cells()] == [
        f"tuning/{where}/learning_rate={rate}/7"
        for where in ("grid/ours", "grid/theirs", "grid/single", "boxes/ours", "boxes/single")
        for rate in (0.2, 0.4)
    ]
    assert [each.name for each in study.outline().cells()] == [
        f"evaluation/{environment}/{method}/{seed}"
        for environment, methods in (("grid", ["ours", "theirs", "single", "untrained"]), ("boxes", "osu"))
        for seed in (1, 2)
        for method in ({"o": "ours", "s": "single", "u": "untrained"}.get(m, m) for m in methods)
    ]
    assert study.outline().num_comparisons == 3 + 2
    assert {each.method for each in study.fidelity_cells()} == {"ours", "theirs", "single"}


def test_later_layers_win_and_the_settings_of_the_environment_are_joined() -> None:
    assert merged({"a": 1, "env_kwargs": {"x": 1, "y": 1}}, {"a": 2, "env_kwargs": {"y": 2}}, {"b": {"c": 1}}) == {
        "a": 2,
        "env_kwargs": {"x": 1, "y": 2},
        "b": {"c": 1},
    }
    single = config(cell("single", setting={"learning_rate": 0.4}))["train"]
    assert single["env_kwargs"] == {"size": 4, "workflow": "single"}
    assert (single["env_id"], single["learning_rate"], single["seed"]) == ("plan_path", 0.4, 1)
    assert (single["eval_seeds"], single["eval_split"]) == ([100, 120], "test")
    assert config(cell("theirs"))["train"]["credit"] == "loo"


def test_a_method_is_tuned_in_fields_of_its_own_beside_those_of_all() -> None:
    own = {"theirs": {"imitate": ["best", "success"]}, "single": {"learning_rate": [0.8]}}
    study = study_of(given(tuning={**GIVEN["tuning"], "per_method": own}), name="made")
    settings = {each.method: [] for each in study.tuning_cells()}
    for each in study.tuning_cells():
        if each.environment == "grid":
            settings[each.method].append(dict(each.setting))
    rates = [{"learning_rate": 0.2}, {"learning_rate": 0.4}]
    both = [{**rate, "imitate": what} for rate in rates for what in ("best", "success")]
    assert settings == {"ours": rates, "theirs": both, "single": [{"learning_rate": 0.8}]}
    outline = study.outline()
    assert outline.settings_of("theirs")[1] == "learning_rate=0.2,imitate=success"
    assert [*outline.settings_of("ours")] == ["learning_rate=0.2", "learning_rate=0.4"]
    assert "per_method" not in (study_of(given(), name="made").outline().tuning or {})  # as earlier versions wrote it


def test_tuning_has_its_own_instances_and_no_curve_and_the_untrained_spend_nothing() -> None:
    tuning = config(cell(phase="tuning", seed=7, setting={"learning_rate": 0.2}))
    assert (tuning["train"]["eval_seeds"], tuning["train"]["eval_split"]) == ([0, 10], "validation")
    assert (tuning["tokens"], tuning["curve"]) == (1000, {"points": 0, "instances": 10})
    assert config(cell())["curve"] == {"points": 5, "instances": 20}  # no more than there are
    untrained = config(cell("untrained"))
    assert (untrained["trained"], untrained["tokens"], untrained["curve"]["points"]) == (False, 0, 0)


def test_placeholders_are_replaced_in_texts_at_any_depth_and_other_braces_are_kept() -> None:
    content = {"a": "{folder}/base", "b": ['{"x": "{environment}"}', 3], "c": {"d": "{seed}-{seed}"}}
    assert filled(content, seed=7, environment="grid", folder="/w") == {
        "a": "/w/base",
        "b": ['{"x": "grid"}', 3],
        "c": {"d": "7-7"},
    }


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        ([], 14),
        (["boxes"], 6),
        (["grid/ours"], 2),
        (["grid/1", "boxes/untrained"], 4 + 2),
        (["evaluation/unt*"], 4),
        (["nothing"], 0),
    ],
)
def test_a_part_of_a_study_is_selected_by_parts_of_names(patterns: list[str], expected: int) -> None:
    assert len(list(selected(study_of(given(), name="made").outline().cells(), patterns))) == expected


TUNING = GIVEN["tuning"]
PRIMARY = [{"environment": "grid", "methods": ["ours", "single"]}]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"tuning": {**TUNING, "split": "test"}},
            "tuning.split and evaluation.split are both 'test'; expected different",
        ),
        ({"tuning": {**TUNING, "seeds": [2, 7]}}, r"the seeds \[2\] are those of tuning and of the evaluation"),
        ({"tuning": {**TUNING, "vary": {}}}, r"tuning.vary is empty; expected fields with values"),
        ({"tuning": {**TUNING, "vary": {"learning_rate": 0.1}}}, "vary.learning_rate is 0.1; expected a list"),
        (
            {"tuning": {**TUNING, "per_method": {"untrained": {"beta": [0.1]}}}},
            "tuning.per_method has 'untrained'; expected some of ours, single, theirs",
        ),
        ({"tuning": {**TUNING, "per_method": {"ours": {}}}}, "tuning.per_method.ours is empty; expected fields"),
        (
            {"tuning": {**TUNING, "per_method": {"ours": {"beta": [0, 0]}}}},
            "tuning.per_method.ours has settings of the same name",
        ),
        ({"evaluation": {"split": "train", "instances": 5}}, "evaluation.split is 'train', on which grid is trained"),
        (
            {"tuning": {**TUNING, "vary": {"train_split": ["train", "test"]}}},
            "evaluation.split is 'test', on which grid is trained by ours",
        ),
        (
            {"tuning": {**TUNING, "vary": {"lr_scheduler_type": ["constant", "cosine"]}}},
            "lr_scheduler_type is 'cosine' of ours in grid, but a run ends",
        ),
        ({"evaluation": {"split": "test", "instances": [5, 5]}}, r"has split 'test' and instances \[5, 5\]; expected"),
        ({"evaluation": {"instances": 5}}, "evaluation has split None"),
        ({"seeds": [1, 1]}, r"seeds is \[1, 1\]; expected a list of different integers"),
        ({"tokens": 0}, "tokens is 0; expected an integer of 1 or more"),
        ({"token": 5}, "the study has 'token'; expected some of"),
        ({"base": {"seed": 3}}, "base sets seed, which the study sets for each run. Use seeds instead"),
        ({"base": {"max_generated_tokens": 3}}, "Use tokens instead"),
        ({"base": {"lr_scheduler_type": "cosine"}}, "lr_scheduler_type is 'cosine' of ours in grid, but a run ends"),
        ({"methods": {"ours": {"only": ["gird"]}}}, "methods.ours names 'gird'; expected an environment of the study"),
        ({"methods": {"ours": {"trained": "no"}}}, "methods.ours.trained is 'no'; expected true, or false"),
        ({"methods": {"a/b": {}}}, "methods has the name 'a/b'; expected letters, digits"),
        ({"methods": {}}, "no environment or no method"),
        ({"reference": "other"}, "reference is 'other'; expected one of the methods: ours, theirs"),
        ({"compare": ["ours"]}, r"compare is \['ours'\]; expected a list of different methods other than ours"),
        ({"compare": ["single", "single"]}, "expected a list of different methods other than ours"),
        ({"prepare": "make it"}, "prepare is 'make it'; expected a command with the placeholder {folder}"),
        ({"fidelity": {"continuations": 1}}, "fidelity.continuations is 1; expected an integer of 2 or more"),
        ({"spread": 5}, "spread is 5; expected a share such as 0.05"),
        ({"primary": []}, r"primary is \[\]; expected a list of 1 to 4 comparisons.* Write primary: "),
        (
            {"primary": [{"environment": "grid", "methods": ["ours", each]} for each in ("theirs", "single") * 3]},
            "expected a list of 1 to 4 comparisons",
        ),
        (
            {"primary": [{"environment": "gird", "methods": ["ours", "single"]}]},
            "'gird'; expected one of the study: g",
        ),
        (
            {"primary": [{"environment": "boxes", "methods": ["ours", "theirs"]}]},
            r"the methods \['ours', 'theirs'\]; expected two of boxes: ours, single, untrained",
        ),
        ({"primary": [{"environment": "grid", "methods": ["ours", "ours"]}]}, "compares ours with itself; expected"),
        (
            {
                "primary": [
                    {"environment": "grid", "methods": each} for each in (["ours", "single"], ["single", "ours"])
                ]
            },
            r"primary\[1\] compares single and ours in grid again; expected each comparison once.* Remove one",
        ),
        ({"secondary": PRIMARY}, "but no comparison is primary; expected both, as secondary ones come after"),
        (
            {"primary": PRIMARY, "secondary": PRIMARY},
            "secondary compares .* as primary does; expected each comparison in",
        ),
        ({"primary": PRIMARY, "secondary": []}, r"secondary is \[\]; expected a list of 1 to 4 .* Write secondary: "),
        ({"primary_seeds": [1, 2]}, "but no comparison is primary; expected both or none. Add primary"),
        ({"primary": PRIMARY, "primary_seeds": [1, 3]}, r"without \[2\] of seeds; expected all of these and more"),
        ({"primary": PRIMARY, "primary_seeds": [1, 2, 7]}, r"the seeds \[7\] are those of tuning and of the evalu"),
        (
            {"methods": {"ours": {"guesser": True, "credit": "loo"}}},
            "methods.ours is a guesser and has credit; expected no more than imports, env_id, env_kwargs",
        ),
        ({"methods": {"ours": {"guesser": True, "trained": True}}}, "is a guesser and has trained: true; expected no"),
        (
            {"methods": {"ours": {"guesser": True, "supervised": {"tokens": 9}}}},
            "is a guesser and has supervised; expec",
        ),
        (
            {"methods": {"ours": {"trained": False, "supervised": {"tokens": 9}}}},
            "ours has supervised and trained: fals",
        ),
        (
            {"methods": {"ours": {"supervised": {}}}},
            "ours.supervised has no amount; expected one of tokens and instances",
        ),
        (
            {"methods": {"ours": {"supervised": {"tokens": 5, "instances": 5}}}},
            r"has \['tokens', 'instances'\]; expected one",
        ),
        (
            {"methods": {"ours": {"supervised": {"tokens": 5, "from": 5}}}},
            "ours.supervised has 'from'; expected some of",
        ),
        (
            {"methods": {"ours": {"supervised": {"tokens": 5, "demonstrations": "mine"}}}},
            "demonstrations is 'mine'; expected 'oracle', or FILE.py:NAME",
        ),
    ],
)
def test_a_study_that_contradicts_itself_raises_and_says_what_to_change(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        study_of(given(**fields), name="made")


def test_a_decaying_learning_rate_needs_the_number_of_steps() -> None:
    base = {**GIVEN["base"], "lr_scheduler_type": "cosine", "max_steps": 50}
    assert config(cell(), base=base)["train"]["lr_scheduler_type"] == "cosine"
    assert config(cell())["train"]["lr_scheduler_type"] == "constant"


@pytest.mark.parametrize("needed", ["base", "environments", "methods", "seeds", "tokens", "evaluation"])
def test_an_incomplete_study_says_what_it_lacks(needed: str) -> None:
    content = given()
    del content[needed]
    with pytest.raises(ValueError, match=f"the study has no {needed}; expected one"):
        study_of(content, name="made")


def test_primary_comparisons_have_seeds_of_their_own_in_their_environment_alone() -> None:
    outline = study_of(given(primary=PRIMARY, primary_seeds=[1, 2, 3]), name="made").outline()
    seeds = {
        (each.environment, each.method): list(outline.seeds_of(each.environment, each.method))
        for each in outline.cells()
    }
    assert {arm for arm, own in seeds.items() if own == [1, 2, 3]} == {("grid", "ours"), ("grid", "single")}
    assert {tuple(own) for own in seeds.values()} == {(1, 2, 3), (1, 2)}
    assert len(outline.cells()) == 4 * 2 + 3 * 2 + 2  # four methods in grid, three in boxes, and a seed more of two
    assert outline.num_comparisons == 1
    assert study_of(given(primary=PRIMARY), name="made").outline().most_seeds == (1, 2)  # the study's by default


def test_primary_comparisons_are_part_of_the_digest_of_evaluations_and_not_of_tuning() -> None:
    plain, named = (study_of(given(**own), name="made") for own in ({}, {"primary": PRIMARY}))
    tuning = plain.tuning_cells()[0]
    assert plain.run(tuning).digest == named.run(tuning).digest
    assert named.run(cell("untrained", "boxes")).config["primary"] == {"comparisons": PRIMARY, "seeds": [1, 2]}
    others = [{"primary": [*PRIMARY, {"environment": "boxes", "methods": ["ours", "single"]}]}]
    others += [{"primary": PRIMARY, "primary_seeds": [1, 2, 3]}]
    others += [{"primary": PRIMARY, "secondary": others[0]["primary"][1:]}]
    digests = [study_of(given(**own), name="made").run(cell()).digest for own in ({"primary": PRIMARY}, *others)]
    assert len({plain.run(cell()).digest, *digests}) == 5
    assert plain.run(cell()).digest == "f6890553d6d6d6ea"  # as before there were primary comparisons


def test_notes_may_be_one_text() -> None:
    assert study_of(given(notes="one text"), name="study").notes == ("one text",)
    assert study_of(given(notes=["two", "texts"]), name="study").notes == ("two", "texts")


def test_a_guesser_is_evaluated_alone_and_its_run_depends_on_no_model() -> None:
    methods = {"ours": {}, "guesser": {"guesser": True, "env_kwargs": {"workflow": "single"}}}
    study = study_of(given(methods=methods), name="made")
    assert {each.method for each in [*study.tuning_cells(), *study.fidelity_cells()]} == {"ours"}
    run = study.run(cell("guesser"))
    assert run.config == {
        "train": {
            "env_id": "plan_path",
            "env_kwargs": {"size": 4, "workflow": "single"},
            "eval_seeds": [100, 120],
            "eval_split": "test",
            "seed": 1,
        },
        "trained": False,
        "guesser": True,
        "prepare": None,
    }


ROOT = Path(__file__).parents[3]


def test_a_study_is_read_from_its_file_and_named_after_it(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(given()))
    assert read_study(file).name == "mine"
    file.write_text("base: [")
    with pytest.raises(ValueError, match=r"mine.yaml, line 1: .* expected YAML. Fix the file"):
        read_study(file)
    for committed in (ROOT / "benchmarks" / "studies").glob("*.yaml"):
        assert read_study(committed).outline().cells()


def test_the_cells_of_a_study_say_how_replies_are_read_and_one_that_does_not_is_strict(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(given()))
    own = {"size": 4, "workflow": "draft_plan"}
    lenient = read_study(file).run(cell())
    assert lenient.config["train"]["env_kwargs"] == {**own, "strict_format": False}
    assert as_recorded(lenient.config["train"])["env_kwargs"]["strict_format"] is False
    before = study_of(given(), name="mine").run(cell())  # as earlier versions wrote it
    assert "strict_format" not in before.config["train"]["env_kwargs"]
    assert as_recorded(before.config["train"])["env_kwargs"] == {**own, "strict_format": True}
    file.write_text(yaml.safe_dump(given(base={**GIVEN["base"], "env_kwargs": {"size": 4, "strict_format": True}})))
    strict = read_study(file).run(cell())
    assert strict.config["train"]["env_kwargs"]["strict_format"] is True
    assert strict.digest == before.digest != lenient.digest


def test_the_committed_studies_are_planned_as_their_results_were_made() -> None:
    for name in ("cooperation", "designed", "directed", "teams"):
        study = read_study(ROOT / "benchmarks" / "studies" / f"{name}.yaml")
        results = [*read_all(ROOT / "benchmarks" / "results" / "study" / name, "evaluation", CellResult)]
        assert results
        assert all(study.run(each.cell).digest == each.digest for each in results)
        strict = [study.run(each.cell).config["train"]["env_kwargs"]["strict_format"] for each in results]
        assert all(strict)


def test_an_environment_of_a_file_is_read_strictly_where_its_cell_does_not_say_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    train = {"env_id": "benchmarks/studies/designed_envs.py:plan_path", "env_kwargs": {"size": 5}}
    assert as_recorded(train)["env_kwargs"] == {"size": 5, "strict_format": True}
    assert as_recorded(train)["per_device_eval_batch_size"] == 8
    assert as_recorded({**train, "per_device_eval_batch_size": 100})["per_device_eval_batch_size"] == 100
