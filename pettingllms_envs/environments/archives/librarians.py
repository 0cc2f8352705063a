"""Workflows of archives: librarians of one archive each who tell each other, and one agent with one or both archives.

In each turn one librarian first searches, then sees what was found and tells the others: two replies. The librarians
take turns. With `order="question"` the one whose archive has the first fact begins, and after as many turns as the
question has hops (or more, `num_turns`) it is answered; the order then says which archive each hop needs. With
`order="seed"` who begins is drawn by the seed, and there is one turn more: who cannot go on passes the name on.
Messages are cut after `capacity` characters; the last two are shown.

* `team`: `librarian_0` and `librarian_1`, each with the archive of its number, and an `answerer`, who is shown the
  question and messages, never a passage.
* `pair`: two librarians; the one who searches last answers instead of telling.
* `cut`, `cut_pair`: the same two, but no message arrives. The answer can only be guessed: right in `lone_bound` of the
  episodes.
* `alone`: one `librarian` with one archive, who tells itself; as many replies as the team, or as a pair
  (`answers_last`). It is right at most in `lone_bound` of the episodes, if it sees its prompts and no rewards.
* `full`: the same with both archives: what messages cannot add to. It begins at once, and its turn more is the last.
* `directed`: the same with both archives, but each request to search names the archive that has the step's fact.
* `routed`: the same, but in each turn it searches one archive, that of the team's librarian of that turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from pettingllms_envs.core import UNREADABLE_PENALTY, Role, check_choice
from pettingllms_envs.environments.archives.rules import ANSWER, SAY, SEARCH, Archives, ArchivesMove
from pettingllms_envs.environments.archives.world import ARCHIVES, archive_of
from pettingllms_envs.instances import seeded
from pettingllms_envs.teams.channels import Sent
from pettingllms_envs.teams.forms import Form, Forms
from pettingllms_envs.teams.functions import Ask, Game, Questions, Script, function_workflow


Librarians = Mapping[str, tuple[int, ...]]
"""The librarians, in the order of their archives, with the archives that each can search."""

ANSWERER = "answerer"
ORDERS = ("question", "seed")
MESSAGES_SHOWN = 2
LATE_JOB = "The first turn may be of the {source} that the first step does not need; then pass on the name as it is."
EARLY_JOB = "There is one turn more than the question has steps; in it pass on the name as it is."


def both(task: Archives) -> Librarians:
    """A librarian for each archive."""
    return {f"{task.words.member}_{archive}": (archive,) for archive in ARCHIVES}


def library(
    game: Game,
    order: str,
    librarians: Librarians,
    *,
    answers_last: bool = False,
    delivers: bool = True,
    one_archive: bool = False,
    is_told: bool = False,
) -> Questions:
    """The librarians search and tell in turn, then the question is answered.

    Args:
        answers_last: Whether the one who searches last answers instead of telling.
        one_archive: Whether each search is in the archive of the turn alone.
        is_told: Whether a request to search names the archive that has the fact of the turn's step.
    """
    task, names = game.task, tuple(librarians)
    relations = task.world(game.state).chain.relations
    begins = _begins(task, game.state, order)
    found, sent_before, reasons = game.kept or ((), (), ())
    results, messages, unread = dict(found), tuple(Sent(*each) for each in sent_before), dict(reasons)
    move: ArchivesMove | None

    def asked(role: str, kind: str, request: str, oracle: Callable[[], str] | None = None) -> Questions:
        """Ask for a move of a kind; returns it, or None if the reply cannot be read."""
        shown = partial(_shown, game, messages, results.get(role), unread.get(role, ""), request)
        reply = yield Ask(role, shown, oracle, (results, messages, unread), results.get(role, ()))
        move, why = task.read(reply, kind)
        unread[role] = f"Your last reply was unreadable: {why}." if why else ""
        if why:
            game.pay(role, "format", UNREADABLE_PENALTY)
        return move

    for turn in game.turns():
        archive = ARCHIVES[(ARCHIVES.index(begins) + turn - 1) % len(ARCHIVES)]  # they take turns
        role = names[ARCHIVES.index(archive) % len(names)]
        own = (archive,) if one_archive else librarians[role]
        # Whether the first turn is of the archive that the first hop does not need.
        is_late = own != ARCHIVES and begins != archive_of(relations[0])
        hop = turn - 1 - is_late  # that is due: -1 before the first

        named = (archive_of(relations[turn - 1]),) if is_told and turn <= len(relations) else own
        best = partial(_best, game, own, hop)
        move = yield from asked(
            role, SEARCH, f"{task.words.search} {_archives(task, named)} now.", partial(best, SEARCH)
        )
        results.pop(role, None)
        if move is not None:
            before = game.state
            game.state, passages = game.once(task.search, before, own, move.text)
            results[role] = tuple(each.text for each in passages)
            if task.communication_reward:
                game.pay(role, "found", (sum(game.state.found) - sum(before.found)) / task.hops)
        if turn == game.num_turns and answers_last:
            break
        move = yield from asked(role, SAY, "Tell what you know now.", partial(best, SAY))
        if move is not None:
            before, told = game.state, 0.0
            if delivers:
                sent = game.send(role, move.text)
                game.state, messages = task.tell(before, own, sent.text), (*messages, sent)[-MESSAGES_SHOWN:]
                told = sum(game.state.told) - sum(before.told)
                # Passing the name on is worth something in one turn of an episode, the one that no step needs.
                if order == "seed" and hop == (-1 if is_late else task.hops):
                    told += task.passed_on(before, hop, sent.text)
            if task.communication_reward:
                game.pay(role, "told", told / task.hops)
    role = ANSWERER if ANSWERER in game.members else role
    move = yield from asked(role, ANSWER, "Answer the question now.")
    if move is not None:
        game.state = task.apply(game.state, move)
    game.win()
    return True


def _shown(game: Game, messages: tuple[Sent, ...], found: tuple[str, ...] | None, unread: str, request: str) -> str:
    """The question, the last messages, what the agent's last search found, and what it is to do now."""
    lines = [game.task.show(game.state), *(sent.shown for sent in messages)]
    if found is not None:
        words = game.task.words
        lines += [words.found if found else words.nothing, *found]
    return "\n".join([*lines, *filter(None, [unread]), request])


