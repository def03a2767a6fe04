"""What only the papers need: experiments, comparators, tasks on text. The core finds it by name alone."""
