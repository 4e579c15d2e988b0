"""What is drawn, by rich. It takes as long to load as a call takes, so it is imported where something is drawn."""

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.table import Table

WIDE = 200  # columns where there is no terminal that has a width


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """As everything that is raised, for whoever runs the command; rich would end the process."""
        raise BrokenPipeError


def console(file: Any) -> Console:
    width = None if file.isatty() else WIDE
    return _Console(file=file, width=width, markup=False, highlight=False, emoji=False, soft_wrap=True)


def facts(rows: Iterable[tuple[str, str]]) -> Table:
    """A name and a value a line."""
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table
