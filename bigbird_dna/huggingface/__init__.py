"""Read and write HuggingFace BigBird checkpoints: directories, weights and tokenizers."""
