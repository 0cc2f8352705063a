"""Scripted agents for the environments that need a team. They reply to their prompts alone, as a model would."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pettingllms_envs.environments.archives.world import RELATIONS
from pettingllms_envs.environments.note_taking.rules import NoteTaking
from pettingllms_envs.environments.plan_path.rules import PlanPath
from pettingllms_envs.prompts import read_observation, text_of


Policy = Callable[[str], str]
"""A reply to a prompt."""

MESSAGES = {
    "a name": "{}",
    "a sentence": "In my archive I found that the next name is {}.",
    "an explanation": (
        "I searched the archive that I keep for the name that I was told, and as far as I can see the next one is {}."
    ),
}
"""What a librarian says of the name that is needed next: 2 to 3, 47 to 48, and 108 to 109 characters."""

_KIND = {relation.symbol: relation.object[0] for relation in RELATIONS}


def of_prompts(policy: Policy) -> Callable[[Any, str], str]:
    """The policy of an environment's agents, each of which is shown its prompt alone."""

    def reply(env: Any, agent: str) -> str:
        return policy(text_of(read_observation(env.observe(agent), agent=agent).messages[-1]["content"]))

    return reply


def success(workflow: Any, seed: int, policy: Policy) -> bool:
    """Whether an episode that the policy plays for all agents ends with the right answer."""
    state, over = workflow.start(workflow.task.generate(seed)), False
    while not over:
        state, _, over, _ = workflow.step(state, policy(workflow.observe(state, workflow.actor(state))))
    return bool(workflow.task.solved(state.task))


def note_taker(task: NoteTaking) -> Policy:
    """Writes down readings in order while there is room, and tells and answers what it knows, or 0."""

    def policy(prompt: str) -> str:
        notes = re.findall(r"Your notes: ([0-9]*)", prompt)[0]
        if reading := re.search(r"Your reading \d+ of \d+: (\d+)", prompt):
            return f"Notes: {notes + reading[1] if len(notes) + task.width <= task.digits else notes}"
        number = re.findall(r"for \S+ reading (\d+)\.", prompt)[0]
        at = (int(number) - 1) * task.width
        own = notes[at : at + task.width] or "0"
        if "You are asked" not in prompt:
            return f"Say: {own}"
        shown = re.search(rf"Reading {number}: (\d+)|tells you: (\d+)", prompt)
        if shown:
            return f"Answer: {shown[1] or shown[2]}"
        return f"Answer: {own if 'for your reading' in prompt else 0}"

    return policy


def best_lone_note_taker(prompt: str) -> str:
    """Reaches the bound with two readings of ten values and one digit.

    The note is the first reading, which is answered for both; it is empty for 0 and 1, which are then known exactly.
    """
    notes = re.findall(r"Your notes: (\d?)", prompt)[0]
    if reading := re.search(r"Your reading (\d) of 2: (\d)", prompt):
        is_exact = reading[1] == "2" and notes == "0" and reading[2] == "1"
        return "Notes:" if is_exact else f"Notes: {notes or reading[2]}"
    number = re.findall(r"your reading (\d)", prompt)[0]
    return f"Answer: {notes or int(number) - 1}"


def librarian(message: str = MESSAGES["a name"]) -> Policy:
    """Follows the chain as far as it knows, in symbols, and guesses the first name of the right kind after that.

    Args:
        message: What it says, with `{}` for the name that is needed next.
    """

    def policy(prompt: str) -> str:
        start, *symbols = re.findall(r"Question: (.*) \?", prompt)[0].split()
        told = re.findall(r"\b[ptrg]\d+\b", "\n".join(re.findall(r"^> (.*)", prompt, re.M)))
        known = [start, *told][-1]
        if "Search archive" in prompt:
            return f"Search: {known}"
        if "Tell what you know" in prompt:
            begun = any(name != start for name in told)  # who cannot begin passes the start on
            left = "|".join(symbols[1:] if begun else symbols)  # four hops in a row ask of each entity only once
            following = re.findall(rf"^{known} (?:{left}) (\w+)$", prompt, re.M)
            return f"Say: {message.format((following or [known])[0])}"
        kind = _KIND[symbols[-1]]
        return f"Answer: {known if known[0] == kind else f'{kind}0'}"

    return policy


