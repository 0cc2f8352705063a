"""Note taking. Read `rules`, then the `bound` on one note taker, and its workflows, `note_takers`."""
