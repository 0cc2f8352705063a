"""Workflows of service: who speaks to whom, with which tools, and what is paid.

The user begins, and then the two take turns. In its turn an agent may call tools, up to four times, and is asked again
with the result; a message passes the turn, an unreadable reply (-0.2) as well, and `End:` ends the episode. Agents are
shown what they were told, all that they said and heard, and what came of their calls.

* `team`: an assistant and its user. `scripted`: its user is a rule-based player. `cut`: no message arrives.
* `specialist`: the assistant's `Ask: a message` goes to a specialist, who sees nothing but what it is asked and what
  its tool returns, and alone has that tool. It answers the assistant, whose turn goes on. An `Ask:` counts as a call.
* `single`: one agent with all tools, who is told the goal and the user's facts: what messages cannot add to.
* `alone`: the assistant, whose user does its own part and says nothing: right in at most `lone_bound`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

from pettingllms_envs.core import UNREADABLE_PENALTY, Role, Unreadable
from pettingllms_envs.environments.service import users
from pettingllms_envs.environments.service.domains import NUM_KNOWN, Call
from pettingllms_envs.environments.service.instances import ENGLISH, changed
from pettingllms_envs.environments.service.moves import ASK, ASSISTANT, CALL, END, SIDES, SPECIALIST, USER, ServiceMove
from pettingllms_envs.environments.service.rules import FORBIDDEN, Service
from pettingllms_envs.environments.service.users import ASKED, CALLED, HEARD, MANNERS, SAID, UNREAD, WHAT, View, topics
from pettingllms_envs.quoting import quote
from pettingllms_envs.teams.channels import Sent
from pettingllms_envs.teams.forms import Form, Forms
from pettingllms_envs.teams.functions import Ask, FunctionState, Game, Questions, Script, function_workflow


MOST_CALLS = 4
"""Calls in a row, after which the turn passes."""

PAIR = (USER, ASSISTANT)
JOBS = {
    USER: "Tell the assistant what it needs, and do your own part.",
    SPECIALIST: "The assistant asks you for what you alone can do.",
}
COUNTED = {"found": 0.0, "told": 0.0, "forbidden": 0, "wrong_calls": 0}


class Talk:
    """A conversation as it goes on, of who speaks in a turn: what each side has seen, and what is paid."""

    def __init__(
        self, game: Game, seats: Sequence[str] = PAIR, manner: str = "", *, delivers: bool = True, expert: str = ""
    ) -> None:
        self.game, self.seats, self.manner, self.delivers, self.expert = game, seats, manner, delivers, expert
        self.task: Service = game.task
        self.views: dict[str, View] = dict.fromkeys(SIDES, ())
        self.has_all = USER not in seats and delivers
        self.num_heard = self.num_lost = 0
        game.report(**COUNTED, **({"not_understood": 0.0} if manner else {}))

    def play(self) -> Questions:
        """The turns, then success; returns whether somebody ended the episode."""
        game, ended = self.game, False
        for turn, seat in product(range(1, game.num_turns + 1), self.seats):
            game.turn = turn
            ended = yield from self.turn(seat, next((each for each in self.seats if each != seat), ""))
            if ended:
                break
        game.state = game.state._replace(ended=True)
        game.win()
        return ended

    def turn(self, seat: str, other: str) -> Questions:
        """An agent's turn; returns whether it ended the episode."""
        for number in range(MOST_CALLS):
            reply = self.reply() if self.manner and seat == USER else (yield self.question(seat, number))
            move = self.task.parse(reply)
            if not isinstance(move, Unreadable) and move.kind == ASK and (seat != ASSISTANT or not self.expert):
                move = Unreadable("there is nobody to ask")
            if isinstance(move, Unreadable):
                self.pay(seat, "format", UNREADABLE_PENALTY)
                self.note(seat, UNREAD, "", move.reason)
                break
            if move.kind == END:
                return True
            if move.kind == CALL:
                self.call(seat, move)
            elif move.kind == ASK:
                self.send(seat, SPECIALIST, move.text)
                if (yield from self.turn(SPECIALIST, ASSISTANT)):
                    self.send(SPECIALIST, ASSISTANT, "")  # it cannot end more than its own part
            else:
                self.send(seat, other, move.text)
                return False
        self.send(seat, other, "")
        return False

    def question(self, seat: str, number: int) -> Ask:
        """What an agent is asked: its prompt, its oracle, what is kept, and what nobody else may be shown."""
        shown, best = partial(self.prompt, seat), partial(self.best, seat)
        keeps = (tuple(self.views.items()), number)
        return Ask(seat, shown, best, keeps, (_goal(self.task, self.game.state),) if seat == USER else ())

    def prompt(self, seat: str) -> str:
        """The turn, what the role is told at the start, and what it has seen since."""
        game, instance, goal = self.game, self.task.instance(self.game.state), _goal(self.task, self.game.state)
        lines, accepts = [f"Turn {game.turn} of {game.num_turns}."], ", ".join(instance.accepts)
        if seat != SPECIALIST:
            lines += [f"You accept: {accepts}.", goal] if seat == USER else [f"The user accepts: {accepts}."]
        if self.has_all:
            known = ", ".join(f"{kind} {instance.facts[kind]}" for kind in instance.user_kinds)
            lines += [goal, f"Facts: {known}."]
        return "\n".join([*lines, *map(_shown, self.views[seat])])

    def best(self, seat: str) -> str:
        """The reply of an honest player, or of the planner where no message can arrive."""
        task, state, view = self.task, self.game.state, self.views[seat]
        instance = task.instance(state)
        if not self.delivers or USER not in self.seats:
            return task.write(users.planner(task, state, seat, view, is_alone=USER not in self.seats))
        if seat == USER:
            return task.write(users.honest_user(task, instance.labels, view))
        if seat == SPECIALIST:
            return task.write(users.honest_specialist(task, view))
        return task.write(users.honest_assistant(task, instance.accepts, view, self.expert))

    def reply(self) -> str:
        """What the scripted user replies."""
        view = self.views[USER]
        move = _scripted(self.manner, self.task, self.game.state, view)
        if isinstance(move, ServiceMove) and any(kind == HEARD for kind, _, _ in view):
            self.num_heard, self.num_lost = self.num_heard + 1, self.num_lost + (move.text == WHAT)
            self.game.report(not_understood=self.num_lost / self.num_heard)
        return self.task.write(move)

    def call(self, seat: str, move: ServiceMove) -> None:
        """Make a call and pay for it."""
        game, tools = self.game, tools_of(self.task, seat, self.expert, has_all=self.has_all)
        game.state, used = self.task.use(game.state, seat, tools, move)
        self.note(seat, CALLED, used.call, used.text)
        if used.is_forbidden:
            self.pay(ASSISTANT, "forbidden", FORBIDDEN)  # a specialist is told no policy
        self.earn(seat, "found", used.found / len(game.state.knows[0]))
        game.reported = game.reported.plus(forbidden=used.is_forbidden, wrong_calls=used.is_bad)

    def send(self, seat: str, other: str, text: str) -> None:
        """Send a message to another side, and pay for what it tells."""
        sent = self.game.send(seat, text) if text else Sent(seat, "")
        self.note(seat, ASKED if other == SPECIALIST else SAID, other, sent.text)
        if other and self.delivers:
            self.note(other, HEARD, seat, sent.text)
            self.game.state, told = self.task.tell(self.game.state, seat, other, sent.text)
            self.earn(seat, "told", told)

    def note(self, seat: str, kind: str, name: str, text: str) -> None:
        self.views[seat] = (*self.views[seat], (kind, name, text))

    def pay(self, seat: str, name: str, value: float) -> None:
        """Pay an agent; a scripted user is none."""
        if seat in self.game.members:
            self.game.pay(seat, name, value)

    def earn(self, seat: str, name: str, value: float) -> None:
        """Count, and pay if communication is, what an agent found or told."""
        self.game.reported = self.game.reported.plus(**{name: value})
        if self.task.communication_reward and value:
            self.pay(seat, name, value)


