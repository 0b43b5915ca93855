#!/usr/bin/env python3
"""Shows that scripts/test counts right: it is run on a tree whose builds, test programs and
fuzzers are small scripts that pass, fail, crash or keep silent."""

import json
import os
import shutil
import subprocess
import sys

from script_harness import ROOT, Failure, expect, run_tests, write_tree

SHELL = "#!/bin/sh\n"
GOOD = SHELL + "echo 'ok one (1 ms)'\necho '1 passed, 0 failed, 0 skipped'\n"
# Says with which options it was called, as a skip, so that it shows in the summary.
TELLS = SHELL + 'echo "skip tells: options \'$*\'"\necho "2 passed, 0 failed, 1 skipped"\n'

NO_LAB = "def run(report):\n    pass\n"


def make_tree(root, programs=None, fuzzers=None, corpus=(), lint=SHELL, build=SHELL,
              lab=NO_LAB):
    """programs: name -> (script, labels). Every preset has the same ones."""
    (root / "scripts").mkdir()
    for name in ("test", "testreport.py"):
        shutil.copy(ROOT / "scripts" / name, root / "scripts")
    write_tree(root, {"scripts/lab/__init__.py": "", "scripts/lab/suite.py": lab})
    tests = []
    for name, (script, labels) in (programs or {}).items():
        write_tree(root, {f"programs/{name}": script}, executable=True)
        tests.append({"name": name, "command": [str(root / "programs" / name)],
                      "properties": [{"name": "LABELS", "value": labels}]})
    for name, script in (fuzzers or {}).items():
        write_tree(root, {f"build/fuzz/fuzzers/{name}": script}, executable=True)
    for name in corpus:
        write_tree(root, {f"tests/fuzz/corpus/{name}/seed": "x"})
    write_tree(root, {"scripts/lint": lint, "scripts/build": build,
                      "bin/ctest": SHELL + f"cat {root}/tests.json\n"}, executable=True)
    write_tree(root, {"tests.json": json.dumps({"tests": tests})})
    for preset in ("asan", "tsan"):
        (root / "build" / preset).mkdir(parents=True)


def run_script(root, *options):
    environment = {**os.environ, "PATH": f"{root}/bin:{os.environ['PATH']}"}
    result = subprocess.run([root / "scripts" / "test", *options], capture_output=True, text=True,
                            stdin=subprocess.DEVNULL, env=environment, check=False)
    return result.returncode, result.stdout + result.stderr


def expect_last_line(output, line):
    if output.splitlines()[-1] != line:
        raise Failure(f"the last line is '{output.splitlines()[-1]}', expected '{line}'")


def test_sums(root):
    make_tree(root, {"good": (GOOD, ["harness"])})
    code, output = run_script(root)
    expect(code, output, 0)
    expect_last_line(output, "4 passed, 0 failed, 0 skipped")  # three presets and the lint


def test_skips_are_named(root):
    make_tree(root, {"tells": (TELLS, ["harness"])})
    code, output = run_script(root)
    expect(code, output, 0, "\nskip release/tells tells: options ''\n",
           "\nskip asan/tells tells: options '--fast'\n",
           "\nskip tsan/tells tells: options '--fast'\n")
    expect_last_line(output, "7 passed, 0 failed, 3 skipped")


def test_fast(root):
    make_tree(root, {"tells": (TELLS, ["harness"]), "slow": (GOOD, ["harness", "slow"])})
    code, output = run_script(root, "--fast")
    expect(code, output, 0, "options '--fast'")
    expect_last_line(output, "2 passed, 0 failed, 1 skipped")


def test_labels(root):
    make_tree(root, {"slow": (GOOD, ["harness", "slow"]), "once": (GOOD, ["release-only"])})
    code, output = run_script(root)
    expect(code, output, 0)
    expect_last_line(output, "3 passed, 0 failed, 0 skipped")


def test_bad_program(root, script, reason, last_line):
    make_tree(root, {"good": (GOOD, ["release-only"]), "bad": (script, ["release-only"])})
    code, output = run_script(root)
    expect(code, output, 1, f"\nFAIL release/bad{reason}\n")
    expect_last_line(output, last_line)


BAD_PROGRAMS = [
    ("failure", SHELL + "echo 'FAIL x: because'\necho '5 passed, 1 failed, 0 skipped'\nexit 1\n",
     " x: because", "7 passed, 1 failed, 0 skipped"),
    ("crash", SHELL + "echo 'ok one'\nkill -SEGV $$\n",
     ": no closing line; killed by signal 11", "2 passed, 1 failed, 0 skipped"),
    ("silence", SHELL, ": no closing line; exited with 0", "2 passed, 1 failed, 0 skipped"),
    ("late_output", GOOD + "echo more\n", ": no closing line; exited with 0",
     "2 passed, 1 failed, 0 skipped"),
    ("bad_exit", GOOD + "exit 3\n", ": 0 failed, but exited with 3",
     "3 passed, 1 failed, 0 skipped"),
    ("good_exit_of_failure", SHELL + "echo '0 passed, 1 failed, 0 skipped'\n",
     ": 1 failed, but exited with 0", "2 passed, 2 failed, 0 skipped"),
    ("missing_program", "#!/nowhere/interpreter\n", ": no closing line; could not be started",
     "2 passed, 1 failed, 0 skipped"),
]


def test_lint_fails(root):
    make_tree(root, lint=SHELL + "echo 'x.c:1: ugly'\nexit 1\n")
    code, output = run_script(root)
    expect(code, output, 1, "    x.c:1: ugly\n", "\nFAIL lint: exited with 1\n")
    expect_last_line(output, "0 passed, 1 failed, 0 skipped")


def test_build_fails(root):
    """A build that fails does not hide the others."""
    make_tree(root, {"good": (GOOD, [])}, build=SHELL + '[ "$1" != asan ]\n')
    code, output = run_script(root)
    expect(code, output, 1, "\nFAIL build asan: exited with 1\n")
    expect_last_line(output, "3 passed, 1 failed, 0 skipped")


def test_fuzzers(root):
    make_tree(root, fuzzers={"a": SHELL, "b": SHELL + "echo boom\nexit 77\n", "c": SHELL},
              corpus=("a", "b"))
    code, output = run_script(root)
    expect(code, output, 1, "\nFAIL fuzz/b: exited with 77",
           "\nFAIL fuzz/c: no corpus in tests/fuzz/corpus/c\n", "    boom\n")
    expect_last_line(output, "2 passed, 2 failed, 0 skipped")


def test_lab(root):
    """What the lab adds is in the same sum, and runs once."""
    make_tree(root, lab="def run(report):\n"
                        "    report.announce('verbs/x')\n"
                        "    report.count_program('verbs/x', 0, '5 passed, 0 failed, 0 skipped')\n"
                        "    report.skip('verbs/y', 'no QEMU')\n")
    code, output = run_script(root)
    expect(code, output, 0, "] verbs/x\n        5 passed, 0 failed, 0 skipped\n",
           "\nskip verbs/y: no QEMU\n")
    expect_last_line(output, "6 passed, 0 failed, 1 skipped")


TESTS = [("sums", test_sums, ()), ("skips_are_named", test_skips_are_named, ()),
         ("fast", test_fast, ()), ("labels", test_labels, ()),
         ("lint_fails", test_lint_fails, ()), ("build_fails", test_build_fails, ()),
         ("fuzzers", test_fuzzers, ()), ("lab", test_lab, ())]
TESTS += [(name, test_bad_program, rest) for name, *rest in BAD_PROGRAMS]

if __name__ == "__main__":
    sys.exit(run_tests(TESTS))
