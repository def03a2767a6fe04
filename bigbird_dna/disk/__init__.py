"""Read and write files, directories and the shards of jobs."""
