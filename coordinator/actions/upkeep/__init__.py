"""Writing by the program itself: pruning, jobs."""
