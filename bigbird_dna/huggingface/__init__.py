"""Exchange with HuggingFace's BigBird: checkpoint directories, weights and tokenizers, read and written."""
