"""What the processes of a run do together: work of which each may fail, averages of gradients, sharded weights made whole."""
