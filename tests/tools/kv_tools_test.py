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
import subprocess
import sys
import tempfile
import time

from tool_harness import BIN, NUL, Server, free_port, main, run

SOURCE = sys.argv[2]


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
        server.expect(0, "", "scan", "--limit", "0")
    for example in ("04_kv", "05_async", "06_update"):
        result = run(f"examples/{example}", f"tcp://127.0.0.1:{free_port()}")
        assert result.returncode == 1 and result.stderr, result


def tour(directory):
    """(command, environment) of a tour with a short benchmark, that leaves its files there."""
    return [f"{SOURCE}/scripts/kv-tour"], {**os.environ, "REMORA_BIN": BIN, "TMPDIR": directory,
                                           "REMORA_TOUR_SECONDS": "1"}


def check_tour(text):
    new = re.search(r"^OK \(new version: (\d+)\)$", text, re.M)[1]
    for line in (f"CAS FAILED (current version: {new})", "42", "the same"):
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
        answers = [(rb"kv \S+> ", b"get fish\r"), (rb"shark\r\nkv \S+> ", b"\x04")]
        while True:
            assert time.monotonic() < end, text
            if not select.select([terminal], [], [], 1)[0]:
                continue
            try:
                text += os.read(terminal, 4096)
            except OSError:  # nobody has the terminal open any more
                break
            # What came before is not looked at again: the value was seen in the tour, too.
            told = text.partition(b"Now you:")[2]
            if answers and re.search(answers[0][0], told):
                os.write(terminal, answers.pop(0)[1])
        assert not answers, text
        assert os.waitpid(pid, 0)[1] == 0, text
        left = [name for name in os.listdir(directory) if not name.startswith(".")]
        assert not left, left


if __name__ == "__main__":
    sys.exit(main(globals(), sys.argv[3:]))
