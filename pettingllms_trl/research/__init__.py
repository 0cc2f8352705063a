"""Research on training: `study/` compares methods over many seeds. It may import everything, and nothing imports it.

docs/research.md says what may change.
"""
