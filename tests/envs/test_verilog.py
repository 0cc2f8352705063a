"""Verilog: what a proof says, what is refused and in which words, who is shown what, what a tester's lines earn."""

from __future__ import annotations

import importlib.util
import random
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import pettingllms_envs
from pettingllms_envs.core import Unreadable
from pettingllms_envs.environments.verilog import folders
from pettingllms_envs.environments.verilog.combinational import _spectrum, mux
from pettingllms_envs.environments.verilog.designers import WORKFLOWS, read_plan
from pettingllms_envs.environments.verilog.designs import header
from pettingllms_envs.environments.verilog.families import FAMILIES, LEVELS, draw, split_of
from pettingllms_envs.environments.verilog.mutants import mutants, wrong_designs
from pettingllms_envs.environments.verilog.rules import Verilog
from pettingllms_envs.environments.verilog.sequential import _numbered
from pettingllms_envs.environments.verilog.vectors import Review, Vector, read_vectors, reviewed
from pettingllms_envs.graders import designs
from pettingllms_envs.graders.designs import (
    DIFFERENT,
    EQUAL,
    LIMITS,
    NOT_PROVED,
    REFUSED,
    Port,
    Proved,
    counterexample,
    ports,
    prove,
    simulate,
)
from pettingllms_envs.replies.fences import fence
from pettingllms_envs.sandbox import MOST_WAITED, ProgramResult, Verdict
from pettingllms_envs.testing import CHECKS, check
from verilog_attacks import ATTACKS, COUNTS, COUNTS_HEADER, SLOW, SUM, Attack
from verilog_rewritings import redundant, rewritings


PORTS = (Port("a", 4, True), Port("b", 4, True), Port("y", 4, False))
SPLITS = ("train", "validation", "test")


def summed(body: str) -> str:
    return f"{header(PORTS)} {body} endmodule"


# ----------------------------------------------------------------------------------------------------------- the proof


@pytest.mark.parametrize(
    ("body", "verdict"),
    [
        ("assign y = b - ~a - 4'd1;", EQUAL),
        ("assign y = (a == 4'd9 && b == 4'd3) ? 4'd0 : a + b;", DIFFERENT),  # on one input of 256
        ("assign y = (a == 4'd9 && b == 4'd3) ? 4'd12 : a + b;", EQUAL),
        ("assign y = a == a ? a + b : 4'bx;", EQUAL),  # an x that never shows
        ("assign y = a == b ? 4'bx : a + b;", DIFFERENT),
        ("assign y = a == b ? 4'bz : a + b;", DIFFERENT),
    ],
)
def test_a_design_is_right_if_all_its_outputs_are(body: str, verdict: str) -> None:
    assert prove(SUM, summed(body), clocked=False) == Proved(verdict)


@pytest.mark.parametrize(
    "body",
    [
        "reg [3:0] r = 3; always @(posedge clk) if (rst) r<=0; else if (e) r<=r+d; assign q=r;",  # a start is no reset
        "reg [3:0] r; always @(posedge clk) begin if (e) r=r+d; if (rst) r=0; end assign q=r;",
        "wire c=~clk; reg [3:0] r; always @(negedge c) r<= rst ? 4'd0 : r + (e & d); assign q=r;",
        "reg [3:0] m[0:1]; always @(posedge clk) if (rst) m[0]<=0; else if (e) m[0]<=m[0]+d; assign q=m[0];",
        "reg [3:0] r; always @(posedge clk) if (rst) r<=4'd15; else if (e) r<=r-d; assign q=~r;",
        "s s_1(clk, rst, e & d, q); endmodule module s(input c, r, i, output reg [3:0] o);"
        " always @(posedge c) if (r) o <= 0; else o <= o + i;",
    ],
)
def test_a_design_with_a_clock_is_right_if_all_its_outputs_are_for_ever(body: str) -> None:
    assert prove(COUNTS, f"{COUNTS_HEADER} {body} endmodule", clocked=True) == Proved(EQUAL)


QUICK = [each for each in ATTACKS if each.name not in SLOW]
SOME = [*random.Random("attacks").sample(QUICK[:-11], 14), *QUICK[-11:]]


def judged(attack: Attack) -> Proved:
    return prove(COUNTS if attack.clocked else SUM, attack.source, clocked=attack.clocked)


@pytest.mark.parametrize("attack", SOME, ids=lambda each: each.name)
def test_an_attack_is_not_equal_and_refused_in_fixed_words(attack: Attack) -> None:
    assert judged(attack) == Proved(attack.verdict, attack.reason)


