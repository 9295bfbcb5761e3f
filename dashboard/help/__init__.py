"""The help pages at /ui/help/: the list of pages, their rendering, and the search."""
