"""Generated from proto/notifyqueue/v1 by `make stubs`; not to be edited."""
