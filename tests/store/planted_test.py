#!/usr/bin/env python3
"""Shows that store_readers_test notices what it is made for.

    planted_test.py STORE_READERS_TEST PROGRAM=TEST...

The first program has the store as it is, and must pass. Each of the others has a store with one
planted bug (planted.cmake): its test has to fail because a reader got wrong data. A crash, or a
failure of another kind, does not count. What is a race gets a few tries.
"""

import os
import subprocess
import sys
import time

RUN_MS = 1500
TRIES = 3
TIMEOUT_S = 30
NOTICED = "wrong data: "


def run(program, test):
    """Exit code and output; the code is None when it took too long."""
    environment = dict(os.environ, STORE_READERS_MS=str(RUN_MS))
    command = [program] + (["--filter", test] if test else [])
    try:
        result = subprocess.run(command, env=environment, text=True, check=False,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired as expired:
        return None, str(expired.stdout or "")
    return result.returncode, result.stdout


def find_failures(output):
    return [line for line in output.splitlines() if line.startswith("FAIL ")]


def check_sound(program):
    code, output = run(program, None)
    if code == 0:
        return None
    return f"exit code {code}: " + " | ".join(find_failures(output) or output.splitlines()[-3:])


def check_planted(program, test):
    """None if the bug was noticed, else what happened instead."""
    happened = f"not noticed in {TRIES} runs of {RUN_MS} ms"
    for _ in range(TRIES):
        code, output = run(program, test)
        failures = find_failures(output)
        if code == 1 and any(NOTICED in failure for failure in failures):
            return None
        # A store that a bug has spoiled may crash before a reader gets to see it.
        if code != 0:
            happened = f"exit code {code}, but no wrong data: " + " | ".join(failures or [output])
    return happened


def main():
    sound, *planted = sys.argv[1:]
    cases = [("sound", check_sound, (sound,))]
    for argument in planted:
        program, test = argument.rsplit("=", maxsplit=1)
        name = os.path.basename(program).removeprefix("store_planted_")
        cases.append((name, check_planted, (program, test)))
    failed = 0
    for name, check, arguments in cases:
        start = time.monotonic()
        problem = check(*arguments)
        failed += problem is not None
        took = f"({(time.monotonic() - start) * 1000:.0f} ms)"
        print(f"FAIL {name}: {problem}" if problem else f"ok {name} {took}", flush=True)
    print(f"{len(cases) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
