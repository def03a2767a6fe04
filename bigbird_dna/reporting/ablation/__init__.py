"""Attention mechanisms side by side: what their trainings reach, and what they take."""
