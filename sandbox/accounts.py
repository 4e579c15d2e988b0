"""What a worker logs in with at the providers that the sandbox plays: everybody's, and no secrets."""

TWILIO_SID = "AC" + "5a" * 16
TWILIO_TOKEN = "sandbox"  # noqa: S105 - everybody's
RESEND_KEY = "re_sandbox"

RECEIVER = "up"
"""Where its receiver takes the webhooks of `make up`."""
