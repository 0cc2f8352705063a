"""Archives. Read `rules`, then the `world` of the questions, its workflows, `librarians`, and the `blind` guessers.

`silos` has the same questions as tables of two databases.
"""
