"""Rollouts broken on purpose are found and named, sound ones are not, and what is not recorded is not passed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pettingllms_envs.audit import Finding, audit
from pettingllms_envs.audit.advantages import fault_of
from pettingllms_envs.audit.collapse import stopped_exploring
from pettingllms_envs.audit.counting import OPEN_INSTANCES
from pettingllms_envs.audit.history import falling_entropy
from pettingllms_envs.audit.recorded import episode_of, run_of
from pettingllms_envs.audit.rows import Candidate, Decision, Episode, RunFacts
from pettingllms_envs.audit.series import MOST_BINS, Series
from pettingllms_envs.audit.tables import episodes_of_table, run_of_tables
from rollouts import NOT_RECORDED_EARLIER, Row, parallel_header, parallel_rows, tree_header, tree_rows


def findings_of(header: Row, rows: list[Row]) -> dict[str, Finding]:
    run = run_of(header)
    found = audit(run, (episode_of(run, row, f"line {i}") for i, row in enumerate(rows, 1)))
    return {finding.name: finding for finding in found}


def bad(findings: dict[str, Finding]) -> dict[str, str]:
    return {name: finding.status for name, finding in findings.items() if finding.is_bad}


def groups(rows: list[Row], agent: str | None = None) -> list[list[Row]]:
    return [step["candidates"] for row in rows for step in row["steps"] if agent in (None, step["agent"])]


def replay(rows: list[Row]) -> None:
    """Each step's reply becomes that of its chosen candidate."""
    for step in (step for row in rows for step in row["steps"]):
        step["reply"] = next(each["reply"] for each in step["candidates"] if each["chosen"])


# ---- Broken rollouts --------------------------------------------------------------------------------------------


def mixed_prompts(rows: list[Row]) -> None:
    """The third candidate of a group was sampled after the prompt of another instance."""
    rows[3]["steps"][1]["candidates"][2]["prompt_ids"] = rows[0]["steps"][1]["prompt_ids"]


def mixed_turns(rows: list[Row]) -> None:
    """The last candidate of a group is of the turn before."""
    rows[3]["steps"][2]["candidates"][3]["turn"] = 1


def lazy_role(rows: list[Row]) -> None:
    """The drafter says "ok" to everything."""
    for group in groups(rows, "drafter_0"):
        for each in group:
            each["reply"], each["tokens"] = "ok", 2
    replay(rows)


def dead_role(rows: list[Row]) -> None:
    """The drafter's own steps never pay."""
    for group in groups(rows, "drafter_0"):
        for each in group:
            each["reward"], each["advantage"] = 0.0, 0.0


def cut_off_replies(rows: list[Row]) -> None:
    """Three of four replies of the planner reach their greatest length."""
    for group in groups(rows, "planner_0"):
        for each in group[1:]:
            each["finish"] = "length"


def swapped_agents(rows: list[Row]) -> None:
    """In one episode the planner's policy answers for the drafter, and the drafter's for the planner."""
    other = {"drafter": "planner", "planner": "drafter"}
    for step in rows[5]["steps"]:
        step["policy"] = other[step["policy"]]


def swapped_prompts(rows: list[Row]) -> None:
    """In one episode each agent is shown the other's system prompt."""
    first, second = (rows[5]["steps"][i]["prompt"]["system"] for i in (0, 1))
    for step in rows[5]["steps"]:
        step["prompt"]["system"] = second if step["agent"] == "drafter_0" else first


def copied_siblings(rows: list[Row]) -> None:
    """All candidates of a group are the first one, of 40 tokens, though replies differ from prompt to prompt."""
    for group in groups(rows):
        for each in group:
            each.update(reply=group[0]["reply"], tokens=40)
    replay(rows)


def forced_moves(rows: list[Row]) -> None:
    """One reply is legal after each prompt, so that siblings are equal; it decides their reward only by chance."""
    for number, group in enumerate(groups(rows)):
        for each in group:
            each.update(reply=f"move {number % 5}", tokens=3)
    replay(rows)


