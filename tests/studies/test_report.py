"""The report of a study: what it compares, what it says where the data cannot tell, and its curves."""

import dataclasses
import json
import random
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import pettingllms_envs
from made_results import fidelity, outline, result, write
from pettingllms_envs import cli
from pettingllms_envs.reports.blocks import Bold, Heading, Paragraph, Table, markdown
from pettingllms_envs.reports.page import page
from pettingllms_envs.research.studies.analysis import (
    best_setting,
    differences,
    inconsistencies,
    named_differences,
    read_results,
    tuned,
)
from pettingllms_envs.research.studies.curves import band
from pettingllms_envs.research.studies.paired import compare
from pettingllms_envs.research.studies.report import blocks
from pettingllms_envs.research.studies.results import CellResult, Outline, read, save, save_outline


def complete(tmp_path: Path) -> Path:
    """`ours` wins both seeds against `untrained`; against `theirs` one each."""
    curve = {"tokens": [0.0, 500.0, 1000.0], "success": [0.0, 0.5, 1.0]}
    return write(
        tmp_path / "results",
        result("ours", 1, "1111", curve=curve),
        result("ours", 2, "1110", curve=curve),
        result("theirs", 1, "1100", curve={"tokens": [0.0, 1000.0], "success": [0.0, 0.5]}),
        result("theirs", 2, "1111", curve=curve),
        result("untrained", 1, "0000", steps=0),
        result("untrained", 2, "0000", steps=0),
    )


def tables(results: Path) -> list[Table]:
    return [block for block in blocks(read_results(results)) if isinstance(block, Table)]


def test_the_reference_is_compared_with_each_method_on_the_seeds_of_both(tmp_path: Path) -> None:
    results = read_results(complete(tmp_path))
    against = {difference.method: difference for difference in differences(results, "grid")}
    assert against["theirs"].comparison.by_seed == (0.5, -0.25)
    assert against["untrained"].comparison.by_seed == (1.0, 0.75)
    assert against["theirs"].comparison.confidence == pytest.approx(1 - 0.05 / 2)  # two comparisons are planned
    (missing,) = (tmp_path / "results").rglob("theirs/2.json")
    missing.unlink()
    results = read_results(tmp_path / "results")
    assert [difference.method for difference in differences(results, "grid")] == ["untrained"]
    assert differences(results, "grid")[0].comparison.confidence == pytest.approx(1 - 0.05 / 2)  # still two
    assert results.missing() == ["evaluation/grid/theirs/2"]


def with_primary(*pairs: tuple[str, str]) -> Outline:
    """Comparisons of the one environment that are primary, with a third seed."""
    named = [{"environment": "grid", "methods": list(pair)} for pair in pairs]
    return outline(primary=named, primary_seeds=[1, 2, 3])


def test_primary_comparisons_come_first_and_are_corrected_for_alone(tmp_path: Path) -> None:
    third = [result("ours", 3, "1111"), result("theirs", 3, "1110")]
    folder = complete(tmp_path)
    write(folder, *third, plan=with_primary(("ours", "theirs")))
    results = read_results(folder)
    (primary,) = named_differences(results, results.outline.primary)
    assert (primary.first, primary.method, primary.seeds) == ("ours", "theirs", (1, 2, 3))
    assert primary.comparison.by_seed == (0.5, -0.25, 0.25)
    assert primary.comparison.confidence == pytest.approx(0.95)
    (exploratory,) = differences(results, "grid")  # the primary one is not repeated
    assert (exploratory.method, exploratory.seeds) == ("untrained", (1, 2))  # those that both have
    assert exploratory.comparison.confidence == pytest.approx(0.95)
    assert results.missing() == []
    report = list(blocks(results))
    headings = [block.text for block in report if isinstance(block, Heading)]
    assert headings == ["Study made", "Primary comparisons", "grid", "What it can show"]
    text = markdown(report)
    assert "seeds 1, 2, and seed 3 of the methods that primary comparisons name. Each run" in text
    assert "in the digest of each of these runs. Intervals are at 95.0%. The first is Student's" in text
    assert "| grid | ours minus theirs | +16.7 |" in text
    assert "ours minus the others, in points of success: exploratory, as these comparisons are not primary." in text
    assert "* Exploratory: ours does better than untrained: +87.5 points" in text or "* Exploratory: Cannot" in text
    assert "With 3 seeds, 4 instances and 1 primary comparison, the study" in text
    assert "no verdict is final" not in text


