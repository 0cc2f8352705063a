"""What the processes of a run do together: run work of which each may fail, make sharded weights whole."""
