"""vLLM as an engine: in the trainer's process, over a group of processes, or a server; and how weights reach it."""
