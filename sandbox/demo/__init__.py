"""A shop's day through the public API, and the proof of what became of each notification: `make demo`."""
