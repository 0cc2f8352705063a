"""Workflows written as functions."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

import debate_v0
from pettingllms_envs.assembly import assemble
from pettingllms_envs.core import Role, ToolResult, Unreadable
from pettingllms_envs.environments.plan_path.rules import PlanPath
from pettingllms_envs.observations import Prompt
from pettingllms_envs.teams.functions import Ask, FunctionState, Game, Questions, function_workflow
from pettingllms_envs.testing import conforms


LONE = Role("solver", "You are the solver.")


def made(script: Any, *roles: Role, join_when_asked: bool = False, **settings: Any) -> Any:
    workflow = function_workflow(*(roles or (LONE,)), join_when_asked=join_when_asked)(script)
    raw_env, _, _ = assemble(PlanPath, "own_v0", (workflow,))
    env = raw_env(size=4, **settings)
    env.reset(seed=0)
    return env


def test_agents_are_asked_in_the_order_of_the_function_and_read_what_it_shows_them() -> None:
    env = debate_v0.env(size=4, rounds=2)
    env.reset(seed=0)
    actors = []
    for reply in ("Go up.", "No.", "Yes.", "Well.", "The second.", "Moves: U"):
        actors.append(env.agent_selection)
        env.step(reply)
    assert actors == ["debater_0", "debater_1", "debater_0", "debater_1", "critic_0", "judge_0"]
    assert env.metadata["settings"]["rounds"] == 2
    assert env.metadata["cyclic"] is False
    assert env.infos["judge_0"]["outcome"]["messages"] == 5


def test_an_episode_branches_exactly_wherever_it_stands() -> None:
    env = debate_v0.env(size=4)
    env.reset(seed=0)
    env.step("Go up.")
    here = pickle.loads(pickle.dumps(env.snapshot()))
    seen = []
    for reply in ("Down!", "Left!", "Down!"):
        env.restore(here)
        env.step(reply)
        seen.append((env.state_hash(), env.last()[0]["text"]))
    assert seen[0] == seen[2] != seen[1]
    assert "> Down!" in seen[0][1]


def test_the_turns_are_used_up_or_the_task_is_solved() -> None:
    def script(game: Game) -> Questions:
        while game.turns_left:
            game.play((yield Ask("solver", game.show())), "solver")

    env = made(script, num_turns=2)
    for turn in ("Turn 1 of 2.", "Turn 2 of 2."):
        assert env.last()[0]["text"].startswith(turn)
        env.step("nothing")
    assert env.truncations == {"solver_0": True}
    env.reset(seed=0)
    env.step(env.oracle())
    assert env.terminations == {"solver_0": True}


def test_a_function_that_returns_something_true_ends_by_agreement() -> None:
    def script(game: Game) -> Questions:
        return (yield Ask("solver", "Agreed?")) == "yes"

    for reply, ends in (("yes", (True, False)), ("no", (False, True))):
        env = made(script)
        env.step(reply)
        assert env.last()[2:4] == ends


def test_only_parts_of_the_last_reply_are_paid() -> None:
    def script(game: Game) -> Questions:
        for number in range(3):
            yield Ask("solver", "Go on.")
            game.pay("solver", "count", number)
            game.pay("solver", "count", 1.0)
            game.pay_team("shared", 0.5)

    env = made(script)
    rewards = []
    for _ in range(3):
        env.step("")
        rewards.append(env.rewards["solver_0"])
    assert rewards == [1.5, 2.5, 3.5]


def test_a_tool_is_called_once_though_the_function_is_run_again() -> None:
    calls: list[str] = []

    def tool(request: str) -> ToolResult:
        calls.append(request)
        return ToolResult(f"result {len(calls)}")

    def script(game: Game) -> Questions:
        text = "Ask."
        while True:
            reply = yield Ask("solver", text)
            text = game.call(tool, reply).text

    env = made(script)
    env.step("a")
    here = env.snapshot()
    env.step("b")
    assert (calls, env.last()[0]["text"]) == (["a", "b"], "result 2")
    env.restore(here)
    env.step("c")
    assert (calls, env.last()[0]["text"]) == (["a", "b", "c"], "result 3")


def test_a_tool_that_returns_no_result_is_named() -> None:
    def compass(request: str) -> Any:
        return None

    def script(game: Game) -> Questions:
        game.call(compass, (yield Ask("solver", "Ask.")))

    env = made(script)
    with pytest.raises(TypeError, match=r"the tool '.*compass' returned None; expected a ToolResult"):
        env.step("a")


def nobody(game: Game) -> Questions:
    if game.turn > 1:
        yield Ask("solver", "")


def unknown_role(game: Game) -> Questions:
    yield Ask("bishop", "")


@pytest.mark.parametrize(
    ("script", "words"),
    [(nobody, "ends before it asks anybody"), (unknown_role, r"yields Ask\(role='bishop'.*expected .* among solver")],
)
def test_a_function_that_asks_nobody_it_knows_raises(script: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        made(script)


def test_a_function_that_does_not_fit_raises_where_it_is_defined() -> None:
    with pytest.raises(TypeError, match="which never yields"):
        function_workflow(LONE)(lambda game: None)  # type: ignore[arg-type,return-value]

    def script(game: Game, depth: int) -> Questions:
        yield Ask("solver", "")

    with pytest.raises(TypeError, match="the setting 'depth' of 'script' has no default"):
        function_workflow(LONE)(script)


def test_a_setting_cannot_take_the_name_of_a_member_of_workflows() -> None:
    def budget(game: Game, num_turns: int = 1) -> Questions:
        yield Ask("solver", "")

    def method(game: Game, start: int = 1) -> Questions:
        yield Ask("solver", "")

    def attribute(game: Game, roles: int = 1) -> Questions:
        yield Ask("solver", "")

    for script, name in ((budget, "num_turns"), (method, "start"), (attribute, "roles")):
        with pytest.raises(TypeError, match=f"the setting '{name}' of .* has the name of something that every"):
            function_workflow(LONE)(script)


def test_a_function_that_depends_on_more_than_the_replies_raises() -> None:
    numbers = iter(range(100))

    def script(game: Game) -> Questions:
        while game.turns_left:
            game.play((yield Ask("solver", f"Number {next(numbers)}.")), "solver")

    env = made(script)
    here = env.snapshot()
    env.step("")
    env.restore(here)
    with pytest.raises(
        ValueError, match=r"run again, asked something else after the same replies; .*no random numbers"
    ):
        env.step("")


def test_a_function_that_ends_earlier_when_it_is_run_again_raises() -> None:
    runs: list[int] = []

    def script(game: Game) -> Questions:
        runs.append(1)
        for _ in range(4 - len(runs)):
            yield Ask("solver", "Well?")

    env = made(script)
    env.step("")
    env.step("")
    here = env.snapshot()
    env.step("")
    env.restore(here)
    with pytest.raises(ValueError, match="run again, asked something else"):
        env.step("")


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda state: pickle.loads(pickle.dumps(state))])
def test_a_function_goes_on_while_it_is_played_on_and_is_run_again_where_it_was_branched(copied: Any) -> None:
    begun: list[int] = []

    def script(game: Game) -> Questions:
        begun.append(1)
        while game.turns_left:
            game.play((yield Ask("solver", game.show(), keeps=())), "solver")

    env = made(script, num_turns=9)
    env.step("Moves: U")
    here = env.snapshot()
    branches = []
    for reply in ("Moves: D", "Moves: R", "nothing"):  # the first branch takes the function that waits
        env.restore(here)
        env.step(reply)
        branches.append(env.snapshot())
    assert len(begun) == 3
    env.restore(branches[2])  # of the one that is chosen the function goes on
    for _ in range(3):
        env.step("nothing")
    assert len(begun) == 3
    env.restore(branches[2]._replace(play=copied(branches[2].play)))  # as in another process
    env.step("nothing")
    assert len(begun) == 4


def _played_from(env: Any, replies: tuple[str, ...]) -> list[Any]:
    found = []
    for reply in replies:
        env.step(reply)
        found.append((env.last()[0], dict(env.rewards), env.state_hash()))
    return found


@pytest.mark.parametrize(("apart", "repeated"), [(True, [8, 9]), (False, [1, 2, 3, 4, 5, 6, 7, 8, 9])])
def test_a_branch_repeats_no_more_than_the_turn_where_turns_are_apart(apart: bool, repeated: list[int]) -> None:
    played, called = [], []

    def look(request: str) -> ToolResult:
        called.append(request)
        return ToolResult(request)

    def script(game: Game) -> Questions:
        while game.turns_left:
            found = game.call(look, str(game.turn)).text
            reply = yield Ask("solver", game.show(found), keeps=())
            played.append(game.turn)
            game.play(reply, "solver")

    raw_env, _, _ = assemble(PlanPath, "own_v0", (function_workflow(LONE, turns_apart=apart)(script),))
    env = raw_env(size=4, num_turns=9)
    env.reset(seed=0)
    for _ in range(7):
        env.step("Moves: U U")
    here = copy.deepcopy(env.snapshot())  # without the function that waits
    assert len(here.play.replies) == (0 if apart else 7)
    later = _played_from(env, ("", "Moves: D"))
    played.clear()
    env.restore(here)
    assert _played_from(env, ("", "Moves: D")) == later
    assert played == repeated
    assert called == [*"123456789", "9"]  # what was called before is kept


def test_a_function_that_reads_what_it_kept_repeats_its_turn_alone() -> None:
    played: list[int] = []

    def script(game: Game) -> Questions:
        said, told = list(game.kept[0] if game.kept else ()), dict(game.kept[1] if game.kept else ())
        for turn in game.turns():
            played.append(turn)
            told[turn] = yield Ask("solver", game.situation(*said), keeps=(said, told))
            reply = yield Ask("solver", game.situation(str(told)), keeps=(said, told))
            said = [*said[-1:], reply]
        return bool(said)

    def made(*, apart: bool) -> Any:
        return assemble(PlanPath, "own_v0", (function_workflow(LONE, turns_apart=apart)(script),)).env(num_turns=4)

    shown = []
    for env in (made(apart=True), made(apart=False)):
        env.reset(seed=0)
        for reply in "abcde":
            env.step(reply)
        here = copy.deepcopy(env.unwrapped.snapshot())  # without the function that waits
        played.clear()
        env.unwrapped.restore(here)
        shown.append((_played_from(env, "fgh"), env.state_hash()))
        assert played == ([3, 4] if not shown[1:] else [1, 2, 3, 4])
    assert shown[0] == shown[1]


def test_workflows_with_functions_that_wait_are_copied_and_pickled_without_them() -> None:
    env = debate_v0.env(size=4)
    env.reset(seed=0)
    env.step("Go up.")
    twin, again = copy.deepcopy(env), pickle.loads(pickle.dumps(env.workflow))
    assert again == env.workflow
    for each in (env, twin):
        each.step("Down!")
    assert env.state_hash() == twin.state_hash()


def test_threads_that_branch_at_one_state_play_the_same() -> None:
    env = debate_v0.env(size=4)
    env.reset(seed=0)
    env.step("Go up.")
    workflow, here = env.workflow, env.snapshot().play

    def played(number: int) -> str:
        state = here
        for reply in ("Down!", "Left.", "Moves: U", f"Moves: {'UDLR'[number % 4]}"):
            state = workflow.step(state, reply)[0]
        return repr(state)

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(played, range(200)))
    assert len(set(found)) == len({played(number) for number in range(4)})
    assert [played(number) for number in range(4)] == found[:4]


def test_an_agent_that_is_not_asked_observes_its_own_last_question_or_nothing() -> None:
    def script(game: Game) -> Questions:
        yield Ask("left", "Left's first.")
        yield Ask("right", "Right's.")
        yield Ask("left", "Left's second.")

    env = made(script, *HALVES)
    seen = [[env.observe(agent)["text"] for agent in ("left_0", "right_0")]]
    for _ in range(3):
        env.step("")
        seen.append([env.observe(agent)["text"] for agent in ("left_0", "right_0")])
    first, second = "Left's first.", "Left's second."
    assert seen == [[first, ""], [first, "Right's."], [second, "Right's."], [second, "Right's."]]


def test_what_a_function_does_when_it_is_abandoned_is_no_part_of_the_episode() -> None:
    def script(game: Game) -> Questions:
        try:
            while game.turns_left:
                game.play((yield Ask("solver", game.show())), "solver")
        finally:
            game.turn += 10

    env = made(script)
    assert env.snapshot().play.turn == 1
    env.step("")
    assert env.snapshot().play.turn == 2


def test_a_reward_for_somebody_that_there_is_not_raises() -> None:
    def script(game: Game) -> Questions:
        yield Ask("solver", "")
        game.pay("slover", "effort", 1.0)
        yield Ask("solver", "")

    env = made(script)
    with pytest.raises(ValueError, match=r"pays \['slover'\]; expected 'team', or agents that take part: solver"):
        env.step("")


def test_agents_that_observe_messages_observe_them_when_others_are_asked() -> None:
    def script(game: Game) -> Questions:
        yield Ask("left", Prompt([{"role": "user", "content": "Left or right?"}]))

    env = made(script, Role("left", "", observes="messages"), Role("right", "", observes="messages"))
    (message,) = env.observe("right_0")["messages"]
    assert message == {"role": "user", "content": ""}


HALVES = (Role("left", "You write the first half of the walk."), Role("right", "You write the second half."))
BOARD = "@ . . .\n. . . .\n. . . .\n. . . G"  # three down and three to the right


def letters(reply: str) -> str | Unreadable:
    return reply if reply and set(reply) <= set("UDLR") else Unreadable("it has other letters than U D L R")


def halves(game: Game) -> Questions:
    """Two agents write half a walk each."""
    while game.turns_left:
        left = game.read((yield Ask("left", game.show())), "left", letters)
        right = game.read((yield Ask("right", game.show())), "right", letters)
        if left is None or right is None:
            game.end_turn()
        else:
            game.play(f"Moves: {' '.join(left + right)}", "left", "right")


def test_a_move_of_several_replies_is_played_once_and_each_author_pays_its_costs() -> None:
    env = made(halves, *HALVES)
    env.reset(seed=0, options={"board": BOARD})
    env.step("DDD")
    assert env.rewards == {"left_0": 0.0, "right_0": 0.0}
    env.step("RRR")
    assert env.infos["left_0"]["rewards"] == {"progress": 1.0, "success": 1.0, "steps": pytest.approx(-0.06)}
    assert env.rewards == {"left_0": pytest.approx(1.94), "right_0": pytest.approx(1.94)}


@pytest.mark.parametrize(("replies", "blamed"), [(("down", "RRR"), "left"), (("DDD", ""), "right")])
def test_an_unreadable_part_of_a_move_costs_the_role_that_wrote_it(replies: tuple[str, str], blamed: str) -> None:
    env = made(halves, *HALVES)
    env.reset(seed=0, options={"board": BOARD})
    paid = {"left_0": 0.0, "right_0": 0.0}
    for reply in replies:
        env.step(reply)
        paid = {agent: paid[agent] + env.rewards[agent] for agent in paid}
    assert paid == {"left_0": 0.0, "right_0": 0.0} | {f"{blamed}_0": -0.2}
    assert env.last()[0]["text"].endswith(
        f"Last turn the {blamed}'s reply was unreadable: it has other letters than U D L R. Nothing was played."
    )


def test_an_unreadable_reply_that_was_read_and_is_then_played_is_charged_once() -> None:
    def script(game: Game) -> Questions:
        while game.turns_left:
            reply = yield Ask("left", game.show())
            game.read(reply, "left")
            yield Ask("right", game.show())
            game.play(reply, "left")

    env = made(script, *HALVES)
    env.reset(seed=0, options={"board": BOARD})
    for _ in range(2):  # what was charged in a turn is charged anew in the next one
        env.step("down")
        assert env.rewards["left_0"] == -0.2
        env.step("Well?")
        assert env.rewards["left_0"] == 0.0
        assert env.last()[0]["text"].count("unreadable") == 1
    env.step("Moves: D")
    env.step("Well?")
    assert env.infos["left_0"]["rewards"]["progress"] > 0


WORKERS = (Role("chief", "You choose."), Role("worker", "You work.", count=3))


def staffed(game: Game) -> Questions:
    """As many workers as the chief says; the last one moves."""
    reply = yield Ask("chief", "How many?", lambda: "2")
    for number in range(int(reply)):
        reply = yield Ask(f"worker_{number}", "Well?", (lambda: "Go on.") if number == 0 else None)
    game.play(reply, f"worker_{number}")
    game.pay_team("present", 1.0)


def test_an_agent_that_was_not_asked_is_no_agent_of_the_episode_and_is_not_paid() -> None:
    env = made(staffed, *WORKERS, join_when_asked=True)
    assert env.agents == ["chief_0"]
    env.step("2")
    assert (env.agents, env.rewards) == (["chief_0", "worker_0"], {"chief_0": 0.0, "worker_0": 0.0})
    env.step("I am ready.")
    here = env.snapshot()
    assert env.agents == ["chief_0", "worker_0", "worker_1"]
    env.step("nothing")
    assert env.rewards == {"chief_0": 1.0, "worker_0": 1.0, "worker_1": 0.8}  # 1 for those present, -0.2 for the reply
    env.restore(here)
    assert env.agents == ["chief_0", "worker_0", "worker_1"]
    everybody = made(staffed, *WORKERS)
    for reply in ("2", "I am ready.", "nothing"):
        everybody.step(reply)
    assert everybody.rewards == env.rewards | {"chief_0": 1.0, "worker_0": 1.0, "worker_1": 0.8, "worker_2": 1.0}


def test_a_question_has_an_oracle_of_its_own_or_the_tasks() -> None:
    env = made(staffed, *WORKERS, join_when_asked=True)
    best = env.workflow.task.write(env.workflow.task.oracle(env.snapshot().play.task))
    said = []
    while not env.terminations[env.agent_selection]:
        said.append(env.oracle())
        env.step(said[-1])
    assert said == ["2", "Go on.", best]
    assert env.infos["chief_0"]["outcome"]["success"]


def test_what_a_function_reports_is_part_of_the_outcome() -> None:
    def script(game: Game) -> Questions:
        game.report(rounds=0)
        yield Ask("solver", "Go on.")
        game.report(rounds=1, word="done")
        yield Ask("solver", "Go on.")

    env = made(script)
    assert env.infos["solver_0"]["outcome"]["rounds"] == 0
    env.step("")
    assert {name: env.infos["solver_0"]["outcome"][name] for name in ("rounds", "word")} == {
        "rounds": 1,
        "word": "done",
    }


JOINING = ("pettingzoo", "branches", "observations", "infos", "oracle", "pairs of roles", "potential", "wrappers")


def test_an_environment_whose_agents_join_and_have_oracles_of_their_own_conforms() -> None:
    chief = Role("chief", "You choose.", delayed=True, reply_format="")
    member = Role("member", "You work.", count=2, delayed=True)

    def staffed_by_chief(game: Game) -> Questions:
        who = yield Ask("chief", game.show(), lambda: "both")
        reply = yield Ask("member_0", game.show(game.quote("chief", who)))
        if who == "both":
            reply = yield Ask("member_1", game.show(game.quote("member_0", reply)))
        game.play(reply, "member_1" if who == "both" else "member_0")

    workflow = function_workflow(chief, member, join_when_asked=True)(staffed_by_chief)
    conforms(partial(assemble(PlanPath, "staffed_v0", (workflow,)).env, size=5), seeds=range(2), only=JOINING)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ((), ()),
        ([1, "a", None], (1, "a", None)),
        ({"b": [2.5], "a": b"x"}, (("a", b"x"), ("b", (2.5,)))),
    ],
)
def test_what_a_question_keeps_is_frozen(given: Any, kept: Any) -> None:
    state = _asking(given)
    if given:
        given.clear()
    assert state.ask.keeps == kept


def test_what_has_no_text_of_its_own_cannot_be_kept() -> None:
    with pytest.raises(TypeError, match="a question keeps a object; expected numbers, texts, None, and lists"):
        _asking((1, object()))


def _asking(keeps: Any) -> FunctionState:
    """The first state of a function whose question keeps this."""

    def script(game: Game) -> Questions:
        yield Ask("solver", "Go on.", keeps=keeps)

    task = PlanPath(size=4)
    return function_workflow(LONE)(script)(task).start(task.generate(0))


def test_a_function_says_what_it_keeps_in_all_of_its_questions_or_in_none() -> None:
    def script(game: Game) -> Questions:
        yield Ask("solver", "First.", keeps=())
        yield Ask("solver", "Second.")

    env = made(script)
    with pytest.raises(TypeError, match=r"keeps=\(\) in a question to solver, and keeps=Ellipsis"):
        env.step("")


def memo(game: Game, keeps: bool = True) -> Questions:
    """The judge, next but one, reads what the adviser wrote."""
    while game.turns_left:
        note = yield Ask("left", game.show(), keeps=())
        yield Ask("right", game.show(), keeps=note if keeps else ())
        game.play((yield Ask("left", game.show(note), keeps=())), "left")


def hashes(replies: list[str], others: list[str], script: Any = memo, **settings: Any) -> list[bool]:
    """Whether the states are the same after each of two plays' replies."""
    found = []
    for each in (replies, others):
        env = made(script, *HALVES, **settings)
        found.append([(env.step(reply), env.state_hash())[1] for reply in each])
    return [one == other for one, other in zip(*found, strict=True)]


