"""Service. Read `domains`, `instances`, `moves`, the task in `rules`, `users`, the workflows `talks`, `hostile`."""
