"""The timeline of a session: its query string, and the rows and charts that its templates show."""
