"""The conformance suite on agents with goals of their own: sound games pass, those made wrong on purpose fail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from pettingllms_envs.aec import TextEnv
from pettingllms_envs.core import TEAM, Role, Transition
from pettingllms_envs.environments.kuhn_poker.rules import KuhnPoker, KuhnState
from pettingllms_envs.environments.plan_path.rules import PlanPath
from pettingllms_envs.tasks.multiplayer import MultiplayerTask
from pettingllms_envs.teams.match import Match
from pettingllms_envs.teams.single import Single
from pettingllms_envs.testing import Report, Result, check
from pettingllms_envs.testing.competition import alone
from stag_hunt import HARE, STAG, Hunt, StagHunt


REWARD_CHECKS = ("oracle", "floors", "rewards", "learning signal", "pairs of roles", "zero sum")


def judged(task: Any, *only: str, workflow: type[Match[Any]] = Match) -> Report:
    return check(lambda: TextEnv(workflow(task)), seeds=range(3), only=only or REWARD_CHECKS)


def statuses(report: Report) -> Mapping[str, str]:
    return {result.name: result.status for result in report}


@dataclass(frozen=True, slots=True)
class Tipped(KuhnPoker):
    """The winner of a showdown gets a chip from the house."""

    def returns(self, state: KuhnState) -> tuple[float, ...]:
        won = KuhnPoker.returns(self, state)
        return tuple(each + (each == 2) for each in won)


@dataclass(frozen=True, slots=True)
class Raked(KuhnPoker):
    """The house takes a fraction that no table of chips would show."""

    def returns(self, state: KuhnState) -> tuple[float, ...]:
        return tuple(each - 1e-9 * (each > 0) for each in KuhnPoker.returns(self, state))


@dataclass(frozen=True, slots=True)
class Fined(Match[Any]):
    """An unreadable reply costs its player 0.2, which nobody gets."""

    def step(self, state: Any, reply: str) -> Transition[Any]:
        after, parts, terminated, truncated = Match.step(self, state, reply)
        if after.reported != state.reported:
            actor = self.actor(state)
            parts = {**parts, actor: {**parts.get(actor, {}), "format": -0.2}}
        return after, parts, terminated, truncated

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        return {**Match.ranges(self), "format": (-0.2, 0.0)}


@dataclass(frozen=True, slots=True)
class Flattered(Match[Any]):
    """Who repeats its prompt gets 0.1 from nobody."""

    def step(self, state: Any, reply: str) -> Transition[Any]:
        after, parts, terminated, truncated = Match.step(self, state, reply)
        if "Your card" in reply:
            actor = self.actor(state)
            parts = {**parts, actor: {"payoff": parts.get(actor, {}).get("payoff", 0.0) + 0.1}}
        return after, parts, terminated, truncated


@dataclass(frozen=True, slots=True)
class Shared(Match[Any]):
    """Everybody is paid for the end of the game, as a team."""

    def step(self, state: Any, reply: str) -> Transition[Any]:
        after, parts, terminated, truncated = Match.step(self, state, reply)
        return after, {**parts, TEAM: {"payoff": 1.0}} if terminated else parts, terminated, truncated


@dataclass(frozen=True, slots=True)
class Timid(KuhnPoker):
    """Its oracle always passes, which bets exploit."""

    def oracle(self, state: KuhnState) -> str:
        return "pass"


@dataclass(frozen=True, slots=True)
class Dilemma(StagHunt):
    """A hare beside a stag is worth 6: the oracle's two stags are not an equilibrium."""

    utility_range: ClassVar[tuple[float, float]] = (0.0, 6.0)

    def returns(self, state: Hunt) -> tuple[float, ...]:
        won = StagHunt.returns(self, state)
        return tuple(6.0 if sum(won) == 3 and each == 3 else each for each in won)


@pytest.mark.parametrize("task", [KuhnPoker(), KuhnPoker(players=3)], ids=["two players", "three players"])
def test_a_zero_sum_game_passes_every_check_of_rewards(task: KuhnPoker) -> None:
    report = judged(task)
    assert set(statuses(report).values()) == {"passed"}, str(report)
    assert report["oracle"].detail.endswith("replies, played by it to their end")
    assert report["zero sum"].detail.startswith("the returns add up to 0 in ")


def test_a_game_of_mixed_motives_passes_every_check_of_rewards_and_need_not_be_zero_sum() -> None:
    report = judged(StagHunt())
    assert report.ok, str(report)
    assert [name for name, status in statuses(report).items() if status == "skipped"] == ["zero sum"]
    env = TextEnv(Match(StagHunt()))
    assert (env.metadata["competitive"], env.metadata["max_return"]) == ("mixed", None)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [(STAG, STAG, (4, 4)), (STAG, HARE, (0, 3)), (HARE, STAG, (3, 0)), (HARE, "a deer", (3, 3))],
)
def test_in_the_stag_hunt_both_may_win_or_one_may_be_let_down(
    first: str, second: str, expected: tuple[int, int]
) -> None:
    env = TextEnv(Match(StagHunt()))
    env.reset(seed=0)
    env.step(first)
    env.step(second)
    assert tuple(env.rewards.values()) == expected


