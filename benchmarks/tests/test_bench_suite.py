"""What `make bench` says of its figures: which are better, which got worse, what is missing, what is kept."""

import json
import math
import subprocess
from pathlib import Path

import machine
import peers
import pytest
import suite
from figures import Figure, change, from_record, is_worse, join, noise, read, record, shown, table, write
from suite import NOT_RUN, SUITES, Ran, Suite, chosen, finish, main, report, run, save, saved_before


def figure(*ours: float, peer: tuple[float, ...] = (), **more: object) -> Figure:
    return Figure(**{"name": "a step", "unit": "us", "ours": ours, "peer": peer, **more})


def test_ratios_are_above_1_where_ours_is_the_better_one_whichever_way_the_unit_counts() -> None:
    assert figure(2.0, 2.5, peer=(60.0, 50.0)).ratios == (30.0, 20.0)
    assert figure(60.0, 50.0, peer=(2.0, 2.5), better="more").ratios == (30.0, 20.0)


def test_two_runs_are_compared_by_ratios_or_without_a_peer_by_the_values() -> None:
    assert figure(2.0, peer=(60.0,)).gains == (30.0,)
    assert figure(2.0, 4.0).gains == (0.5, 0.25)
    assert figure(2.0, better="more").gains == (2.0,)
    assert figure(2.0, better="neither").gains == ()
    assert figure(0.0).gains == ()  # no logarithm


def test_rounds_that_are_not_as_many_on_both_sides_are_an_error() -> None:
    with pytest.raises(ValueError, match="2 rounds of ours and 1 of"):
        figure(1.0, 2.0, peer=(1.0,))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((100.0, 110.0, 121.0), 1.4826 * math.log(1.1)),  # logarithms 0.0953 apart: that is the median deviation
        ((5.0, 5.0, 5.0, 5.0, 50.0), 0.03),  # one disturbed round does not count, and there is a floor
        ((5.0, 50.0), 0.10),  # two rounds cannot tell
    ],
)
def test_noise_is_robust_and_never_nothing(values: tuple[float, ...], expected: float) -> None:
    assert noise(values) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        # Twice the noise of both floors: 2 * sqrt(2) * 0.03 = 0.0849, which is 9%.
        (figure(100.0, 100.0, 100.0), figure(120.0, 120.0, 120.0), "WORSE -17% (noise 9%)"),
        (figure(100.0, 100.0, 100.0), figure(80.0, 80.0, 80.0), "better +25% (noise 9%)"),
        (figure(100.0, 100.0, 100.0), figure(105.0, 105.0, 105.0), "-5%, within noise"),
        (figure(100.0), figure(120.0), "-17%, within noise"),  # one round each: 2 * sqrt(2) * 0.1 = 33%
        # Ours is twice as slow, and so is the peer: the machine was.
        (figure(1.0, 1.0, 1.0, peer=(9.0,) * 3), figure(2.0, 2.0, 2.0, peer=(18.0,) * 3), "+0%, within noise"),
        (figure(), figure(1.0), ""),
    ],
)  # fmt: skip
def test_a_change_is_told_from_noise(before: Figure, now: Figure, said: str) -> None:
    assert change(before, now) == said
    assert is_worse(before, now) == said.startswith("WORSE")


def test_the_rounds_of_several_runs_are_put_together_and_a_goal_has_to_be_met_in_most() -> None:
    first, second = figure(1.0, peer=(3.0,), met=True), figure(2.0, peer=(4.0,), met=False)
    (joined,) = join([[first], [second]])
    assert (joined.ours, joined.peer, joined.met) == ((1.0, 2.0), (3.0, 4.0), False)
    assert [join([[run] for run in runs])[0].met for runs in ([first] * 2, [first, second, first], [second])] == [
        True,
        True,
        False,
    ]
    assert join([[figure(1.0)], [figure(2.0)]])[0].met is None
    assert join([[first], [figure(absent="no peer")]])[0].absent == "no peer"


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    figures = [figure(1.5, peer=(3.0,), peer_name="TRL", goal=">= 2x", met=True), figure(absent="no GPU")]
    write(tmp_path / "f.json", figures)
    assert read(tmp_path / "f.json") == figures
    assert record(figures[0])["ratios"] == (2.0,)
    assert from_record(record(figures[0])) == figures[0]
    write(None, figures)  # nowhere