def test_two_primary_comparisons_are_at_the_half_of_the_error_and_others_stay_as_they_are(tmp_path: Path) -> None:
    folder = complete(tmp_path)
    write(folder, plan=with_primary(("theirs", "ours"), ("theirs", "untrained")))
    results = read_results(folder)
    assert [found.comparison.confidence for found in named_differences(results, results.outline.primary)] == [
        pytest.approx(0.975)
    ] * 2
    assert named_differences(results, results.outline.primary)[0].comparison.by_seed == (-0.5, 0.25)
    assert [found.method for found in differences(results, "grid")] == [
        "untrained"
    ]  # that of ours and theirs is above
    assert differences(results, "grid")[0].comparison.confidence == pytest.approx(0.95)
    assert [name.rpartition("/")[0] for name in results.missing()] == [
        f"evaluation/grid/{method}" for method in ("ours", "theirs", "untrained")
    ]
    text = markdown(list(blocks(results)))
    assert "Intervals are at 97.5%, so that those of all 2 hold together with 95% (Bonferroni)." in text
    assert "Not all seeds of 2 primary comparisons are finished; before that no verdict is final." in text


def test_secondary_comparisons_are_corrected_among_themselves_and_no_other_has_a_verdict(tmp_path: Path) -> None:
    third = [result("ours", 3, "1111"), result("theirs", 3, "1110")]
    named = [{"environment": "grid", "methods": ["theirs", each]} for each in ("untrained", "single")]
    methods = ("ours", "theirs", "untrained", "single")
    plan = dataclasses.replace(
        with_primary(("ours", "theirs")), secondary=named, methods={"grid": methods}, compared={"grid": methods[1:]}
    )
    folder = write(complete(tmp_path), *third, result("single", 1, "0001"), result("single", 2, "0011"), plan=plan)
    results = read_results(folder)
    (primary,) = named_differences(results, plan.primary)
    assert primary.comparison.confidence == pytest.approx(0.95)  # not corrected for the secondary ones
    secondary = named_differences(results, plan.secondary)
    assert [each.comparison.confidence for each in secondary] == [pytest.approx(0.975)] * 2
    assert [each.comparison.by_seed for each in secondary] == [(0.5, 1.0), (0.25, 0.5)]
    text = markdown(list(blocks(results)))
    assert "no verdict is final" not in text  # the third seed is one of the primary comparison alone
    assert text.index("## Primary comparisons") < text.index("## Secondary comparisons") < text.index("## grid")
    assert "Intervals are at 97.5%, so that those of all 2 hold together" in text
    assert "not named beforehand, in points of success, with intervals at 95.0% each and no verdict." in text
    exploratory = tables(folder)[-1]
    assert (exploratory.head[-1], [row[0] for row in exploratory.rows]) == ("each seed", ["untrained", "single"])
    assert "Exploratory" not in text


def test_instances_and_uses_of_a_token_are_shown_where_they_are_known(tmp_path: Path) -> None:
    folder = complete(tmp_path)
    run = read(folder / "evaluation/grid/ours/1.json", CellResult)
    write(folder, dataclasses.replace(run, rows=300, uses=3.5))
    assert tables(folder)[0].head[5:7] == ("instances", "uses of a token")
    assert tables(folder)[0].rows[0][5:7] == ["150", "1.8"]  # the mean of both seeds


def test_processor_time_is_shown_where_all_runs_of_an_environment_have_it(tmp_path: Path) -> None:
    folder = complete(tmp_path)
    assert tables(folder)[0].head[5] == "seconds"
    for path in (folder / "evaluation").rglob("*.json"):
        save(dataclasses.replace(read(path, CellResult), cpu_seconds=33.0), folder)
    assert tables(folder)[0].head[5] == "CPU seconds"
    assert tables(folder)[0].rows[0][5] == "33"


