#!/usr/bin/env python3
"""Drives the examples that need a server, and the tour.

usage: kv_tools_test.py BIN_DIRECTORY SOURCE_DIRECTORY [NAME...]

Each test is a function `test_*`, with a server of its own where it needs one; a NAME picks those
whose name contains it. The last line counts them: "N passed, N failed, N skipped".
"""

import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback

BIN, SOURCE = sys.argv[1], sys.argv[2]
TRANSPORTS = ["shm", "tcp"]
NUL = subprocess.DEVNULL


class Server:
    """A kv-server on a free port, ended at the end of the block."""

    def __init__(self, *arguments):
        self.directory = tempfile.TemporaryDirectory(prefix="kv-tools-")
        self.log = os.path.join(self.directory.name, "log")
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                [f"{BIN}/kv-server", "-a", "127.0.0.1", "-p", "0", "-m", "64", *arguments],
                stdin=NUL, stdout=log, stderr=log)
        self.port = None

    def __enter__(self):
        end = time.monotonic() + 20
        while "\nready\n" not in self.text():
            assert self.process.poll() is None and time.monotonic() < end, self.text()
            time.sleep(0.02)
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

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.process.wait(20)

    def client(self, *words, device="shm", **more):
        more.setdefault("stdin", None if "input" in more else NUL)
        if more["stdin"] is None:
            del more["stdin"]
        return subprocess.run([f"{BIN}/kv-client", "-p", self.port, "-d", device, *words],
                              capture_output=True, timeout=60, **more)

    def expect(self, code, output, *words, **more):
        result = self.client(*words, **more)
        got = (result.returncode, result.stdout.decode())
        assert got == (code, output), f"{words}: {got} {result.stderr}"
        return result



def run(program, *arguments, **more):
    return subprocess.run([f"{BIN}/{program}", *arguments], capture_output=True, text=True,
                          timeout=60, stdin=NUL, **more)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


# ---------------------------------------------------------------- examples and tour


def test_examples():
    with Server() as server:
        for url in (f"shm:kv-{server.port}", f"tcp://127.0.0.1:{server.port}"):
            result = run("examples/04_kv", url)
            assert result.stdout == ("get: remora\ncas: a newer version\ncas again: refused\n"
                                     "ttl: within a minute\nget: not found\n"), result
            result = run("examples/05_async", url)
            assert result.stdout == "1000 of 1000 values are right\n", result
            result = run("examples/06_update", url)
            letters = re.fullmatch(r"40 letters: ([abcd]{40})\n", result.stdout)
            assert result.returncode == 0 and letters, result
            assert all(letters[1].count(letter) == 10 for letter in "abcd"), result
        server.expect(0, "", "scan", "0")
    for example in ("04_kv", "05_async", "06_update"):
        result = run(f"examples/{example}", f"tcp://127.0.0.1:{free_port()}")
        assert result.returncode == 1 and result.stderr, result


def tour(directory):
    """(command, environment) of a tour with a short benchmark, that leaves its files there."""
    return [f"{SOURCE}/scripts/kv-tour"], {**os.environ, "REMORA_BIN": BIN, "TMPDIR": directory,
                                           "REMORA_TOUR_SECONDS": "1"}


def check_tour(text):
    for line in ("OK (new version: 2)", "CAS FAILED (current version: 2)", "42", "the same"):
        assert f"\n{line}\n" in text, (line, text)
    assert re.search(r"^get +mapped +\d", text, re.M), text
    assert re.search(r"^put +eager +\d", text, re.M), text
    assert re.search(r"#{3}|\*{3}|█{3}|={3}", text), text  # the histogram's bars


def test_tour():
    with tempfile.TemporaryDirectory() as directory:
        command, environment = tour(directory)
        result = subprocess.run(command, capture_output=True, text=True, timeout=120, stdin=NUL,
                                env=environment)
        assert result.returncode == 0, result
        check_tour(result.stdout)
        assert not os.listdir(directory), os.listdir(directory)


def test_tour_on_a_terminal():
    """At its end the prompt opens; what is typed there works, and Ctrl-D ends everything."""
    with tempfile.TemporaryDirectory() as directory:
        command, environment = tour(directory)
        pid, terminal = pty.fork()
        if pid == 0:
            os.execvpe(command[0], command, {**environment, "TERM": "xterm", "HOME": directory})
        text, end = b"", time.monotonic() + 120
        answers = [(b"Ctrl-D ends prompt and server", b"get fish\r"), (b"shark\r\n", b"\x04")]
        while True:
            assert time.monotonic() < end, text
            if not select.select([terminal], [], [], 1)[0]:
                continue
            try:
                text += os.read(terminal, 4096)
            except OSError:  # nobody has the terminal open any more
                break
            # What came before is not looked at again: the value was seen in the tour, too.
            if answers and answers[0][0] in text.split(b"Now you:")[-1]:
                time.sleep(0.3)
                os.write(terminal, answers.pop(0)[1])
        assert not answers, text
        assert os.waitpid(pid, 0)[1] == 0, text
        left = [name for name in os.listdir(directory) if not name.startswith(".")]
        assert not left, left


# ---------------------------------------------------------------- runner


def main():
    counts = {"passed": 0, "failed": 0}
    for name, function in list(globals().items()):
        picked = len(sys.argv) == 3 or any(word in name for word in sys.argv[3:])
        if not name.startswith("test_") or not picked:
            continue
        start = time.monotonic()
        try:
            function()
            print(f"ok {name[5:]} ({(time.monotonic() - start) * 1000:.0f} ms)", flush=True)
            counts["passed"] += 1
        except Exception:
            print(f"FAIL {name[5:]}: {traceback.format_exc()}", flush=True)
            counts["failed"] += 1
    print(f"{counts['passed']} passed, {counts['failed']} failed, 0 skipped")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    # Servers that are killed leave their socket files: where nobody else looks for them.
    with tempfile.TemporaryDirectory(prefix="kv-shm-") as shm_directory:
        os.environ["REMORA_SHM_DIR"] = shm_directory
        sys.exit(main())
