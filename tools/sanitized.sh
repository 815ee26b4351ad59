#!/bin/bash
# sanitized.sh asan|tsan: the test suite on that build, the Python tests included (asan: all that drive the
# program; tsan: the server's). Slow: what `make test` runs of it is in tools/test.sh.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=$1
# Not detect_stack_use_after_return: gcc 12 aligns its stack frames too little for 64-byte vectors (PR 110027).
export ASAN_OPTIONS=${ASAN_OPTIONS:-strict_string_checks=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1:second_deadlock_stack=1}
tools/install-deps.sh run test
tools/venv.sh
tools/build.sh "$preset"
CHURON_TEST_MODEL=$(build/venv/bin/python tests/tools/real_model.py) && export CHURON_TEST_MODEL || unset CHURON_TEST_MODEL
case $preset in
asan) labels='unit|fuzz' python=(tests/e2e tests/oracle) ;;
# Not the real model: the thread sanitizer makes its arithmetic twenty times slower and finds nothing more in it.
tsan) labels=tsan python=(tests/e2e/test_serve_http.py tests/e2e/test_serve_load.py -k 'not real_model') ;;
*) echo "usage: sanitized.sh asan|tsan" >&2; exit 2 ;;
esac
ctest --test-dir "build/$preset" --output-on-failure -j "$(nproc)" -L "$labels"
CHURON=$PWD/build/$preset/churon build/venv/bin/python -m pytest -q -c tests/pytest.ini --rootdir tests "${python[@]}"
