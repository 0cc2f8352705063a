"""What the trainer says of agents that cannot learn, how early, and where it stays silent."""

from __future__ import annotations

import dataclasses
import io
import sys
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pettingzoo.utils
import pytest
import torch
from datasets import Dataset
from gymnasium import spaces
from pettingzoo import ParallelEnv
from tqdm.auto import tqdm

from decisions import candidate, decision_of, episode_of
from pettingllms_trl import MultiAgentGRPOTrainer, Policy
from pettingllms_trl.credit import RunningBaseline, at_grpo, facts_of, resolve
from pettingllms_trl.credit.delayed_rewards import check_delayed_roles
from pettingllms_trl.policies.routing import route
from pettingllms_trl.records import Candidate, Completion, Decision, Episode
from pettingllms_trl.trainer.monitor import LearningMonitor, ReplyLimit, SilentRole, warn_above_progress_bar
from short_runs import adapter, settings
from third_party import Relay, letters


END = 9


def reply(text: str, *ids: int) -> Completion:
    return Completion(ids=ids or (0, END), text=text)


def played(
    instance: int,
    paid: Mapping[str, Sequence[float]],
    later: Mapping[str, float] | None = None,
    *,
    texts: Sequence[str] = ("one", "two"),
    success: bool | None = None,
    environment: str = "",
) -> Episode:
    """An episode in which each agent takes one decision.

    Args:
        instance: Its number.
        paid: The rewards of each agent's candidates at its own step; the first one is played on.
        later: What an agent is paid after it.
        texts: The candidates' replies.
        success: What the environment reports.
        environment: Where a run has several.
    """
    decisions = []
    for agent, rewards in paid.items():
        result = rewards[0] + (later or {}).get(agent, 0.0)
        candidates = [
            Candidate(completion=reply(text), reward=reward) for text, reward in zip(texts, rewards, strict=True)
        ]
        facts = {"instance": instance, "environment": environment}
        decisions.append(decision_of(agent, candidates, **facts, episode_return=result, return_to_go=result))
    outcome = {} if success is None else {"success": success}
    returns = {decision.agent: decision.episode_return for decision in decisions}
    return episode_of(*decisions, instance=instance, returns=returns, outcome=outcome, environment=environment)


def observe(monitor: LearningMonitor, episodes: Sequence[Episode], *, learning: str = "ab") -> list[str]:
    """What the monitor says of a generation under AT-GRPO; agents whose letter is not in `learning` are partners."""
    decisions = [d for episode in episodes for d in episode.decisions if d.agent[0] in learning]
    return monitor.observe(episodes, decisions, at_grpo(decisions))


def paid_at_the_end(num_instances: int) -> list[Episode]:
    """As by parallel_to_aec: a_0 is paid 0 or 1 at b_0's step, b_0's replies differ."""
    return [played(i, {"a_0": (0, 0), "b_0": (1, 0)}, {"a_0": i % 2}) for i in range(num_instances)]


# ---- A role that is paid later --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("num_instances", "generation"), [(32, 2), (16, 2), (8, 4), (100, 2)])
def test_a_role_that_is_paid_at_anothers_step_is_named_after_two_generations_and_32_groups(
    num_instances: int, generation: int
) -> None:
    monitor = LearningMonitor({})
    said = [observe(monitor, paid_at_the_end(num_instances)) for _ in range(30)]
    assert [i for i, words in enumerate(said, 1) if words] == [generation]
    ((words,),) = filter(None, said)
    groups = generation * num_instances
    assert f"returns differ: a_0 (always 0 in {groups} groups, returns 0 to 1). What is earned" in words
    for remedy in ("credit='return_to_go'", "'counterfactual' with num_continuations", "'parallel'"):
        assert remedy in words


