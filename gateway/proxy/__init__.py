"""The worker's shell: accepts clients, relays, taps.

Reading order: pipeline, admit, route, forward, relay (streams) and answer (everything else), settle; then upstream
(connections to backends), wire (connections of clients) and link (the way to control).
"""