@pytest.mark.slow
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda each: each.name)
def test_each_attack_is_not_equal_and_ends_in_time(attack: Attack) -> None:
    begin = time.perf_counter()
    found = judged(attack)
    assert time.perf_counter() - begin < 4 * LIMITS.cpu + 1 + MOST_WAITED  # for a core, which others have
    assert found.verdict == attack.verdict
    assert attack.verdict != EQUAL
    assert attack.name in SLOW or found.reason == attack.reason


@pytest.mark.parametrize(
    ("stdout", "verdict", "code", "proved"),
    [
        (b"different\ntrue\n", Verdict.FINISHED, 0, Proved(EQUAL)),
        (b"different\n", Verdict.FINISHED, 0, Proved(NOT_PROVED)),
        (b"different\ntrue\n", Verdict.RUNTIME_ERROR, 1, Proved(REFUSED, "true")),  # it ended before our code did
        (b"different\n", Verdict.RUNTIME_ERROR, 1, Proved(DIFFERENT)),
        (b"different\n", Verdict.RUNTIME_ERROR, 2, Proved(NOT_PROVED)),
        (b"different\n", Verdict.TIMEOUT, None, Proved(NOT_PROVED)),
        (b"different\n", Verdict.MEMORY, None, Proved(NOT_PROVED)),
        (b"it is no valid Verilog\n", Verdict.RUNTIME_ERROR, 1, Proved(REFUSED, "it is no valid Verilog")),
        (b"it is no valid Verilog\n", Verdict.TIMEOUT, None, Proved(REFUSED, "out of time")),
        (b"", Verdict.RUNTIME_ERROR, -11, Proved(REFUSED, "it failed")),
    ],
)
def test_a_verdict_is_how_the_process_ended_after_its_last_stage(
    stdout: bytes, verdict: Verdict, code: int | None, proved: Proved
) -> None:
    result = ProgramResult(verdict=verdict, stdout=stdout, exit_code=code, isolation="")
    assert designs._verdict(result) == proved


def test_outputs_and_counterexamples_are_known() -> None:
    assert simulate([SUM], [{"a": 9, "b": 8}, {"a": 1}], clocked=False) == [[{"y": 1}, {"y": 1}]]
    wrong = summed("assign y = (a == 4'd9 && b == 4'd3) ? 4'd0 : a + b;")
    assert counterexample(SUM, wrong, clocked=False) == [{"a": 9, "b": 3}]
    assert ports(SUM) == PORTS
    # From the second cycle after the reset on it counts; of a register that no reset sets nothing is known.
    cycles = [{"e": 1, "d": 1}, {"e": 1, "d": 1}, {"e": 0}]
    assert simulate([COUNTS], cycles, clocked=True) == [[{"q": 0}, {"q": 1}, {"q": 2}]]
    free = COUNTS.replace("if (rst) r<=0; else ", "")
    assert simulate([free], cycles[:1], clocked=True) == [[{"q": None}]]


# ------------------------------------------------------------------------------------------------------------- designs


def test_all_families_and_levels_have_designs_in_every_split() -> None:
    structures = {
        split: {
            draw(seed, split, level, family).structure for family in FAMILIES for level in LEVELS for seed in (0, 1)
        }
        for split in SPLITS
    }
    assert min(map(len, structures.values())) > 30
    assert not structures["train"] & structures["test"] | structures["train"] & structures["validation"]
    assert not structures["test"] & structures["validation"]
    assert draw(3, "test", 2, "unit") == draw(3, "test", 2, "unit")


def test_functions_that_are_alike_have_one_structure() -> None:
    majority = [at for at in range(8) if at.bit_count() >= 2]
    inverted = [at for at in range(8) if (at ^ 5).bit_count() < 2]  # inputs 0 and 2 and the output are negated
    parity = [at for at in range(8) if at.bit_count() % 2]
    assert _spectrum(majority, 3) == _spectrum(inverted, 3) == [[0], [4, 4, 4], [0, 0, 0], [4]]
    assert _spectrum(parity, 3) == [[0], [0, 0, 0], [0, 0, 0], [8]]
    first_two = [at for at in range(8) if at & 3 == 3]
    last_two = [at for at in range(8) if at & 6 == 6]
    assert _spectrum(first_two, 3) == _spectrum(last_two, 3) != _spectrum(majority, 3)