QUIET: dict[str, list[Episode]] = {
    "all replies solved their instances, which pay alike": [
        played(i, {"a_0": (1, 1)}, success=True) for i in range(40)
    ],
    "all replies solved their instances, of which some pay more, and the partner sometimes fails": [
        played(i, {"a_0": (i % 3, i % 3)}, {"a_0": i % 2}) for i in range(40)
    ],
    "nobody is ever paid": [played(i, {"a_0": (0, 0)}) for i in range(40)],
    "it collapsed to one reply": [played(i, {"a_0": (0, 0)}, {"a_0": i % 2}, texts=("one", "one")) for i in range(40)],
    "one group differs": [played(i, {"a_0": (0, i == 7)}, {"a_0": i % 2}) for i in range(40)],
    "it is a partner": [played(i, {"c_0": (0, 0)}, {"c_0": i % 2}) for i in range(40)],
}


@pytest.mark.parametrize("episodes", QUIET.values(), ids=QUIET)
def test_nothing_is_said_of_later_rewards_where_something_else_is_the_matter(episodes: list[Episode]) -> None:
    monitor = LearningMonitor({})
    assert [observe(monitor, episodes) for _ in range(9)] == [[]] * 9


def test_a_role_that_has_learned_from_its_own_steps_is_never_said_to_be_paid_later() -> None:
    monitor = LearningMonitor({})
    observe(monitor, [played(0, {"a_0": (1, 0)})])
    said = [observe(monitor, paid_at_the_end(40)) for _ in range(10)]
    assert said[:9] == [[]] * 9
    assert "in 10 generations in a row" in said[9][0]


def test_a_role_paid_at_its_own_next_step_is_found_too() -> None:
    """Its own steps pay 0 for any reply, and another agent's 0 to 3."""
    episodes = [played(i, {"a_0": (0, 0)}, {"a_0": i % 4}) for i in range(32)]
    monitor = LearningMonitor({})
    assert [len(observe(monitor, episodes)) for _ in range(3)] == [0, 1, 0]


def test_a_credit_that_looks_further_is_not_warned_of() -> None:
    monitor, episodes = LearningMonitor({}), paid_at_the_end(40)
    decisions = [d for episode in episodes for d in episode.decisions]
    credit = resolve({"at_grpo": {"value": "return_to_go"}}, sampling="tree", scale="group", num_candidates=2)
    assert [monitor.observe(episodes, decisions, credit(decisions)) for _ in range(12)] == [[]] * 12


def test_each_environment_of_a_run_is_looked_at_by_itself() -> None:
    monitor = LearningMonitor({})
    episodes = [
        *[played(i, {"a_0": (0, 0)}, {"a_0": i % 2}, environment="rounds") for i in range(40)],
        *[played(i, {"a_0": (1, 0)}, environment="moves") for i in range(40, 80)],
    ]
    said = [observe(monitor, episodes) for _ in range(2)]
    assert "returns differ: a_0 in rounds (always 0 in 80 groups" in said[1][0]


def test_a_resumed_run_counts_on_and_says_nothing_twice() -> None:
    first, episodes = LearningMonitor({}), paid_at_the_end(20)
    observe(first, episodes)
    second, third = LearningMonitor({}), LearningMonitor({})
    second.load_state_dict(first.state_dict())
    assert len(observe(second, episodes)) == 1
    third.load_state_dict(second.state_dict())
    assert observe(third, episodes) == []


# ---- Ten flat generations -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("episodes", "words", "absent"),
    [
        (QUIET["nobody is ever paid"], "a_0 (0 to 0 over all groups of the last). Either the policies", "later steps"),
        (QUIET["all replies solved their instances, which pay alike"], "The best candidates of all", "collapsed"),
        (
            QUIET["it collapsed to one reply"],
            "Or what they lead to is only paid at later steps. Set credit=",
            "solved",
        ),
    ],
)
def test_after_ten_flat_generations_the_cause_is_named_as_far_as_it_can_be_seen(
    episodes: list[Episode], words: str, absent: str
) -> None:
    monitor = LearningMonitor({})
    said = [observe(monitor, episodes) for _ in range(25)]
    assert [i for i, each in enumerate(said, 1) if each] == [10]
    assert words in said[9][0]
    assert absent not in said[9][0]


