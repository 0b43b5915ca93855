"""What the tests of the scripts share: a directory for each test, and the closing line."""

import os
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Failure(Exception):
    pass


class Skip(Exception):
    pass


def write_tree(root, files, executable=False):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if executable:
            path.chmod(0o755)


def expect(code, output, expected_code, *parts):
    """Checks an exit code, and that each part occurs in the output."""
    for part in parts or ("",):
        if code != expected_code or part not in output:
            raise Failure(f"exit code {code}, expected {expected_code} with '{part}'; output: "
                          + output.replace("\n", " | "))


def run_tests(tests):
    """Runs (name, function, arguments) each with an empty directory as first argument."""
    # A repository around the temporary directory, if there were one, must not matter.
    os.environ.pop("GIT_DIR", None)
    os.environ["GIT_CEILING_DIRECTORIES"] = tempfile.gettempdir()
    passed = failed = skipped = 0
    for name, function, arguments in tests:
        with tempfile.TemporaryDirectory() as directory:
            try:
                function(Path(directory), *arguments)
                print(f"ok {name}")
                passed += 1
            except Skip as reason:
                print(f"skip {name}: {reason}")
                skipped += 1
            except Failure as failure:
                print(f"FAIL {name}: {failure}")
                failed += 1
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0
