"""What `make` runs on this repository itself."""
