"""What the tests of the tools share: a server, a free port, and the runner.

A test program has the programs' directory as its first argument. Its tests are functions `test_*`;
the words behind its fixed arguments pick those whose name contains one of them. The last line
counts them: "N passed, N failed, N skipped".
"""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback

BIN = sys.argv[1]
NUL = subprocess.DEVNULL
# What kv-client answers to a put.
PUT = re.compile(r"OK \(version: \d+\)\n")
READY_S = 30


class Skip(Exception):
    """What the test is about is not in this build, or not on this machine."""


class Server:
    """A kv-server on a free port, ended at the end of the block."""

    DEFAULTS = ("-a", "127.0.0.1", "-p", "0", "-m", "64")

    def __init__(self, *arguments, defaults=None, **more):
        self.directory = tempfile.TemporaryDirectory(prefix="kv-server-")
        self.log = os.path.join(self.directory.name, "log")
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                [f"{BIN}/kv-server", *(self.DEFAULTS if defaults is None else defaults),
                 *arguments], stdin=NUL, stdout=log, stderr=log, **more)
        self.port = None

    def __enter__(self):
        try:
            self.wait_for_text("\nready\n")
        except BaseException:
            self.__exit__()
            raise
        self.port = re.search(r"^port: (\d+)$", self.text(), re.M)[1]
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.directory.cleanup()

    def text(self):
        with open(self.log) as log:
            return log.read()

    def wait_for_text(self, text):
        end = time.monotonic() + READY_S
        while text not in self.text():
            assert self.process.poll() is None and time.monotonic() < end, self.text()
            time.sleep(0.02)

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.process.wait(READY_S)

    def client(self, *words, device="shm", **more):
        if "input" not in more:
            more.setdefault("stdin", NUL)
        return subprocess.run([f"{BIN}/kv-client", "-p", self.port, "-d", device, *words],
                              capture_output=True, timeout=60, **more)

    def expect(self, code, output, *words, **more):
        result = self.client(*words, **more)
        check_answer(result, code, output)
        return result

    def version(self, key):
        """Versions are large and never the same twice: no test knows one beforehand."""
        return int(re.match(rb"version (\d+)\n", self.client("stat", key).stdout)[1])


def check_answer(result, code, output):
    """output: what must be on stdout, as text or as a pattern."""
    said = result.stdout if isinstance(result.stdout, str) else result.stdout.decode()
    matches = said == output if isinstance(output, str) else output.fullmatch(said)
    assert result.returncode == code and matches, (output, result)


def run(program, *arguments, **more):
    return subprocess.run([f"{BIN}/{program}", *arguments], capture_output=True, text=True,
                          timeout=60, stdin=NUL, **more)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def run_tests(tests, words):
    """Runs those of the dictionary's test_* whose name has one of the words; all without words."""
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for name, function in list(tests.items()):
        picked = not words or any(word in name for word in words)
        if not name.startswith("test_") or not picked:
            continue
        start = time.monotonic()
        try:
            function()
            print(f"ok {name[5:]} ({(time.monotonic() - start) * 1000:.0f} ms)", flush=True)
            counts["passed"] += 1
        except Skip as reason:
            print(f"skip {name[5:]}: {reason}", flush=True)
            counts["skipped"] += 1
        except Exception:
            print(f"FAIL {name[5:]}: {traceback.format_exc()}", flush=True)
            counts["failed"] += 1
    print(", ".join(f"{count} {what}" for what, count in counts.items()))
    return 1 if counts["failed"] else 0


def main(tests, words):
    """Runs the tests where nothing of the caller's environment matters; returns the exit code."""
    for variable in ("REMORA_LOG", "REMORA_KEY_FILE", "NOTIFY_SOCKET", "COLUMNS", "NO_COLOR"):
        os.environ.pop(variable, None)
    # A shell that runs us in the background has it ignored, and so would all that we start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Servers that are killed leave their socket files: where nobody else looks for them.
    with tempfile.TemporaryDirectory(prefix="kv-shm-") as shm_directory:
        os.environ["REMORA_SHM_DIR"] = shm_directory
        return run_tests(tests, words)
