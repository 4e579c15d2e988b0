"""The day of two shops through the public API, and the proof of what became of each notification: `make demo`."""
