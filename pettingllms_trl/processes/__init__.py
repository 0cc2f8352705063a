"""What the processes of a run do together: work that may fail, averages of gradients, whole weights of shards."""
