"""Kuhn poker: `rules`, then the strategies of its `equilibrium`. It is played in the workflow `match`."""
