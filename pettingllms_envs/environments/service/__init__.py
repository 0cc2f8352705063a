"""Service. Read `domains`, then the task in `rules`, its `talks`, the `users` and the `hostile`."""
