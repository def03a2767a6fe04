"""The language model: inputs of a step, masked test tokens, baselines, bits per base."""