def test_one_agent_that_learns_does_not_silence_what_is_said_of_another() -> None:
    monitor = LearningMonitor({})
    said = [observe(monitor, [played(0, {"a_0": (0, 0), "b_0": (1, 0)})]) for _ in range(10)]
    assert "nothing is learnt by a_0 (0 to 0" in said[9][0]
    assert "b_0" not in said[9][0]


def test_episodes_of_parallel_sampling_are_compared_by_their_returns() -> None:
    """Returns differ between instances, as of any role that is sometimes lucky; nothing is paid "later" there."""

    def generation(second: float) -> list[Episode]:
        made = []
        for instance in range(4):
            for number, result in enumerate((float(instance), instance + second)):
                episode = played(instance, {"a_0": (0,)}, {"a_0": result}, texts=("one",))
                decisions = tuple(dataclasses.replace(d, episode=number) for d in episode.decisions)
                made.append(dataclasses.replace(episode, episode=number, decisions=decisions))
        return made

    def said_by(generations: list[list[Episode]]) -> list[list[str]]:
        monitor = LearningMonitor({})
        result = []
        for episodes in generations:
            decisions = [d for episode in episodes for d in episode.decisions]
            result.append(monitor.observe(episodes, decisions, [[0.0]] * len(decisions)))
        return result

    flat = said_by([generation(0.0)] * 10)
    assert (flat[:9], "later steps" in flat[9][0]) == ([[]] * 9, False)
    assert said_by([generation(1.0)] * 10) == [[]] * 10


# ---- Replies that are cut off ---------------------------------------------------------------------------------------

LIMIT = ReplyLimit(max_length=3)


def replied(agent: str, *all_ids: tuple[int, ...]) -> Decision:
    finish = ["stop" if ids[-1] == END else "length" for ids in all_ids]
    return decision_of(agent, [candidate(k, ids, finish=finish[k]) for k, ids in enumerate(all_ids)])


CUT, WHOLE = (1, 2, 3), (1, END)


def test_cut_off_replies_are_told_after_the_first_generation_and_once_by_agent() -> None:
    monitor = LearningMonitor({"a_0": LIMIT, "b_0": LIMIT})
    first = [replied("a_0", CUT, CUT, CUT, WHOLE), replied("b_0", CUT, CUT, WHOLE, WHOLE)]
    (words,) = monitor.observe([], first, [[1.0] * 4] * 2)
    assert words == (
        "most replies were cut off at max_completion_length before they ended: 75% of a_0's (3 of 4) at 3 tokens. "
        "Where the environment cannot read such replies they are all paid alike, and nothing is learnt. Raise "
        "max_completion_length."
    )
    second = [replied("a_0", CUT, CUT), replied("b_0", CUT, CUT)]
    (words,) = monitor.observe([], second, [[1.0] * 2] * 2)
    assert "100% of b_0's (2 of 2)" in words
    assert "a_0" not in words
    assert monitor.observe([], second, [[1.0] * 2] * 2) == []


def test_where_the_template_can_switch_thinking_off_that_is_the_first_remedy() -> None:
    monitor = LearningMonitor({"a_0": dataclasses.replace(LIMIT, can_stop_thinking=True)})
    (words,) = monitor.observe([], [replied("a_0", CUT, CUT)], [[1.0] * 2])
    assert words.endswith(
        "Turn thinking off (chat_template_kwargs={'enable_thinking': False}) or raise max_completion_length."
    )


def test_replies_that_cannot_be_read_are_told_once_by_agent_with_the_commonest_reason_and_one_of_them() -> None:
    def read(agent: str, *readings: str) -> Decision:
        decision = replied(agent, *[WHOLE] * len(readings))
        pairs = zip(decision.candidates, readings, strict=True)
        candidates = [
            dataclasses.replace(each, reading=form, completion=reply(f"the end {form}")) for each, form in pairs
        ]
        return dataclasses.replace(decision, candidates=tuple(candidates))

    monitor = LearningMonitor({"a_0": LIMIT, "b_0": LIMIT})
    decisions = [
        read("a_0", *["strictly"] * 17, *["unreadable: it is empty"] * 2, "unreadable: it has no move"),
        read("b_0", *["strictly"] * 19, "unreadable: it is empty"),  # 5%
    ]
    advantages = [[1.0] * 20] * 2
    (words,) = monitor.observe([], decisions, advantages)
    assert words.startswith(
        "15% of the replies of a_0 are unreadable, most often because it is empty. One of them ends "
        '"the end unreadable: it is empty". Say in the prompt how a reply is to end'
    )
    assert monitor.observe([], decisions, advantages) == []


