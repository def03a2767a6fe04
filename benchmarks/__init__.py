"""Time and memory of attention and of whole encoders, side by side with what else is installed.

A part of the checkout, not of the installed package: the command `bigbird-dna benchmark` finds it there.
"""