@pytest.mark.parametrize(
    ("task", "workflow", "words"),
    [
        (Tipped(), Match, "the returns add up to 1; expected 0 of a zero-sum environment, got {'player_0':"),
        (Raked(), Match, "the returns add up to -1e-09; expected 0 of a zero-sum environment"),
        (KuhnPoker(), Fined, "the returns add up to -0.4; expected 0 of a zero-sum environment"),
        (KuhnPoker(), Flattered, "the returns add up to 0.2; expected 0 of a zero-sum environment"),
        (KuhnPoker(players=3), Shared, "the returns add up to 3; expected 0 of a zero-sum environment"),
    ],
    ids=["a tip", "a rake", "a fine", "a cheat", "a team's reward"],
)
def test_a_game_that_is_not_zero_sum_as_declared_fails(
    task: KuhnPoker, workflow: type[Match[Any]], words: str
) -> None:
    found = judged(task, "zero sum", workflow=workflow)["zero sum"]
    assert (found.status, words in found.detail) == ("failed", True), found
    assert "replies so far: [" in found.detail


def test_only_unreadable_play_shows_that_a_fine_is_missing_elsewhere() -> None:
    """With readable replies alone the fined game is zero-sum; the check plays unreadable ones, too."""
    env = TextEnv(Fined(KuhnPoker()))
    env.reset(seed=0)
    env.step("Action: pass")
    env.step("Action: pass")
    assert sum(env.rewards.values()) == 0


@pytest.mark.parametrize("name", ["floors", "pairs of roles"])
@pytest.mark.parametrize("task", [Timid(), Dilemma()], ids=["zero sum", "mixed"])
def test_an_oracle_that_can_be_exploited_fails(task: Any, name: str) -> None:
    found = judged(task, name)[name]
    assert found.status == "failed"
    assert "on average of 200 episodes" in found.detail
    assert "expected that the oracle is an equilibrium, from which nobody gains alone" in found.detail


def of_metadata(**said: Any) -> Result:
    def make() -> TextEnv:
        env = TextEnv(Match(KuhnPoker()))
        env.metadata |= said
        return env

    return check(make, seeds=range(2), only=["rewards"])["rewards"]


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"competitive": "yes"}, "metadata['competitive'] is 'yes'; expected 'zero_sum', 'mixed' or None"),
        ({"max_return": 2.0}, "metadata['competitive'] is 'zero_sum'; expected no metadata['max_return'], which a"),
    ],
)
def test_a_declaration_that_contradicts_itself_fails(said: dict[str, Any], words: str) -> None:
    found = of_metadata(**said)
    assert (found.status, words in found.detail) == ("failed", True), found


def test_a_team_s_environment_is_not_asked_to_be_zero_sum() -> None:
    found = check(lambda: TextEnv(Single(PlanPath(size=4))), seeds=range(2), only=["zero sum"])["zero sum"]
    assert found == ("zero sum", "skipped", "it does not declare metadata['competitive'] = 'zero_sum'")


def test_a_task_without_players_cannot_be_a_match() -> None:
    with pytest.raises(TypeError, match=r"the workflow 'match' got the task PlanPath; expected a MultiplayerTask"):
        Match(PlanPath())  # type: ignore[arg-type]


def test_a_policy_of_one_agent_is_played_against_the_oracle() -> None:
    env = TextEnv(Match(KuhnPoker()))
    env.reset(seed=0, options={"deal": "KJ"})
    policy = alone("player_1", lambda env, agent: "Action: bet")
    assert [policy(env, agent) for agent in env.possible_agents] == ["Action: bet", "Action: bet"]
    env.reset(seed=0, options={"deal": "QJ"})
    assert policy(env, "player_0") == env.oracle() == "Action: pass"


@dataclass(frozen=True, slots=True)
class Hunters(Match[Hunt]):
    """Of the two, each has a name."""

    roles: ClassVar[tuple[Role, ...]] = (
        Role("scout", "You are the scout.", delayed=True),
        Role("archer", "You are the archer.", delayed=True),
    )


def test_the_players_of_a_match_can_be_roles_with_names() -> None:
    env = TextEnv(Hunters(StagHunt()))
    env.reset(seed=0)
    assert env.possible_agents == ["scout_0", "archer_0"]
    assert env.metadata["roles"] == {"scout_0": "scout", "archer_0": "archer"}
    assert env.observe("archer_0")["system"].splitlines()[-2] == "You are the archer."
    env.step(STAG)
    assert env.agent_selection == "archer_0"
    env.step("what?")  # read as a hare, worth 3, and the stag alone is worth 0
    assert env.rewards == {"scout_0": 0.0, "archer_0": 3.0}


def test_a_role_of_several_players_tells_each_which_it_is() -> None:
    env = TextEnv(Match(StagHunt()))
    env.reset(seed=0)
    said = env.observe("player_1")["system"].splitlines()[-2]
    assert said == "You are player_1. You play for yourself: win as much as you can."


def test_roles_of_more_or_fewer_agents_than_players_are_refused() -> None:
    with pytest.raises(ValueError, match="has the agents scout, archer; expected 3, one for each player"):
        Hunters(KuhnPoker(players=3))


def test_a_game_of_several_players_has_splits_unless_it_says_otherwise() -> None:
    assert MultiplayerTask.instance_fields == {"split": ("train", "validation", "test")}
    assert TextEnv(Match(StagHunt())).metadata["reset_options"] == {}
