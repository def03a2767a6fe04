"""The training loop and what it needs: processes, learning rate, checkpoints, log."""
