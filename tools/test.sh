#!/bin/bash
# Builds and runs the whole suite. The last line is "N passed, N failed[, N skipped]"; the exit status is 0
# only if nothing failed. What runs: every ctest test and every Python test on the release build, the unit
# tests and fuzz seeds under address and undefined-behaviour sanitizers, and what threads meet in under the
# thread sanitizer. Results as JUnit files in build/results.
set -uo pipefail
cd "$(dirname "$0")/.."

results=$PWD/build/results
jobs=$(nproc)
broken=0
mkdir -p "$results"
rm -f "$results"/*.xml

say() { printf '\n== %s\n' "$*"; }

# A step that is no test itself (configure, build): its failure counts as one.
step() {
    "$@" && return 0
    echo "FAILED: $*"
    broken=$((broken + 1))
    return 1
}

build() { # PRESET [TARGET...]
    local preset=$1 log=$results/build-$1.log
    shift
    { cmake --preset "$preset" && ninja -C "build/$preset" "$@"; } >"$log" 2>&1 && return 0
    grep -E -A8 'error|FAILED|undefined|Error' "$log" | head -60
    return 1
}

suite() { # PRESET CTEST-ARGUMENT...
    local preset=$1
    shift
    ctest --test-dir "build/$preset" --output-on-failure --no-tests=ignore -j "$jobs" \
        --output-junit "$results/ctest-$preset.xml" "$@" || true
}

python_tests() { # NAME PYTEST-ARGUMENT...
    local name=$1 code=0
    shift
    build/venv/bin/python -m pytest -q -c tests/pytest.ini --rootdir tests --durations=10 --junitxml "$results/pytest-$name.xml" "$@" || code=$?
    # 0: passed, 1: some failed (counted from the file); anything else is a failure of the run itself.
    [ $code -le 1 ] || step false "pytest exit $code"
}

# Not detect_stack_use_after_return: gcc 12 aligns its stack frames too little for 64-byte vectors (PR 110027).
export ASAN_OPTIONS=${ASAN_OPTIONS:-strict_string_checks=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1:second_deadlock_stack=1}

say "Python environment and the real model"
step tools/venv.sh
if model=$(build/venv/bin/python tests/tools/real_model.py); then
    export CHURON_TEST_MODEL=$model
else
    echo "${model:-skip: the real model cannot be had}"
fi

say "release: build, ctest"
if step build release; then
    suite release
    # Comparisons with a library may share the machine; what drives servers and measures them may not.
    say "release: Python tests, oracles"
    python_tests oracle -n "$jobs" --dist loadfile tests/oracle
    say "release: Python tests, the program and its servers"
    python_tests e2e tests/e2e
fi

say "address and undefined-behaviour sanitizers: unit tests and fuzz seeds"
if step build asan; then suite asan -L 'unit|fuzz'; fi

say "thread sanitizer: what threads meet in"
if step build tsan; then
    suite tsan -L tsan
    say "thread sanitizer: the server under load, disconnects and shutdown"
    CHURON=$PWD/build/tsan/churon python_tests tsan -k 'not real_model' tests/e2e/test_serve_http.py tests/e2e/test_serve_load.py
fi

say "result"
exec build/venv/bin/python tools/count_results.py "$broken" "$results"/*.xml
