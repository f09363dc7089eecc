"""How fast streams are over engines that are not alike, by each policy of routing: the real gateway, real sockets.

`python -m benchmarks.unequal` (or `make figures-routing`) prints the table. Every engine here is a simulation: no GPU,
no model.
"""
