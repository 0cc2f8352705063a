"""An agent's seat as a Gymnasium environment, and Gymnasium's ids: what PettingZoo's interface gives its agent."""

from __future__ import annotations

import copy
import json
import pickle
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Dict, Text
from gymnasium.utils.env_checker import check_env
from pettingzoo import AECEnv

import pettingllms_envs
from council import Council
from pettingllms_envs.aec import TextEnv
from pettingllms_envs.agents.base import AgentFailed, Reply, Request
from pettingllms_envs.doors import doors
from pettingllms_envs.environments.plan_path.rules import PlanPath
from pettingllms_envs.single_agent import Seat, seat
from pettingllms_envs.spaces import ChatText
from pettingllms_envs.testing import check


WITHOUT = ("conversation", "kuhn_poker")
WITH = sorted(name for name, _, _ in doors() if name not in WITHOUT)
of_each = pytest.mark.parametrize("name", WITH)


def made(name: str, **settings: Any) -> Any:
    return gymnasium.make(f"pettingllms/{name}-v0", **settings)


def some_reply(env: Any, agent: str, rng: random.Random) -> str:
    """The oracle's reply, or one that ignores the state: the same for two environments in one state."""
    if env.metadata["has_oracle"] and rng.random() < 0.4:
        return str(env.unwrapped.oracle())
    return rng.choice(["", "Moves: U", "no", "print(1)", *env.unwrapped.workflow.task.blind_replies])


def by_words(request: Request) -> str:
    """A partner that depends on all that it is given."""
    rng = random.Random(f"{request.messages} {request.step}")
    return some_reply(request.env, request.agent, rng)


Course = list[tuple[Any, ...]]


def by_pettingzoo(env: Any, agent: str, seed: int, others: Callable[[Request], str] = by_words) -> Course:
    """What `last()` says at the agent's turns: text, reward, ends, info."""
    env.reset(seed=seed)
    rng, course, number = random.Random(seed), Course(), 0
    for name in env.agent_iter():
        observation, reward, terminated, truncated, info = env.last()
        if name == agent:
            text = f"{observation['system']}\n\n{observation['text']}"
            course.append((text, reward, terminated, truncated, info))
        if terminated or truncated:
            env.step(None)
            if name == agent:
                return course
            continue
        prompt = [{"role": "system", "content": observation["system"]}] if observation["system"] else []
        prompt.append({"role": "user", "content": observation["text"]})
        asked = Request(env=env, agent=name, messages=prompt, seed=0, instance=0, sample=0, step=number)
        env.step(some_reply(env, agent, rng) if name == agent else others(asked))
        number += 1
    return course


def by_gymnasium(env: Any, seed: int) -> Course:
    """The same from a seat; the reward before the first turn is not known yet."""
    observation, info = env.reset(seed=seed)
    aec, rng = env.unwrapped.env, random.Random(seed)
    course: Course = [(observation, None, False, False, info)]
    while not any(course[-1][2:4]):
        course.append(env.step(some_reply(aec, env.unwrapped.agent, rng)))
    return course


def check_alike(played: Course, seen: Course) -> None:
    """Texts, ends and infos are equal at each turn, and the rewards' sums to the last digit."""
    assert [each[0] for each in seen] == [each[0] for each in played]
    assert [each[2:] for each in seen] == [each[2:] for each in played]
    assert sum(each[1] for each in seen[1:]) == sum(each[1] for each in played)
    assert [each[1] for each in seen[2:]] == [each[1] for each in played[2:]]


def play_both_ways(name: str, num_episodes: int, agent: str = "", **settings: Any) -> float:
    env = made(name, **({"agent": agent, "others": by_words} if agent else {}), **settings)
    aec = pettingllms_envs.make(name, **{"workflow": env.unwrapped.env.metadata["settings"]["workflow"], **settings})
    total = 0.0
    for seed in range(num_episodes):
        played = by_pettingzoo(aec, env.unwrapped.agent, seed)
        check_alike(played, by_gymnasium(env, seed))
        total += abs(sum(each[1] for each in played))
    return total


