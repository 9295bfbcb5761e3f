"""Every state of the pages for people, made by a script and photographed: `python -m tests.gallery FOLDER`."""
