"""The page of a whole run."""
