"""Saves and restores a run: checkpoints, saved teams, and model cards for the Hub."""