def test_multiplexers_that_differ_by_the_order_of_their_inputs_have_one_structure() -> None:
    # Three inputs, none inverted: the 6 orders are one design with other names, in each of three widths.
    drawn = [mux(random.Random(seed), 1) for seed in range(2000)]
    same = [each for each in drawn if "inverted" not in each.text and "2: d" in each.text and "3: d" not in each.text]
    assert len({each.golden for each in same}) == 18
    assert len({each.structure for each in same}) == 3


def test_machines_with_other_names_have_one_structure_and_idle_states_none() -> None:
    following, outputs = [(1, 2), (0, 2), (2, 0)], [0, 1, 1]
    renamed = [(2, 1), (1, 0), (0, 1)]  # states 1 and 2 change names
    assert _numbered(following, outputs) == _numbered(renamed, [0, 1, 1]) == ((1, 2, 0), (0, 2, 1), (2, 0, 1))
    assert _numbered([(0, 1), (0, 1), (0, 0)], outputs) is None  # 2 is not reached
    assert _numbered([(1, 2), (0, 0), (0, 0)], outputs) is None  # 1 and 2 do the same


@pytest.mark.parametrize("family", FAMILIES)
def test_the_golden_forms_of_a_family_are_equal(family: str) -> None:
    state = Verilog().generate(1, level=1, family=family)
    assert state.problem.golden != state.problem.other
    assert split_of(state.problem) == "train"
    assert prove(state.problem.golden, state.problem.other, clocked=state.problem.clocked).equal


def test_a_design_of_each_kind_is_what_its_text_says() -> None:
    table = draw(2, "train", 1, "table")
    ones = {int(word) for word in table.text.partition("others: ")[2].strip(".").split(", ")}
    cycles = [{f"x{bit}": at >> bit & 1 for bit in range(3)} for at in range(8)]
    assert [each["y"] for each in simulate([table.golden], cycles, clocked=False)[0]] == [
        at in ones for at in range(8)
    ]
    counter = draw(0, "train", 1, "counter")
    assert "from 0 to 4" in counter.text
    assert "one more" in counter.text
    found = simulate([counter.other], [*[{"e": 1}] * 6, {"e": 0}, {"e": 0}], clocked=True)[0]
    assert [each["q"] for each in found] == [0, 1, 2, 3, 4, 0, 1, 1]
    assert [each["t"] for each in found] == [0, 0, 0, 0, 1, 0, 0, 0]


# ------------------------------------------------------------------------------------------------------------- replies


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("module TopModule; endmodule", "no blocks of Verilog"),
        (f"{fence(SUM, 'verilog')}\n{fence(SUM, 'verilog')}", "2 blocks of Verilog"),
        (fence(f"{SUM}\n{SUM}", "verilog"), "two modules of one name"),
        (fence("// module TopModule; endmodule", "verilog"), "no module of the name"),
        (fence("/* module TopModule(); endmodule", "verilog"), "no module of the name"),
        (fence("module Top; endmodule", "verilog"), "no module of the name"),
        (fence(SUM + "// \ud800", "verilog"), "a character that no design has"),
        (fence(SUM + "// \0", "verilog"), "a character that no design has"),
        (fence(SUM + " " * 20_000, "verilog"), "longer than 20000"),
        (f"```verilog\n{SUM}", "has no end"),
    ],
)
def test_what_is_no_design_is_unreadable_and_nothing_is_run(reply: str, reason: str) -> None:
    found = Verilog().parse(reply)
    assert isinstance(found, Unreadable)
    assert reason in found.reason


def test_a_line_of_vectors_names_each_port_once_with_a_number_that_fits() -> None:
    right = Vector((("a", 3), ("b", 7)), (("y", 10),))
    lines = [
        "a=3 b=0x7 -> y=10",
        "b=7, a=3 -> y=10",
        "a=3 -> y=10",
        "a=16 b=0 -> y=0",
        "a=3 b=7 -> y=10 y=10",
        "a=3 b=7",
    ]
    assert read_vectors(fence("\n".join(lines), "vectors"), PORTS) == (right, right, None, None, None, None)
    clocked = (Port("clk", 1, True), Port("rst", 1, True), Port("e", 1, True), Port("q", 2, False))
    line = fence("e=1 -> q=3", "vectors")
    assert read_vectors(line, clocked) == (Vector((("rst", 0), ("e", 1)), (("q", 3),)),)
    for bad in ("a=1", fence("", "vectors"), fence("a=1 b=1 -> y=2\n" * 17, "vectors"), f"{line}\n{line}"):
        assert isinstance(read_vectors(bad, PORTS), Unreadable)


