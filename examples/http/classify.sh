#!/bin/bash
# classify.sh MODEL IMAGE [URL]: what a classifier behind `churon serve` says of a picture, with nothing but curl.
#
#   tools/bundles.sh open-nsfw && churon serve build/bundles/open-nsfw &
#   examples/http/classify.sh open-nsfw photo.jpg
#
# Prints the answer: {"predictions":[{"label":"safe","score":0.0012}]}. What is wrong comes as {"error": "…"}, status 22.
set -euo pipefail
[ $# -eq 2 ] || [ $# -eq 3 ] || { echo "usage: classify.sh MODEL IMAGE [URL]" >&2; exit 2; }
[ -f "$2" ] || { echo "classify: error: $2: expected a picture, got no file" >&2; exit 1; }

# The picture goes as base64 in the record's field `image`; through a pipe, since arguments may not be that long.
{
    printf '{"instances": [{"image": {"b64": "'
    base64 <"$2" | tr -d '\n'
    printf '"}}]}'
} | curl --silent --show-error --fail-with-body --header 'Content-Type: application/json' --data-binary @- \
    "${3:-http://127.0.0.1:8080}/v1/models/$1:predict"
echo
