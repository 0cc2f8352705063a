"""Designs in Verilog. Read `rules`, then what a design is, `designs`, and the workflows, `designers`.

Our own designs: `families`, with `combinational` and `sequential`. A tester's lines are `vectors`, and `mutants` the
wrong designs that they should tell. Data sets: `folders`.
"""
