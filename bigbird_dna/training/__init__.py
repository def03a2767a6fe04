"""The training loop and its components: processes, learning rate, checkpoints, log."""
