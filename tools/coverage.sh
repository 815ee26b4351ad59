#!/bin/bash
# Line coverage of unit and Python tests: a table, and HTML in build/coverage/report.
set -euo pipefail
cd "$(dirname "$0")/.."

tools/venv.sh
tools/build.sh coverage
find build/coverage -name '*.gcda' -delete
CHURON_TEST_MODEL=$(build/venv/bin/python tests/tools/real_model.py) && export CHURON_TEST_MODEL || unset CHURON_TEST_MODEL
ctest --test-dir build/coverage -j "$(nproc)" -LE structure --output-on-failure || true
CHURON=$PWD/build/coverage/churon build/venv/bin/python -m pytest -q -c tests/pytest.ini --rootdir tests tests/e2e || true
mkdir -p build/coverage/report
gcovr --root . --filter src/ --object-directory build/coverage --gcov-ignore-errors=no_working_dir_found \
    --html-details build/coverage/report/index.html --txt --txt-metric branch 2>/dev/null ||
    gcovr --root . --filter src/ --object-directory build/coverage --html-details build/coverage/report/index.html --txt
