"""Writing by the program itself: pruning, partitions, jobs."""
