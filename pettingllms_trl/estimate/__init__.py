"""What a run takes before it is run: memory of each GPU and tokens a second, from the configuration of a model alone.

No weights are loaded, and no GPU is needed. `pettingllms train --config run.yaml --estimate` prints it; the tables of
docs/recipes.md and the simulation in benchmarks/cluster.py use the same numbers.

| file             | what it knows                                                                              |
|------------------|--------------------------------------------------------------------------------------------|
| `gpus.py`        | memory, bandwidth and operations a second of GPUs, as published                            |
| `shapes.py`      | a model's numbers of parameters, of an adapter's, and bytes of its KV cache: exact         |
| `memory.py`      | weights, gradients and optimizer states on each GPU, by how they are sharded: exact        |
| `activations.py` | what a forward and backward pass holds at its peak: run on tensors without storage         |
| `speed.py`       | seconds of a decoding step, of an update and of the network: assumptions, none measured    |
| `engine_options.py` | what a kind of engine says of itself: the names of its options                         |
| `runs.py`        | a run and its models: what of a configuration the others depend on                         |
| `planning.py`    | puts these together for a run, and says what does not fit                                  |
| `remedies.py`    | what to change in a run that does not fit: by trying                                       |
| `report.py`      | the text that is printed                                                                   |

Two more are for tests, and nothing else imports them: `simulated_device.py`, an accelerator that holds its values on
the CPU and keeps the waits of the host, and `simulated_autocast.py`, its mixed precision.
"""