def test_vectors_are_worth_what_the_golden_design_and_wrong_ones_give() -> None:
    lines = (Vector((), (("y", 1),)), Vector((), (("y", 2),)), None)
    golden = [{"y": 1}, {"y": 5}, {"y": 0}]
    same, other, late = (
        [{"y": 1}, {"y": 2}, {"y": 9}],
        [{"y": None}, {"y": 5}, {"y": 0}],
        [{"y": 1}, {"y": 7}, {"y": 0}],
    )
    assert reviewed(lines, golden, [same, other, late]) == Review(3, 1, 3, 1)
    assert Review(3, 1, 3, 1).valid == pytest.approx(1 / 3)


def test_a_plan_is_one_module_and_a_line_for_each_block() -> None:
    top = fence(summed("s one(a, b, y);"), "verilog")
    line = "block s(input [3:0] p, q, output [3:0] r): adds them"
    found = read_plan(f"{line}\n{top}", 3)
    assert found == (summed("s one(a, b, y);"), (("s", line),))
    for bad in (top, f"{line}\n{line}\n{top}", f"{line.replace('block s', 'block TopModule')}\n{top}", line):
        assert isinstance(read_plan(bad, 3), Unreadable)
    assert isinstance(read_plan(f"{line}\n{line.replace('block s', 'block t')}\n{top}", 1), Unreadable)


# ----------------------------------------------------------------------------------------------------------- workflows


def played(workflow: str, *replies: str, seed: int = 3, **settings: Any) -> Any:
    """An environment after some replies; an empty one stands for the oracle's."""
    env = pettingllms_envs.make("verilog", workflow=workflow, **settings)
    env.reset(seed=seed, options={"level": 1, "family": "table"})
    for reply in replies:
        env.step(reply or env.unwrapped.oracle())
    return env


def shown_header() -> str:
    """That of the design which is played."""
    return header(Verilog().generate(3, level=1, family="table").problem.ports)


def constant() -> str:
    return fence(f"{shown_header()} assign y = 1'b0; endmodule", "verilog")


def test_the_team_ends_when_design_and_vectors_agree_and_is_paid_for_the_proof() -> None:
    env = played("designer_tester", "", "")
    assert env.terminations["tester_0"]
    assert env.infos["tester_0"]["rewards"] == {"valid": 1.0, "telling": 1.0, "success": 1.0}
    outcome = env.infos["designer_0"]["outcome"]
    assert (outcome["success"], outcome["num_lines"], outcome["num_valid"], outcome["num_told"]) == (True, 16, 16, 6)


def test_both_are_shown_which_vectors_the_design_fails_and_never_the_verdict() -> None:
    env = played("designer_tester", constant(), fence("x0=0 x1=0 x2=0 -> y=1\nx0=0 -> y=0", "vectors"))
    assert not env.terminations["tester_0"]
    prompt = env.observe("designer_0")["text"]
    assert "x0=0 x1=0 x2=0 -> y=1: the design gives y=0" in prompt
    assert "a line that does not give each input and output" in prompt
    assert "different" not in prompt
    assert env.infos["designer_0"]["outcome"]["success"] is False


def test_a_refused_design_is_told_why_and_an_agreement_that_is_wrong_earns_nothing() -> None:
    env = played("single", fence("module TopModule(input a, output y); assign y = `A; endmodule", "verilog"))
    assert "The last design was refused: it has a directive or a macro." in env.observe("designer_0")["text"]
    assert env.infos["designer_0"]["outcome"]["refused"]
    env.step(constant())
    assert env.terminations["designer_0"]
    assert env.infos["designer_0"]["rewards"] == {"progress": 0.0, "equal": 0.0}


def test_an_implementer_sees_its_line_and_not_the_circuit() -> None:
    top = fence(f"{shown_header()} core c(x0, y); endmodule", "verilog")
    plan = f"block core(input p, output q): it inverts p\n{top}"
    env = played("architect_implementer", plan)
    prompt = env.observe("implementer_0")["text"]
    assert "block core(input p, output q): it inverts p" in prompt
    assert "The inputs are the bits of a number" not in prompt
    env.step(fence("module core(input p, output q); assign q = ~p; endmodule", "verilog"))
    assert env.infos["implementer_0"]["outcome"]["refused"] is False
    assert env.terminations["implementer_0"]
    env = played("architect_implementer", "", "")
    assert env.infos["implementer_0"]["rewards"] == {"progress": 1.0, "equal": 1.0, "success": 1.0}
    env = played("architect_implementer", plan, "no module")
    assert env.infos["implementer_0"]["rewards"] == {"format": -0.2}
    assert "An implementer's last reply was unreadable." in env.observe("architect_0")["text"]


