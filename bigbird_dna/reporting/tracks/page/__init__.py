"""The page of a track report: one HTML file that shows its tables and draws them."""
