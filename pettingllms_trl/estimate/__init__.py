"""What a run takes before it is run: a step of its trainer on a simulated GPU, at its real size, on one core.

No weights are loaded, and no GPU is needed. `pettingllms train --config run.yaml --estimate` prints it.

| file                    | what it knows                                                                            |
|-------------------------|------------------------------------------------------------------------------------------|
| `simulated_device.py`   | an accelerator in Python that holds its values on the CPU, as tests of trainings have it |
| `simulated_autocast.py` | its mixed precision                                                                      |
| `simulated_shapes.py`   | the same at real size: floats are shapes; each operation's bytes and flops are counted   |
| `stand_ins.py`          | what stands in for weights and tokenizers, and for work that repeats                     |
| `step.py`               | a generation and an optimizer step: the peak of memory and the work of each phase        |
| `planning.py`           | adds what one device cannot show: sharding, engines, the network; says what does not fit |
| `memory.py`             | weights, gradients and optimizer states on each GPU, by how they are sharded: exact      |
| `speed.py`              | seconds of an engine's step and of the network, and what products reach: assumptions     |
| `gpus.py`               | memory, bandwidth and operations a second of GPUs, as published                          |
| `report.py`             | the text that is printed                                                                 |

The device cannot be taken out of a process, so it is used in child processes, and training never imports it.
"""
