"""What the live tests stand on: processes, engines, the gateway's command, one plain HTTP call.

Black box only: nothing here imports the gateway.
"""