def _best(game: Game, own: tuple[int, ...], hop: int, kind: str) -> str:
    """The name to search or to tell."""
    return str(game.task.write(game.task.wanted(game.state, own, kind, hop)))


def _begins(task: Archives, state: Any, order: str) -> int:
    """The archive of the first turn."""
    if order == "seed":
        return seeded("archives", "begins", state.split, state.seed).choice(ARCHIVES)
    return archive_of(task.world(state).chain.relations[0])


def _archives(task: Archives, archives: tuple[int, ...]) -> str:
    return " and ".join(f"{task.words.source} {archive}" for archive in archives)


MEANINGS = {
    "order": '`"question"` or `"seed"`: what decides who begins.',
    "archive": "0 or 1.",
    "answers_last": "Whether it answers after the last search, as in a pair, instead of telling first.",
}


def librarians(
    name: str, of: Callable[[Any], Librarians], *, late: str = LATE_JOB, delivers: bool = True, **others: Any
) -> Callable[[Script], Any]:
    """`function_workflow` for the team of that name.

    Args:
        late: What they are told of the additional turn if the seed draws who begins.
    """

    def completed(team: Any) -> Mapping[str, Any]:
        check_choice("order", team.order, ORDERS)
        least, why = team.task.hops, "a turn for each hop"
        if team.order == "seed":
            least, why = least + 1, f"{why} and one for who cannot begin"
        if not isinstance(team.num_turns, int) or 0 != team.num_turns < least:
            raise ValueError(f"num_turns is {team.num_turns!r}; expected 0 or at least {least}, {why}. Leave it out.")
        return {"num_turns": team.num_turns or least}

    def roles(team: Any) -> tuple[Role, ...]:
        """Librarians, paid later if nothing is paid for searches and messages, and the answerer where there is one."""
        delayed, count = not team.task.communication_reward, len(of(team))
        librarian = Role(team.task.words.member, team.task.words.job, delayed=delayed, count=count)
        return (
            (librarian,) if team.answers_last or count == 1 else (librarian, Role(ANSWERER, team.task.words.answers))
        )

    def system(team: Any, role: str) -> str:
        """The rules, the job, how to reply."""
        limit = f"at most {team.capacity} characters" if delivers else "your message"
        say = f"When you are asked to tell, end your reply with one line: Say: and {limit}."
        formats = [team.task.words.search_format, say] if role in of(team) else []
        answers = [team.task.reply_format()] if role == ANSWERER or ANSWERER not in team.members else []
        return "\n".join([team.task.rules(), job(team, role), *answers, *formats])

    def job(team: Any, role: str) -> str:
        if role == ANSWERER:
            return str(team.task.words.answers)
        named = f"You are {role}." if len(of(team)) > 1 else f"You are the {role}."
        words, own = team.task.words, _archives(team.task, of(team)[role])
        spare = "" if team.order == "question" else f" {late.format(source=words.source)}"
        return f"{named} You can {words.search.lower()} {own}. {words.job}{spare}"

    def ranges(team: Any) -> Mapping[str, tuple[float, float]]:
        return {"found": (0.0, 1.0), "told": (0.0, 1.0)} if team.task.communication_reward else {}

    made = {
        "meanings": MEANINGS,
        "ranges": ranges,
        "completed": completed,
        "system": system,
        "state_form": 3,
        "bonuses": (),
    }
    return function_workflow(roles, name=name, num_turns=0, turns_apart=True, **{**made, **others})