def tools_of(task: Service, seat: str, expert: str = "", *, has_all: bool = False) -> tuple[str, ...]:
    """Names of the tools that a side has."""
    if seat == SPECIALIST:
        return (expert,)
    own = [each for each in task.words.tools if each != expert and seat != USER]
    return *own, *(task.words.user_tools if has_all or seat == USER else ())


def _scripted(manner: str, task: Service, state: Any, view: View) -> Call:
    return users.scripted(manner, task, task.instance(state).labels, view, f"{manner} {state.split} {state.seed}")


def _goal(task: Service, state: Any) -> str:
    return f"You mean: {', '.join(map(' '.join, task.instance(state).labels.items()))}."


def _shown(entry: tuple[str, str, str]) -> str:
    kind, name, text = entry
    if kind == HEARD:
        return Sent(name, text).shown
    if kind == UNREAD:
        return f"Your reply was unreadable: {text}."
    to = f" to the {name}" if kind == ASKED else ""
    head = f"You called {name}:" if kind == CALLED else f"You wrote{to}:"
    return f"{head}\n{quote(text)}" if text else "You wrote nothing."


def _described(task: Service, names: Sequence[str]) -> str:
    """Tools, for a system prompt."""
    rules = {name: task.rule(name) for name in names}
    if task.wording != ENGLISH:
        return "\n".join(" ".join(["call", name, *map(str.upper, rule.takes)]) for name, rule in rules.items())
    return "\n".join(f"{name}({', '.join(rule.takes)}): {rule.does}" for name, rule in rules.items())


