"""Long polls: requests that wait until the feed reports something."""