def _forms(team: Any) -> Forms:
    """With as many turns and replies. The answerer alone is shown what it is shown in `cut`."""
    own = {"num_turns": team.num_turns, "order": team.order}
    as_many = {**own, "answers_last": team.answers_last}
    members = list(both(team.task))
    return Forms(
        full=Form({"workflow": "full", **as_many}, members[0]),
        routed=Form({"workflow": "routed", **as_many}, members[0]),
        cut=Form({"workflow": "cut_pair" if team.answers_last else "cut", **own}),
        alone=[
            Form({"workflow": "alone", "archive": archive, **as_many}, member)
            for member, archive in zip(members, ARCHIVES, strict=True)
        ],
    )


@librarians("team", lambda team: both(team.task), forms=_forms, answers_last=False)
def LibrarianTeam(game: Game, order: str = "seed", capacity: int = 60) -> Questions:
    """Two librarians and an answerer."""
    return (yield from library(game, order, both(game.task)))


@librarians("pair", lambda team: both(team.task), forms=_forms, answers_last=True)
def LibrarianPair(game: Game, order: str = "seed", capacity: int = 60) -> Questions:
    """Two librarians, the last of whom answers."""
    return (yield from library(game, order, both(game.task), answers_last=True))


@librarians("cut", lambda team: both(team.task), delivers=False, answers_last=False)
def SilentLibrarians(game: Game, order: str = "seed") -> Questions:
    """Two librarians and an answerer, none of whose messages arrive."""
    return (yield from library(game, order, both(game.task), delivers=False))


@librarians("cut_pair", lambda team: both(team.task), delivers=False, answers_last=True)
def SilentPair(game: Game, order: str = "seed") -> Questions:
    """Two librarians, the last of whom answers, and no message arrives."""
    return (yield from library(game, order, both(game.task), delivers=False, answers_last=True))


@librarians("alone", lambda team: {team.task.words.member: (team.archive,)}, legal={"archive": ARCHIVES})
def LoneLibrarian(
    game: Game, order: str = "seed", capacity: int = 60, archive: int = ARCHIVES[0], answers_last: bool = False
) -> Questions:
    """One librarian of one archive."""
    return (yield from library(game, order, {game.task.words.member: (archive,)}, answers_last=answers_last))


def full(task: Archives) -> Librarians:
    """One librarian of both."""
    return {task.words.member: ARCHIVES}


@librarians("full", lambda team: full(team.task), late=EARLY_JOB)
def FullLibrarian(game: Game, order: str = "seed", capacity: int = 60, answers_last: bool = False) -> Questions:
    """One librarian of both archives."""
    return (yield from library(game, order, full(game.task), answers_last=answers_last))


@librarians("directed", lambda team: full(team.task), late=EARLY_JOB)
def DirectedLibrarian(game: Game, order: str = "seed", capacity: int = 60, answers_last: bool = False) -> Questions:
    """One librarian of both archives, who searches both and is told which one has the fact of the turn's step.

    Beside `full` it shows what knowing the archive is worth, beside `routed` what being shown the other one costs.
    """
    return (yield from library(game, order, full(game.task), answers_last=answers_last, is_told=True))


@librarians("routed", lambda team: full(team.task))
def RoutedLibrarian(game: Game, order: str = "seed", capacity: int = 60, answers_last: bool = False) -> Questions:
    """One librarian of both archives, who in each turn searches the one that the team would search.

    It is told that in the request, and nothing else; so beside `full` it shows what the team's order is worth.
    """
    return (yield from library(game, order, full(game.task), answers_last=answers_last, one_archive=True))


WORKFLOWS = (
    *(LibrarianTeam, LibrarianPair, SilentLibrarians, SilentPair),
    *(LoneLibrarian, FullLibrarian, DirectedLibrarian, RoutedLibrarian),
)
"""The workflows of the environment, the default one first."""
