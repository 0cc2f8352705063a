"""The environments, a folder for each; families share one. Only their doors, `<name>_v<N>.py`, import them.

A folder has all that is its own: rules, prompts, generator, solver, bound, readers of its data sets, its data, and the
workflows that no other environment has. It imports no other environment.
"""