@pytest.mark.parametrize(
    ("value", "text"), [(0.012345, "0.0123 s"), (1.2345, "1.23 s"), (12345.6, "12,346 s"), (0.0, "0 s")]
)
def test_a_value_is_shown_with_three_digits(value: float, text: str) -> None:
    assert shown(value, "s") == text


def test_a_row_says_who_how_much_and_whether_the_goal_is_met() -> None:
    row = figure(2.0, 2.5, peer=(60.0, 50.0), peer_name="TRL", goal=">= 40x", met=False, computed=True).cells()
    assert row == ("a step [computed]", "2.25 us", "TRL", "55.0 us", "25.00x (20.00-30.00)", ">= 40x MISSED", "")
    missing = figure(peer_name="GEM", goal=">= 2x", met=False, absent="pip install gem").cells()
    assert missing == ("a step", "-", "GEM", "-", "", ">= 2x NOT MEASURED", "pip install gem")


def test_a_column_without_anything_in_it_is_left_out() -> None:
    assert table([("", "ours", "peer"), ("step", "1 us", "")]) == "      ours\nstep  1 us"


def test_a_title_makes_no_column_wide() -> None:
    assert (
        table([("", "ours"), ("-- a long title", ""), ("step", "1 us")]) == "      ours\n-- a long title\nstep  1 us"
    )


# ---- The suite ------------------------------------------------------------------------------------------------------

SMALL = Suite(name="small", what="something", command=("bench_small.py", "--fast"), minutes=1)
HERE = {"date": "2026-01-02T00:00:00+00:00", "commit": "abc", "cpu": "a processor", "cores": 2}


def ran(*figures: Figure, failed: str = "") -> Ran:
    return Ran(suite=SMALL, figures=figures, seconds=1.0, load=0.5, failed=failed)


def test_every_benchmark_exists_takes_json_and_has_a_name_of_its_own() -> None:
    assert len({each.name for each in SUITES}) == len(SUITES)
    for each in SUITES:
        text = (suite.HERE / each.command[0]).read_text()
        assert '"--json"' in text or "parser_of(__doc__" in text, each.name
        for word in each.command[1:]:
            assert not word.startswith("--") or f'"{word}"' in text, (each.name, word)


def test_some_are_chosen_by_name_and_those_for_a_gpu_only_with_one() -> None:
    assert [each.name for each in chosen("update, envs", gpu=False)] == ["envs", "update"]
    assert not any(each.gpu for each in chosen("", gpu=False))
    scripts = ["bench_update.py"] * 11 + ["bench_two_processes.py"] * 2
    scripts += ["bench_vision.py", "bench_estimate_gpu.py", "bench_step.py"]
    assert [each.command[0] for each in chosen("", gpu=True)] == scripts
    with pytest.raises(ValueError, match="'chess'; expected some of envs, "):
        chosen("envs,chess", gpu=False)


def test_the_newest_saved_figures_of_the_same_kind_of_machine_are_compared_with(tmp_path: Path) -> None:
    for name, date, value in (
        ("box-old", "2026-01-01", 1.0),
        ("box-new", "2026-01-03", 3.0),
        ("box-large-new", "2026-01-04", 8.0),
        ("other", "2026-02", 9.0),
    ):
        save(tmp_path / f"{name}.json", [ran(figure(value))], {**HERE, "date": date})
    own = tmp_path / "box-now.json"
    save(own, [ran(figure(7.0))], {**HERE, "date": "2026-03"})
    assert saved_before(tmp_path, "box", own)[("small", "a step")].ours == (3.0,)
    assert saved_before(tmp_path, "nowhere", own) == {}


def test_a_part_that_is_run_again_leaves_the_others_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "results" / "box.json"
    other = Ran(suite=Suite(name="other", what="", command=("b.py",), minutes=1), figures=(figure(2.0),))
    save(file, [ran(figure(1.0)), other], HERE)
    save(file, [ran(figure(5.0)), ran(failed="broken")], HERE)
    saved = json.loads(file.read_text())
    assert saved["machine"]["cpu"] == "a processor"
    assert saved["suites"]["small"]["figures"][0]["ours"] == [5.0]
    assert saved["suites"]["small"]["command"] == "bench_small.py --fast"
    assert saved["suites"]["other"]["figures"][0]["ours"] == [2.0]


