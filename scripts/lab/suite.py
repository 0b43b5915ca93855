"""What `make test-verbs` runs, and `make test` with it.

A program of the build is one line in GUESTS: it runs in a guest alone, with rxe0 (10.77.0.1,
fd77::1) and rxe1 (10.78.0.1, fd78::1), and ends with the usual closing line. Two guests run side by
side, each on one core. What needs two hosts, or a hand from outside, is a script
tests/verbs_lab/*_test.py that boots its own guests.
"""

import subprocess
import threading

import testreport
from lab.guest import Guest
from lab.image import get_image
from lab.kernel import Unavailable
from testreport import LOGS, ROOT

CONFORMANCE = "build/tests/fabric_conformance"
MESH = "build/tests/mesh_conformance --provider verbs --host 10.77.0.1"
RDMA = "build/tests/rdma_conformance --provider verbs --host 10.77.0.1"
# For each guest: name, command, and how long it may take. Both guests take about as long.
GUESTS = [
    [
        ("fabric_conformance_verbs", f"{CONFORMANCE} --provider verbs --host 10.77.0.1", 1800),
        # The same without what takes long, for `make test`.
        ("fabric_conformance_verbs_fast",
         f"{CONFORMANCE} --provider verbs --host 10.77.0.1 --fast", 900),
        # What could depend on the address family is in these.
        ("fabric_conformance_verbs_ipv6",
         f"{CONFORMANCE} --provider verbs --host [fd77::1] --filter connect_", 300),
        ("domains_verbs", "build/tests/domains_test --device verbs:rxe0 --address 10.77.0.1:0 "
         "--device verbs:rxe1 --address 10.78.0.1:0 --large-kib 1024", 600),
        ("pingpong_verbs",
         "build/tests/pingpong_test --provider verbs --host 10.77.0.1 --fast", 600),
        ("verbs_cm_hostile_test", "build/tests/verbs_cm_hostile_test", 600),
        ("mesh_conformance_verbs", f"{MESH} --fast", 900),
        ("rdma_conformance_verbs", f"{RDMA} --fast", 1200),
        # Parts of these two, for `make test`: what lies nearest to the adapter.
        ("mesh_verbs_memory", f"{MESH} --fast --filter memory_", 300),
        ("rdma_verbs_memory", f"{RDMA} --fast --filter memory_", 300),
        # Values that the gRPC server pushes and pulls.
        ("control_client_verbs", "build/tests/control_client_test --provider verbs:rxe0 "
         "--host 10.77.0.1 --fast --filter own_memory", 300),
        ("data_plane_verbs", "build/tests/data_plane_test --provider verbs:rxe0 "
         "--host 10.77.0.1 --fast --filter places", 300),
    ],
    [
        ("fabric_conformance_verbs_socket",
         f"{CONFORMANCE} --provider verbs:rxe0,socket --host 10.77.0.1", 1800),
        # How one connects is what differs; this is a part of the one before, for `make test`.
        ("fabric_conformance_verbs_socket_connect",
         f"{CONFORMANCE} --provider verbs:rxe0,socket --host 10.77.0.1 --filter connect_", 300),
        ("fabric_conformance_verbs_socket_ipv6",
         f"{CONFORMANCE} --provider verbs:socket --host [fd77::1] --filter connect_", 300),
        ("verbs_hostile_test", "build/tests/verbs_hostile_test", 900),
        ("linear_verbs", "build/tests/linear_test --filter verbs_", 300),
        ("kv_conformance_verbs", "build/tests/kv_conformance --provider verbs --host 10.77.0.1 "
         "--fast", 900),
        ("kv_conformance_verbs_socket",
         "build/tests/kv_conformance --provider verbs:rxe0,socket --host 10.77.0.1 --fast "
         "--filter all_sizes", 300),
        ("kv_modes_verbs",
         "build/tests/kv_modes_test guest build/bin/kv-server build/bin/kv-client", 300),
        # These take rights and links away, and give them back: so after all others.
        ("kv_doctor_verbs", "build/tests/kv_doctor_parts_test guest", 300),
        ("verbs_doctor_test", "build/tests/verbs_doctor_test guest", 300),
    ],
]
PROGRAMS = [entry for entries in GUESTS for entry in entries]
SCRIPTS = sorted((ROOT / "tests" / "verbs_lab").glob("*_test.py"))
# What `make test` leaves out: that the lab itself is right, shown with programs of others; and what
# takes minutes and is nearly the same as another one.
LONG = {"wire_test", "fabric_conformance_verbs", "fabric_conformance_verbs_socket",
        "fabric_conformance_verbs_socket_ipv6", "mesh_conformance_verbs", "rdma_conformance_verbs",
        "pingpong_verbs"}
