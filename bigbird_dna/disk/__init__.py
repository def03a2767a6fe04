"""Files: sharded jobs."""