def drafter(prompt: str) -> str:
    """Proposes a shortest walk on the map of its prompt."""
    task, board = PlanPath(), "\n".join(re.findall(r"^[@G#.](?: [@G#.])+$", prompt, re.M))
    return f"Moves: {' '.join(task.oracle(task.generate(0, board=board)))}"


def planner(prompt: str) -> str:
    """Plays a draft that ends on the goal, else walks straight at the goal: it cannot search itself."""
    if draft := re.search(r"The drafter proposes: ([UDLR ]+)\. It would end on the goal", prompt):
        return f"Moves: {draft[1]}"
    way = re.findall(r"(\d+) (up|down|left|right)", prompt[prompt.index("The goal is at") :].split("\n")[0])
    return f"Moves: {' '.join(word[0].upper() for number, word in way for _ in range(int(number)))}"


TREES = ("beech", "larch", "maple", "oak")


def hidden_profile(seed: int) -> dict[str, Any]:
    """A row of HiddenBench for three members: the shared fact praises a wrong tree, each hidden one rules one out."""
    rng = random.Random(f"hidden profile {seed}")
    answer, *wrong = rng.sample(TREES, len(TREES))
    return {
        "description": f"In the {rng.choice(('spring', 'autumn'))} of year {seed} a village chooses a tree.",
        "shared_information": [f"The {wrong[0]} is the most beautiful one."],
        "hidden_information": [f"The {tree} cannot be had." for tree in wrong],
        "possible_answers": list(TREES),
        "correct_answer": answer,
    }


