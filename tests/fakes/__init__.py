"""Things that stand in for what a test has no real one of: backends, recordings of engines, streams in memory."""
