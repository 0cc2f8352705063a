"""Makes what the runs of `assistant_user.yaml` start from: a tiny model of both sides of a shop, in symbols.

    python benchmarks/studies/service_base.py

writes `benchmarks/studies/bases/service`. As the base of archives it has imitated right replies and equally many
careless ones, which have any values of the prompt and any outcome. It has seen an honest user and the
forthcoming script.
"""

from __future__ import annotations

import argparse
import math
import random
import re
from collections.abc import Iterator
from pathlib import Path

from pettingllms_envs import service_v0
from pettingllms_envs.aec import TextEnv


TASK = {"domain": "shop", "values": 4, "wording": "symbols", "num_turns": 8}
APART = r"\n| ?(?<![A-Za-z0-9])(?:[0-9]{2}|[a-z]|first|second|yes|no|exchange|refund|cancel)(?![A-Za-z0-9])"
FORMS = ({"workflow": "team"}, {"workflow": "team"}, {"workflow": "scripted", "manner": "forthcoming"})
DEMONSTRATIONS, CARELESSNESS = 48_000, 0.3
FIRST_SEED = 10_000_000
NUMBER, LETTER, LABEL = (
    re.compile(words) for words in (r"\b4[0-9]\b", r"(?<![A-Za-z0-9])[a-z](?![A-Za-z0-9])", r"\b(?:first|second)\b")
)
Row = tuple[str, str, str]  # system prompt, user prompt, reply


def careless(rng: random.Random, prompt: str, reply: str) -> str:
    """A reply of the same form with any values of the prompt, and any outcome."""
    for pattern in (NUMBER, LETTER, LABEL):
        known = sorted(set(pattern.findall(prompt))) or ["40" if pattern is NUMBER else "a"]
        reply = pattern.sub(lambda found, known=known: rng.choice(known), reply)  # type: ignore[misc]
    name, *words = reply.removeprefix("call ").split(" ")
    if name not in ("exchange", "refund", "cancel"):
        return reply
    name = rng.choice(("exchange", "refund", "cancel"))
    letters = sorted(set(LETTER.findall(prompt)))
    return " ".join(["call", name, words[0], *([] if name == "cancel" else [rng.choice(letters)])])


def demonstrations(number: int, carelessness: float, seed: int) -> Iterator[Row]:
    """Honest play, some of whose replies are replaced by careless ones in what is imitated.

    Of the careless ones a third are also played, and what honest players say in the next decisions is imitated, so
    that the model knows a reply where something went wrong before.
    """
    rng, kept = random.Random(f"service {seed}"), 0
    envs: list[TextEnv] = [service_v0.env(**TASK, **form) for form in FORMS]
    while True:
        for env in envs:
            env.reset(seed=FIRST_SEED + rng.randrange(10 * FIRST_SEED))
            left = math.inf
            while not env.standing() and left > 0:
                shown, right = env.observe(env.agent_selection), env.oracle()
                is_careless = rng.random() < carelessness
                reply = careless(rng, shown["text"], right) if is_careless else right
                left -= 1
                if rng.random() < (0.3 if right in ("call read_letter", "End:") else 1.0):
                    yield shown["system"], shown["text"], reply
                    kept += 1
                    if kept == number:
                        return
                if reply == right or rng.random() < 2 / 3:
                    reply = right
                else:
                    left = min(left, 6)
                env.step(reply)


def main() -> None:
    """Make the base model."""
    from bases import HELD_OUT, Imitation, solved  # loads torch
    from tiny import make_tokenizer
    from training import quiet

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(__file__).with_name("bases") / "service"
    parser.add_argument("--output", type=Path, default=default, help="folder that it is written to")
    parser.add_argument("--demonstrations", type=int, default=DEMONSTRATIONS)
    parser.add_argument("--careful", action="store_true", help="imitate right replies")
    options = parser.parse_args()
    quiet()
    rows = list(demonstrations(options.demonstrations, 0.0 if options.careful else CARELESSNESS, 1))
    random.Random(1).shuffle(rows)
    tokenizer = make_tokenizer((text for row in rows[:3000] for text in row), APART)
    imitation = Imitation(tokenizer, seed=1)
    lengths = [len(tokenizer.encode("".join(row))) for row in rows[:300]]
    print(
        f"{sum(lengths) / len(lengths):.0f} tokens a row; {imitation.model.num_parameters():,} parameters", flush=True
    )
    imitation.learn(rows, rate=2e-3)
    held_out = list(demonstrations(2000, 0.0, HELD_OUT))
    found: dict[str, list[bool]] = {}
    for (_, _, reply), right in zip(held_out, imitation.right(held_out), strict=True):
        found.setdefault(" ".join(reply.split(" ")[:2]), []).append(right)
    for kind, right in found.items():
        if len(right) > 20:
            print(f"{kind}: {sum(right)} of {len(right)} held-out replies are right")
    for form in FORMS[1:]:
        print(f"{form}: {solved(imitation, service_v0.env(**TASK, **form), 100)} of 100 held-out episodes succeed")
    imitation.model.half().save_pretrained(options.output)  # half the size; runs load it as float32
    imitation.tokenizer.save_pretrained(options.output)


if __name__ == "__main__":
    main()