def test_a_state_is_what_can_still_matter() -> None:
    # The note is read until the third question is answered; the reply to the second one by nobody. Of the third only
    # the move counts: whatever was thought and noted before, the board and the next question are the same.
    assert hashes(["up", "yes", "Moves: U"], ["down", "no", "So.\nMoves: U"]) == [False, False, True]
    assert hashes(["up", "yes", "Moves: U"], ["up", "no", "Moves: U"]) == [True, True, True]
    assert hashes(["up"], ["down"], keeps=False) == [True]  # which is wrong: the note is forgotten


def test_questions_of_one_turn_that_read_alike_are_several_states() -> None:
    def script(game: Game) -> Questions:
        for _ in range(3):
            yield Ask("left", "Again.", keeps=())

    env = made(script, *HALVES)
    found = [env.state_hash()]
    for _ in range(2):
        env.step("the same")
        found.append(env.state_hash())
    assert len(set(found)) == 3


def test_a_helper_says_what_it_keeps_for_those_who_call_it() -> None:
    def helper(game: Game, kept: Any) -> Any:
        return (yield Ask("left", "Well?", keeps=kept))

    def script(game: Game) -> Questions:
        first = yield from helper(game, ())
        yield from helper(game, (first,))

    assert hashes(["a"], ["b"], script) == [False]
    assert hashes(["a", "c"], ["a", "d"], script) == [True, True]


def test_figures_that_only_the_outcome_reports_are_no_part_of_a_state() -> None:
    def script(game: Game) -> Questions:
        for _ in range(2):
            game.quote("left", (yield Ask("left", game.show(), keeps=())))
            game.report(word="said")

    env = made(script, *HALVES)
    assert "state" not in env.metadata
    assert env.metadata["state_form"] == 2
    assert hashes(["short"], ["somewhat longer"], script) == [True]


def test_without_it_the_states_are_histories() -> None:
    env = made(halves, *HALVES)
    assert env.metadata["state"] == "history"
    assert hashes(["U", "R"], ["U", "R"], halves) == [True, True]
    assert hashes(["x", "R"], ["y", "R"], halves) == [False, False]
