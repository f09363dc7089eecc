"""Side-by-side measurements of relays: the gateway, its peers and the naive versions, in one run.

Outside the gateway: nothing in `gateway/` imports it. It starts every process itself, on loopback, bounded in
time, and ends them by their own ids. How to repeat and read it stands in README.md beside this file.
"""
