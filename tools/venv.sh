#!/bin/bash
# Makes build/venv from tests/requirements.txt; does nothing when it is up to date. PYTHON names another
# interpreter than python3.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=build/venv
python=${PYTHON:-python3}
want=$(cat tests/requirements.txt <("$python" -V) | sha256sum)
if [ "$(cat $venv/.made-from 2>/dev/null)" = "$want" ]; then exit 0; fi

echo "venv: installing tests/requirements.txt into $venv" >&2
mkdir -p build
exec 9>build/.venv-lock
flock 9
if [ "$(cat $venv/.made-from 2>/dev/null)" = "$want" ]; then exit 0; fi
rm -rf $venv
"$python" -m venv $venv
for attempt in 1 2 3; do
    if $venv/bin/python -m pip install --quiet --disable-pip-version-check -r tests/requirements.txt; then
        echo "$want" > $venv/.made-from
        exit 0
    fi
    echo "venv: attempt $attempt failed" >&2
    sleep $((attempt * 2))
done
echo "venv: error: pip could not install tests/requirements.txt. Check the network and pip's index." >&2
exit 1
