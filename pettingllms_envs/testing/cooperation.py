"""Checks of environments that claim to need a team: their forms, and the bound of a lone agent, which is recomputed.

`lone_bound` takes on trust that instances are as likely as the task says, and how many different notes there are. Of a
task with `LimitedAccess` it plays the form `alone` in instances that should look alike, and counts in how many of them
one answer is right. Of one with `LimitedMemory` it checks that no prompt but the last depends on the question, that
the last one says nothing but notes and question, and that one answer at most is right; then it counts the instances
that the notes can tell apart. The best strategy cannot exceed either number, whatever the agent's model. Prompts are
compared for the replies of oracles, and for others, some of which are unreadable.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial
from math import prod
from typing import Any, NamedTuple

from pettingllms_envs.bounds import HasBlindBound, HasLoneBound, LimitedAccess, LimitedMemory, Memory
from pettingllms_envs.episodes.episode import Instance
from pettingllms_envs.episodes.observing import task_of, workflow_of
from pettingllms_envs.evaluation.guessers import MOST_STEPS, succeeds
from pettingllms_envs.evaluation.statistics import wilson
from pettingllms_envs.evaluation.team_forms import forms_of
from pettingllms_envs.testing import play


NUM_STARTS = 3
"""Instances of which look-alikes are played: each takes a game for every look-alike."""
EPISODES_OF_A_QUESTION = 4
"""Instances for each question, in which the last prompts are compared."""
NUM_CLUMSY = 3
"""Sequences of replies, some of them unreadable, with which prompts are compared, besides those of oracles."""
BLIND_EPISODES, BLIND_CONFIDENCE = 200, 0.9999
"""Of each blind policy, and of the interval whose lower end must not exceed its bound."""

MakeForm = Callable[[Mapping[str, Any]], Any]
"""Makes a form of the environment from its settings."""


class LoneBound(NamedTuple):
    """The bound of a lone agent.

    Args:
        recomputed: The suite's; never greater.
    """

    declared: Fraction
    recomputed: Fraction
    by: str


class _Moment(NamedTuple):
    """A state of a workflow, and whether the episode is over."""

    state: Any
    is_over: bool


Replies = Callable[[Sequence[_Moment]], str]
"""Makes the next reply of games that are played side by side."""


def check_cooperation(case: play.Case) -> str:
    """The forms can be made and fit the team, the oracle succeeds where the task can be solved, the bound holds."""
    env = case.make()
    forms = env.metadata.get("cooperation")
    if forms is None:
        raise play.Skipped("it declares no forms, metadata['cooperation']")
    make = _maker(case, env)
    every = [*(forms.get(form) for form in ("full", "routed", "cut")), *(forms.get("alone") or ())]
    for form in filter(None, every):
        _check_players(form, make(form["settings"]), env)
    for whole in (env, *(make(forms[form]["settings"]) for form in ("full", "routed") if forms.get(form))):
        _expect_solved(whole, case.starts, case.max_steps)
    words = f"{sum(form is not None for form in every)} forms"
    bound = lone_bound(env, make, [start.seed for start in case.starts])
    if bound is not None:
        words += f"; bound {float(bound.declared):.3%}, recomputed from {bound.by}"
    return "; ".join([words, *_blind_shares(env)])


def _blind_shares(env: Any) -> Iterator[str]:
    """The successes of the task's blind policies, which must not exceed their bound; nothing if it has none."""
    task = task_of(env)
    if not isinstance(task, HasBlindBound):
        return
    bound = float(task.blind_bound())
    for name, policy in task.blind_policies.items():
        right = sum(succeeds(env, policy, Instance(seed, seed)) for seed in range(BLIND_EPISODES))
        if bound < 1 and wilson(right, BLIND_EPISODES, BLIND_CONFIDENCE)[0] > bound:
            raise play.Failed(
                f"the blind policy {name!r} succeeds in {right} of {BLIND_EPISODES} episodes, but blind_bound() is "
                f"{bound:.3%}; expected at most that. Correct the bound, or what the task lets such agents know"
            )
        yield f"{name}: {right} of {BLIND_EPISODES}, bound {bound:.3%}"


