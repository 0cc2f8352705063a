"""Eight Queens. Read `rules`, then `solutions`, which has the distances and makes instances."""
