"""The goals of the key-value service on verbs, measured in an emulated guest with soft-RoCE beside
perftest; a part of bench-kv.

Client and server are two processes in one guest, each on a core of its own, as with bench-verbs,
whose perftest is used here. A kv-server is started for each measurement, so that nothing else runs
beside perftest. The figures are those of an emulated machine and say nothing by themselves; the
ratios say what our code adds to the same verbs.

A small GET reads its item, a small PUT is a request of header, key and value: perftest is given
messages of as many bytes. Long values are measured with some of them under way, as perftest has.
"""

import importlib.machinery
import importlib.util
import json
import os

from benchgoals import Goal, measure_rounds, show_progress
from lab.guest import Guest, GuestFailure
from lab.image import get_image
from lab.kernel import Unavailable

MIB = 1 << 20
PORT = 12345
KEYS = {"64": 1000, "1MB": 16}
GET_BYTES = PUT_BYTES = 128
LONG_WINDOW = 4
LONG_DEPTH = 16
PERF_TIMEOUT_S = 600
# How long an operation takes differs from boot to boot (a GET of the same program had 1.05 to 1.17
# times ib_read_lat), and from round to round (an ib_send_lat 13, 18 or 21 us). So there are several
# guests, one after the other.
GUESTS = 3
NAMES = ["verbs: GET 64 B, place known, p50", "verbs: PUT 64 B, p50", "verbs: PUT 1 MiB",
         "verbs: GET 1 MiB"]


def load_bench_verbs():
    """That program, as a module."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bench-verbs")
    loader = importlib.machinery.SourceFileLoader("bench_verbs", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("bench_verbs", loader))
    loader.exec_module(module)
    return module


class Options:
    """What Contestants of bench-verbs looks at."""

    def __init__(self, seconds):
        self.device, self.seconds = "verbs:rxe0", seconds


class KvBench:
    """kv-bench in the guest; every call measures once, against a new server."""

    def __init__(self, verbs, guest, build, seconds):
        self.verbs, self.guest, self.seconds = verbs, guest, seconds
        self.server, self.perf = f"{build}/bin/kv-server", f"{build}/bin/kv-bench"
        self.rows = []

    def measure(self, figure, test, size, *arguments):
        server = self.guest.start(
            ["taskset", "-c", str(self.verbs.SERVER_CPU), self.server, "-a", self.verbs.ADDRESS,
             "-p", str(PORT), "-m", "128", "-w", "1", "--listen", "verbs:rxe0"])
        try:
            server.wait_for("ready")
            output = self.verbs.check("kv-bench", self.guest.run(
                [self.perf, test, "--json", "--url", f"verbs://{self.verbs.ADDRESS}:{PORT}",
                 "--rounds", "1", "--seconds", str(self.seconds), "--keys", str(KEYS[size]),
                 "--value-size", size, "--cpus", str(self.verbs.CLIENT_CPU), "--timeout", "30",
                 *arguments], PERF_TIMEOUT_S))
        finally:
            server.kill()
        row = json.loads(output.strip().splitlines()[-1])
        self.rows.append({"contestant": "ours", **row})
        return row[figure]


def make_goals(kv, perftest):
    def typical(name, size):
        return 1e3 * perftest.perftest(name, 60, "-s", str(size))["t_typical[usec]"]

    def bandwidth(name):
        row = perftest.perftest(name, 30000, "-s", str(MIB), "-t", str(LONG_DEPTH))
        return MIB * row["BW average[MB/sec]"]

    window = ("--window", str(LONG_WINDOW))
    return [
        Goal(NAMES[0], "ns", "<=", 1.15, lambda: kv.measure("p50_ns", "get", "64", "--cached"),
             lambda: typical("ib_read_lat", GET_BYTES), "ib_read_lat"),
        Goal(NAMES[1], "ns", "<=", 1.3, lambda: kv.measure("p50_ns", "put", "64"),
             lambda: 2 * typical("ib_send_lat", PUT_BYTES), "2 x ib_send_lat"),
        Goal(NAMES[2], "MB/s", ">=", 0.9,
             lambda: kv.measure("bytes_per_s", "async-put", "1MB", *window),
             lambda: bandwidth("ib_write_bw"), "ib_write_bw"),
        Goal(NAMES[3], "MB/s", ">=", 0.9,
             lambda: kv.measure("bytes_per_s", "async-get", "1MB", *window),
             lambda: bandwidth("ib_read_bw"), "ib_read_bw"),
    ]


def measure(build, rounds, seconds):
    """(goals, rows), or a text that says why there are none."""
    verbs = load_bench_verbs()
    build = os.path.relpath(build, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    programs = [f"{build}/bin/kv-server", f"{build}/bin/kv-bench"]
    kv = KvBench(verbs, None, build, seconds)
    perftest = verbs.Contestants(None, None, Options(seconds))
    goals = make_goals(kv, perftest)
    try:
        for _ in range(GUESTS):
            show_progress("verbs: booting the guest")
            with Guest(get_image(), programs, name="bench-kv") as guest:
                kv.guest = perftest.guest = guest
                measure_rounds(goals, rounds)
        return goals, kv.rows + perftest.rows
    except (Unavailable, GuestFailure, verbs.Failed, FileNotFoundError) as error:
        return str(error)
