"""The papers' tables: language models and comparators side by side, with published figures apart."""
