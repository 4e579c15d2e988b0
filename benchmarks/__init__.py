"""What it does in a second, beside the bare statements in the same run: ratios count, for all share one machine."""
