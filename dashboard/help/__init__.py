"""The help pages at /ui/help/: which there are, how they are read and drawn, and the search over them."""
