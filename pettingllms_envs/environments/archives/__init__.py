"""Archives. Read `rules`, then the `world` of the questions, its workflows, `librarians`, and the `blind` guessers."""
