"""What a study compares: its file, read and validated, and the configuration of each of its runs."""
