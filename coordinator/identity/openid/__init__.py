"""Single sign-on with OpenID Connect: who a provider says somebody is. It reads and asks; actions write.

Authlib and joserfc know the protocol and the signatures; what is ours is which tokens count, how long and how much is
read from a provider, and what is kept in a session meanwhile.
"""