def test_what_is_worse_missed_or_missing_is_said_and_ends_in_status_1_where_it_shall(
    capsys: pytest.CaptureFixture[str],
) -> None:
    slow = figure(200.0, 200.0, 200.0, goal="<= 1 us", met=False)
    before = {("small", "a step"): figure(100.0, 100.0, 100.0)}
    all_ran = [ran(slow), ran(failed=f"{NOT_RUN}: vllm is not installed")]
    worse = report(all_ran, before)
    assert worse == ["small: a step"]
    assert "WORSE -50%" in capsys.readouterr().out
    assert finish(all_ran, worse, ["gem did not install"], HERE) == 1
    out = capsys.readouterr().out
    assert "Worse than saved, by more than the noise:\n  small: a step" in out
    assert "Goals missed:\n  small: a step" in out
    assert "Not measured:\n  small: not run: vllm is not installed\n  gem did not install" in out
    assert "0 of 1 goals met" in out
    assert finish([ran(slow), all_ran[1]], [], [], HERE) == 0  # neither makes it an error
    assert finish([ran(failed="ended with status 1")], [], [], HERE) == 1


def test_a_benchmark_is_run_as_often_as_it_says_and_its_failure_is_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite, "HERE", tmp_path)
    saved = {"figures": [{"name": "n", "unit": "s", "ours": [1.0]}]}
    (tmp_path / "good.py").write_text(
        f"import pathlib, sys; pathlib.Path(sys.argv[-1]).write_text('{json.dumps(saved)}')"
    )
    (tmp_path / "bad.py").write_text("raise SystemExit(3)")
    twice = run(Suite(name="g", what="", command=("good.py",), minutes=0, repeats=2), None)
    assert twice.figures[0].ours == (1.0, 1.0)
    failed = run(Suite(name="b", what="", command=("bad.py",), minutes=0), None)
    assert failed.failed == "bad.py ended with status 3 before it had figures"

    def no_network() -> Path:
        raise subprocess.CalledProcessError(1, "pip")

    monkeypatch.setattr(suite.peers, "prepare", no_network)
    offline = run(Suite(name="o", what="", command=("good.py",), minutes=0, peers=True), None)
    assert offline.failed.startswith(f"{NOT_RUN}: the peers' environment was not made")
    missing = run(Suite(name="m", what="", command=("good.py",), minutes=0, needs="no_such_module"), None)
    assert missing.failed.startswith(f"{NOT_RUN}: no_such_module is not installed")


@pytest.mark.parametrize(
    ("gpu", "given", "seen"),
    [(True, None, "0"), (True, "2,3", "2"), (False, "2,3", "2,3"), (False, None, "all")],
)
def test_on_a_machine_of_several_gpus_a_benchmark_is_shown_the_first_alone(
    gpu: bool, given: str | None, seen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite, "HERE", tmp_path)
    if given is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    (tmp_path / "sees.py").write_text(
        "import json, os, pathlib, sys\n"
        "figure = {'name': os.environ.get('CUDA_VISIBLE_DEVICES', 'all'), 'unit': '', 'ours': [1.0]}\n"
        "pathlib.Path(sys.argv[-1]).write_text(json.dumps({'figures': [figure]}))"
    )
    ran = run(Suite(name="s", what="", command=("sees.py",), minutes=0, gpu=gpu), None)
    assert [found.name for found in ran.figures] == [seen]


def test_each_is_saved_as_soon_as_it_has_run_and_none_if_dry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = []

    def fake(suite: Suite, reference: Path | None, plots: Path | None) -> Ran:
        saved.append(sum(len(json.loads(file.read_text())["suites"]) for file in tmp_path.glob("*.json")))
        return Ran(suite=suite, figures=(figure(1.0),))

    monkeypatch.setattr(suite, "run", fake)
    monkeypatch.setattr(suite.peers, "not_installed", list)
    assert main(["--only", "envs,sandbox,math", "--results", str(tmp_path)]) == 0
    assert saved == [0, 1, 2]
    saved.clear()
    assert main(["--only", "envs,sandbox", "--results", str(tmp_path / "other"), "--dry"]) == 0
    assert not (tmp_path / "other").exists()


def test_the_list_says_what_there_is_and_a_gpu_that_is_not_there_is_an_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--list"]) == 0
    out = capsys.readouterr().out
    assert all(each.name in out for each in SUITES if not each.gpu)
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        with pytest.raises(SystemExit):
            main(["--gpu"])
        assert "torch finds no GPU here" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--only", "chess"])