TEAMS = [
    ("sokoban", "planner_0", "draft_plan"),
    ("plan_path", "drafter_0", "draft_plan"),
    ("archives", "answerer_0", "team"),
    ("note_taking", "right_0", "team"),
    ("hanabi", "player_1", "team"),
    ("hidden_bench", "member_0", "team"),
    ("kuhn_poker", "player_1", "match"),
    ("math", "solver_0", "ensemble"),
]


@pytest.mark.parametrize("name", sorted({*WITH} - {"code_contests", "live_code_bench"}))  # as apps
def test_episodes_are_the_same_as_pettingzoos_and_rewards_add_up_to_the_last_digit(name: str) -> None:
    assert play_both_ways(name, 2 if name == "apps" else 5) > 0


@pytest.mark.parametrize(("name", "agent", "workflow"), TEAMS)
def test_they_are_in_a_team_with_rewards_between_two_turns_and_before_the_first(
    name: str, agent: str, workflow: str
) -> None:
    assert play_both_ways(name, 5, agent, workflow=workflow) > 0


@pytest.mark.slow
@of_each
def test_500_episodes_are_the_same(name: str) -> None:
    assert play_both_ways(name, 500) > 0


@pytest.mark.slow
@pytest.mark.parametrize(("name", "agent", "workflow"), TEAMS)
def test_500_episodes_in_a_team_are_the_same(name: str, agent: str, workflow: str) -> None:
    assert play_both_ways(name, 500, agent, workflow=workflow) > 0


def plays(envs: Any, name: str, num_steps: int, *, num_envs: int = 2) -> None:
    """Compare a vector with single environments, an episode after another."""
    singles = [made(name) for _ in range(num_envs)]
    rng, over = random.Random(0), [False] * num_envs
    texts, infos = envs.reset(seed=7)
    first = [env.reset(seed=7 + i) for i, env in enumerate(singles)]
    assert list(texts) == [text for text, _ in first]
    for _ in range(num_steps):
        replies = ["" if over[i] else some_reply(env.unwrapped.env, "", rng) for i, env in enumerate(singles)]
        texts, rewards, terminated, truncated, infos = envs.step(tuple(replies))
        for i, env in enumerate(singles):
            if over[i]:  # as vectors do by default, the step after the end is a reset
                text, info = env.reset()
                expected = (text, 0.0, False, False, info)
            else:
                expected = env.step(replies[i])
            over[i] = expected[2] or expected[3]
            assert (texts[i], rewards[i], terminated[i], truncated[i]) == expected[:4]
            assert of_env(infos, i) == expected[4]


def of_env(infos: Mapping[str, Any], i: int) -> dict[str, Any]:
    """The info of one environment of a vector; a key that begins with _ says who has the one without."""
    return {
        key: of_env(value, i) if isinstance(value, dict) else value[i]
        for key, value in infos.items()
        if not key.startswith("_") and infos[f"_{key}"][i]
    }


