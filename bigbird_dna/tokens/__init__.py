"""Convert contigs to tokens: documents, the BPE tokenizer, memory-mapped stores, and masking."""
