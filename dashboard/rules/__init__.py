"""Rules and grants tried out on recorded calls, and what is suggested from them, as their pages show it."""