SCRIPT_TIMEOUT_S = 1800
# The guest is emulated: several times slower than the machine that it runs on.
ENVIRONMENT = {"TEST_TIME_SCALE": "10"}


def program_files(command):
    """The programs of the build that a command names."""
    return [word for word in command.split() if word.startswith("build/")]


def check_build():
    output = subprocess.run(["ldd", ROOT / CONFORMANCE], capture_output=True, text=True,
                            check=False).stdout
    if "libibverbs" not in output:
        raise Unavailable("this build has no verbs (libibverbs-dev and librdmacm-dev are missing)")


class Lab:
    """A guest for some programs, booted when the first needs it, and again after it has failed."""

    def __init__(self, image, number, programs, report, lock):
        self.image, self.name, self.programs = image, f"suite{number}", programs
        self.report, self.lock = report, lock
        self.guest = None

    def run_all(self):
        try:
            for entry in self.programs:
                self.run_program(*entry)
        finally:
            self.close()

    def run_program(self, name, command, timeout_s):
        where = f"verbs/{name}"
        with self.lock:
            self.report.announce(f"{where} begins")
        try:
            with open(LOGS / f"verbs-{name}.log", "wb", buffering=0) as output:
                result = self.run_in_guest(command, timeout_s, output)
        except Exception as failure:  # whatever it is, the program has not passed
            self.close()
            with self.lock:
                self.report.announce(where)
                testreport.print_indented(str(failure))
                reason = str(failure) or type(failure).__name__
                self.report.fail(where, reason.split("\n", maxsplit=1)[0])
            return
        with self.lock:
            self.report.announce(where)
            self.report.count_program(where, result.code, result.output)

    def run_in_guest(self, command, timeout_s, output):
        """A Result; the output also goes to a file as it comes."""
        if not self.guest:
            files = sorted({path for entry in self.programs for path in program_files(entry[1])})
            self.guest = Guest(self.image, files, name=self.name, cpus=1)
        return self.guest.run(command, timeout_s, ENVIRONMENT, on_output=output.write)

    def close(self):
        if self.guest:
            self.guest.close()
            self.guest = None


def run_script(report, script):
    report.announce(f"verbs/{script.stem}")
    code, text = testreport.run([script], f"verbs-{script.stem}", timeout=SCRIPT_TIMEOUT_S)
    report.count_program(f"verbs/{script.stem}", code, text)


def run(report, text="", long_too=False):
    """Runs everything whose name contains the text, and counts it in the report. What cannot run
    on this machine is skipped by name. long_too: also what `make test` leaves out."""
    LOGS.mkdir(parents=True, exist_ok=True)

    def is_wanted(name):
        return text in name and (long_too or name not in LONG)

    guests = [[entry for entry in entries if is_wanted(entry[0])] for entries in GUESTS]
    scripts = [script for script in SCRIPTS if is_wanted(script.stem)]
    try:
        check_build()
        image = get_image()
    except Unavailable as reason:
        names = [entry[0] for entries in guests for entry in entries]
        for name in names + [script.stem for script in scripts]:
            report.skip(f"verbs/{name}", str(reason))
        return
    lock = threading.Lock()
    labs = [Lab(image, number, entries, report, lock) for number, entries in enumerate(guests)]
    threads = [threading.Thread(target=lab.run_all) for lab in labs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for script in scripts:
        run_script(report, script)
