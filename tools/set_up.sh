#!/bin/sh
# Makes .venv what requirements.txt says. `make` runs it in the checkout's root when that file has changed.
set -eu

suits() {
  "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null
}

find_python() {
  # Tried, not only found: version managers leave names behind for versions that they do not have.
  if [ "$PYTHON" = python3 ]; then set -- python3 python3.13 python3.12 python3.11; else set -- "$PYTHON"; fi
  for candidate; do
    if suits "$candidate"; then
      echo "$candidate"
      return
    fi
  done
  echo "Notify Queue needs Python 3.11, 3.12 or 3.13, and found none as: $*" >&2
  echo "Say where one is: make PYTHON=/path/to/python3" >&2
  exit 1
}

# The stamp goes first and comes back last: without it, what is there was left by an interrupted set-up.
if [ ! -e .venv/.ready ] || ! suits .venv/bin/python; then
  python=$(find_python)
  echo "Making .venv with $("$python" --version)"
  "$python" -m venv --clear .venv
fi
rm -f .venv/.ready

echo "Installing what requirements.txt pins into .venv"
sed -n '/^uv==/,/[^\\]$/p' requirements.txt > .venv/uv.txt
.venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement .venv/uv.txt
# The certificates that the system trusts, as pip does: behind a proxy there may be one that nobody else knows.
.venv/bin/uv --system-certs pip sync --quiet --python .venv/bin/python --require-hashes requirements.txt
# The command line, .venv/bin/notifyqueue: of this checkout as it is, built by the hatchling that is pinned.
.venv/bin/uv pip install --quiet --python .venv/bin/python --no-deps --no-build-isolation --offline --editable .
touch .venv/.ready