def test_a_board_is_the_waveform_of_a_counterexample() -> None:
    task = Verilog()
    state = task.generate(3, level=1, family="table")
    texts = [[tile.text for tile in row] for row in task.tiles(state)]
    assert texts == [["x0"], ["x1"], ["x2"], ["y"], ["y"]]
    rows = task.tiles(task.apply(state, task.parse(constant())))
    assert [len(row) for row in rows] == [2] * 5
    assert ([row[1].text for row in rows[3:]], rows[4][1].paper) == (["1", "0"], "#f2c4c4")


def test_mutants_change_one_token_of_the_body_and_wrong_ones_differ() -> None:
    found = mutants("module m(input a, output y);\n  assign y = a & ~a;\nendmodule")
    assert {each.splitlines()[1].strip() for each in found} == {"assign y = a | ~a;", "assign y = a & a;"}
    design = draw(1, "train", 1, "machine")
    assert len(wrong_designs(design)) == 6
    assert all(prove(design.golden, each, clocked=True).verdict == DIFFERENT for each in wrong_designs(design))


def test_without_the_tool_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        ImportError, match=r"^pyosys is not installed; expected it for .*pip install -e '\.\[verilog\]'"
    ):
        Verilog()


# ------------------------------------------------------------------------------------------------------------- folders


def test_designs_of_a_folder_are_read_and_those_that_prove_nothing_are_left_out(tmp_path: Path) -> None:
    reference = SUM.replace("TopModule", "RefModule")
    (tmp_path / "Prob001_sum_prompt.txt").write_text("Add a and b in TopModule.")
    (tmp_path / "Prob001_sum_ref.sv").write_text(f"`timescale 1ns/1ps\n{reference}\n")
    (tmp_path / "Prob002_x_prompt.txt").write_text("Anything.")
    (tmp_path / "Prob002_x_ref.sv").write_text("module RefModule(input a, output y); assign y = 1'bx; endmodule")
    folder = tmp_path / "adder_4bit"
    folder.mkdir()
    (folder / "design_description.txt").write_text("Module name:\n    adder_4bit\nIt adds.")
    (folder / "verified_adder_4bit.v").write_text(SUM.replace("TopModule", "verified_adder_4bit"))
    task = Verilog(data=str(tmp_path))
    drawn = [task.generate(seed, split="test").problem for seed in range(2)]
    assert sorted(each.structure for each in drawn) == ["Prob001_sum", "adder_4bit"]
    assert all(each.ports == PORTS for each in drawn)
    assert "Module name:\n    TopModule\nIt adds." in [each.text for each in drawn]
    assert folders.left_out(str(tmp_path.resolve())) == {"Prob002_x": "it is different from itself"}
    assert task.apply(task.generate(0, split="test"), SUM).proved.equal
    for bad in ({}, {"split": "test", "level": 1}):
        with pytest.raises(ValueError, match="expected the split 'test'"):
            task.generate(0, **bad)


# ------------------------------------------------------------------------------------------------------------- figures


@pytest.mark.slow
@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("workflow", [each.name for each in WORKFLOWS])
def test_it_passes_every_check(workflow: str, split: str) -> None:
    make = partial(pettingllms_envs.make, "verilog", workflow=workflow)
    report = check(make, seeds=range(6), options=[{"split": split}])
    assert report.ok, str(report)


def test_no_agent_is_shown_the_solution_or_gains_by_sabotage() -> None:
    only = ["oracle", "no solution shown", "pairs of roles"]
    assert set(only) <= {*CHECKS}
    report = check(partial(pettingllms_envs.make, "verilog"), seeds=range(2), options=[{"level": 1}], only=only)
    assert report.ok, str(report)


def some_designs(number: int) -> list[Any]:
    """So many designs of each family, of all levels."""
    return [draw(seed, SPLITS[seed % 3], 1 + seed % 4, family) for family in FAMILIES for seed in range(number)]


@pytest.mark.slow
def test_four_rewritings_of_63_designs_are_proved_equal() -> None:
    found = [
        (prove(design.golden, each, clocked=design.clocked), design.structure, number)
        for design in some_designs(9)
        for number, each in enumerate(rewritings(design))
    ]
    unproved = [each for each in found if not each[0].equal]
    print(f"{len(found)} rewritings, {len(unproved)} not proved: {unproved}")
    assert len(found) == 252
    assert unproved == []


