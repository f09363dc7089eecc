"""The control shell: owner of the fleet, single writer of its state.

Talks to workers over the link only.  Never imports the request flow, and its death cuts no stream.
"""
