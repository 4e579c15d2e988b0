"""Delivers: claims what is due, hands it to a provider, records how it ended."""
