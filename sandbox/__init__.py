"""The other side of everything, for people without accounts: a database, providers, a webhook receiver."""
