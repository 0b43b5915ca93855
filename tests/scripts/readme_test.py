#!/usr/bin/env python3
"""What README.md says that can be compared with its sources: figures, files, targets, options."""

import re
import subprocess
import sys

from script_harness import ROOT, Failure, run_tests

README = (ROOT / "README.md").read_text()
BUILD = sys.argv[1]


def table_rows(text):
    return [[cell.strip() for cell in line.strip("| \n").split(" | ")]
            for line in text.splitlines() if line.startswith("| ")]


def test_figures(_root):
    """The table is made of rows of docs/benchmarks.md."""
    known = [row[:4] for row in table_rows((ROOT / "docs/benchmarks.md").read_text())]
    part = README[README.index("\n## How fast"):README.index("\n## How a request")]
    rows = [row for row in table_rows(part) if row[0] != "goal"]
    unknown = [row for row in rows if row not in known]
    if unknown or len(rows) < 5:
        raise Failure(f"not in docs/benchmarks.md: {unknown}")


def test_links(_root):
    missing = [link for link in re.findall(r"\]\(([^)#]+)", README) if not (ROOT / link).exists()]
    if missing:
        raise Failure(f"there is no {missing}")


def test_targets(_root):
    makefile = (ROOT / "Makefile").read_text()
    unknown = [target for target in re.findall(r"\bmake ([a-z-]+)\b(?=[` \n&])", README)
               if not re.search(rf"^{target}:", makefile, re.M)]
    if unknown:
        raise Failure(f"there is no make {unknown}")


def test_options(_root):
    """Every long option that stands in a command line of a program is one of its options."""
    for program, words in re.findall(r"\b(kv-server|kv-client|kv-bench|fabric-perf)((?: [^\n#`]+))",
                                     README):
        text = subprocess.run([f"{BUILD}/bin/{program}",
                               *(["run"] if program == "fabric-perf" else []), "--help"],
                              capture_output=True, text=True, check=False).stdout
        unknown = [word for word in re.findall(r"--[a-z][a-z-]+", words) if word not in text]
        if unknown:
            raise Failure(f"{program}: no {unknown}")


if __name__ == "__main__":
    sys.exit(run_tests([(name[5:], function, ()) for name, function in list(globals().items())
                        if name.startswith("test_")]))