def lone_bound(env: Any, make: MakeForm, seeds: Sequence[int] = range(NUM_STARTS)) -> LoneBound | None:
    """Recompute the bound of an environment's forms `alone`, the greatest; None if the task declares none, or not why
    it holds.

    Args:
        seeds: Of the instances that are played; the first `NUM_STARTS` are used where instances are compared.
    """
    forms = (env.metadata.get("cooperation") or {}).get("alone") or ()
    task = task_of(env)
    if not forms or not isinstance(task, HasLoneBound):
        return None
    declared = task.lone_bound()
    if isinstance(task, LimitedAccess):
        counts = [_right_of_look_alikes(make(f["settings"]), f["settings"], seeds[:NUM_STARTS]) for f in forms]
        found = max(right for right, _ in counts)
        by = f"{sum(num for _, num in counts)} instances that look alike to an agent alone"
    elif isinstance(task, LimitedMemory):
        workflows = [
            workflow_of(make(form["settings"])) for form in forms
        ]  # a form may have other notes than the team
        found = max(bound_of_memory(workflow.task.lone_memory()) for workflow in workflows)
        by = f"a count of what its notes can tell apart, and {sum(map(_played_from_notes, workflows))} last prompts"
    else:
        return None
    if found > declared:
        raise play.Failed(
            f"lone_bound() is {float(declared):.3%}, but an agent alone may reach {float(found):.3%}; expected at "
            "least that. Correct the bound, or what the task says of its access or memory"
        )
    return LoneBound(declared, found, by)


def bound_of_memory(memory: Memory) -> Fraction:
    """The greatest share of right answers from notes, by counting the sequences of values that they can tell apart.

    For each of the notes, the answers to all questions are one sequence. How many sequences differ from it in k places
    is the coefficient of z^k in the product of 1 + (v - 1) z over the numbers of values v. The share is greatest if no
    two notes share a sequence that differs in few places.

    Example:
        Two things with 10 values each and 11 notes: 11 of 100 sequences right in both places, 89 in one: 111 of 200.
    """
    counts = [1]
    for number in memory.values:
        kept, changed = [*counts, 0], [0, *counts]
        counts = [equal + (number - 1) * other for equal, other in zip(kept, changed, strict=True)]
    total = prod(memory.values)
    left, right = total, 0
    for wrong, number in enumerate(counts):
        reached = min(left, memory.num_notes * number)
        right += reached * (len(memory.values) - wrong)
        left -= reached
    return Fraction(right, len(memory.values) * total)


def play_forms(env: Any, make: MakeForm, policy: play.Policy, seeds: Sequence[int]) -> dict[str, list[Fraction]]:
    """The success, 1 or 0 for each seed, of a policy in a team and in each of its forms, by arm.

    Args:
        policy: The reply, from the environment and the agent that is to act; it plays all agents.

    Raises:
        Skipped: It does not say whether an episode was a success.
    """
    arms = {name: env if form.settings is None else make(form.settings) for name, form in forms_of(env).items()}
    solved: dict[str, list[Fraction]] = {name: [] for name in arms}
    for seed in seeds:  # all arms on one instance, of which a task may keep what takes long to make
        for name, each in arms.items():
            solved[name].append(Fraction(_is_solved(each, play.Start(seed, {}), policy, MOST_STEPS)))
    return solved


def _maker(case: play.Case, env: Any) -> MakeForm:
    """Makes a form as the team's environment was made, but with other settings."""
    own = case.make
    if isinstance(own, partial):  # whose arguments are among the form's settings, as far as it has them
        resources = {key: value for key, value in own.keywords.items() if key not in env.metadata.get("settings", {})}
        own = partial(own.func, *own.args, **resources)

    def make(settings: Mapping[str, Any]) -> Any:
        made = play.made_if_taken(own, **settings)
        if made is None:
            raise play.Skipped(f"make() does not accept the settings of its forms: {', '.join(settings)}")
        return made

    return make