@of_each
def test_an_id_makes_the_declared_form_passes_check_env_and_can_be_pickled_and_vectorized(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    env = made(name)
    declared = pettingllms_envs.make(name).unwrapped.workflow.task.single_agent
    assert env.unwrapped.env.metadata["settings"]["workflow"] == declared
    assert env.observation_space == env.action_space == ChatText()
    check_env(env.unwrapped)  # warnings are errors here
    env.reset(seed=3)
    reply = some_reply(env.unwrapped.env, "", random.Random(0))
    copies = [pickle.loads(pickle.dumps(env)), copy.deepcopy(env)]
    stepped = env.step(reply)
    assert [each.step(reply) for each in copies] == [stepped, stepped]
    envs = gymnasium.make_vec(f"pettingllms/{name}-v0", num_envs=2)
    plays(envs, name, num_steps=3)
    capsys.readouterr()  # `check_env` renders for people, too


def check_shared_memory_is_an_error(name: str, **settings: Any) -> None:
    with pytest.raises(ValueError, match="you can disable this feature with `shared_memory=False`"):
        gymnasium.make_vec(f"pettingllms/{name}-v0", 2, vectorization_mode="async", **settings)


def asynchronous(name: str, **settings: Any) -> Any:
    kwargs = {"shared_memory": False, **settings}
    return gymnasium.make_vec(f"pettingllms/{name}-v0", 2, vectorization_mode="async", vector_kwargs=kwargs)


def test_asynchronous_vectors_return_the_same_texts_and_with_shared_memory_an_error() -> None:
    envs = asynchronous("plan_path")
    plays(envs, "plan_path", num_steps=8)
    envs.close()
    check_shared_memory_is_an_error("plan_path")


@pytest.mark.slow
@of_each
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_asynchronous_vectors_of_every_id(name: str, context: str) -> None:
    envs = asynchronous(name, context=context)
    plays(envs, name, num_steps=12)
    envs.close()
    check_shared_memory_is_an_error(name)


@pytest.mark.parametrize("name", WITHOUT)
def test_an_environment_without_a_form_for_one_agent_says_so(name: str) -> None:
    with pytest.raises(ValueError, match=rf"{name}-v0 has no form for one agent, but the agents \w+, \w+; expected"):
        made(name)


def test_ids_take_settings_a_workflow_with_others_and_the_module_form() -> None:
    env = gymnasium.make("pettingllms_envs:pettingllms/plan_path-v0", size=5, num_turns=2, max_episode_steps=1)
    assert env.unwrapped.env.metadata["settings"]["size"] == 5
    env.reset(seed=0)
    assert env.step("")[3]
    for settings in ({}, {"workflow": "draft_plan"}):
        env = made("plan_path", agent="planner_0", others="oracle", **settings)
        text, _ = env.reset(seed=0)
        assert "The drafter proposes:" in text
        assert env.step(env.unwrapped.env.oracle())[2]
    for settings in ({"workflow": "draft_plan"}, {"others": "oracle"}, {"agent": "plan"}):
        with pytest.raises(ValueError, match="expected one of drafter_0, planner_0"):
            made("plan_path", **settings)
    with pytest.raises(ValueError, match="nobody plays drafter_0"):
        made("plan_path", agent="planner_0")
    with pytest.raises(TypeError, match=r"'sise'.* Did you mean 'size'"):
        made("plan_path", sise=5)


@pytest.mark.parametrize("view", ["image", "both"])
def test_with_images_the_space_is_a_dictionary_that_vectors_keep(view: str) -> None:
    env = made("sokoban", view=view)
    assert isinstance(env.observation_space, Dict)
    assert set(env.observation_space) == {"system", "parts"}
    check_env(env.unwrapped, skip_render_check=True)
    seen = [env.reset(seed=seed)[0]["parts"] for seed in (1, 2)]
    envs = gymnasium.make_vec("pettingllms/sokoban-v0", 2, view=view)
    assert list(envs.reset(seed=1)[0]["parts"]) == seen
    check_shared_memory_is_an_error("sokoban", view=view)


def council(**settings: Any) -> TextEnv:
    return TextEnv(Council(PlanPath(size=4), **settings), name="council_v0")


def said(*replies: str) -> Callable[[Request], str]:
    """A player of all others, who give these replies in turn, the episode's own replies counted."""
    return lambda request: replies[request.step]


def test_an_agent_is_paid_for_the_turns_of_others_between_two_of_its_own() -> None:
    env = seat(council(), "chair_0", said("", "ask member_0", "ask chair", "", "leave chair", ""))
    env.reset(seed=0)
    # 11 for its own reply, 1 for each of member_0's two.
    assert env.step("ask member_0")[1:4] == (13.0, False, False)
    assert env.env.agents == ["chair_0", "member_0"]
    # 11, and 1 for the reply with which member_0 leaves, whose dead step is taken.
    assert env.step("ask member_0")[1:4] == (12.0, False, False)
    assert env.env.agents == ["chair_0"]
    assert env.step("end")[1:4] == (11.0, True, False)


def test_an_agent_that_joins_later_waits_for_its_turn_and_is_paid_from_then_on() -> None:
    env = seat(council(), "member_1", said("join member_1", "ask member_1", "", "ask member_1", "", "end"))
    assert env.reset(seed=0)[0] == "You are member_1.\n\nmember_1 reads 2 replies"
    # The chair's first reply came before it joined; its second paid 1, which comes with the first step: 1 + 11 + 1.
    assert env.step("ask chair")[1:4] == (13.0, False, False)
    assert env.step("ask chair")[1:4] == (12.0, True, False)


def test_an_agent_that_leaves_is_terminated_while_the_others_play_on() -> None:
    env = seat(council(), "member_0", said("ask member_0"))
    env.reset(seed=0)
    assert env.step("leave chair")[1:4] == (12.0, True, False)  # 1 of the chair's reply, 11 of its own
    assert not env.env.terminations["chair_0"]
    with pytest.raises(ResetNeeded, match="member_0 has no turn: no episode has begun, or it is over"):
        env.step("one more word")


def test_others_that_join_are_played_from_then_on() -> None:
    asked: list[str] = []

    def player(request: Request) -> str:
        asked.append(request.agent)
        return "ask chair"

    env = seat(council(), "chair_0", {"member_0": "null", "member": player})
    env.reset(seed=0)
    env.step("join member_2")
    env.step("ask member_2")
    assert asked == ["member_2"]


class Guests(AECEnv[str, str, str | None]):
    """A host, and from the third reply on a guest that is no possible agent, which PettingZoo does not forbid."""

    metadata: ClassVar[dict[str, Any]] = {"name": "guests_v0", "is_parallelizable": False}

    def __init__(self, possible: Sequence[str] = ("host_0",)) -> None:
        self.possible_agents = list(possible)

    def observation_space(self, agent: str) -> Any:
        return Text(20)

    def action_space(self, agent: str) -> Any:
        return ChatText()

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.agents, self.agent_selection, self.made = ["host_0"], "host_0", 0
        self.rewards, self._cumulative_rewards = {"host_0": 0.0}, {"host_0": 0.0}
        self.infos: dict[str, Any] = {"host_0": {}}
        self.terminations = {"host_0": False}
        self.truncations = {"host_0": False}

    def observe(self, agent: str) -> str:
        return f"{agent}, {self.made}"

    def step(self, action: str | None) -> None:
        if self.truncations[self.agent_selection]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[self.agent_selection] = 0.0
        self.made += 1
        if self.made == 2:
            self.agents.append("guest_0")
            for each in (self.rewards, self._cumulative_rewards):
                each["guest_0"] = 0.0
            self.terminations["guest_0"] = self.truncations["guest_0"] = False
            self.infos["guest_0"] = {}
        self.agent_selection = self.agents[self.made % len(self.agents)]
        self.rewards = dict.fromkeys(self.agents, float("nan") if action == "nan" else np.float64(0.1))
        self._accumulate_rewards()
        if self.made == 5:
            self.truncations = dict.fromkeys(self.agents, True)


def test_an_agent_that_nobody_could_foresee_is_played_or_an_error_names_it() -> None:
    env = seat(Guests(), "host_0", "null")
    assert env.reset()[0] == "host_0, 0"
    assert [env.step("")[1] for _ in range(2)] == [0.1, 0.1]
    # The guest replies, then the host, then the guest: three tenths, added as PettingZoo adds them.
    assert env.step("")[1:4] == (0.1 + 0.1, False, False)
    assert env.step("")[1:4] == (0.1, False, True)
    env = seat(Guests(), "host_0")
    env.reset()
    env.step("")
    env.step("")
    with pytest.raises(ValueError, match="nobody plays guest_0; expected a player for each agent but host_0"):
        env.step("")
    with pytest.raises(ResetNeeded):
        env.step("")
    env.reset()
    assert np.isnan(env.step("nan")[1])


def test_a_text_space_of_gymnasium_becomes_one_that_shared_memory_refuses() -> None:
    # With `Text`, an asynchronous vector with shared memory returns other texts, and no error.
    assert seat(Guests(), "host_0").observation_space == ChatText()


PLAN = {"workflow": "draft_plan", "size": 4}


def team(**settings: Any) -> Any:
    return pettingllms_envs.make("plan_path", **PLAN, **settings)


@pytest.mark.parametrize(
    ("agent", "others", "error", "message"),
    [
        (
            "planer_0",
            "oracle",
            ValueError,
            "agent is 'planer_0'; expected one of chair_0, member_0, member_1, member_2",
        ),
        ("chair_0", None, ValueError, "nobody plays member_0, member_1, member_2; .* join later included"),
        ("chair_0", {"member_1": "null"}, ValueError, "nobody plays member_0, member_2; expected a player for each"),
        ("member_1", "member=null", ValueError, "nobody plays chair_0; .* Give others='oracle', or others={'chair_0'"),
        ("chair_0", {"membr": "null"}, ValueError, "others names membr; expected some of chair_0, .*, chair, member"),
        (
            "chair_0",
            {"member": "chair=null"},
            ValueError,
            "others has 'chair=null' for member_0; expected a player of",
        ),
        ("chair_0", "orcle", ValueError, "no agent of the kind 'orcle'.*Did you mean 'oracle'"),
        ("chair_0", "bot:clever", ValueError, "member_0 is to be played by the bot 'clever'; .* it has none"),
        ("chair_0", "api:a-model", ValueError, "an agent of the kind 'api' has no server"),
        ("chair_0", "team:nowhere", ValueError, "there is no folder 'nowhere'; expected that of a team"),
        ("chair_0", 5, TypeError, "others has 5 for member_0; expected a text such as 'oracle', or a function"),
    ],
)
def test_what_no_seat_can_be_made_of_raises(agent: str, others: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        seat(council(), agent, others)


@pytest.mark.parametrize(
    ("env", "cure"),
    [("sokoban", r"\('sokoban'\)"), (council, r"\(\.\.\.\)"), (made("sokoban"), r"\(\.\.\.\)")],
    ids=["a name", "a function", "a seat"],
)
def test_a_seat_of_what_is_no_pettingzoo_environment_says_how_to_make_one(env: Any, cure: str) -> None:
    with pytest.raises(
        TypeError, match=rf"expected a PettingZoo AEC environment. Make it: pettingllms_envs.make{cure}"
    ):
        seat(env, "planner_0", "oracle")


@pytest.mark.parametrize("action", [None, b"Moves: U", float("nan"), 1, ["Moves: U"], np.array("Moves: U")])
def test_what_is_no_text_raises_and_the_episode_stays(action: object) -> None:
    env = made("plan_path", size=4).unwrapped
    env.reset(seed=0)
    with pytest.raises(TypeError, match=r"step\(\) got \w+ for planner_0; expected a str"):
        env.step(action)
    assert env.step(env.env.oracle())[2]


@pytest.mark.parametrize("action", ["", "NaN", "x" * 10**6, "\ud800", np.str_("Moves:")])
def test_every_text_is_a_legal_step(action: str) -> None:
    env = made("plan_path", size=4)
    env.reset(seed=0)
    assert env.step(action)[1:4] == (-0.2, False, False)


class Server(BaseHTTPRequestHandler):
    """Speaks as a model that always goes up."""

    asked: ClassVar[list[dict[str, Any]]] = []

    def do_POST(self) -> None:
        self.asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        message = {"role": "assistant", "content": "Moves: U"}
        body = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        pass


def test_another_agent_may_be_a_model_behind_a_url() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/v1"
        env = seat(team(), "planner_0", {"drafter": f"api:up,base_url={url},temperature=0.5"})
        text, _ = env.reset(seed=0)
        seeds = [env.reset(seed=0) and Server.asked[-1]["seed"], env.reset(seed=1) and Server.asked[-1]["seed"]]
        env.close()
        server.shutdown()
    assert "The drafter proposes: U." in text
    assert {each["model"]: each["temperature"] for each in Server.asked} == {"up": 0.5}
    assert Server.asked[0]["messages"][0]["content"].startswith("Walk on a grid")
    assert seeds[0] == Server.asked[0]["seed"] != seeds[1]  # decided by the seed of the episode


class Unreliable:
    """A player that fails at its second reply."""

    def reply(self, request: Request) -> Reply:
        if request.step == 2:
            raise AgentFailed("unreachable", "it is down")
        return Reply(text="Moves: U")


def test_a_partner_that_fails_is_an_error_after_which_only_reset_helps() -> None:
    env = seat(team(), "planner_0", Unreliable())
    env.reset(seed=0)
    with pytest.raises(AgentFailed, match="it is down"):
        env.step("")
    with pytest.raises(ResetNeeded):
        env.step("")  # it would be played as the drafter's
    assert env.env.agent_selection == "drafter_0"
    env.reset(seed=0)
    assert env.env.agent_selection == "planner_0"


def test_an_episode_is_left_by_reset_and_decided_by_its_seed() -> None:
    env = seat(team(), "planner_0", "random")
    with pytest.raises(ResetNeeded):
        env.step("")
    first = by_gymnasium(env, 4)
    env.reset(seed=5)
    env.step("")
    assert by_gymnasium(env, 4) == first  # what came before leaves no trace
    after = [env.reset()[0] for _ in range(3)]
    env.reset(seed=4)
    env.step("")
    with pytest.raises(ValueError, match="split is 'tst'"):
        env.reset(options={"split": "tst"})
    with pytest.raises(ResetNeeded):
        env.step("")
    env.reset(seed=4)
    by_gymnasium(env, 4)
    assert [env.reset()[0] for _ in range(3)] == after


def test_a_copy_in_the_middle_goes_on_with_the_same_partners() -> None:
    env = seat(team(), "planner_0", {"drafter": "random"})
    env.reset(seed=1)
    env.step("Moves: U")
    copies = [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    env.close()
    env.close()
    stepped = env.step("Moves: D")
    assert [each.step("Moves: D") for each in copies] == [stepped, stepped]
    pickle.dumps(seat(team(), "planner_0", "api:a-model,base_url=http://localhost:9/v1"))  # without its connections


def test_two_seats_at_once_do_not_know_each_other() -> None:
    envs = [seat(team(), "planner_0", "random") for _ in range(2)]
    alone = by_gymnasium(envs[0], 2)
    envs[0].reset(seed=2)
    rng = random.Random(2)
    for text, reward, *_ in alone[1:]:
        by_gymnasium(envs[1], 9)
        stepped = envs[0].step(some_reply(envs[0].env, "planner_0", rng))
        assert stepped[:2] == (text, reward)


def test_instances_without_a_turn_of_the_agent_are_passed_over_unless_their_seed_is_given() -> None:
    env = seat(pettingllms_envs.make("hidden_bench"), "member_3", "null")
    turns = {}
    for seed in range(12):
        env.env.reset(seed=seed)
        turns[seed] = "member_3" in env.env.agents
    assert set(turns.values()) == {True, False}
    for seed, has_turn in turns.items():
        if has_turn:
            assert "What you know:" in env.reset(seed=seed)[0]
        else:
            with pytest.raises(ValueError, match=rf"member_3 has no turn with the seed {seed}; expected one"):
                env.reset(seed=seed)
    for _ in range(8):
        assert "What you know:" in env.reset()[0]


class Shouting(Seat):
    """Says in an info what no second call says."""

    count = 0

    def step(self, action: Any) -> Any:
        type(self).count += 1
        *rest, info = super().step(action)
        return (*rest, {**info, "count": self.count})


def test_the_conformance_suite_runs_check_env(monkeypatch: pytest.MonkeyPatch) -> None:
    report = check(team, seeds=range(1), only=["gymnasium"])
    assert report["gymnasium"].detail == "check_env of the seat of drafter_0"
    short = check(lambda: team(num_turns=1), seeds=range(1), only=["gymnasium"])["gymnasium"]
    assert (short.status, short.detail[:43]) == ("skipped", "an episode is truncated after one step, whi")
    monkeypatch.setattr("pettingllms_envs.testing.pettingzoo_api.Seat", Shouting)
    failed = check(team, seeds=range(1), only=["gymnasium"])["gymnasium"]
    assert failed.status == "failed"
    assert "Deterministic step info are not equivalent" in failed.detail