def chooser(prompt: str) -> str:
    """Tells the others which tree its own fact rules out, and votes for one that no fact and no message does."""
    if "Vote now." not in prompt:
        return re.findall(r"^- (The \w+ cannot be had\.)", prompt, re.M)[0]
    ruled_out = re.findall(r"The (\w+) cannot be had", prompt)
    praised = re.findall(r"The (\w+) is the most beautiful", prompt)
    options = re.findall(r"The options: (.*)\.", prompt)[0].split("; ")
    return f"Vote: {next((tree for tree in (*praised, *options) if tree not in ruled_out), options[0])}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """A team whose members act on their prompts alone.

    Args:
        members: Who is sound, by agent; the programs, where no trained ones are given.
        said: What of a reply is its content, which a wrong reply has another of.
        other: A wrong content instead of a right one.
        heard: Where a prompt has what a member said last, by member; its group is the content.
        kind: What the prompts of one kind of instances have.
        options: The reset options of a seed.
    """

    env: str
    members: Mapping[str, Policy]
    said: str
    other: Callable[[str, random.Random], str]
    heard: Mapping[str, str]
    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    options: Callable[[int], Mapping[str, Any]] = lambda seed: {"split": "test"}

    def wrong(self, reply: str, rng: random.Random) -> str:
        """The reply with another content."""
        return re.sub(self.said, lambda found: self.other(found[0], rng), reply)

    def partner(self, member: str) -> str:
        """The member before it who is heard."""
        names = [name for name in self.members if name in self.heard or name == member]
        return names[names.index(member) - 1]


def _digit(digit: str, rng: random.Random) -> str:
    return rng.choice([each for each in "0123456789" if each != digit])


def _name(name: str, rng: random.Random) -> str:
    return rng.choice([f"{name[0]}{number}" for number in range(8) if f"{name[0]}{number}" != name])


def _walk(walk: str, rng: random.Random) -> str:
    return " ".join(rng.choice([each for each in "UDLR" if each != letter]) for letter in walk.split())


def _tree(tree: str, rng: random.Random) -> str:
    return rng.choice([each for each in TREES if each != tree])


def _wrote(members: Sequence[str], content: str) -> dict[str, str]:
    return {member: rf"The {member} wrote:\n> {content}.*\n" for member in members}


LIBRARIANS, CHOOSERS = ("librarian_0", "librarian_1"), ("member_0", "member_1", "member_2")
TEAMS = (
    Team(
        env="archives",
        settings={"wording": "symbols", "hops": 2, "size": 8, "results": 2},
        members=dict.fromkeys((*LIBRARIANS, "answerer_0"), librarian()),
        said=r"\b[ptrg]\d+",
        other=_name,
        heard=_wrote(LIBRARIANS, r".*?([ptrg]\d+)"),
        kind=r"Question: [pt]",
    ),
    Team(
        env="note_taking",
        settings={"readings": 4, "values": 10, "digits": 2},
        members=dict.fromkeys(("left_0", "right_0"), note_taker(NoteTaking(4, 10, 2))),
        said=r"\d",
        other=_digit,
        heard={"left_0": r"\nLeft tells you: (\d+)", "right_0": r"\nRight tells you: (\d+)"},
        kind=r"reading 2\.",
    ),
    Team(
        env="plan_path",
        settings={"num_turns": 2},
        members={"drafter_0": drafter, "planner_0": planner},
        said=r"(?<=: )[UDLR].*",
        other=_walk,
        heard={
            "drafter_0": r"\nThe drafter proposes: ([UDLR ]+)\..*",
            "planner_0": r"\nLast turn the planner played: ([UDLR ]+)\..*",
        },
        kind=r"\d up",
    ),
    Team(
        env="hidden_bench",
        settings={"num_turns": 2},
        members=dict.fromkeys(CHOOSERS, chooser),
        said="|".join(TREES),
        other=_tree,
        heard=_wrote(CHOOSERS, r"The (\w+) cannot"),
        kind="autumn",
        options=lambda seed: {"row": hidden_profile(seed)},
    ),
)


def _own(team: Team, member: str, prompt: str) -> str:
    return prompt


def _said(team: Team, member: str, prompt: str, reply: str, rng: random.Random) -> str:
    return reply


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What a member of a team hears instead of its prompt, and says instead of its reply."""

    heard: Callable[[Team, str, str], str] = _own
    said: Callable[[Team, str, str, str, random.Random], str] = _said


def _wrong(team: Team, member: str, prompt: str, reply: str, rng: random.Random) -> str:
    return team.wrong(reply, rng)


def _wrong_in_half(team: Team, member: str, prompt: str, reply: str, rng: random.Random) -> str:
    return team.wrong(reply, rng) if rng.random() < 0.5 else reply


def _mute(team: Team, member: str, prompt: str, reply: str, rng: random.Random) -> str:
    return ""


def _copies(team: Team, member: str, prompt: str, reply: str, rng: random.Random) -> str:
    """Says what its partner said last, where it has heard it; a vote is its own, as those of others are not shown."""
    heard = re.search(team.heard[team.partner(member)], prompt)
    return re.sub(team.said, heard[1], reply) if heard and not reply.startswith("Vote") else reply


def _without_partner(team: Team, member: str, prompt: str) -> str:
    return re.sub(team.heard[team.partner(member)], "", prompt)


def _wrong_in_a_kind(team: Team, member: str, prompt: str, reply: str, rng: random.Random) -> str:
    return team.wrong(reply, rng) if re.search(team.kind, prompt) else reply


SOUND = Fault()
FAULTS: Mapping[str, Fault] = {
    "always wrong": Fault(said=_wrong),
    "wrong in half": Fault(said=_wrong_in_half),
    "mute": Fault(said=_mute),
    "copies its partner": Fault(said=_copies),
    "ignores one partner": Fault(heard=_without_partner),
    "wrong in one kind": Fault(said=_wrong_in_a_kind),
}