def one_copied_sibling(rows: list[Row]) -> None:
    """The third candidate is always a copy of the second."""
    for group in groups(rows):
        group[2]["reply"] = group[1]["reply"]


def wrong_sums(rows: list[Row]) -> None:
    """The advantages of one group are those of rewards less another group's mean."""
    for each in rows[3]["steps"][1]["candidates"]:
        each["advantage"] += 0.1


def negated(rows: list[Row]) -> None:
    """All advantages have the other sign: what is paid is unlearnt."""
    for each in (each for group in groups(rows) for each in group):
        each["advantage"] *= -1


def rotated(rows: list[Row]) -> None:
    """In one group each candidate has its neighbour's advantage."""
    group = groups(rows)[13]
    for each, advantage in zip(group, [each["advantage"] for each in group[1:] + group[:1]], strict=True):
        each["advantage"] = advantage


def all_zero(rows: list[Row]) -> None:
    """The rewards of one group are 1, 0, 0, 1, its advantages 0."""
    for each in groups(rows)[13]:
        each["advantage"] = 0.0


def too_large(rows: list[Row]) -> None:
    """The advantages were not divided by the deviation, but multiplied by 1e4."""
    for each in (each for group in groups(rows) for each in group):
        each["advantage"] *= 1e4


def too_small(rows: list[Row]) -> None:
    """The advantages are a hundredth of what they are."""
    for each in groups(rows)[13]:
        each["advantage"] /= 100


def other_differences(rows: list[Row]) -> None:
    """Two candidates of the reward 0 have advantages that differ, with the same sum."""
    group = groups(rows)[13]
    group[1]["advantage"] += 0.2
    group[2]["advantage"] -= 0.2


def unequal_advantages_of_equal_rewards(rows: list[Row]) -> None:
    """All rewards of a group are 1, and half of it is learnt, half unlearnt."""
    for each in groups(rows)[13]:
        each["reward"] = 1.0


def nan_rewards(rows: list[Row]) -> None:
    for each in (each for group in groups(rows)[:3] for each in group):
        each["reward"] = float("nan")


def nan_advantages(rows: list[Row]) -> None:
    for each in groups(rows)[13]:
        each["advantage"] = float("nan")


def infinite_return(rows: list[Row]) -> None:
    rows[3]["returns"]["planner_0"] = float("inf")


def two_chosen(rows: list[Row]) -> None:
    groups(rows)[13][1]["chosen"] = True


def none_chosen(rows: list[Row]) -> None:
    groups(rows)[13][0]["chosen"] = False


def another_reply_played(rows: list[Row]) -> None:
    rows[3]["steps"][1]["reply"] = "something else"


def missing_candidates(rows: list[Row]) -> None:
    """One group has two candidates; their advantages, 0.866 and -0.866, sum to zero."""
    del rows[3]["steps"][1]["candidates"][2:]


def changed_state(rows: list[Row]) -> None:
    """The second step is taken in the state that the second candidate led to; the first was played on."""
    rows[3]["steps"][1]["state"] = rows[3]["steps"][0]["candidates"][1]["state"]


BROKEN: list[tuple[Callable[[list[Row]], None], str, str]] = [
    (mixed_prompts, "mixed prompts", "failed"),
    (mixed_turns, "mixed turns", "failed"),
    (lazy_role, "lazy role", "warning"),
    (dead_role, "dead role", "failed"),
    (cut_off_replies, "cut-off replies", "failed"),
    (swapped_agents, "swapped agents", "failed"),
    (swapped_prompts, "swapped agents", "failed"),
    (copied_siblings, "copied siblings", "failed"),
    (one_copied_sibling, "copied siblings", "failed"),
    (wrong_sums, "wrong sums of advantages", "failed"),
    (forced_moves, "copied siblings", "warning"),
    (negated, "wrong advantages", "failed"),
    (rotated, "wrong advantages", "failed"),
    (all_zero, "wrong advantages", "failed"),
    (too_large, "wrong advantages", "failed"),
    (too_small, "wrong advantages", "failed"),
    (other_differences, "wrong advantages", "failed"),
    (unequal_advantages_of_equal_rewards, "wrong advantages", "failed"),
    (nan_rewards, "non-finite numbers", "failed"),
    (nan_advantages, "non-finite numbers", "failed"),
    (infinite_return, "non-finite numbers", "failed"),
    (two_chosen, "wrong choice", "failed"),
    (none_chosen, "wrong choice", "failed"),
    (another_reply_played, "wrong choice", "failed"),
    (missing_candidates, "missing candidates", "failed"),
    (changed_state, "changed state", "failed"),
]


