"""What pretraining buys: fine-tuned models of pretrained and of random weights, side by side."""
