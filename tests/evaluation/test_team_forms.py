"""A team beside its forms: the differences by hand, the arms and their agents, and the command."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import pettingllms_envs
from chat_server import Faults, serving
from pettingllms_envs import cli
from pettingllms_envs.agents.spec import AgentSpec
from pettingllms_envs.commands import plug_ins
from pettingllms_envs.commands.runs import asked
from pettingllms_envs.episodes import files
from pettingllms_envs.evaluation.compare import difference_of_shares
from pettingllms_envs.evaluation.guessers import GuesserResult
from pettingllms_envs.evaluation.statistics import wilson
from pettingllms_envs.evaluation.team_forms import ArmForm, chosen, forms_of, inherited
from pettingllms_envs.page.cooperation import page
from pettingllms_envs.research.commands import one_team
from pettingllms_envs.research.commands.cooperation import arms_of
from pettingllms_envs.research.cooperation import Bound, Guesser, compare, differences, sentences
from test_teams import adapter, write


Run = Callable[..., tuple[int, str, str]]

TINY = "--set size=4 --set wording=symbols"
CONFIG: dict[str, Any] = {"settings": {}, "agents": {"a_0": {"kind": "api", "target": "m"}}}


def shares(**arms: str) -> dict[str, list[Fraction]]:
    """`team="110"`: solved, solved, not solved; `_` in a name stands for a hyphen."""
    return {name.replace("_", "-", 1): [Fraction(int(each)) for each in own] for name, own in arms.items()}


def rows(solved: str, *, tokens: int | None = 5, end: str = "terminated") -> list[dict[str, Any]]:
    """An episode of one reply for each mark: `1` solved, `0` not, `?` without a verdict, `e` an error."""
    return [
        {
            "instance": {"index": i, "env": "own_v0", "seed": i, "options": {}, "problem": None},
            "steps": [{"agent": "a_0", "tokens": {"prompt": 9, "completion": tokens}}],
            "success": {"1": True, "0": False}.get(mark),
            "error": {"kind": "unreachable", "message": ""} if mark == "e" else None,
            "end": end,
        }
        for i, mark in enumerate(solved)
    ]


def test_differences_are_those_of_the_arms() -> None:
    found = shares(full="1111", team="1110", cut="0100", alone="1000")
    gain, cost, value = differences(found)
    assert (gain.name, gain.of, gain.mean) == ("cooperation gain", "team - alone", 0.5)
    assert (gain.low, gain.high) == difference_of_shares(found["alone"], found["team"])
    assert (cost.name, cost.of, cost.mean) == ("cost of distributed information", "full - team", 0.25)
    assert (value.name, value.of, value.mean) == ("value of communication", "team - cut", 0.5)
    assert {each.verdict for each in (gain, cost, value)} == {"cannot tell"}


def test_the_gain_is_that_over_the_best_member_and_its_interval_holds_for_all() -> None:
    found = shares(team="1" * 40, alone_a="10" * 20, alone_b="1110" * 10)
    (gain,) = differences(found)
    over_a = difference_of_shares(found["alone-a"], found["team"], 0.975)
    over_b = difference_of_shares(found["alone-b"], found["team"], 0.975)
    assert (gain.of, gain.mean) == ("team - alone-b", 0.25)
    assert (gain.low, gain.high) == (min(over_a[0], over_b[0]), min(over_a[1], over_b[1]))
    assert gain.verdict == "positive"


def test_differences_need_their_arms() -> None:
    assert [each.name for each in differences(shares(team="10", cut="00"))] == ["value of communication"]


def test_arms_are_compared_on_the_problems_that_all_have_a_result_for() -> None:
    found = compare("own_v0", {"team": (CONFIG, rows("1111e")), "cut": (CONFIG, rows("0?111"))})
    assert found.num_problems == 3
    assert [(arm.mean, arm.num_problems) for arm in found.arms] == [(1.0, 4), (2 / 3, 4)]
    assert found.differences[0].mean == pytest.approx(1 / 3)


def test_arms_without_a_common_result_raise() -> None:
    with pytest.raises(ValueError, match="team, cut have no problem with a result in common"):
        compare("own_v0", {"team": (CONFIG, rows("1e")), "cut": (CONFIG, rows("e0"))})


def test_an_episode_that_is_out_of_tokens_is_a_failure_even_if_the_environment_does_not_say_so() -> None:
    found = compare(
        "own_v0",
        {"team": (CONFIG, rows("11")), "cut": (CONFIG, rows("??", end="budget"))},
        generated_tokens=7,
    )
    assert [(arm.mean, arm.num_out_of_tokens) for arm in found.arms] == [(1.0, 0), (0.0, 2)]
    assert sentences(found)[0].startswith("Every arm may generate 7 tokens in an episode, thinking included.")


def test_an_arm_that_is_not_above_its_best_guesser_is_named() -> None:
    one_in_four = GuesserResult("copier", (True, False, False, False) * 5)
    found = compare(
        "own_v0",
        {"team": (CONFIG, rows("1" * 20)), "full": (CONFIG, rows("10" * 10)), "cut": (CONFIG, rows("1" + "0" * 19))},
        guessers=dict.fromkeys(("full", "cut"), one_in_four),
    )
    team, full, cut = found.arms
    assert team.guesser is None
    assert full.guesser == Guesser(name="copier", mean=0.25, low=wilson(5, 20)[0], high=wilson(5, 20)[1])
    assert sentences(found)[2:] == [
        "Not shown to be above the best guesser in the same form: cut; so nothing here shows that their agents read "
        "the question."
    ]
    assert cut.low < 0.25 < full.low < 0.5  # 29.9% is the lower end of 10 of 20
    text = page(json.loads(json.dumps(found.plain)))
    assert "25.0% [11.2, 46.9], copier" in text


NEEDED = "so nothing here shows that the task needs a team."


@pytest.mark.parametrize(
    ("bound", "expected"),
    [
        (None, f"No bound of an agent alone is known, {NEEDED}"),
        (
            Bound(declared=0.5, recomputed=None, by="it leaks"),
            f"The bound of an agent alone, 50.0%, was not recomputed (it leaks), {NEEDED}",
        ),
        (Bound(declared=1.0, recomputed=1.0, by="a count"), f"The bound of an agent alone is 100.0%, {NEEDED}"),
        (
            Bound(declared=0.5, recomputed=0.5, by="a count"),
            "The task needs a team: an agent alone that sees its prompts and no rewards succeeds in at most 50.0% of"
            " the episodes, recomputed from a count. This team is above that.",
        ),
        (
            Bound(declared=0.9, recomputed=0.9, by="a count"),
            "The task needs a team: an agent alone that sees its prompts and no rewards succeeds in at most 90.0% of"
            " the episodes, recomputed from a count. This team is not shown to be above that.",
        ),
    ],
)
def test_a_need_of_a_team_is_claimed_only_where_the_bound_was_recomputed(bound: Bound | None, expected: str) -> None:
    found = compare("own_v0", {"team": (CONFIG, rows("1" * 20))}, bound=bound)
    assert sentences(found) == ["There was no limit of tokens.", expected]
    assert page(json.loads(json.dumps(found.plain))).count("The task needs a team") == ("needs a team:" in expected)


def test_arms_that_cannot_be_fair_are_warned_of() -> None:
    oracle = {**CONFIG, "agents": {"a_0": {"kind": "oracle", "target": None}}}
    found = compare(
        "own_v0",
        {
            "team": (CONFIG, rows("1" * 20)),
            "cut": (oracle, rows("1" * 20)),
            "alone": (CONFIG, rows("1" * 20, tokens=None)),
        },
        generated_tokens=9,
        bound=Bound(declared=0.5, recomputed=0.5, by="a count"),
    )
    assert [line.split(",")[0] for line in sentences(found)[2:]] == [
        "warning: cut was played by the oracle",
        "warning: alone is above the bound of 50.0%",
        "warning: not all tokens of alone are counted",
    ]


def test_the_page_shows_what_was_written_as_text() -> None:
    config = {**CONFIG, "agents": {"<b>": {"kind": "api", "target": "<script>"}}}
    found = compare("<i>_v0", {"team": (config, rows("10"))})
    text = page(json.loads(json.dumps(found.plain)))
    assert "<script" not in text
    assert "<i>" not in text
    assert "&lt;b&gt;: api:&lt;script&gt;" in text


def test_the_arms_of_an_environment_are_its_forms_in_order() -> None:
    forms = forms_of(pettingllms_envs.make("archives"))
    assert list(forms) == ["full", "routed", "team", "cut", "alone-librarian_0", "alone-librarian_1"]
    assert list(forms_of(pettingllms_envs.make("note_taking"))) == ["full", "team", "cut", "alone"]
    assert chosen(forms, ["alone", "cut"]) == ["team", "cut", "alone-librarian_0", "alone-librarian_1"]
    assert chosen(forms, ["alone-librarian_1"]) == ["team", "alone-librarian_1"]


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"name": "own_v0"}, "own_v0 declares no forms to compare; expected those of a team in metadata"),
        ({"name": "own_v0", "settings": {"workflow": "solo"}}, "own_v0 with the workflow 'solo' declares no forms"),
    ],
)
def test_an_environment_without_forms_raises(metadata: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        forms_of(argparse.Namespace(metadata=metadata))


def test_an_arm_without_a_form_raises() -> None:
    forms = forms_of(pettingllms_envs.make("note_taking", answerer="watcher"))
    with pytest.raises(ValueError, match=r"for the arm 'cut'; expected one of: full, team, alone\. Name"):
        chosen(forms, ["full", "cut"])
    with pytest.raises(ValueError, match=r"no form for the arm 'fall'.* Did you mean 'full'\?"):
        chosen(forms, ["fall"])


def test_the_agents_of_a_form_are_the_teams_or_its_player() -> None:
    left, right = AgentSpec("api", "l"), AgentSpec("api", "r")
    team = {"left_0": left, "right_0": right}
    assert inherited(team, "cut", ArmForm({}), ["left_0", "right_0"]) == team
    assert inherited(team, "alone", ArmForm({}, "right_0"), ["watcher_0"]) == {"watcher_0": right}
    with pytest.raises(ValueError, match="'watcher_0' of the arm 'alone' is none of the team's agents: left_0,"):
        inherited(team, "alone", ArmForm({}), ["watcher_0"])


def arms(line: str) -> dict[str, Any]:
    """The benchmarks of the arms of a command."""
    args = one_team(cli._parser(plug_ins()).parse_args(["cooperation", *line.split(), "--limit", "2"]))
    return arms_of(args, *asked(args))


def test_a_trained_team_plays_its_forms_with_the_adapter_of_each_member(tmp_path: Path) -> None:
    names = ("librarian_0", "librarian_1", "answerer_0")
    team = write(tmp_path / "team", {name: adapter(name) for name in names}, {name: name for name in names})
    found = arms(f"archives {TINY} --team {team}")
    playing = {
        name: {agent: Path(spec.options["adapter"]).name for agent, spec in arm.agents.items()}
        for name, arm in found.items()
    }
    assert playing == {
        "full": {"librarian_0": "librarian_0"},
        "routed": {"librarian_0": "librarian_0"},
        "team": {name: name for name in names},
        "cut": {name: name for name in names},
        "alone-librarian_0": {"librarian_0": "librarian_0"},
        "alone-librarian_1": {"librarian_0": "librarian_1"},
    }


def test_a_form_can_have_agents_of_its_own(tmp_path: Path) -> None:
    alone = write(tmp_path / "lone", {"reader": adapter("reader")}, {"librarian_0": "reader"})
    given = f"alone=team:{alone} cut=answerer=null full=api:big,temperature=0"
    found = arms(f"archives {TINY} --agents oracle --arm-agents {given}")
    kinds = {name: [spec.kind for spec in arm.agents.values()] for name, arm in found.items()}
    assert kinds == {
        "full": ["api"],
        "routed": ["oracle"],
        "team": ["oracle"] * 3,
        "cut": ["oracle", "oracle", "null"],
        "alone-librarian_0": ["transformers"],
        "alone-librarian_1": ["transformers"],
    }
    assert found["full"].agents["librarian_0"].options["temperature"] == 0
    assert replace(found["cut"], settings={}, agents={}) == replace(found["team"], settings={}, agents={})


def test_the_command_plays_every_form_and_writes_numbers_and_a_page(run: Run) -> None:
    line = f"cooperation archives {TINY} --agents oracle --arm-agents cut=null alone=null --limit 20 --output o"
    status, out, _ = run(line)
    assert status == 0
    assert "full 100.0% [83.9, 100.0]" in out
    assert "alone-librarian_1 0.0% [0.0, 16.1]" in out
    assert "bound alone 25.0%" in out
    assert "bound blind 25.0%" in out
    assert re.search(r"^team [\d.]+% \[[\d., ]+\] (patient )?copier$", out, re.M)
    assert "cooperation gain team - alone-librarian_0 +100.0 [+71.6, +100.0] positive" in out
    assert "cost of distributed information full - team +0.0 [-16.1, +16.1] cannot tell" in out
    assert "value of the team's order routed - full +0.0 [-16.1, +16.1] cannot tell" in out
    assert "value of communication team - cut +100.0 [+77.2, +100.0] positive" in out
    assert "recomputed from 24 instances that look alike to an agent alone. This team is above that." in out
    assert "warning" not in out
    numbers = json.loads(Path("o/cooperation.json").read_text())
    assert [arm["name"] for arm in numbers["arms"]] == [
        "full",
        "routed",
        "team",
        "cut",
        "alone-librarian_0",
        "alone-librarian_1",
    ]
    assert numbers["bound"]["recomputed"] == 0.25
    text = Path("o/cooperation.html").read_text()
    assert "bound of an agent alone, 25.0%" in text
    assert "The task needs a team" in text
    ElementTree.fromstring(text[text.index("<svg") : text.index("</svg>") + len("</svg>")])
    Path("o/cooperation.html").unlink()
    assert run("view o")[1].startswith("o/cooperation.html (")
    assert Path("o/cooperation.html").read_text() == text
    assert run(line)[1] == out
    assert run("replay o/cut")[0] == 0
    assert run("compare o/team o/cut o/alone-librarian_1 o/full")[0] == 0


def test_where_a_team_need_not_read_the_question_the_command_says_so(run: Run) -> None:
    _, out, _ = run(
        f"cooperation archives {TINY} --set facts=1 --set order=question --agents oracle --arm-agents cut=null"
        " alone=null --limit 20"
    )
    assert "bound blind 100.0%" in out
    assert "team 100.0% [83.9, 100.0] copier" in out
    assert "Not shown to be above the best guesser in the same form: routed, team, cut, alone" in out


def test_every_arm_may_generate_as_many_tokens_as_the_teams_longest_episode(run: Run) -> None:
    with serving(skill=0) as server:
        line = f"cooperation archives {TINY} --model tiny --base-url {server.url} --limit 6 --output o"
        status, out, _ = run(line)
        assert status == 0
        team = files.read(Path("o/team"))
        most = max(sum(step["tokens"]["completion"] for step in row["steps"]) for row in team)
        assert json.loads(Path("o/cooperation.json").read_text())["generated_tokens"] == most
        for name in ("full", "cut", "alone-librarian_0", "alone-librarian_1"):
            assert files.read_header(Path("o") / name)["config"]["generated_tokens"] == most
        assert f"Every arm may generate {most} tokens in an episode" in out
        status, out, _ = run(f"{line}2 --generated-tokens 4")
    assert status == 0
    for name in ("team", "full"):
        played = files.read(Path("o2") / name)
        assert {row["end"] for row in played} == {"budget"}
        assert all(sum(step["tokens"]["completion"] for step in row["steps"]) <= 4 for row in played)
    assert re.search(r"^team 0.0% \[0.0, 39.0\] \S+ \d 6$", out, re.M)


def test_without_all_of_the_teams_episodes_no_other_arm_is_played(run: Run) -> None:
    with serving(faults=Faults(errors=1.0)) as server:
        agents = (
            f"--agents librarian_0=null librarian_1=null answerer=api:tiny --base-url {server.url} --patience 0.01"
        )
        status, out, _ = run(f"cooperation archives {TINY} {agents} --limit 1 --output o")
    assert status == 1
    assert "1 episodes are errors (1 unreachable)" in out
    assert "The same command plays them again." in out
    assert not Path("o").exists()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("cooperation plan_path --agents oracle", "plan_path_v0 with the workflow 'draft_plan' declares no"),
        (
            "cooperation archives --agents oracle --arm-agents null",
            "--arm-agents got 'null'; expected ARM=AGENT",
        ),
        ("cooperation archives --agents oracle --arm-agents aloe=null", "no form for the arm 'aloe'"),
        (
            "cooperation archives --agents oracle --arm-agents alone=answerer=null",
            "there is no role 'answerer'; expected one of: librarian",
        ),
        ("cooperation archives --agents oracle --generated-tokens 0", "--generated-tokens is 0; expected at"),
    ],
)
def test_mistakes_are_errors_before_anything_is_played(run: Run, line: str, words: str) -> None:
    status, out, err = run(line)
    assert (status, out) == (2, "")
    assert words in err
    assert list(Path().iterdir()) == []