def test_the_best_guesser_is_named_in_its_row(tmp_path: Path) -> None:
    folder = complete(tmp_path)
    for seed in (1, 2):
        found = dataclasses.replace(result("untrained", seed, "0000", steps=0), guesser="copier")
        save(found, folder)
    assert tables(folder)[0].rows[2] == ["untrained", "0.0%", "0.0, 0.0", "", "", "", "copier"]


def test_the_tables_have_successes_intervals_and_verdicts(tmp_path: Path) -> None:
    methods, comparisons = tables(complete(tmp_path))
    assert methods.rows[0] == ["ours", "87.5%", "100.0, 75.0", "1,000", "10", "20", ""]
    assert methods.rows[2][3:6] == ["", "", ""]  # it was not trained
    method, difference, *_, p, each, verdict = comparisons.rows[0]
    assert (method, difference, p, each, verdict) == ("theirs", "+12.5", "1.0000", "+50.0, -25.0", "cannot tell")


def test_what_cannot_be_told_is_said_in_words_with_the_seeds_that_would_show_it(tmp_path: Path) -> None:
    text = markdown(list(blocks(read_results(complete(tmp_path)))))
    # Differences 0.5 and -0.25: mean 0.125, deviation 0.5303. Each of two tests at 0.025, so z is 2.2414:
    # ((2.2414 + 0.8416) * 0.5303 / 0.125)^2 + 2.2414^2 / 2 = 171.07 + 2.51.
    assert "Cannot tell whether ours or theirs does better: +12.5 points [" in text
    assert "over 2 seeds. If the difference is real, about 174 seeds would show it." in text


@pytest.mark.parametrize(("ours", "theirs", "words"), [("1", "0", "better"), ("0", "1", "worse")])
def test_a_clear_difference_is_said_in_words(ours: str, theirs: str, words: str, tmp_path: Path) -> None:
    plan = outline(seeds=[1, 2, 3], methods={"grid": ["ours", "theirs"]}, compared={"grid": ["theirs"]})
    runs = [result("ours", seed, 4 * ours) for seed in (1, 2, 3)] + [
        result("theirs", seed, 4 * theirs) for seed in (1, 2, 3)
    ]
    text = markdown(list(blocks(read_results(write(tmp_path, *runs, plan=plan)))))
    assert f"ours does {words} than theirs: {'+' if words == 'better' else '-'}100.0 points" in text


def test_the_tuned_setting_is_the_best_mean_over_seeds_and_of_equal_ones_the_first(tmp_path: Path) -> None:
    assert best_setting([[0.5, 0.5], [0.9, 0.5], [0.6, 0.8]]) == 1
    tuning = {"seeds": [8, 9], "split": "validation", "num_instances": 2, "tokens": 500}
    tuning["settings"] = ["learning_rate=1", "learning_rate=2", "learning_rate=3"]
    rates = {1: ("00", "01"), 2: ("01", "00"), 3: ("01", "11")}
    runs = [
        result("ours", seed, success, phase="tuning", setting={"learning_rate": rate})
        for rate, both in rates.items()
        for seed, success in zip((8, 9), both, strict=True)
    ]
    folder = write(tmp_path, *runs, plan=outline(tuning=tuning))
    assert tuned(read_results(folder), "grid", "ours") == 2
    table = tables(folder)[-1]
    assert table.rows == [["grid", "ours", "25.0%", "25.0%", "75.0%"]]
    assert [isinstance(cell, Bold) for cell in table.rows[0]] == [False, False, False, False, True]
    text = markdown(list(blocks(read_results(folder))))
    assert "The best setting has the first or the last value that was tried for ours in grid;" in text
    runs[0].cell.path(folder).unlink()
    assert tuned(read_results(folder), "grid", "ours") is None


