"""What the three services have in common. Imports none of them."""
