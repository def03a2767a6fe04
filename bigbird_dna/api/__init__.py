"""What a Python user meets: loaded models with all their methods, and data sets to train elsewhere on."""