def test_no_seeds_are_said_to_be_needed_that_are_there_and_none_to_be_unfinished_that_are_not_planned(
    tmp_path: Path,
) -> None:
    # Each seed differs by 0.25 of 4 instances: no other seed would change that, but other instances might.
    named = [{"environment": "grid", "methods": ["theirs", "untrained"]}]
    plan = dataclasses.replace(with_primary(("ours", "theirs")), secondary=named, seeds=[1], primary_seeds=[1, 2])
    runs = [result("ours", 1, "1110"), result("ours", 2, "1110"), result("theirs", 1, "1100")]
    folder = write(tmp_path, *runs, result("theirs", 2, "1100"), result("untrained", 1, "0000"), plan=plan)
    text = markdown(list(blocks(read_results(folder))))
    assert "* grid: Cannot tell whether ours or theirs does better: +25.0 points [+0.0, +75.0].\n" in text
    assert "Too few seeds for 1 secondary comparison: both methods need the same two." in text
    assert "no verdict is final" not in text


def test_a_method_is_tuned_among_its_own_settings_in_a_table_of_those_who_have_them(tmp_path: Path) -> None:
    tuning = {"seeds": [8], "split": "validation", "num_instances": 2, "tokens": 500}
    tuning |= {"settings": ["a=1", "a=2"], "per_method": {"theirs": ["a=2", "b=3"]}}
    runs = [
        result(method, 8, success, phase="tuning", setting=setting)
        for method, success, setting in (
            ("ours", "10", {"a": 1}),
            ("ours", "00", {"a": 2}),
            ("theirs", "00", {"a": 2}),
            ("theirs", "11", {"b": 3}),
        )
    ]
    folder = write(tmp_path, *runs, plan=outline(tuning=tuning))
    assert tuned(read_results(folder), "grid", "theirs") == 1
    ours, theirs = tables(folder)[-2:]
    assert (ours.head[2:], theirs.head[2:]) == (("a=1", "a=2"), ("a=2", "b=3"))
    assert ours.rows == [["grid", "ours", "50.0%", "0.0%"]]
    assert theirs.rows == [["grid", "theirs", "0.0%", "100.0%"]]
    bold = [isinstance(cell, Bold) for table in (ours, theirs) for cell in table.rows[0][2:]]
    assert bold == [True, False, False, True]


def test_a_value_at_the_end_of_its_field_is_named_if_more_than_two_were_tried(tmp_path: Path) -> None:
    tuning = {"seeds": [8], "split": "validation", "num_instances": 2, "tokens": 500}
    tuning["settings"] = [f"a={a},b={b},credit={name}" for a in (2, 1e-05, 3) for b in (1, 4) for name in "uvw"]

    def text(best: tuple[float, int], folder: Path) -> str:
        runs = [
            result(
                "ours",
                8,
                "11" if (a, b) == best else "00",
                phase="tuning",
                setting={"a": a, "b": b, "credit": name},
            )
            for a in (2, 1e-05, 3)
            for b in (1, 4)
            for name in "uvw"
        ]
        return markdown(list(blocks(read_results(write(folder, *runs, plan=outline(tuning=tuning))))))

    assert "tried for ours in grid;" in text((1e-05, 4), tmp_path / "least")
    assert "tried for ours in grid;" in text((3, 1), tmp_path / "most")
    assert "tried for ours" not in text((2, 4), tmp_path / "middle")


def test_seeds_of_one_method_with_other_configurations_are_named(tmp_path: Path) -> None:
    folder = write(tmp_path, result("ours", 1, "1111"), result("ours", 2, "1111", config={"learning_rate": 3}))
    assert inconsistencies(read_results(folder)) == [
        "ours in grid: seed 2 has another configuration than seed 1 (train.learning_rate: null there, 3 here)."
    ]


def test_methods_that_were_evaluated_on_other_instances_are_named(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        result("ours", 1, "1111", config={"eval_seeds": [0, 4]}),
        result("theirs", 1, "1111", config={"eval_seeds": [4, 8]}),
    )
    assert inconsistencies(read_results(folder)) == [
        "theirs in grid was evaluated on other instances than ours (eval_seeds: [0, 4] there, [4, 8] here), so they "
        "are not paired."
    ]


