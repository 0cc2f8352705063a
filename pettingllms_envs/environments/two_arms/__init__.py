"""Two arms. Read the `table` and its exact `distances`, then `rules`, `teams`, and `physics`, the table in MuJoCo."""
