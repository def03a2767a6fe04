"""The configuration schema, used by workflow and commands to read the same files.

A configuration is a YAML file of nested sections, one per stage or task. Every key has a default, unknown
keys and wrong types are errors, and sections are immutable. Lengths are in "bp" for sequences and in "tokens"
for model inputs.
"""
