"""Figures, as they are measured and shown."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One measurement beside its bare counterpart, in `unit`."""

    name: str
    ours: float
    bare: float
    unit: str

    def line(self) -> str:
        return f"{self.name:<52} {self.ours:>10,.1f} {self.bare:>10,.1f} {self.ours / self.bare:>7.2f}  {self.unit}"


HEADER = f"{'':<52} {'ours':>10} {'bare':>10} {'ratio':>7}"


def percentile(values: Sequence[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


@dataclass(frozen=True, slots=True)
class Share:
    """One measurement without something beside it, and with it."""

    name: str
    without: float
    beside: float
    unit: str

    @staticmethod
    def header(without: str, beside: str) -> str:
        return f"{'':<40} {without:>10} {beside:>10} {'ratio':>7}"

    def line(self) -> str:
        ratio = self.beside / self.without
        return f"{self.name:<40} {self.without:>10,.1f} {self.beside:>10,.1f} {ratio:>7.2f}  {self.unit}"
