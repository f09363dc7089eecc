"""Whether the simulated deployments give their published figures: through the gateway, measured by the gateway.

`python -m benchmarks.published` (or `make figures`) does it in real time and prints the table; a test of the suite does
it in compressed time. Everything measured here is a simulation: no GPU, no model.
"""
