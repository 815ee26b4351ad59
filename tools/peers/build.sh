#!/bin/bash
# Builds the peer that `make bench` compares with: llama.cpp as the source package of llama-cpp-python carries
# it, with this machine's native flags, into build/peers/bin. No test needs it. Takes some minutes, about
# 1 GB of disk, and a C++ compiler.
set -euo pipefail
cd "$(dirname "$0")/../.."

package=llama-cpp-python
version=0.3.36
sha256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
out=$PWD/build/peers
programs=(llama-bench llama-batched-bench llama-perplexity llama-quantize llama-server llama-completion llama-tokenize)

mkdir -p "$out"
archive=$out/${package//-/_}-$version.tar.gz
if ! echo "$sha256  $archive" | sha256sum --check --status 2>/dev/null; then
    python3 -m venv "$out/venv"
    "$out/venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --no-binary "$package" \
        --dest "$out" "$package==$version"
    echo "$sha256  $archive" | sha256sum --check --quiet
fi
rm -rf "$out/source"
mkdir "$out/source"
tar -xzf "$archive" -C "$out/source" --strip-components=1

cmake -S "$out/source/vendor/llama.cpp" -B "$out/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON \
    -DBUILD_SHARED_LIBS=OFF -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF \
    -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_BUILD_MTMD=OFF >"$out/configure.log" ||
    { tail -20 "$out/configure.log"; exit 1; }
ninja -C "$out/build" "${programs[@]}"
ln -sfn build/bin "$out/bin"
echo "The peer's programs are in $out/bin; make bench finds them there."
