"""Adds up JUnit files: `count_results.py BROKEN-STEPS FILE...` prints what failed and was skipped, and ends with
"N passed, N failed[, N skipped]". Exit 1 if anything failed or nothing ran."""

import pathlib
import sys
import xml.etree.ElementTree as ET

failed, passed, skipped = int(sys.argv[1]), 0, {}
for path in map(pathlib.Path, sys.argv[2:]):
    for case in ET.parse(path).getroot().iter("testcase"):
        name = f"{path.stem}: {case.get('name')}"
        skip = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
            print(f"failed: {name}")
        elif skip is not None or case.get("status") in ("notrun", "disabled"):
            message = (skip.get("message") or "") if skip is not None else ""
            output = case.findtext("system-out") or ""
            said = [line for line in output.splitlines() if line.startswith("skip:")]
            reason = said[0] if said else message.splitlines()[0] if message else "skip"
            skipped.setdefault(reason, []).append(name)
        else:
            passed += 1
for reason, names in skipped.items():
    print(f"skipped {len(names)}: {reason} ({names[0]}{', ...' if len(names) > 1 else ''})")
n_skipped = sum(map(len, skipped.values()))
print(f"{passed} passed, {failed} failed" + (f", {n_skipped} skipped" if n_skipped else ""))
sys.exit(1 if failed or not passed else 0)
