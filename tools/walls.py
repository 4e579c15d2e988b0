"""The wall that import-linter cannot draw, for it knows no names by pattern: who may see the contracts.

Translation is the work of the modules `rpc*` and `messages*`, and of the provider that others implement; the rules
behind them have words of their own. `python -m tools.walls`
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
FOLDERS = ("services", "shared")
CONTRACTS = "notifyqueue.v1"


def translates(module: Path) -> bool:
    return module.stem.startswith(("rpc", "messages")) or module.match("providers/remote.py")


def sees_contracts(source: str) -> bool:
    return any(f"{name}.".startswith(f"{CONTRACTS}.") for name in _imported(ast.parse(source)))


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def main() -> int:
    modules = sorted(module for folder in FOLDERS for module in (CHECKOUT / folder).rglob("*.py"))
    found = [module for module in modules if not translates(module) and sees_contracts(module.read_text("utf-8"))]
    for module in found:
        print(f"{module.relative_to(CHECKOUT)}: imports {CONTRACTS}, which is for rpc*, messages* and providers/remote")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
