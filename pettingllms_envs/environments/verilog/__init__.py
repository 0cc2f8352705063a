"""Designs in Verilog. Read `rules`, then our own designs, `families`, and the workflows, `designers`.

`vectors` are a tester's lines, `mutants` the wrong designs that they should tell, and `folders` the readers of data
sets.
"""
