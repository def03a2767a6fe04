"""The tasks on text, which are secondary: the same encoder, training loop and model directories.

Nothing else imports this package but its commands. What it needs of further libraries is the extra `nlp`.
"""
