"""Trains what the quickstart's picture compares its team with, and writes it down: references.json, six minutes.

    python examples/quickstart/references.py [--output examples/quickstart/references.json]

One agent that may read both archives, told which one is next or not, is trained for as many generated tokens as the
team, from the same base model, with the same settings.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path


os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from dataclasses import replace

from archives import ALONE, REFERENCES, TEAM, Training, held_out, make_trainer, successes, train
from training import CountTokens, positive, quiet, say


def main() -> None:
    """Train the team for its number of tokens, then each of the others."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=REFERENCES)
    parser.add_argument("--episodes", type=positive, default=500)
    parser.add_argument("--steps", type=positive, default=Training.num_steps, help="optimizer steps of the team")
    options = parser.parse_args()
    quiet()
    written = {}
    with tempfile.TemporaryDirectory() as folder:
        budget = None
        for name, form in {"team": TEAM, **ALONE}.items():
            say(f"{form.title} trains")
            training = Training(num_steps=options.steps)
            if budget is not None:
                training = replace(training, num_steps=100 * options.steps)  # its tokens end it
            counter = CountTokens(budget)
            trainer = make_trainer(form, output=Path(folder) / name, seed=options.seed, training=training)
            train(trainer, counter)
            if form is TEAM:
                budget = counter.total
                continue
            episodes = held_out(trainer, options.episodes)
            written[name] = {"seed": options.seed, "tokens": counter.total, "successes": successes(episodes)}
    options.output.write_text(json.dumps(written, indent=1) + "\n")


if __name__ == "__main__":
    main()