def test_runs_that_were_made_with_other_packages_are_named(tmp_path: Path) -> None:
    old = dataclasses.replace(result("ours", 1, "1111"), packages={"torch": "2.12.0"})
    new = dataclasses.replace(result("ours", 2, "1111"), packages={"torch": "2.13.0"})
    assert inconsistencies(read_results(write(tmp_path, old, new))) == [
        'evaluation/grid/ours/2 was made with other packages than evaluation/grid/ours/1 (torch: "2.12.0" there, '
        '"2.13.0" here).'
    ]


def test_runs_that_were_made_with_other_code_of_ours_are_named_where_it_is_known(tmp_path: Path) -> None:
    old, new = (dataclasses.replace(result("ours", i, "1111"), code=code) for i, code in ((1, "a1"), (2, "b2")))
    unknown = dataclasses.replace(new, code="")
    assert inconsistencies(read_results(write(tmp_path, old, unknown))) == []
    assert inconsistencies(read_results(write(tmp_path, old, new))) == [
        "evaluation/grid/ours/2 was made with other packages than evaluation/grid/ours/1 "
        '(code: "a1" there, "b2" here).'
    ]


def test_tuning_runs_of_other_seeds_than_planned_are_not_looked_at(tmp_path: Path) -> None:
    tuning = {"seeds": [8], "split": "validation", "num_instances": 2, "tokens": 500}
    tuning["settings"] = ["learning_rate=1", "learning_rate=2"]
    runs = [
        result("ours", seed, success, phase="tuning", setting={"learning_rate": rate})
        for rate, seed, success in [(1, 8, "11"), (2, 8, "10"), (1, 9, "00"), (2, 9, "11")]
    ]
    folder = write(tmp_path, *runs, plan=outline(tuning=tuning))
    assert tuned(read_results(folder), "grid", "ours") == 0
    assert tables(folder)[-1].rows == [["grid", "ours", "100.0%", "50.0%"]]
    assert [isinstance(cell, Bold) for cell in tables(folder)[-1].rows[0]] == [False, False, True, False]


def test_credit_fidelity_is_reported_beside_its_ceiling(tmp_path: Path) -> None:
    folder = write(tmp_path, fidelity("ours"), fidelity("theirs", correlation=None, interval=None))
    table = tables(folder)[-1]
    assert table.rows[0] == ["grid", "ours", "+0.50", "[+0.25, +0.75]", "+0.88", "50", "400", "32"]
    assert table.rows[1][:4] == ["grid", "theirs", "all advantages equal", ""]


def test_a_band_is_students_interval_of_interpolated_curves() -> None:
    one = result("ours", 1, "1", curve={"tokens": [0.0, 1000.0], "success": [0.0, 0.4]})
    other = result("ours", 2, "1", curve={"tokens": [0.0, 500.0, 2000.0], "success": [0.2, 0.4, 0.6]})
    tokens, means, low, high = band([one, other])
    assert (tokens[0], tokens[-1]) == (0.0, 1000.0)  # up to where both have got
    # At 1,000 tokens: 0.4, and 0.4 + 500/1500 * 0.2 = 0.4667. Half of the interval: 12.706 * 0.0471 / sqrt(2).
    assert means[-1] == pytest.approx(0.4333, abs=1e-4)
    assert high[-1] - means[-1] == pytest.approx(12.7062 * 0.06667 / 2, abs=1e-4)
    assert low[0] == 0.0  # an interval ends where shares do
    alone = band([one])
    assert np.array_equal(alone[1], alone[2])


def test_the_command_writes_the_report_with_its_curves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results, out = complete(tmp_path), tmp_path / "out"
    assert cli.main(["report", str(results), "--out", str(out)]) == 0
    assert "| ours | 87.5% |" in capsys.readouterr().out
    assert sorted(path.name for path in out.iterdir()) == [
        *("curves-grid.png", "curves-grid.svg", "report.html", "report.md"),
    ]
    assert (out / "curves-grid.png").read_bytes().startswith(b"\x89PNG")
    shown = (out / "report.html").read_text()
    assert "<figure><svg" in shown
    assert "http" not in shown.replace("http://www.w3.org", "").replace("http://purl.org", "").replace(
        "http://creativecommons.org", ""
    ).replace("https://matplotlib.org", "")
    assert "![" in (out / "report.md").read_text()
    first = (out / "curves-grid.svg").read_bytes()
    assert cli.main(["report", str(results), "--out", str(out)]) == 0
    assert (out / "curves-grid.svg").read_bytes() == first


