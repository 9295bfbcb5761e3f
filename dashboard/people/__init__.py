"""People: their accounts, roles and sign-ins, and the invitations that create accounts."""
