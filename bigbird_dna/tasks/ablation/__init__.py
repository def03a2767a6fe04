"""The same encoder with one attention mechanism after the other: what a step takes, and what it buys."""
