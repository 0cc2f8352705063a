"""Saves and restores a run: checkpoints (`checkpointer`), teams (`publishing`), and their cards (`model_card`)."""
