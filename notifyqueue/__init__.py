"""The client of Notify Queue: generated stubs, and what a caller needs around them."""
