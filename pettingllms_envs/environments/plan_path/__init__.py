"""Plan-Path. Read `rules`, then `text`, the `grid` with its distances, and the `generator`."""