def test_a_dry_run_prints_every_command_and_what_it_needs_without_a_gpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(suite, "run", None)
    monkeypatch.setattr(suite, "_gpu", lambda: "")
    monkeypatch.setattr(suite.shutil, "which", lambda name: "/usr/bin/gcc" if name == "gcc" else None)
    monkeypatch.setattr(suite.sysconfig, "get_paths", lambda: {"include": "/nowhere"})
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,4")
    assert main(["--gpu", "--dry-run"]) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    fitting = chosen("", gpu=True)
    assert first.startswith(f"{len(fitting)} benchmarks, some {sum(each.minutes for each in fitting):.0f} minutes")
    assert len(lines) == 3 * len(fitting)
    for each, about, needed, command in zip(fitting, lines[::3], lines[1::3], lines[2::3], strict=True):
        assert about == f"{each.name}: {each.what}; some {each.minutes:g} minutes"
        assert "a GPU (MISSING)" in needed
        assert ("a C compiler (/usr/bin/gcc); Python's headers (MISSING: python3-dev)" in needed) == each.compiles
        assert command.endswith(f" {suite.sys.executable} {suite.HERE / ' '.join(each.command)}")
        assert " CUDA_VISIBLE_DEVICES=3 " in command
    assert main(["--dry-run", "--only", "envs"]) == 0
    assert "needs the peers' environment, which a run makes\n" in capsys.readouterr().out


@pytest.mark.parametrize("runs_peers", [False, True])
def test_modules_that_ours_finds_by_its_path_are_found_by_a_benchmark_but_not_by_peers(
    runs_peers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/carried")
    path = suite.always(Suite(name="s", what="", command=("s.py",), minutes=0, peers=runs_peers))["PYTHONPATH"]
    assert path.startswith(str(suite.HERE.parent))
    assert path.endswith(":/carried") == (not runs_peers)


def test_what_is_not_installed_is_said_with_what_installs_it() -> None:
    missing = Suite(name="m", what="", command=("m.py",), minutes=0, needs="no_such_module")
    assert suite.needs(missing) == ["no_such_module (MISSING: pip install .[no_such_module])"]
    assert suite.plan([missing])[1] == "  needs no_such_module (MISSING: pip install .[no_such_module])"


# ---- Where it runs --------------------------------------------------------------------------------------------------


def test_the_peers_and_what_they_stand_on_are_told_apart() -> None:
    text = "# the peers\na==1\nb==2\n# What both sides stand on\nc==3\n# The package itself\nd==4\n"
    assert peers.requirements(text) == (["a==1", "b==2"], ["c==3", "d==4"])
    names = [line.split("==")[0] for line in peers.requirements((suite.HERE / "peers.txt").read_text())[0]]
    assert names == ["textarena", "gem-llm", "reasoning_gym"]


def test_a_peer_that_does_not_install_is_missed_by_its_own_rows_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    class Done:
        returncode, stderr = 0, ""

    class Failed:
        returncode, stderr = 1, "some noise\nERROR: no matching distribution\n"

    def fake(command: list[str], **_: object) -> object:
        calls.append(command)
        if "venv" in command:
            Path(command[-1]).mkdir(parents=True, exist_ok=True)
        return Failed() if any(word.startswith("gem-llm") for word in command) else Done()

    monkeypatch.setattr(peers, "FOLDER", tmp_path / ".bench")
    monkeypatch.setattr(peers.subprocess, "run", fake)
    assert peers.prepare() == peers.python_of()
    (missing,) = peers.not_installed()
    assert missing.startswith("gem-llm==")
    assert missing.endswith("did not install: ERROR: no matching distribution")
    assert len(calls) == 5  # the environment, the base, three peers
    peers.prepare()
    assert len(calls) == 10  # what failed is tried again
    monkeypatch.setattr(Failed, "returncode", 0)
    peers.prepare()
    peers.prepare()
    assert len(calls) == 15  # and what did not, is not
    assert peers.not_installed() == []


@pytest.mark.parametrize(
    ("cpu", "kind"),
    [
        ("Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz", "intel-xeon-platinum-8481c-2-cores"),
        ("AMD EPYC 7B13", "amd-epyc-7b13-2-cores"),
    ],
)
def test_a_kind_of_machine_is_a_processor_with_its_cores(cpu: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "cpu", lambda: cpu)
    monkeypatch.setattr(machine.os, "cpu_count", lambda: 2)
    assert machine.kind() == kind
    assert machine.kind("NVIDIA H200") == "nvidia-h200"
