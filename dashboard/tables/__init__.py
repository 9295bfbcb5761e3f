"""Tables: the columns of each list, a subject a module."""
