"""Read and write HuggingFace checkpoints: directories, weights, tokenizers, and code that runs models."""
