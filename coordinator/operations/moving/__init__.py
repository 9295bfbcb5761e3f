"""Moving from SQLite to PostgreSQL while no server runs (`manage.py move_to`).

1. The data folder's lock and SQLite's write lock are held, so that nothing is written. SQLite is not changed.
2. A table in PostgreSQL notes that the move is incomplete, and the tables are made. No server starts on it then.
3. One transaction empties the tables, copies every row by COPY, compares every table by count and digest, and removes
   the note. What fails or is killed leaves empty tables and the note; the next move begins again.

The default connection is PostgreSQL throughout; SQLite is read through a connection of its own. What is worked out of
other rows (the search index, files touched, the feed) is not copied: the server works it out again.
"""
