"""Writing by the program itself: pruning, partitions, leases."""
