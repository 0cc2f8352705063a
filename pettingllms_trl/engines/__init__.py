"""Engines sample completions with weights in sync with the trainer's. `kinds` declares one, `factory` has them."""
