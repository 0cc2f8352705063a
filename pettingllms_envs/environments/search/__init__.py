"""Search. Read `rules`, `questions`, its workflows, `searchers`, and the readers of data sets, `*_rows`."""