def test_names_are_escaped_on_the_page(tmp_path: Path) -> None:
    report = [Heading("a <b>", 1), Paragraph("**5%** & <script>"), Table(("**x**",), [[Bold("<i>")]])]
    made = page(report, {})
    assert "<title>a &lt;b&gt;</title>" in made
    assert "<p>**5%** &amp; &lt;script&gt;</p>" in made
    assert "<th>**x**</th>" in made
    assert "<td><strong>&lt;i&gt;</strong></td>" in made


def test_a_folder_that_is_no_study_ends_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith(f"error: {tmp_path} has no study.json; expected a folder of results")


def test_the_report_loads_neither_torch_nor_matplotlib_before_it_draws(tmp_path: Path) -> None:
    program = (
        "import sys; from pettingllms_envs import cli\n"
        f"status = cli.main(['report', {str(complete(tmp_path))!r}])\n"
        "print(status, *({'torch', 'transformers', 'matplotlib'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "0"


ROOT = Path(__file__).parents[2]


def test_the_kept_tables_and_the_results_page_are_those_of_the_committed_study() -> None:
    results = read_results(ROOT / "benchmarks" / "results" / "study" / "cooperation")
    assert results.missing() == []
    kept = (ROOT / "benchmarks" / "results" / "credit.md").read_text(encoding="utf-8").splitlines()
    report = list(blocks(results))
    rows = [line for line in markdown(report).splitlines() if line.startswith("| ")]
    assert [row for row in rows if row not in kept] == []
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    section = page.partition("### Rewards for answers only")[2].partition("\n#")[0]
    lines = {line.split("`")[1]: line for line in section.splitlines() if line.startswith("| `")}
    tables = [block for block in report if isinstance(block, Table) and block.head[1] == "success"]
    assert len(tables) == 2
    assert all(f"| {success} |" in lines[method] for table in tables for method, success, *_ in table.rows)


def test_a_copy_of_a_result_in_another_folder_is_not_counted_but_named(tmp_path: Path) -> None:
    write(tmp_path, result("ours", 1, "1111"))
    file = tmp_path / "evaluation" / "grid" / "ours" / "1.json"
    copy = file.parent / "old" / "1.json"
    copy.parent.mkdir()
    copy.write_bytes(file.read_bytes())
    with pytest.raises(ValueError, match=r"old/1\.json is the result of evaluation/grid/ours/1; expected it"):
        read_results(tmp_path)


def test_the_report_says_which_runs_were_made_with_other_primary_comparisons(tmp_path: Path) -> None:
    primary = [{"environment": "grid", "methods": ["ours", "theirs"]}]
    planned = outline(primary=primary, primary_seeds=[1, 2])
    fixed = {"primary": {"comparisons": primary, "seeds": [1, 2]}}
    runs = [result(method, seed, "1100") for method in ("ours", "theirs") for seed in (1, 2)]
    write(tmp_path, *(dataclasses.replace(run, config={**run.config, **fixed}) for run in runs), plan=planned)
    assert inconsistencies(read_results(tmp_path)) == []
    save_outline(dataclasses.replace(planned, primary_seeds=[1]), tmp_path)
    found, gone = inconsistencies(read_results(tmp_path))
    assert gone.startswith("2 finished runs, evaluation/grid/ours/2 among them, are left out")
    assert found.startswith("2 runs, evaluation/grid/ours/1 among them, were made with other primary comparisons")


def test_the_report_names_a_run_that_started_from_other_weights_under_the_same_name(tmp_path: Path) -> None:
    def made(method: str, seed: int, model: str, name: str = "bases/grid") -> CellResult:
        run = result(method, seed, "1100", config={"model_name_or_path": name})
        return dataclasses.replace(run, model=model)

    own_of_each = [made("mine", seed, f"e{seed}", "{folder}/base") for seed in (1, 2)]  # as its preparation made it
    alike = [made("ours", 1, "a1"), *own_of_each, made("old", 1, "")]
    plan = outline(methods={"grid": ["ours", "mine", "old"]})
    assert inconsistencies(read_results(write(tmp_path / "alike", *alike, made("ours", 2, "a1"), plan=plan))) == []
    assert inconsistencies(read_results(write(tmp_path / "other", *alike, made("ours", 2, "b2"), plan=plan))) == [
        "evaluation/grid/ours/2 started from other files of bases/grid than evaluation/grid/ours/1 (b2, a1)."
    ]


LINES = {
    "**access**: `archives`, to be read": ("reading", ("guesser", "full", "team", "untrained")),
    "**access**: `archives`, need not be read": (
        "archives",
        ("guesser_one", "guesser", "full", "routed", "team", "untrained"),
    ),
    "**memory**": ("note_taking", ("alone", "full", "team", "untrained")),
    "| **none**": ("plan_path", ("full", "team", "untrained")),
    "| `team`: three agents": ("reading", ("team",)),
    "| `shared`: the same": ("reading", ("shared",)),
    "| `routed`: one agent": ("reading", ("routed",)),
    "| `directed`: also": ("reading", ("directed",)),
    "| `full`: not told": ("reading", ("full",)),
    "| team, AT-GRPO, answer paid": ("reading", ("team_unpaid",)),
    "| team, trajectory GRPO, answer paid |": ("reading", ("grpo",)),
}
"""What lines of tables that have this text say of which environment."""


def test_the_pages_have_the_means_and_verdicts_of_the_committed_study_of_teams() -> None:
    teams, directed = (
        read_results(ROOT / "benchmarks" / "results" / "study" / name) for name in ("teams", "directed")
    )
    assert teams.missing() == directed.missing() == []
    rates = {names: [run.rate for run in runs] for names, runs in (teams.evaluation | directed.evaluation).items()}
    checked = []
    for name in ("README.md", "docs/results.md"):
        tables = (ROOT / name).read_text(encoding="utf-8").split("## Ways to give credit")[0].split("## Quickstart")[0]
        lines = [line for line in tables.splitlines() if line.startswith("| ")]
        for start, (environment, methods) in LINES.items():
            for line in (line for line in lines if start in line[:60] and "minus" not in line):
                for method in methods:
                    assert f"{sum(rates[environment, method]) / len(rates[environment, method]):.1%}" in line, line
                checked.append(start)
        if name == "docs/results.md":
            primary = next(block for block in blocks(teams) if isinstance(block, Table))
            for environment, methods, difference, *intervals, p, _, verdict in primary.rows:
                assert (
                    f"| {environment} | {methods} | {difference} | {' | '.join(intervals)} | {p} | {verdict} |"
                    in lines
                )
    assert set(checked) == set(LINES)


STEPS = [("shared", "team"), ("routed", "shared"), ("directed", "routed"), ("full", "directed")]


def test_the_results_page_has_the_differences_from_step_to_step_over_the_seeds_that_both_methods_have() -> None:
    runs = {}
    for name in ("teams", "directed"):
        runs |= read_results(ROOT / "benchmarks" / "results" / "study" / name).evaluation
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    table = page.split("### Where the difference comes from")[1].split("\n\n")[2].splitlines()
    for (method, before), line in zip(STEPS, table[3:], strict=True):
        for environment, cell in zip(("reading", "archives"), line.split(" | ")[2::2], strict=True):
            of_seed = ({run.cell.seed: run for run in runs[environment, each]} for each in (method, before))
            found = compare(*map(first_five, of_seed), num_comparisons=1)
            ends = " ".join(f"[{100 * low:+.1f}, {100 * high:+.1f}]" for low, high in (found.student, found.bootstrap))
            assert cell.rstrip(" |") == f"{100 * found.mean:+.1f} {ends}"


def first_five(runs: dict[int, CellResult]) -> np.ndarray:
    return np.array([[float(each) for each in runs[seed].success] for seed in range(1, 6)])


def test_the_results_page_has_the_best_constant_answer_to_the_note_taking_of_the_study() -> None:
    env = pettingllms_envs.make("note_taking", workflow="alone", readings=4, values=10, digits=2)
    right = Counter()
    for seed in range(1000, 1500):
        env.reset(seed=seed, options={"split": "test"})
        while not env.standing():
            reply = env.oracle()
            env.step(reply)
        right[reply] += 1
    ((reply, times),) = right.most_common(1)
    assert (reply, times / 500) == ("Answer: 5", 0.114)
    assert "| 11.4% |" in (ROOT / "docs" / "results.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("first", "seeds", "words"), [(1000, [0], "| 72.0% |"), (3000, [0, 1], "72.2% to 74.4% of")])
def test_the_results_page_has_the_success_of_a_walker_who_does_not_see_the_walls(
    first: int, seeds: list[int], words: str
) -> None:
    env = pettingllms_envs.make("plan_path", workflow="draft_plan", size=5, min_distance=2, max_distance=8)
    assert words in (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    for walk in seeds:
        rng, solved = random.Random(walk), 0
        for seed in range(first, first + 500):
            env.reset(seed=seed, options={"split": "test"})
            while not env.standing():
                shown = env.observe(env.agent_selection)["text"]
                places = re.search(r"You are at row (\d), column (\d)\. The goal is at row (\d), column (\d)", shown)
                assert places is not None
                row, column, goal_row, goal_column = map(int, places.groups())
                steps = ["D" if goal_row > row else "U"] * abs(goal_row - row)
                steps += ["R" if goal_column > column else "L"] * abs(goal_column - column)
                env.step(f"Moves: {' '.join(rng.sample(steps, len(steps))) or 'U'}")
            solved += env.standing() == "solved"
        assert f"{solved / 500:.1%}" in words


def test_the_page_on_service_has_the_means_of_the_committed_study_and_of_the_plays_with_scripts() -> None:
    runs = read_results(ROOT / "benchmarks" / "results" / "study" / "assistant_user").evaluation
    scripts = json.loads((ROOT / "benchmarks" / "results" / "service_manners.json").read_text(encoding="utf-8"))[
        "methods"
    ]
    page = (ROOT / "docs" / "service.md").read_text(encoding="utf-8")
    lines = page.split("### Who is trained")[1].split("| trained |")[1].splitlines()[2:7]
    for method, line in zip(("both", "assistant", "user", "supervised", "untrained"), lines, strict=True):
        each = [100 * run.success.count("1") / len(run.success) for run in runs["shop", method]]
        played = [scripts.get(method, {}).get(manner, {}).get("success") for manner in ("terse", "confused")]
        cells = [f"{np.mean(each):.1f}", ", ".join(f"{success:.1f}" for success in each)]
        cells += [f"{100 * np.mean(successes):.1f}" if successes else "" for successes in played]
        assert [cell.strip() for cell in line.split("|")[2:6]] == cells


def test_the_page_on_delayed_rewards_has_what_the_committed_study_has() -> None:
    runs = read_results(ROOT / "benchmarks" / "results" / "study" / "paid_at_the_end").evaluation
    page = (ROOT / "docs" / "delayed_rewards.md").read_text(encoding="utf-8")
    lines = page.split("study/paid_at_the_end -->")[1].splitlines()[3:11]
    methods = ("expert_iteration", "last_round", "one_round", "return_to_go", "best", "counterfactual", "supervised")
    for method, line in zip((*methods, "untrained"), lines, strict=True):
        found = runs["foreign", method]
        assert len(found) == (10 if method in ("expert_iteration", "return_to_go", "best") else 5)
        each = [100 * run.success.count("1") / len(run.success) for run in found]
        cells = [f"{np.mean(each):.1f}%", f"{min(each):.1f}, {max(each):.1f}"]
        assert [cell.strip(" *") for cell in line.split("|")[2:4]] == cells
