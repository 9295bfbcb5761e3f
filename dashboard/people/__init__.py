"""People: accounts, their roles and sign-ins, and invitations by which they come in."""