@pytest.mark.slow
def test_most_designs_that_hold_their_state_twice_are_proved_equal_and_none_to_differ() -> None:
    found = [prove(each.golden, redundant(each), clocked=each.clocked).verdict for each in some_designs(9)]
    print({verdict: found.count(verdict) for verdict in found})
    assert found.count(EQUAL) >= 0.9 * len(found)
    assert {*found} <= {EQUAL, NOT_PROVED}


@pytest.mark.slow
def test_no_mutant_that_a_simulation_tells_from_the_golden_design_is_accepted() -> None:
    counts = dict.fromkeys((EQUAL, DIFFERENT, REFUSED, NOT_PROVED), 0)
    alike = 0
    for design in some_designs(9):
        rng = random.Random(design.structure)
        inputs = [port for port in design.ports if port.is_input and port.name not in ("clk", "rst")]
        cycles = [{port.name: rng.randrange(1 << port.width) for port in inputs} for _ in range(48)]
        for mutant in [*mutants(design.golden)[:8], *mutants(design.other)[:6]]:
            verdict = prove(design.golden, mutant, clocked=design.clocked)
            golden, given = simulate([design.golden, mutant], cycles, clocked=design.clocked)
            if verdict.verdict == REFUSED or golden == given:
                alike += verdict.verdict != REFUSED
                continue
            counts[verdict.verdict] += 1
    print(f"{sum(counts.values())} mutants that differ: {counts}; {alike} that no cycle tells")
    assert counts[EQUAL] == 0
    assert counts[DIFFERENT] >= 500


def in_parts(source: str, lines: list[dict[str, int]]) -> list[dict[str, int]]:
    """A design's outputs for so many lines that one call would run into its limit."""
    parts = (simulate([source], lines[at : at + 512], clocked=False)[0] for at in range(0, len(lines), 512))
    return [outputs for part in parts for outputs in part]


TABLE_LIMITS = replace(LIMITS, cpu=4 * LIMITS.cpu)
"""A table of 4,096 lines takes longer than a design."""


@pytest.mark.slow
def test_what_vectors_tell_is_what_proofs_of_their_outputs_say() -> None:
    """Exhaustively, for designs of at most 12 inputs: a solver proves the outputs that the simulation gives."""
    compared = 0
    for design in some_designs(3):
        inputs = [port for port in design.ports if port.is_input]
        if design.clocked or sum(port.width for port in inputs) > 12:
            continue
        lines = all_lines(inputs)
        wrong = wrong_designs(design)
        found = [in_parts(source, lines) for source in (design.golden, *wrong)]
        golden = tuple(
            Vector(tuple(line.items()), tuple(due.items())) for line, due in zip(lines, found[0], strict=True)
        )
        assert reviewed(golden, found[0], found[1:]).num_told == len(wrong)  # all inputs tell all wrong designs
        for source, outputs in zip([design.golden, *wrong], found, strict=True):
            assert prove(as_table(design, lines, outputs), source, clocked=False, limits=TABLE_LIMITS).equal
            compared += 1
    print(f"{compared} designs agree with the proof of their tables")
    assert compared >= 40


def all_lines(inputs: list[Port]) -> list[dict[str, int]]:
    """Every combination of the inputs."""
    width = sum(port.width for port in inputs)
    lines = []
    for at in range(1 << width):
        line, rest = {}, at
        for port in inputs:
            line[port.name], rest = rest & (1 << port.width) - 1, rest >> port.width
        lines.append(line)
    return lines


def as_table(design: Any, lines: list[dict[str, int]], outputs: Any) -> str:
    """A design that is nothing but these outputs."""
    inputs = [port for port in design.ports if port.is_input]
    index = f"{{{', '.join(port.name for port in reversed(inputs))}}}"
    body = []
    for port in design.ports:
        if not port.is_input:
            for bit in range(port.width):
                number = sum((each[port.name] >> bit & 1) << at for at, each in enumerate(outputs))
                name = f"t_{port.name}_{bit}"
                body.append(f"wire [{len(lines) - 1}:0] {name} = {len(lines)}'h{number:x};")
                target = f"{port.name}[{bit}]" if port.width > 1 else port.name
                body.append(f"assign {target} = {name}[{index}];")
    return f"{header(design.ports)}\n" + "\n".join(body) + "\nendmodule"
