"""What scripts/test and scripts/test-verbs share: they run test programs, count what each says
about itself in its closing line, and name every failure and every skip again at the end.
"""

import os
import re
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
LOGS = BUILD / "test-logs"
PROGRAM_TIMEOUT_S = 3600
TIMED_OUT = "timed out"
NOT_STARTED = "not started"

CLOSING_LINE = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$")


def run(command, log_name, environment=None, timeout=PROGRAM_TIMEOUT_S):
    """Runs a command with its output in a log; returns its exit code (or one of the words
    above) and what it wrote."""
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"{log_name}.log"
    with open(log, "wb") as output:
        try:
            code = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output,
                                  stderr=subprocess.STDOUT, timeout=timeout, check=False,
                                  env={**os.environ, **(environment or {})}).returncode
        except subprocess.TimeoutExpired:
            code = TIMED_OUT
        except OSError as error:
            output.write(f"{error}\n".encode())
            code = NOT_STARTED
    return code, log.read_text(errors="replace")


def describe_exit(code):
    if code == TIMED_OUT:
        return "not finished in time"
    if code == NOT_STARTED:
        return "could not be started"
    return f"killed by signal {-code}" if code < 0 else f"exited with {code}"


def print_indented(text, last_lines=40):
    for line in text.splitlines()[-last_lines:]:
        print(f"    {line}")


class Report:
    """The sums so far, and the lines about them."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.failures, self.skips = [], []
        self.start_time = time.monotonic()

    def announce(self, text):
        elapsed = int(time.monotonic() - self.start_time)
        print(f"[{elapsed // 60:2}:{elapsed % 60:02}] {text}", flush=True)

    def fail(self, where, reason):
        self.failed += 1
        self.failures.append(f"FAIL {where}: {reason}")

    def skip(self, where, reason):
        self.skipped += 1
        self.skips.append(f"skip {where}: {reason}")

    def step(self, name, command):
        """A step that passes or fails as a whole: the lint, a build."""
        self.announce(name)
        code, text = run(command, name.replace(" ", "-"))
        if code != 0:
            print_indented(text)
            self.fail(name, describe_exit(code))
            return False
        return True

    def count_program(self, where, code, text):
        """Adds what a test program says about itself, and prints its counts; its last words, too,
        if something has failed."""
        failures = len(self.failures)
        print(f"        {self.add_counts(where, code, text)}", flush=True)
        if len(self.failures) > failures:
            print_indented(text)

    def add_counts(self, where, code, text):
        lines = text.rstrip("\n").splitlines()
        closing = CLOSING_LINE.match(lines[-1]) if lines else None
        for line in lines:
            if line.startswith("FAIL "):
                self.failures.append(f"FAIL {where} {line[5:]}")
            elif line.startswith("skip "):
                self.skips.append(f"skip {where} {line[5:]}")
        if not closing:
            self.fail(where, f"no closing line; {describe_exit(code)}")
            return "no closing line"
        passed, failed, skipped = (int(number) for number in closing.groups())
        self.passed += passed
        self.failed += failed
        self.skipped += skipped
        if (code == 0) != (failed == 0):
            self.fail(where, f"{failed} failed, but {describe_exit(code)}")
        return closing[0]

    def close(self):
        """Prints everything again that did not pass, and the sum; returns the exit code."""
        self.announce("done")
        for line in self.skips + self.failures:
            print(line)
        print(f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped", flush=True)
        return 1 if self.failed else 0
