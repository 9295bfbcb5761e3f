"""A load kit for anything that speaks the recorded coordinator's API: see README.md beside this file."""
