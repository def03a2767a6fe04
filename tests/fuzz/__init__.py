"""Damaged files for every reader: each must be read or refused in one sentence, soon and in little memory."""
