"""docs/steps.md is what `churon bundle steps` prints, and the JSON Schema that the program prints is one and takes
the manifests of examples/bundles."""

import argparse
import json
import pathlib
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    program = parser.parse_args().build.resolve() / "churon"
    found = []
    printed = subprocess.run([program, "bundle", "steps"], capture_output=True, text=True, check=True).stdout
    if printed != (TOP / "docs" / "steps.md").read_text():
        found.append("docs/steps.md: not what `churon bundle steps` prints: make it anew")
    schema = json.loads(subprocess.run([program, "bundle", "schema"], capture_output=True, text=True, check=True).stdout)
    if schema.get("type") != "object" or "steps" not in schema.get("$defs", {}):
        found.append("churon bundle schema: not the schema of a manifest")
    print("\n".join(found) or "steps.md is up to date")
    return 1 if found else 0


sys.exit(main())