def _job(team: Any, seat: str, expert: str, *, is_whole: bool, has_all: bool) -> str:
    task: Service = team.task
    domain, tools = task.words, _described(task, tools_of(task, seat, expert, has_all=has_all))
    if task.wording != ENGLISH:
        known = f"\n{' '.join(topics(domain))}" if is_whole else ""
        return f"{seat} {task.domain}\n{tools}{f'{chr(10)}{domain.policy[1]}{known}' if seat == ASSISTANT else ''}"
    if seat != ASSISTANT:
        return f"You are the {seat}. {JOBS[seat]}\nYour tools:\n{tools}"
    asks = f"\nFor {expert}, ask the specialist: Ask: and a message." if expert else ""
    job = f"You are the assistant.\n{domain.policy[0]}\nYour tools:\n{tools}{asks}"
    known = "; ".join(f"{topic} ({', '.join(words)})" for topic, words in topics(domain).items())
    return f"{job}\nA scripted user understands: {known}." if is_whole else job


def service_workflow(name: str, seats: tuple[str, ...] = PAIR, **others: Any) -> Callable[[Script], Any]:
    """`function_workflow` for the agents of that name, who are these."""

    def roles(team: Any) -> tuple[Role, ...]:
        """All are paid later, as questions are, and what a message makes others do."""
        expert = team.task.words.expert if SPECIALIST in seats else ""
        job = partial(_job, team, expert=expert, is_whole=name not in ("single", "alone"), has_all=name == "single")
        return tuple(Role(seat, job(seat), delayed=True, informed=seat == USER) for seat in seats)

    def ranges(team: Any) -> Mapping[str, tuple[float, float]]:
        paid = ("found", "told") if team.task.communication_reward else ()
        return {"forbidden": (FORBIDDEN, 0.0), **dict.fromkeys(paid, (0.0, 1.0))}

    return function_workflow(
        roles, name=name, num_turns=12, ranges=ranges, bonuses=(), attacks=property(_attacks), **others
    )


def _attacks(team: Any) -> Any:
    from pettingllms_envs.environments.service.hostile import ATTACKS  # only checks ask for them

    return ATTACKS


def _bot(manner: str, team: Any, state: FunctionState) -> str:
    """The reply of a scripted user in the place of the agent that was asked."""
    return str(team.task.write(_scripted(manner, team.task, state.task, dict(state.ask.keeps[0])[USER])))


def _forms(team: Any) -> Forms:
    own = {"num_turns": team.num_turns}
    full, alone = (Form({"workflow": name, **own}, "assistant_0") for name in ("single", "alone"))
    return Forms(full=full, cut=Form({"workflow": "cut", **own}), alone=(alone,))


@service_workflow("team", forms=_forms, bots={manner: partial(_bot, manner) for manner in MANNERS}, bot_roles=(USER,))
def AssistantUser(game: Game, capacity: int = 160) -> Questions:
    """An assistant and its user."""
    return (yield from Talk(game).play())


@service_workflow("scripted", (ASSISTANT,), legal={"manner": MANNERS})
def ScriptedUser(game: Game, manner: str = MANNERS[0], capacity: int = 160) -> Questions:
    """An assistant, whose user is a rule-based player.

    Args:
        manner: How it answers: `"forthcoming"`, `"terse"` or `"confused"`.
    """
    return (yield from Talk(game, manner=manner).play())


@service_workflow("specialist", (*PAIR, SPECIALIST), join_when_asked=True)
def AssistantSpecialist(game: Game, capacity: int = 160) -> Questions:
    """An assistant, its user, and a specialist with a tool of its own."""
    return (yield from Talk(game, expert=game.task.words.expert).play())


@service_workflow("single", (ASSISTANT,))
def LoneAgent(game: Game) -> Questions:
    """One agent with everything."""
    game.state = game.task.learnt(game.state, ASSISTANT, range(NUM_KNOWN))
    return (yield from Talk(game, (ASSISTANT,)).play())


@service_workflow("cut")
def CutOff(game: Game, capacity: int = 160) -> Questions:
    """An assistant and its user, whose messages do not arrive."""
    return (yield from Talk(game, delivers=False).play())


@service_workflow("alone", (ASSISTANT,))
def LoneAssistant(game: Game) -> Questions:
    """An assistant whose user does its own part and says nothing."""
    instance = game.task.instance(game.state)
    for call in instance.domain.user_plan(instance.facts):
        game.state = game.state._replace(things=changed(instance, game.state.things, call))
    return (yield from Talk(game, (ASSISTANT,), delivers=False).play())


WORKFLOWS = (AssistantUser, ScriptedUser, AssistantSpecialist, LoneAgent, CutOff, LoneAssistant)
"""The workflows of the environment, the default one first."""
