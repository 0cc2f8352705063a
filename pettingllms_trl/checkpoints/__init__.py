"""What a run leaves on disk and on the Hub: checkpoints, saved teams, model cards."""
