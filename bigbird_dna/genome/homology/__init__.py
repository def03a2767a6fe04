"""Which windows are alike: pairs that share seeds are found without comparing all, and then aligned."""