@pytest.mark.parametrize(("broken", "name", "status"), BROKEN, ids=[each.__name__ for each, _, _ in BROKEN])
def test_a_broken_rollout_is_found_and_named_and_nothing_else_is(
    broken: Callable[[list[Row]], None], name: str, status: str
) -> None:
    rows = tree_rows()
    broken(rows)
    assert bad(findings_of(tree_header(), rows)) == {name: status}


@pytest.mark.parametrize(
    ("broken", "name", "words"),
    [
        (mixed_prompts, "mixed prompts", "1 of 64 groups compare replies to different prompts (2 prompts for 4"),
        (wrong_sums, "wrong sums of advantages", "1 of 64 groups do not sum to zero (+0.4 over 4 advantages)."),
        (
            rotated,
            "wrong advantages",
            "1 of 64 groups have advantages that do not follow from their rewards (a higher",
        ),
        (
            all_zero,
            "wrong advantages",
            "(the rewards differ, the advantages do not: rewards 1, 0, 0, 1, advantages 0,",
        ),
        (
            too_small,
            "wrong advantages",
            "(0.01 times what scale 'group' gives: rewards 1, 0, 0, 1, advantages 0.00866",
        ),
        (other_differences, "wrong advantages", "(not in proportion: rewards 1, 0, 0, 1, advantages 0.866, -0.666,"),
        (nan_advantages, "non-finite numbers", "4 of 528 numbers are not finite (the advantage is nan)."),
        (
            two_chosen,
            "wrong choice",
            "1 of 64 steps were not played by one chosen candidate (2 candidates are chosen).",
        ),
        (none_chosen, "wrong choice", "(no candidates are chosen)."),
        (another_reply_played, "wrong choice", "(the reply is not the chosen candidate's)."),
        (missing_candidates, "missing candidates", "1 of 64 groups are of another size (2 candidates, expected 4)."),
        (swapped_agents, "swapped agents", "(drafter_0 played by 'planner', expected 'drafter')."),
        (cut_off_replies, "cut-off replies", "cut off: 0% of drafter's (0 of 128), 75% of planner's (96 of 128)."),
        (lazy_role, "lazy role", "'ok' is 128 of 128 replies of drafter, whatever the prompt."),
        (dead_role, "dead role", "(flat groups: drafter 100%, planner 0%)."),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_finding_says_how_many_and_where(broken: Callable[[list[Row]], None], name: str, words: str) -> None:
    rows = tree_rows()
    broken(rows)
    finding = findings_of(tree_header(), rows)[name]
    assert words in finding.text
    if finding.where:
        assert finding.where.startswith(("line 4: step 2, instance 5", "line 6: step 3, instance 7"))
    assert finding.remedy


def test_few_cut_off_replies_are_too_few_to_tell() -> None:
    rows = tree_rows()[:1]  # 4 candidates at each decision
    cut_off_replies(rows)
    finding = findings_of(tree_header(), rows)["cut-off replies"]
    assert (finding.status, "No role has 16 replies" in finding.text) == ("not applicable", True)


def lost_episode(rows: list[Row]) -> None:
    """Of one instance the second and the third episode are gone, whose advantages sum with the others' to zero."""
    rows[5]["steps"][0]["candidates"][0]["advantage"] = rows[5]["steps"][1]["candidates"][0]["advantage"] = -0.866
    del rows[6:8]


def another_start(rows: list[Row]) -> None:
    """One episode begins in another state than the others of its instance: the seed does not decide it."""
    rows[5]["steps"][0]["state"] = "start 99"


def another_prompt(rows: list[Row]) -> None:
    rows[5]["steps"][0]["prompt_ids"] = "ids of another instance"


def shifted_episode(rows: list[Row]) -> None:
    rows[5]["steps"][0]["candidates"][0]["advantage"] += 0.5


@pytest.mark.parametrize(
    ("broken", "name"),
    [
        (lost_episode, "missing candidates"),
        (another_start, "changed state"),
        (another_prompt, "mixed prompts"),
        (shifted_episode, "wrong sums of advantages"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_broken_groups_of_parallel_episodes_are_found(broken: Callable[[list[Row]], None], name: str) -> None:
    rows = parallel_rows()
    broken(rows)
    assert bad(findings_of(parallel_header(), rows)) == {name: "failed"}


# ---- Five sound rollouts --------------------------------------------------------------------------------------------


def sound_tree() -> tuple[Row, list[Row]]:
    return tree_header(), tree_rows()


def sound_parallel() -> tuple[Row, list[Row]]:
    return parallel_header(), parallel_rows()


def sound_with_a_frozen_partner() -> tuple[Row, list[Row]]:
    """The drafter is never trained: a single candidate without an advantage, the same reply now and then."""
    rows = tree_rows()
    for row in rows:
        for step in row["steps"][::2]:
            del step["candidates"][1:]
            step["candidates"][0]["advantage"] = None
    return tree_header(), rows


def sound_with_continuations() -> tuple[Row, list[Row]]:
    """The planner learns in continuations of the drafter's candidates alone."""
    rows = tree_rows()
    for row in rows:
        for drafted, planned in zip(row["steps"][::2], row["steps"][1::2], strict=True):
            for one, other in zip(drafted["candidates"], planned["candidates"], strict=True):
                alone = {**other, "chosen": True}
                one["continuations"] = [{"return": 0.0, "steps": [{**planned, "candidates": [alone]}]}]
            played = next(each for each in planned["candidates"] if each["chosen"])
            planned["candidates"] = [{**played, "advantage": None}]
    return tree_header(), rows


def sound_that_has_learned() -> tuple[Row, list[Row]]:
    """In the last third replies repeat themselves and groups are flat, for return and success have risen."""
    rows = tree_rows(12)
    for row in rows[-8:]:
        row |= {"returns": dict.fromkeys(row["returns"], 2.0), "success": True}
    for group in groups(rows[-8:]):
        for each in group:
            each.update(reply=group[0]["reply"], reward=2.0, advantage=0.0)
    replay(rows)
    return tree_header(), rows


def sound_judged_by_returns() -> tuple[Row, list[Row]]:
    """Judged by what follows, the candidates' order by the reward of their step may be another."""
    rows = tree_rows()
    negated(rows)
    credit = {"name": "at_grpo", "sums_to_zero": "siblings", "judges_own_step": False, "scale": "group"}
    return tree_header(credit=credit), rows


def sound_with_a_credit_of_no_sum() -> tuple[Row, list[Row]]:
    """A running baseline: all advantages of a group may be positive."""
    rows = tree_rows()
    for each in (each for group in groups(rows) for each in group):
        each["advantage"] = each["reward"] + 0.25
    return tree_header(credit={"name": "rae", "sums_to_zero": None, "judges_own_step": True, "scale": "none"}), rows


@pytest.mark.parametrize(
    "sound",
    [
        sound_tree,
        sound_parallel,
        sound_with_a_frozen_partner,
        sound_with_continuations,
        sound_that_has_learned,
        sound_with_a_credit_of_no_sum,
        sound_judged_by_returns,
    ],
    ids=lambda sound: sound.__name__,
)
def test_a_sound_rollout_gives_no_warning(sound: Callable[[], tuple[Row, list[Row]]]) -> None:
    assert bad(findings_of(*sound())) == {}


def test_every_check_of_a_sound_tree_has_looked_at_something() -> None:
    findings = findings_of(*sound_tree())
    assert {findings.pop(name).status for name in NOT_RECORDED_EARLIER} == {"not recorded"}
    assert {finding.status for finding in findings.values()} == {"passed"}
    assert len(findings) == 22
    assert findings["uneven learning"].text == "shares of the sum of absolute advantages: drafter 50%, planner 50%."


def test_a_role_that_learns_in_continuations_alone_is_one_that_learns_and_has_no_groups_of_candidates() -> None:
    findings = findings_of(*sound_with_continuations())
    assert findings["uneven learning"].text == "shares of the sum of absolute advantages: drafter 50%, planner 50%."
    assert findings["missing candidates"].text == "32 groups: 4 in each."  # the drafter's


def paid_rows(kind: str) -> tuple[Row, list[Row]]:
    """Two episodes of two steps whose rewards sum to 0.3 and -1; of a training with the single agent `drafter_0`."""
    rows = tree_rows(1)
    paid = [{"drafter_0": 0.1, "planner_0": -0.5}, {"drafter_0": 0.2, "planner_0": -0.5}]
    for row in rows:
        row["returns"] = {"drafter_0": 0.1 + 0.2, "planner_0": -1.0}
        row["steps"] = row["steps"][:3:2]
        for step, rewards in zip(row["steps"], paid, strict=True):
            step["rewards"] = dict(rewards)
            if kind == "rollouts":
                del step["rewards"]["planner_0"]
        if kind == "rollouts":
            del row["returns"]["planner_0"]
    return {**tree_header(), "kind": kind}, rows


def test_an_agent_of_a_benchmark_may_act_twice_in_a_turn_of_the_environment() -> None:
    header, rows = paid_rows("bench")
    for step in rows[0]["steps"]:
        step["turn"] = 1
    assert findings_of(header, rows)["mixed turns"].status == "passed"


@pytest.mark.parametrize(("kind", "num"), [("bench", 4), ("rollouts", 2)])
def test_a_return_that_is_not_the_sum_of_the_rewards_is_found(kind: str, num: int) -> None:
    header, rows = paid_rows(kind)
    found = findings_of(header, rows)["wrong returns"]
    assert (found.status, found.text) == ("passed", f"{num} returns: each is the sum of the agent's rewards.")
    rows[1]["returns"]["drafter_0"] += 2e-6
    assert findings_of(header, rows)["wrong returns"].status == "failed"
    rows[1]["returns"]["drafter_0"] = 0.7
    found = findings_of(header, rows)["wrong returns"]
    assert found.text == (
        f"1 of {num} returns are not the sums of their episodes' rewards (drafter_0 has 0.7, its rewards sum to 0.3)."
    )
    assert found.where.startswith("line 2: ")


def test_the_return_of_an_episode_with_an_error_is_not_looked_at() -> None:
    header, rows = paid_rows("bench")
    rows[1]["returns"]["drafter_0"] = 0.7
    rows[1]["error"] = {"kind": "unreachable", "message": "", "agent": None, "step": 1}
    assert findings_of(header, rows)["wrong returns"].status == "passed"


@pytest.mark.parametrize("change", [{"drafter_0": None}, {"drafter_0": 0.3, "nobody_0": 0.0}])
def test_returns_without_the_rewards_of_every_step_are_not_recorded(change: Row) -> None:
    header, rows = paid_rows("rollouts")
    rows[1]["returns"] = change
    assert findings_of(header, rows)["wrong returns"].status == "not recorded"


# ---- What is not recorded -------------------------------------------------------------------------------------------


def without(rows: list[Row], *keys: str) -> None:
    for row in rows:
        for step in row["steps"]:
            for key in keys:
                step.pop(key, None)
                for each in step["candidates"]:
                    each.pop(key, None)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("mixed prompts", "prompt_ids"),
        ("wrong sums of advantages", "advantage"),
        ("wrong advantages", "advantage"),
        ("changed state", "state"),
        ("cut-off replies", "finish"),
        ("more cut-off replies", "finish"),
        ("changing length", "tokens"),
        ("uneven learning", "advantage"),
    ],
)
def test_a_check_whose_column_is_missing_says_not_recorded(name: str, key: str) -> None:
    rows = tree_rows()
    for row in rows:
        for step in row["steps"]:
            for each in step["candidates"]:
                each.pop(key, None)
    if key == "prompt_ids":
        without(rows, key)
    assert findings_of(tree_header(), rows)[name].status == "not recorded"


def test_states_that_are_histories_are_not_compared() -> None:
    rows = tree_rows()
    changed_state(rows)
    found = findings_of(tree_header(), [{**row, "states": "history"} for row in rows])["changed state"]
    assert (found.status, found.text) == ("not applicable", "states are histories here: they say what was replied.")


def test_checks_of_turns_rewards_and_agents_say_not_recorded_without_them() -> None:
    run = RunFacts(kind="rollouts", is_tree=True, num_candidates=2, credit="at_grpo", sums="siblings")
    pair = (Candidate(reply="a"), Candidate(reply="b"))
    episode = Episode(instance=0, decisions=tuple(Decision(agent=name, candidates=pair) for name in ("a_0", "b_0")))
    found = {finding.name: finding.status for finding in audit(run, [episode] * 20)}
    names = ("mixed turns", "dead role", "vanishing signal", "swapped agents")
    assert {name: found[name] for name in names} == {
        "mixed turns": "not recorded",
        "dead role": "not recorded",
        "vanishing signal": "not applicable",
        "swapped agents": "not recorded",
    }


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("credit", "wrong sums of advantages"),
        ("credit", "wrong advantages"),
        ("num_generations", "missing candidates"),
        ("sampling", "missing candidates"),
    ],
)
def test_a_header_of_an_earlier_version_leaves_its_checks_not_recorded(key: str, name: str) -> None:
    header = tree_header()
    del header["config"][key]
    assert findings_of(header, tree_rows())[name].status == "not recorded"


def test_a_header_that_says_nothing_of_what_is_judged_leaves_the_advantages_not_recorded() -> None:
    header = tree_header(credit={"name": "at_grpo", "sums_to_zero": "siblings"})
    assert findings_of(header, tree_rows())["wrong advantages"].status == "not recorded"


@pytest.mark.parametrize(
    ("rewards", "advantages", "scale", "is_right"),
    [
        ((3, 0, 0), (3, -1.5, -1.5), "none", True),  # loo: less the mean of the others
        ((3, 0, 0), (2, -1, -1), "none", True),  # at_grpo: less the mean
        ((3, 0, 0), (6, -3, -3), "none", False),
        ((1, 0, 0, 0), (3, -1, -1, -1), "mean", True),
        ((1, 0, 0, 0), (0.75, -0.25, -0.25, -0.25), "mean", False),
        ((1, 0, 0), (5, -2.5, -2.5), "batch", True),  # by a deviation that the group does not show
        ((1, 0, 0), (-5, 2.5, 2.5), "batch", False),
        ((1, 0.5, 0), (1, 0, -1), "group", True),
        ((1, 0.5, 0), (0.5, 0.5, -1), "group", False),
        ((1e-4, 0), (0.2929, -0.2929), "group", True),  # 5e-5 / (7.07e-5 + 1e-4)
        ((0.1 + 0.2, 0.3), (0, 0), "group", True),  # equal but for rounding
        ((2, 2), (0.001, 0.001), "group", True),
        ((2, 2), (1, -1), "group", False),
    ],
)
def test_advantages_are_right_for_the_scale_or_they_are_not(
    rewards: tuple[float, ...], advantages: tuple[float, ...], scale: str, is_right: bool
) -> None:
    assert (fault_of(rewards, advantages, scale) is None) == is_right


@pytest.mark.parametrize(
    ("tokens", "temperature", "status"),
    [(40, 1.0, "failed"), (40, None, "failed"), (40, 0.0, "warning"), (3, 1.0, "warning"), (None, 1.0, "warning")],
)
def test_equal_siblings_are_copies_where_they_are_long_and_sampled(
    tokens: int | None, temperature: float | None, status: str
) -> None:
    rows = tree_rows()
    copied_siblings(rows)
    for each in (each for group in groups(rows) for each in group):
        each["tokens"] = tokens
    assert findings_of(tree_header(temperature=temperature), rows)["copied siblings"].status == status


def test_one_missing_column_is_no_pass_even_where_other_rows_have_it() -> None:
    rows = tree_rows()
    del rows[-1]["steps"][0]["prompt_ids"]
    assert findings_of(tree_header(), rows)["mixed prompts"].status == "not recorded"


def test_a_few_flat_groups_are_neither_a_pass_nor_a_failure() -> None:
    rows = tree_rows(2)
    dead_role(rows)
    finding = findings_of(tree_header(), rows)["dead role"]
    assert (finding.status, finding.text) == (
        "not applicable",
        "fewer than 16 groups of drafter, all flat: too few to tell.",
    )


def test_a_dead_role_of_whole_episodes_is_counted_in_decisions_and_not_advised_what_the_run_has() -> None:
    """8 steps of 4 episodes with one decision of the drafter; a run with `grpo` looks at later steps already."""
    rows = parallel_rows()
    for row in rows:
        row["steps"][0]["candidates"][0] |= {"reward": 0.0, "advantage": 0.0}
    finding = findings_of(parallel_header(), rows)["dead role"]
    assert finding.text == (
        "none of the 32 decisions of drafter has an advantage, so nothing is learnt there "
        "(flat decisions: drafter 100%, planner 0%)."
    )
    assert finding.remedy == "Look at its replies (`pettingllms view`)."


# ---- Over time ------------------------------------------------------------------------------------------------------


def longer(each: Row, group: list[Row]) -> None:
    each["tokens"] *= 4


def cut(each: Row, group: list[Row]) -> None:
    each["finish"] = "length"


def repeated(each: Row, group: list[Row]) -> None:
    each["reply"] = group[0]["reply"]


def flat(each: Row, group: list[Row]) -> None:
    each["reward"] = each["advantage"] = 0.0


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (longer, {"changing length": "warning"}),
        (cut, {"cut-off replies": "warning", "more cut-off replies": "warning"}),
        (repeated, {"repeated replies": "warning"}),
        (flat, {"vanishing signal": "warning"}),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_change_from_the_first_third_to_the_last_without_a_gain_is_told(
    change: Callable[[Row, list[Row]], None], names: dict[str, str]
) -> None:
    rows = tree_rows(12)
    for group in groups(rows[-8:]):
        for each in group[::-1]:
            change(each, group)
    assert bad(findings_of(tree_header(), rows)) == names


def explored(step: int, *, alike: bool, flat: bool, success: float) -> list[Episode]:
    """Ten episodes of a step, each with one decision of eight candidates: of 80 different replies, or one in each."""
    return [
        Episode(
            instance=number,
            step=step,
            success=number < 10 * success,
            decisions=(
                Decision(
                    agent="planner_0",
                    candidates=tuple(
                        Candidate(
                            reply=f"{number % 2}" if alike else f"{number}.{k}",
                            prompt=f"{step}.{number}",
                            reward=0.0 if flat else float(k),
                            advantage=0.0 if flat else k - 3.5,
                        )
                        for k in range(8)
                    ),
                ),
            ),
        )
        for number in range(10)
    ]


@pytest.mark.parametrize(
    ("late", "before", "status"),
    [
        ({"alike": True, "flat": True, "success": 0.2}, 0.2, "warning"),
        ({"alike": True, "flat": True, "success": 0.2}, 0.4, "warning"),
        ({"alike": True, "flat": True, "success": 0.4}, 0.4, "warning"),  # in 24 of 40 flat groups; 22.2 are sure
        ({"alike": True, "flat": True, "success": 0.5}, 0.5, "passed"),  # in 20
        ({"alike": True, "flat": True, "success": 0.9}, 0.2, "passed"),  # it gains
        ({"alike": True, "flat": True, "success": 1.0}, 1.0, "passed"),  # it has solved all
        ({"alike": False, "flat": True, "success": 0.2}, 0.2, "passed"),  # it still looks for other replies
        ({"alike": True, "flat": False, "success": 0.2}, 0.2, "passed"),  # it is told which are better
    ],
)
def test_a_role_that_settles_on_few_replies_while_it_fails_has_stopped_exploring(
    late: dict[str, Any], before: float, status: str
) -> None:
    run, series = RunFacts(kind="rollouts", is_tree=True), Series()
    early = {"alike": False, "flat": False}
    for step in range(12):
        how = {**early, "success": 0.1} if step < 4 else {**early, "success": before} if step < 8 else late
        for episode in explored(step, **how):
            series.observe(episode)
    finding = stopped_exploring(run, series)
    assert finding.status == status
    assert ("planner stopped exploring before it succeeded" in finding.remedy) == (status == "warning")


def history(entropies: list[float], rewards: list[float]) -> list[dict[str, Any]]:
    return [{"entropy": e, "reward": r} for e, r in zip(entropies, rewards, strict=True)] + [{"train_runtime": 1.0}]


@pytest.mark.parametrize(
    ("logged", "status"),
    [
        (None, "not recorded"),
        ([{"loss": 1.0}], "not recorded"),
        (history([1.0] * 5, [0.0] * 5), "not applicable"),
        (history([1.0, 1.0, 0.5, 0.5, 0.1, 0.1], [0.0] * 6), "warning"),
        (history([1.0, 1.0, 0.5, 0.5, 0.1, 0.1], [0.0, 0.0, 0.0, 0.0, 1.0, 1.0]), "passed"),
        (history([1.0, 1.0, 0.9, 0.9, 0.8, 0.8], [0.0] * 6), "passed"),
    ],
)
def test_a_falling_entropy_is_a_warning_where_the_reward_does_not_rise(logged: Any, status: str) -> None:
    assert falling_entropy(logged).status == status


# ---- TRL's tables ---------------------------------------------------------------------------------------------------


def table_rows(step: int = 1) -> list[Row]:
    """Two prompts of two completions, as a plain GRPOTrainer writes them."""
    return [
        {"step": step, "prompt": prompt, "completion": f"{prompt} {k} {step}", "reward_len": float(k), "advantage": a}
        for prompt in ("x", "y")
        for k, a in enumerate((-0.707, 0.707))
    ]


def test_a_table_of_plain_grpo_is_grouped_by_its_prompts() -> None:
    run = run_of_tables(table_rows())
    assert (run.num_candidates, run.sums, run.credit) == (2, "siblings", "grpo")
    found = {f.name: f.status for step in (1,) for f in audit(run, episodes_of_table(run, table_rows(step)))}
    assert (found["mixed prompts"], found["missing candidates"], found["wrong sums of advantages"]) == ("passed",) * 3
    assert (found["cut-off replies"], found["changed state"]) == ("not recorded",) * 2


def test_a_table_with_a_foreign_prompt_or_a_lost_row_is_found() -> None:
    rows = [row for step in range(1, 5) for row in table_rows(step)]
    run = run_of_tables(rows)
    rows[5]["prompt"] = "z"
    found = {f.name for f in audit(run, episodes_of_table(run, rows)) if f.is_bad}
    assert found == {"mixed prompts"}
    rows = [row for step in range(1, 5) for row in table_rows(step)][:-1]
    found = {f.name for f in audit(run, episodes_of_table(run, rows)) if f.is_bad}
    assert "missing candidates" in found


# ---- Memory ---------------------------------------------------------------------------------------------------------


def test_what_is_held_does_not_grow_with_the_run() -> None:
    series = Series()
    run = run_of(parallel_header())
    one = episode_of(run, parallel_rows(1)[0])
    for step in range(5 * MOST_BINS):
        series.observe(Episode(instance=0, decisions=one.decisions, step=step))
    assert len(series._bins["planner"]) <= MOST_BINS
    assert series.total("planner").replies == 5 * MOST_BINS
    first, _, last = series.thirds("planner") or (None, None, None)
    assert first is not None
    assert last is not None
    assert 0 < first.replies <= 5 * MOST_BINS / 3 + 10
    assert OPEN_INSTANCES == 10_000
