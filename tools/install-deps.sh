#!/bin/bash
# install-deps.sh [run|test|dev|onednn]...: installs the Debian packages of these groups that are missing, and is
# silent and quick when none is. run: to build and run; test: to run the tests; dev: format, tidy, fuzz,
# coverage; onednn: for builds with CHURON_ONEDNN. --check: installs nothing, says what is missing, exit 1 if something is.
set -euo pipefail

run=(build-essential cmake ninja-build pkg-config ca-certificates python3 python3-pip
    libevent-dev libjansson-dev libutf8proc-dev libpcre2-dev libssl-dev libcurl4-openssl-dev zlib1g-dev
    libsqlite3-dev libyaml-dev libzstd-dev libjpeg62-turbo-dev libpng-dev libwebp-dev libsndfile1-dev)
test=(libcmocka-dev python3-venv)
dev=(clang-14 libclang-rt-14-dev llvm-14 clang-format-14 clang-tidy-14 gcovr ccache valgrind)
onednn=(libdnnl-dev)

check=
wanted=()
for word in "$@"; do
    case $word in
    run) wanted+=("${run[@]}") ;;
    test) wanted+=("${test[@]}") ;;
    dev) wanted+=("${dev[@]}") ;;
    onednn) wanted+=("${onednn[@]}") ;;
    --check) check=yes ;;
    *) echo "usage: install-deps.sh [--check] [run] [test] [dev] [onednn]" >&2; exit 2 ;;
    esac
done
[ ${#wanted[@]} -gt 0 ] || wanted=("${run[@]}" "${test[@]}")

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    # Not Debian: whoever has a compiler, the build tools and the libraries can go on.
    missing=()
    for tool in cc cmake ninja pkg-config python3; do command -v $tool >/dev/null || missing+=($tool); done
    for lib in libevent jansson libutf8proc libpcre2-8 libcrypto libcurl zlib sqlite3 yaml-0.1 libzstd \
        libjpeg libpng libwebp sndfile; do
        pkg-config --exists $lib 2>/dev/null || missing+=("$lib (headers)")
    done
    [[ " ${wanted[*]} " != *" libcmocka-dev "* ]] || pkg-config --exists cmocka || missing+=("cmocka (headers)")
    [ ${#missing[@]} -gt 0 ] || exit 0
    echo "This is not a Debian system, so nothing is installed for you. Please install:" >&2
    printf '  %s\n' "${missing[@]}" >&2
    echo "(On Debian 12 these come from: ${wanted[*]})" >&2
    exit 1
fi

mapfile -t missing < <(comm -23 <(printf '%s\n' "${wanted[@]}" | sort -u) \
    <(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${wanted[@]}" 2>/dev/null |
        sed -n 's/^installed //p' | sort -u))
[ ${#missing[@]} -gt 0 ] || exit 0

if [ -n "$check" ]; then
    echo "Missing packages: ${missing[*]}. Install them with: apt-get install ${missing[*]}" >&2
    exit 1
fi
root=()
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "Missing packages: ${missing[*]}. Neither root nor sudo is here: please have them installed." >&2
        exit 1
    fi
    root=(sudo)
fi
echo "Installing: ${missing[*]}" >&2
get=("${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -qq)
install() { "${get[@]}" install --yes --no-install-recommends "${missing[@]}" >/dev/null; }
# Package lists may be absent (a fresh image) or old (a file that is gone): then they are renewed once.
if ! install 2>/dev/null; then
    "${get[@]}" update >&2
    install
fi
