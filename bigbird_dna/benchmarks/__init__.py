"""Time and memory of attention and of whole encoders, side by side with what else is installed."""
