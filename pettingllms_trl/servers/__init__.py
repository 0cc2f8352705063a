"""`vllm serve` as the engines use it: one server, and how the weights of a whole model reach it."""
