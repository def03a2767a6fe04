"""What the papers prove, made visible: what a graph reaches, can't answer, and can compute."""
