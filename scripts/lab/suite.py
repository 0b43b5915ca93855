"""What `make test-verbs` runs, and `make test` with it.

A program of the build is one line in PROGRAMS: it runs in a guest alone, with rxe0 (10.77.0.1,
fd77::1) and rxe1 (10.78.0.1, fd78::1), and ends with the usual closing line. What needs two hosts,
or a hand from outside, is a script tests/verbs_lab/*_test.py that boots its own guests.
"""

import subprocess

import testreport
from lab.guest import Guest, GuestFailure
from lab.image import get_image
from lab.kernel import Unavailable
from testreport import LOGS, ROOT

CONFORMANCE = "build/tests/fabric_conformance"
# name, command, and how long it may take
PROGRAMS = [
    ("fabric_conformance_verbs", f"{CONFORMANCE} --provider verbs --host 10.77.0.1", 1800),
    ("fabric_conformance_verbs_socket",
     f"{CONFORMANCE} --provider verbs:rxe0,socket --host 10.77.0.1 ", 1800),
    ("verbs_cm_hostile_test", "build/tests/verbs_cm_hostile_test", 600),
    ("verbs_hostile_test", "build/tests/verbs_hostile_test", 900),
    # It takes rights and links away, and gives them back: so after all others.
    ("verbs_doctor_test", "build/tests/verbs_doctor_test guest", 300),
]
SCRIPTS = sorted((ROOT / "tests" / "verbs_lab").glob("*_test.py"))
SCRIPT_TIMEOUT_S = 1800
# The guest is emulated: several times slower than the machine that it runs on.
ENVIRONMENT = {"TEST_TIME_SCALE": "4"}


def program_files(command):
    """The programs of the build that a command names."""
    return [word for word in command.split() if word.startswith("build/")]


def check_build():
    output = subprocess.run(["ldd", ROOT / CONFORMANCE], capture_output=True, text=True,
                            check=False).stdout
    if "libibverbs" not in output:
        raise Unavailable("this build has no verbs (libibverbs-dev and librdmacm-dev are missing)")


class Lab:
    """A guest for all programs, booted when the first needs it, and again after it has failed."""

    def __init__(self, image, programs):
        self.image, self.programs, self.guest = image, programs, None

    def run(self, name, command, timeout_s, output):
        """A Result; the output also goes to a file as it comes."""
        if not self.guest:
            self.guest = Guest(self.image, self.programs, name="suite")
        try:
            return self.guest.run(command, timeout_s, ENVIRONMENT, on_output=output.write)
        except GuestFailure:
            self.close()
            raise

    def close(self):
        if self.guest:
            self.guest.close()
            self.guest = None


def run_program(report, lab, name, command, timeout_s):
    where = f"verbs/{name}"
    report.announce(where)
    try:
        with open(LOGS / f"verbs-{name}.log", "wb", buffering=0) as output:
            result = lab.run(name, command, timeout_s, output)
    except GuestFailure as failure:
        testreport.print_indented(str(failure))
        report.fail(where, str(failure).split("\n", maxsplit=1)[0])
        return
    report.count_program(where, result.code, result.output)


def run_script(report, script):
    report.announce(f"verbs/{script.stem}")
    code, text = testreport.run([script], f"verbs-{script.stem}", timeout=SCRIPT_TIMEOUT_S)
    report.count_program(f"verbs/{script.stem}", code, text)


def run(report, text=""):
    """Runs everything whose name contains the text, and counts it in the report. What cannot run
    on this machine is skipped by name."""
    LOGS.mkdir(parents=True, exist_ok=True)
    programs = [entry for entry in PROGRAMS if text in entry[0]]
    scripts = [script for script in SCRIPTS if text in script.stem]
    try:
        check_build()
        image = get_image()
    except Unavailable as reason:
        for name in [entry[0] for entry in programs] + [script.stem for script in scripts]:
            report.skip(f"verbs/{name}", str(reason))
        return
    lab = Lab(image, sorted({path for entry in programs for path in program_files(entry[1])}))
    try:
        for entry in programs:
            run_program(report, lab, *entry)
    finally:
        lab.close()
    for script in scripts:
        run_script(report, script)