def test_a_warning_stands_on_lines_of_its_own_above_the_progress_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """Glued to the bar's line, the text before the warning's would be the bar's, with no line break or return."""
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    with warnings.catch_warnings(), tqdm(total=2, file=screen, ncols=60) as bar:
        warnings.simplefilter("always")
        bar.update()
        bar.refresh()
        monkeypatch.setattr(
            warnings, "showwarning", lambda message, *_, **__: print(f"warned: {message}", file=sys.stderr)
        )
        warn_above_progress_bar("look")
    before, _, after = screen.getvalue().partition("warned: look\n")
    assert before.rpartition("\r")[2].strip() == ""
    assert "1/2" in after


# ---- In a run -------------------------------------------------------------------------------------------------------


class Match(ParallelEnv):  # type: ignore[misc]
    """Both move at once and are paid for their own move, one round."""

    metadata: ClassVar[dict[str, Any]] = {"name": "match_v0", "render_modes": []}

    def __init__(self) -> None:
        self.possible_agents = ["opener_0", "closer_0"]
        self.render_mode = None

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Text(100)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Text(100)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        self.agents = self.possible_agents[:]
        return dict.fromkeys(self.agents, "Move."), {agent: {} for agent in self.agents}

    def step(self, actions: Mapping[str, str]) -> tuple[Any, ...]:
        agents, self.agents = self.agents, []
        shown, rewards = dict.fromkeys(agents, "Over."), {agent: letters(actions[agent]) for agent in agents}
        return shown, rewards, dict.fromkeys(agents, True), dict.fromkeys(agents, False), {a: {} for a in agents}


def simultaneous() -> Any:
    return pettingzoo.utils.parallel_to_aec(Match())


def test_a_simultaneous_game_by_parallel_to_aec_warns_of_its_first_agent_and_says_that_replies_are_cut_off(
    model_path: str, tmp_path: Path
) -> None:
    trainer = MultiAgentGRPOTrainer(
        model=model_path,
        env=simultaneous,
        policies="lora",
        args=settings(tmp_path, max_steps=2, per_device_train_batch_size=64, save_strategy="steps", save_steps=2),
        train_dataset=Dataset.from_dict({"seed": range(64)}),
        peft_config=adapter(),
    )
    with pytest.warns(UserWarning) as caught:  # noqa: PT030  # both are looked at below; others would be raised anew
        trainer.train()
    cut_off, later = [str(warning.message) for warning in caught if "step " in str(warning.message)]
    assert cut_off.startswith("step 0: most replies were cut off")
    assert "of opener_0's (" in cut_off
    assert " at 8 tokens" in cut_off
    assert later.startswith("step 1: no reply has been paid differently from its siblings at its own step")
    assert "opener_0 (always 0 in 32 groups, returns 0" in later
    assert "closer_0" not in later
    place = torch.load(tmp_path / "checkpoint-2" / "place_0.pt", weights_only=True)
    assert {agent: signal["num_flat_groups"] for agent, signal in place["parts"]["monitor"].items()} == {
        "opener_0": 32,
        "closer_0": 0,
    }


class Declared(Relay):
    metadata = {**Relay.metadata, "delayed_roles": ["opener"]}


