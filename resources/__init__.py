"""Data files of the package: assemblies and the addresses of public sources."""
