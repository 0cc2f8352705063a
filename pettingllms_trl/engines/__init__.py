"""Engines: sample completions for prompts, and keep the weights that they sample from in sync with the trainer's."""
