"""The networks among the comparators of the tables."""
