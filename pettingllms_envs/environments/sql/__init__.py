"""Database queries. Read `rules`, then our own questions, `families` and `questions`, and the workflows, `writers`.
`writers`.

Questions of data sets: `rows` reads their columns, `databases` the files that they are about.
"""
