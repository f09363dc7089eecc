"""The simulated vLLM engine: a process that clients and the gateway cannot tell from vLLM where it matters.

It is a simulation and says so in its first line.  A pure core in virtual time (engine, physics, card) and shells
around it (HTTP face, process behaviour, control port).
"""