@pytest.mark.parametrize(
    ("options", "warns"),
    [
        ({}, True),
        ({"credit": "loo"}, True),
        ({"credit": {"at_grpo": {"value": "return_to_go"}}}, False),
        ({"credit": "counterfactual", "num_continuations": 1}, False),
        ({"credit": "grpo", "sampling": "parallel"}, False),
        ({"credit": lambda decisions: [[0.0] * len(d.candidates) for d in decisions]}, False),
        ({"policies": {"opener": Policy(trainable=False), "closer": "closer"}}, False),
        ({"reward_funcs": ("brevity",)}, False),
    ],
)
def test_a_role_declared_as_paid_later_is_warned_of_when_the_trainer_is_made_unless_the_credit_looks_further(
    options: dict[str, Any], warns: bool, tmp_path: Path
) -> None:
    given = {"policies": "lora", "credit": "at_grpo", "reward_funcs": (), **options}
    policies, credit, functions = (given.pop(name) for name in ("policies", "credit", "reward_funcs"))
    args = settings(tmp_path, **{"sampling": "tree", **given})
    made = resolve(
        credit,
        sampling=args.sampling,
        scale="group",
        num_candidates=4,
        num_continuations=args.num_continuations,
    )
    routing = route(policies, ["opener_0", "closer_0"], model="base", tokenizer=None)
    learning = set(routing.of_agent) - set(routing.partners)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_delayed_roles({"": [Declared(1)]}, learning, made, args, reward_functions=functions)
    assert len(caught) == warns
    assert all(str(warning.message).startswith("the environment declares that opener_0 is") for warning in caught)


def test_a_trainer_warns_of_a_role_declared_as_paid_later(model_path: str, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"opener_0 is paid at later steps .*credit='at_grpo' compares replies by"):
        MultiAgentGRPOTrainer(
            model=model_path,
            env=Declared,
            args=settings(tmp_path),
            train_dataset=Dataset.from_dict({"seed": range(8)}),
            credit="at_grpo",
        )


def test_a_declaration_of_roles_that_there_are_none_of_is_refused(model_path: str, tmp_path: Path) -> None:
    class Misspelt(Relay):
        metadata = {**Relay.metadata, "delayed_roles": ["open"]}

    with pytest.raises(ValueError, match=r"is \['open'\], expected a list with some of its roles opener, closer"):
        MultiAgentGRPOTrainer(model=model_path, env=Misspelt, args=settings(tmp_path))


@pytest.mark.parametrize(
    ("credit", "sampling", "expected"),
    [
        ("at_grpo", "tree", True),
        ("max_rl", "tree", True),
        ("loo", "parallel", False),
        ("best", "tree", True),
        ("best", "parallel", False),
        ("rae", "tree", True),
        ("rae", "parallel", False),
        ({"rae": {"value": "return_to_go"}}, "tree", False),
        ("magrpo", "tree", False),
        (partial(at_grpo, value="outcome"), "tree", False),
        (at_grpo, "tree", True),
        (RunningBaseline(value="reward"), "tree", True),
    ],
)
def test_which_schemes_compare_replies_by_their_own_step_alone(credit: Any, sampling: Any, expected: bool) -> None:
    made = resolve(credit, sampling=sampling, scale="group", num_candidates=2, num_continuations=1)
    assert (facts_of(made, sampling).value == "reward") is expected


def test_the_error_for_a_parallel_environment_says_how_to_train_it(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"paid at the last agent's step, so train it with sampling='parallel'"):
        MultiAgentGRPOTrainer(model=None, env=Match, args=settings(tmp_path))  # type: ignore[arg-type]


# ---- A role that never acts -----------------------------------------------------------------------------------------


def test_a_role_that_is_trained_and_never_acts_ends_the_training_after_two_generations() -> None:
    monitor, episodes = LearningMonitor({}, must_act=["a_0", "critic_0"]), paid_at_the_end(4)
    observe(monitor, episodes)
    with pytest.raises(SilentRole, match=r"^critic took no decision in the first 8 episodes.*may be paid there"):
        observe(monitor, episodes)


def test_a_role_that_acts_now_and_then_or_is_a_partner_may_be_silent() -> None:
    episodes = paid_at_the_end(4)
    partner, resumed = LearningMonitor({}, must_act=["a_0"]), LearningMonitor({}, must_act=["a_0", "critic_0"])
    resumed.load_state_dict(partner.state_dict())
    for monitor in (partner, resumed):
        for _ in range(3):
            observe(monitor, episodes)
