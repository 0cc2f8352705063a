"""A librarian of archives that is not ours: a scripted partner whose commands mean what it alone knows.

    policies: {librarian_1: {api: "benchmarks/studies/foreign_librarian.py:partner"}}

It looks up one relation of the name that librarian_0 wrote: that of the command beside it, a letter, by `COMMANDS`.
Which one the question needs next is for librarian_0 to read. Without a message it reads the question itself. Where it
finds nothing, or is given no command that it knows, it passes the name on.

    python benchmarks/studies/foreign_librarian.py

writes `benchmarks/studies/bases/foreign_archives`, which is committed: the base of archives after imitating right
replies whose commands are drawn at random. It knows the form of a command and the meaning of none.
"""

from __future__ import annotations

import argparse
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from pettingllms_envs import archives_v0
from pettingllms_envs.aec import TextEnv
from pettingllms_trl.records import Prompt
from pettingllms_trl.sft.demonstrations import Demonstration


COMMANDS: Mapping[str, Mapping[str, str]] = {
    "p": {"b": "school", "f": "guild"},
    "t": {"f": "border", "h": "river"},
    "r": {"a": "source", "f": "mouth"},
    "g": {"b": "master", "f": "founder"},
}
"""What its commands look up, by the first letter of the name: a person, a town, a river, a guild."""
LETTERS = "abfh"
NAME = re.compile(r"\b[ptrg][0-9]+\b")
TASK = {"wording": "symbols", "facts": 2, "hops": 3, "size": 8, "results": 2, "order": "seed"}
EPISODES, FIRST_SEED = 7000, 10_000_000
HERE = Path(__file__).parent
Row = tuple[str, str, str]  # system prompt, user prompt, reply


def partner(messages: Sequence[Mapping[str, str]], tools: Sequence[object] = ()) -> str:
    """The reply of librarian_1."""
    lines = messages[-1]["content"].splitlines()
    told = told_by("librarian_0", lines)
    if told:
        name = next(iter(NAME.findall(told[-1])), "nothing")
        command = next((word for word in told[-1].split() if len(word) == 1 and word in LETTERS), "")
        relation = COMMANDS.get(name[0], {}).get(command)
    else:
        _, name, relation, *_ = lines[0].split()
    if lines[-1].startswith("Search"):
        return f"Search: {name}"
    facts = (line.split() for line in lines)
    return "Say: " + next((words[2] for words in facts if len(words) == 3 and words[:2] == [name, relation]), name)


def told_by(librarian: str, lines: Sequence[str]) -> list[str]:
    """The messages of a librarian in a prompt."""
    return [after.removeprefix("> ") for line, after in pairwise(lines) if line == f"The {librarian} wrote:"]


def right(text: str, agent: str, command_of: Callable[[str, str], str]) -> str:
    """The right reply of librarian_0 or of the answerer.

    Args:
        text: What it is shown.
        command_of: The command for a name and the relation that comes next.
    """
    lines = text.splitlines()
    _, start, *relations, _ = lines[0].split()
    if agent == "answerer_0":
        return f"Answer: {NAME.findall(text)[-1]}"
    theirs = told_by("librarian_1", lines)
    name = theirs[-1].split()[-1] if theirs else start
    if lines[-1].startswith("Search"):
        return f"Search: {name}"
    left = [] if theirs else relations
    for words in map(str.split, lines):
        if len(words) == 3 and words[0] == name and words[1] in relations:
            name, left = words[2], relations[relations.index(words[1]) + 1 :]
            break
    return f"Say: {name} {command_of(name, left[0])}" if left else f"Say: {name}"


def known(name: str, relation: str) -> str:
    """The partner's own command."""
    return next(command for command, each in COMMANDS[name[0]].items() if each == relation)


def demonstrations(env: TextEnv, seeds: Iterable[int]) -> Iterator[Demonstration]:
    """Right replies in the partner's own commands, of instances of the split `train`."""
    for seed in seeds:
        for agent, (system, text, reply) in played(env, seed, known):
            prompt = Prompt([{"role": "system", "content": system}, {"role": "user", "content": text}])
            yield Demonstration(role=agent, prompt=prompt, reply=reply, success=True)


def played(env: TextEnv, seed: int, said: Callable[[str, str], str]) -> Iterator[tuple[str, Row]]:
    """Which agent of ours is shown what in an episode with the partner, which is given its own commands, and the right
    reply with the commands of `said`."""
    env.reset(seed=seed, options={"split": "train"})
    while not env.standing():
        agent = env.agent_selection
        shown = env.observe(agent)
        if agent == "librarian_1":
            env.step(partner([{"content": shown["text"]}]))
            continue
        yield agent, (shown["system"], shown["text"], right(shown["text"], agent, said))
        env.step(right(shown["text"], agent, known))


def main() -> None:
    """Make the base model."""
    from bases import Imitation  # loads torch
    from training import quiet
    from transformers import AutoModelForCausalLM, AutoTokenizer

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = HERE / "bases" / "foreign_archives"
    parser.add_argument("--output", type=Path, default=default, help="folder that it is written to")
    folder = parser.parse_args().output
    quiet()
    rng, env = random.Random(1), archives_v0.env(workflow="team", communication_reward=False, **TASK)
    rows: list[Row] = []
    for number in range(EPISODES):
        rows += [row for _, row in played(env, FIRST_SEED + number, lambda name, relation: rng.choice(LETTERS))]
    rng.shuffle(rows)
    imitation = Imitation(AutoTokenizer.from_pretrained(HERE / "bases" / "archives"), seed=1)
    imitation.model = AutoModelForCausalLM.from_pretrained(HERE / "bases" / "archives", dtype="float32")
    imitation.learn(rows, rate=2e-3, warm_up=5)
    imitation.model.half().save_pretrained(folder)  # half the size; runs load it as float32
    imitation.tokenizer.save_pretrained(folder)
    print(f"{len(rows):,} demonstrations")


if __name__ == "__main__":
    main()
