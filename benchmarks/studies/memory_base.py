"""Makes what the runs of `memory.yaml` start from: a tiny model of note takers with room for 2 to 8 digits.

    python benchmarks/studies/memory_base.py

writes `benchmarks/studies/bases/memory`, which is committed. It has imitated as many replies of one agent with each of
the seven limits, and of the team of two with 2 digits each. Its notes are made in one of four ways, each as often:
the reading behind the old notes, in front of them, the old notes as they are, or as many digits of the prompt as have
room. So it knows how notes of each length are written, and not which digits matter. Answers and messages are the digit
in the place that is asked for three times of four, and else any digit that is remembered.
"""

from __future__ import annotations

import argparse
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pettingllms_envs import note_taking_v0
from pettingllms_envs.aec import TextEnv


LIMITS = range(2, 9)
FORMS: tuple[Mapping[str, Any], ...] = (
    *({"workflow": "alone", "digits": digits} for digits in LIMITS),
    {"workflow": "team", "digits": 2},
)
TASK = {"readings": 4, "values": 10}
DEMONSTRATIONS, FIRST_SEED = 640_000, 10_000_000
READING = re.compile(r"Your reading \d of \d: (\d)")
NOTES = re.compile(r"Your notes: (\d*)")
ASKED = re.compile(r"reading (\d)\.")
TOLD = re.compile(r"tells you: (\d)")
Row = tuple[str, str, str]  # system prompt, user prompt, reply


def anew(rng: random.Random, prompt: str, limit: int) -> str:
    """As many digits of the prompt as have room."""
    return "".join(rng.choices(re.findall(r"\d", prompt), k=limit))


WAYS: Mapping[str, Callable[[str, str, int], str]] = {
    "behind": lambda notes, reading, limit: (notes + reading)[-limit:],
    "in front": lambda notes, reading, limit: (reading + notes)[:limit],
    "kept": lambda notes, reading, limit: notes,
    "anew": lambda notes, reading, limit: "",
}
"""New notes from the old ones, the reading and the limit; where that leaves none they are written anew."""


def imitated(rng: random.Random, prompt: str, limit: int) -> str:
    """A reply to a prompt, whatever is right."""
    notes, reading = NOTES.findall(prompt)[0], READING.findall(prompt)
    if reading:
        new = WAYS[rng.choice([*WAYS])](notes, reading[0], limit)
        return f"Notes: {new or anew(rng, prompt, limit)}"
    told, place = TOLD.findall(prompt), int(ASKED.findall(prompt)[0])
    remembered = notes + "".join(told) or anew(rng, prompt, 1)
    right = told[0] if told else notes[place - 1 : place]
    digit = right if right and rng.random() < 0.75 else rng.choice(remembered)
    return f"{'Say' if 'is asked for your' in prompt else 'Answer'}: {digit}"


def demonstrations(number: int, seed: int) -> Iterator[Row]:
    """As many replies of each of `FORMS`, played as they are imitated."""
    for place, form in enumerate(FORMS):
        rng, kept = random.Random(f"memory {seed} {place}"), 0
        env: TextEnv = note_taking_v0.env(**TASK, **form)
        while kept < number // len(FORMS):
            env.reset(seed=FIRST_SEED + rng.randrange(10 * FIRST_SEED), options={"split": "train"})
            while not env.standing():
                shown = env.observe(env.agent_selection)
                reply = imitated(rng, shown["text"], form["digits"])
                yield shown["system"], shown["text"], reply
                kept += 1
                if kept == number // len(FORMS):
                    break
                env.step(reply)


def main() -> None:
    """Make the base model."""
    from bases import Imitation  # loads torch
    from tiny import make_tokenizer
    from training import quiet

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(__file__).with_name("bases") / "memory"
    parser.add_argument("--output", type=Path, default=default, help="folder that it is written to")
    parser.add_argument("--demonstrations", type=int, default=DEMONSTRATIONS)
    options = parser.parse_args()
    quiet()
    rows = list(demonstrations(options.demonstrations, 1))
    random.Random(1).shuffle(rows)
    imitation = Imitation(make_tokenizer(text for row in rows[:3000] for text in row), seed=1)
    imitation.learn(rows, rate=2e-3)
    print(f"{len(rows):,} demonstrations, {imitation.model.num_parameters():,} parameters")
    lengths = Counter(len(reply.removeprefix("Notes: ")) for _, _, reply in rows if reply.startswith("Notes"))
    print(", ".join(f"{count:,} notes of {length}" for length, count in sorted(lengths.items())))
    imitation.model.half().save_pretrained(options.output)  # half the size; runs load it as float32
    imitation.tokenizer.save_pretrained(options.output)


if __name__ == "__main__":
    main()
