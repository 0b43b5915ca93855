"""What the tests with two hosts share. A scenario is a function that gets a Pair (scripts/lab):

    def test_restored(pair):
        pair.cut()
        ...
        expect(result.code == 0, f"rping says {result.output}")

    if __name__ == "__main__":
        sys.exit(run_scenarios([("restored", test_restored)], programs=["build/bin/fabric-perf"]))

Scenarios share a pair as long as it is whole: after one that fails or kills a host the next gets a
new one. The wire is restored, and what still runs in the hosts is killed, before each.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from lab.guest import GuestFailure, Pair  # noqa: E402
from lab.image import get_image  # noqa: E402
from lab.kernel import Unavailable  # noqa: E402


class Failure(Exception):
    """What was expected did not happen."""


def expect(condition, text):
    if not condition:
        raise Failure(text)


class Stage:
    """Has a pair ready for whoever is next."""

    def __init__(self, image, programs):
        self.image, self.programs, self.pair = image, programs, None

    def prepare(self):
        if self.pair and not self.pair.is_whole():
            self.close()
        if not self.pair:
            self.pair = Pair(self.image, self.programs, name=Path(sys.argv[0]).stem)
        else:
            self.pair.clean()
        return self.pair

    def close(self):
        if self.pair:
            self.pair.close()
            self.pair = None


def run_one(stage, name, function):
    begin = time.monotonic()
    try:
        function(stage.prepare())
    except (Failure, GuestFailure) as failure:
        stage.close()
        # The reason is one line, and what a guest's console says goes below it.
        print(f"FAIL {name}: {failure}", flush=True)
        return False
    print(f"ok {name} ({int((time.monotonic() - begin) * 1000)} ms)", flush=True)
    return True


def run_scenarios(scenarios, programs=()):
    """Runs (name, function) in this order; prints as every test program does."""
    selected = [entry for entry in scenarios if not sys.argv[1:] or sys.argv[1] in entry[0]]
    try:
        stage = Stage(get_image(), programs)
    except Unavailable as reason:
        for name, _ in selected:
            print(f"skip {name}: {reason}")
        print(f"0 passed, 0 failed, {len(selected)} skipped")
        return 0
    try:
        passed = sum([run_one(stage, *entry) for entry in selected])
    finally:
        stage.close()
    failed = len(selected) - passed
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0
