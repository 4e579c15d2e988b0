"""Accepts notifications and answers about them. Never delivers."""
