"""Language tags of BCP 47 (RFC 5646): one spelling for each, and what each falls back to (RFC 4647, 3.4)."""

import re
from collections.abc import Iterator

MAX_LENGTH = 35  # RFC 5646, 4.4.1

TAG = re.compile(r"[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*")


def canonical_locale(text: str) -> str:
    """As RFC 5646, 2.1.1 writes it: `de-AT`, `zh-Hant-TW`. Whether there is such a language is not asked.

    Raises ValueError; its message says what is wrong and quotes nothing.
    """
    if len(text) > MAX_LENGTH or not TAG.fullmatch(text):
        raise ValueError("must be a BCP 47 language tag, as de or de-AT")
    language, *rest = text.lower().split("-")
    parts = [language]
    for part in rest:
        after_singleton = len(parts[-1]) == 1
        if len(part) == 2 and not after_singleton:
            part = part.upper()
        elif len(part) == 4 and part.isalpha() and not after_singleton:
            part = part.title()
        parts.append(part)
    return "-".join(parts)


def fallbacks(locale: str) -> Iterator[str]:
    """The locale itself, and then what is left of it without its last part, and so on."""
    parts = locale.split("-")
    while parts:
        yield "-".join(parts)
        parts.pop()
        if parts and len(parts[-1]) == 1:  # says nothing without what stood behind it
            parts.pop()
