"""Conversations that reward functions judge. Read `prompts`, the task, then the workflow `conversation`."""
