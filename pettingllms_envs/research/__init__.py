"""Research: what compares teams, and finds what decides. It may import everything, and nothing imports it.

`cooperation.py` (a team beside its other forms), `crossplay.py` and `payoffs.py` (mixed teams, agents that compete),
`blame.py` (which call decides), `blind.py` (what pictures are worth), `influence.py` (what a role's replies change),
and `studies/` (training methods over many seeds). Its commands are in `commands/`. They, and what other commands take
from here, are found by the entry points of pyproject.toml. docs/research.md says what may change.
"""