def _check_players(form: Mapping[str, Any], env: Any, team: Any) -> None:
    agents = [form["player"]] if form["player"] else env.possible_agents
    if unknown := [agent for agent in agents if agent not in team.possible_agents]:
        raise play.Failed(
            f"{', '.join(unknown)} of the form {dict(form['settings'])} is none of the team's agents "
            f"{', '.join(team.possible_agents)}; expected that its player is one, or that it has the team's agents"
        )


def _expect_solved(env: Any, starts: Sequence[play.Start], max_steps: int) -> None:
    if not env.metadata.get("has_oracle", hasattr(env.unwrapped, "oracle")):
        return
    for start in starts:
        if not _is_solved(env, start, play.best, max_steps):
            raise play.Failed(
                f"the oracle does not succeed, {play.told(start, ())}; expected a task that can be solved"
            )


def _is_solved(env: Any, start: play.Start, policy: play.Policy, max_steps: int) -> bool:
    played = play.episode(env, start, policy, max_steps=max_steps)
    if played.success is None:
        raise play.Skipped("its infos have no outcome with 'success'")
    return played.success


def _right_of_look_alikes(env: Any, settings: Mapping[str, Any], seeds: Sequence[int]) -> tuple[Fraction, int]:
    """The mean over instances of the share of look-alikes in which one answer is right, and how many were played."""
    shares: list[Fraction] = []
    num = 0
    workflow = workflow_of(env)
    for seed in seeds:
        state = workflow.task.generate(seed)
        alike = [dataclasses.replace(workflow, task=task) for task in workflow.task.look_alikes(state, settings)]
        with play.blaming(lambda seed=seed: f"seed {seed}, the form {dict(settings)}"):  # type: ignore[misc]
            shares.append(_most_right(alike, state))
        num += len(alike)
    return sum(shares, Fraction()) / len(shares), num


def _most_right(alike: Sequence[Any], task_state: Any) -> Fraction:
    """The share of look-alikes in which the best single answer is right; their prompts must be the same.

    All are played with the replies of the oracle of one of them, for the first and the last; only the last replies are
    those of every oracle, since all that differs is what the right answer is. Then with other replies, to compare the
    prompts alone.
    """
    most = Fraction()
    for leader in dict.fromkeys((0, len(alike) - 1)):
        before = _played_alike(alike, [task_state] * len(alike), partial(_oracle_reply, alike[leader], leader))
        for workflow, last in zip(alike, before, strict=True):
            answer = workflow.oracle(last.state)
            ended = [_stepped(other, each, answer).state for other, each in zip(alike, before, strict=True)]
            right = sum(other.task.solved(each.task) for other, each in zip(alike, ended, strict=True))
            most = max(most, Fraction(right, len(alike)))
    for number in range(NUM_CLUMSY):
        _played_alike(alike, [task_state] * len(alike), _clumsy(alike[0], number))
    return most


def _played_alike(
    workflows: Sequence[Any], task_states: Sequence[Any], reply_to: Replies, *, to_the_last: bool = False
) -> list[_Moment]:
    """The moments before the last replies of workflows that are played side by side, all with the same replies.

    Until then the prompts must be the same, of the last only if asked for.
    """
    before = moments = [_Moment(each.start(state), False) for each, state in zip(workflows, task_states, strict=True)]
    for _ in range(MOST_STEPS):
        if all(each.is_over for each in moments):
            return before
        reply = reply_to(moments)
        after = [_stepped(each, moment, reply) for each, moment in zip(workflows, moments, strict=True)]
        if not (to_the_last and all(each.is_over for each in after)):
            _expect_same_prompts(workflows, moments)
        before, moments = moments, after
    raise play.Failed(f"an agent alone is not done after {MOST_STEPS} replies; expected that its episodes end")


def _oracle_reply(workflow: Any, number: int, moments: Sequence[_Moment]) -> str:
    return str(workflow.oracle(moments[number].state))


def _clumsy(workflow: Any, seed: int) -> Replies:
    """Replies at random: of the oracle, without a look at the state, or unreadable, which there may be feedback on."""
    rng = random.Random(seed)

    def reply_to(moments: Sequence[_Moment]) -> str:
        return str(rng.choice((workflow.oracle(moments[0].state), "", *workflow.task.blind_replies)))

    return reply_to


