"""What a model wrote, beside the genome that it should be like."""
