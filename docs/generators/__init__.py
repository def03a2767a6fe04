"""Pages of the site that are made when it is built, from what they describe."""