def _expect_same_prompts(alike: Sequence[Any], moments: Sequence[_Moment]) -> None:
    actor = alike[0].actor(moments[0].state)
    first = alike[0].system(actor), alike[0].observe(moments[0].state, actor)
    for workflow, each in zip(alike, moments, strict=True):
        if each.is_over or workflow.actor(each.state) != actor:
            raise play.Failed(
                f"another agent than {actor} acts in an instance that should look alike; expected the same"
            )
        shown = workflow.system(actor), workflow.observe(each.state, actor)
        play.same(first, shown, f"prompts of {actor}, alone, in two instances that should look alike")


def _played_from_notes(workflow: Any) -> int:
    """Check that a lone agent answers from notes and question alone; returns how many last prompts were compared.

    All questions of an instance are played with the same replies. Prompts before the last must not depend on the
    question, and the last one must depend on nothing else.
    """
    task, replies = workflow.task, _oracle_replies(workflow, 0)
    num_questions, num = len(task.lone_memory().values), 0
    scripts: tuple[Callable[[], Replies], ...] = (
        lambda: _recited(replies),
        *(partial(_clumsy_recital, workflow, replies, number) for number in range(NUM_CLUMSY)),
    )
    for script in scripts:
        shown: list[set[str]] = [set() for _ in range(num_questions)]
        for seed in range(EPISODES_OF_A_QUESTION):
            asked = task.asked(task.generate(seed))
            with play.blaming(lambda seed=seed: f"seed {seed}, with every question"):  # type: ignore[misc]
                lasts = _played_alike([workflow] * len(asked), asked, script(), to_the_last=True)
            for prompts, last in zip(shown, lasts, strict=True):
                prompts.add(str(workflow.observe(last.state, workflow.actor(last.state))))
        num += EPISODES_OF_A_QUESTION * num_questions
        if most := [prompts for prompts in shown if len(prompts) > 1]:
            raise play.Failed(
                f"{len(most[0])} different last prompts of {EPISODES_OF_A_QUESTION} instances with the same question"
                " in which all replies were the same; expected one. Show it nothing else when it answers"
            )
    _expect_one_right_answer(workflow, num_questions)
    return num


def _expect_one_right_answer(workflow: Any, num_questions: int) -> None:
    """What the oracle answers in one instance must be wrong in another, unless it answers the same there."""
    task = workflow.task
    lasts: list[list[_Moment]] = [[] for _ in range(num_questions)]
    for seed in range(EPISODES_OF_A_QUESTION):
        for own, state in zip(lasts, task.asked(task.generate(seed)), strict=True):
            own += _played_alike([workflow], [state], partial(_oracle_reply, workflow, 0), to_the_last=True)
    for own in lasts:
        answers = dict.fromkeys(str(workflow.oracle(last.state)) for last in own)
        for last in own:
            right = [answer for answer in answers if task.solved(_stepped(workflow, last, answer).state.task)]
            if len(right) > 1:
                raise play.Failed(
                    f"{' and '.join(map(repr, right))} are both right in one instance; expected one right answer of"
                    " each question, which is what the bound counts"
                )


def _recited(replies: Sequence[str]) -> Replies:
    """The replies in their order, whatever the moments."""
    left = iter(replies)
    return lambda _: next(left)


def _clumsy_recital(workflow: Any, replies: Sequence[str], seed: int) -> Replies:
    """The replies in their order, some at random replaced as in `_clumsy`."""
    rng = random.Random(seed)
    return _recited([rng.choice((reply, "", *workflow.task.blind_replies)) for reply in replies])


def _oracle_replies(workflow: Any, seed: int) -> list[str]:
    moment, replies = _Moment(workflow.start(workflow.task.generate(seed)), False), list[str]()
    while not moment.is_over:
        replies.append(workflow.oracle(moment.state))
        moment = _stepped(workflow, moment, replies[-1])
    return replies


def _stepped(workflow: Any, moment: _Moment, reply: str) -> _Moment:
    state, _, terminated, truncated = workflow.step(moment.state, reply)
    return _Moment(state, terminated or truncated)
