"""Actions of the program itself: pruning, jobs."""
