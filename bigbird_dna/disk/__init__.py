"""Read and write files and directories."""
