"""The admin API: what operators ask and order, over HTTP on a port of its own.

`server.py` builds it from the routes in `routes_*.py`, each with a declared scope; `access.py` decides who may do
what; `schemas.py` and the reports of `gateway.ports` are the shapes, `openapi.py` their description.  It owns no
state of the gateway: it asks control, the history and the live feed through their ports.
"""
