#!/usr/bin/env python3
"""Drives the real kv-server, kv-client and kv-perf, the examples that need a server, and the tour.

usage: kv_tools_test.py BIN_DIRECTORY SOURCE_DIRECTORY [NAME...]

Each test is a function `test_*`, with a server of its own where it needs one; a NAME picks those
whose name contains it. The last line counts them: "N passed, N failed, N skipped".
"""

import contextlib
import json
import os
import pty
import re
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

    def prompt(self, lines):
        return self.client(input="".join(line + "\n" for line in lines).encode(), device="tcp")

    def perf(self, *arguments, transport="shm"):
        return subprocess.run(
            [f"{BIN}/kv-perf", "--json", "--port", self.port, "--device", transport, "--keys",
             "500", "--seconds", "5ms", "--rounds", "2", *arguments],
            capture_output=True, text=True, timeout=120)


def run(program, *arguments, **more):
    return subprocess.run([f"{BIN}/{program}", *arguments], capture_output=True, text=True,
                          timeout=60, stdin=NUL, **more)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


# ---------------------------------------------------------------- kv-client, one command


def test_commands():
    for device in TRANSPORTS:
        with Server() as server:
            def expect(code, output, *words):
                return server.expect(code, output, *words, device=device)
            expect(0, "OK\n", "put", "fish", "remora")
            expect(0, "remora", "get", "fish")
            expect(0, "OK (new version: 2)\n", "cas", "fish", "1", "shark")
            expect(1, "CAS FAILED (current version: 2)\n", "cas", "fish", "1", "whale")
            expect(0, "1\n", "exists", "fish")
            expect(0, "never expires\n", "ttl", "fish")
            expect(0, "version 2\nlength 5\nttl never expires\n", "stat", "fish")
            expect(0, "OK\n", "expire", "fish", "1h")
            assert re.fullmatch(rb"(3600\.000|359\d\.\d{3}) s\n",
                                server.client("ttl", "fish").stdout)
            expect(0, "1\n", "incr", "n")
            expect(0, "-4\n", "incr", "n", "-5")
            expect(0, "-4", "get", "n")
            assert sorted(server.client("scan").stdout.split()) == [b"fish", b"n"]
            assert len(server.client("scan", "1").stdout.split()) == 1
            expect(0, "OK\n", "del", "fish")
            expect(0, "OK\n", "flush")
            expect(0, "", "scan")
            assert b"\nkeys 0\n" in server.client("stats", device=device).stdout
            result = server.client("ping", device=device)
            assert re.fullmatch(rb"OK \([\d.]+ us by " + device.encode() + rb".*\)\n",
                                result.stdout), result


def test_not_found():
    with Server() as server:
        for words in (["get"], ["del"], ["delete"], ["ttl"], ["stat"]):
            result = server.expect(1, "", *words, "nothing")
            assert result.stderr == b"(nil)\n", result
        server.expect(1, "", "expire", "nothing", "1s")
        server.expect(1, "", "cas", "nothing", "1", "x")
        server.expect(1, "0\n", "exists", "nothing")


def test_put_options():
    with Server() as server:
        server.expect(0, "OK\n", "put", "--if-absent", "key", "1")
        result = server.expect(1, "", "put", "key", "2", "--if-absent")
        assert b"ERROR: the key exists" in result.stderr, result
        server.expect(0, "OK\n", "put", "key", "--ttl", "--ttl", "50ms")
        server.expect(0, "--ttl", "get", "key")
        time.sleep(0.1)
        server.expect(1, "", "get", "key")


def test_values():
    blob = os.urandom(3000000)
    with Server() as server, tempfile.NamedTemporaryFile() as file:
        file.write(blob)
        file.flush()
        for device in TRANSPORTS:
            server.expect(0, "OK\n", "put", f"file-{device}", f"@{file.name}", device=device)
            server.expect(0, "OK\n", "put", f"stdin-{device}", "-", device=device, input=blob)
            for reader in TRANSPORTS:
                for kind in ("file", "stdin"):
                    result = server.client("get", f"{kind}-{device}", device=reader)
                    assert result.returncode == 0 and result.stdout == blob, (device, reader)
        server.expect(0, "OK\n", "put", "empty", "")
        server.expect(0, "", "get", "empty")
        server.expect(0, "OK\n", "put", "at", "@@home")
        server.expect(0, "@home", "get", "at")
        result = server.expect(3, "", "put", "at", "@/nowhere/at-all")
        assert b"/nowhere/at-all" in result.stderr, result
        # Longer than the memory of the server.
        server.expect(3, "", "put", "long", "-", input=bytes(70 << 20))


def test_not_a_number():
    with Server() as server:
        server.expect(0, "OK\n", "put", "text", "abc")
        result = server.expect(3, "", "incr", "text")
        assert result.stderr.startswith(b"ERROR: "), result


def test_client_usage():
    with contextlib.suppress(KeyError):
        del os.environ["REMORA_KEY_FILE"]
    for arguments in (["frobnicate"], ["get"], ["get", "a", "b"], ["put", "a"], ["cas", "a", "1"],
                      ["--frobnicate"], ["-p", "0", "ping"], ["-p"]):
        result = run("kv-client", *arguments)
        assert result.returncode == 2 and len(result.stderr.splitlines()) == 1, (arguments, result)
    with Server() as server:
        for words in (["cas", "a", "one", "v"], ["incr", "a", "x"], ["expire", "a", "soon"],
                      ["scan", "-1"], ["put", "a", "b", "--forever"], ["put", "--ttl", "1s", "a"]):
            assert server.client(*words).returncode == 2, words
    result = run("kv-client", "--help")
    assert result.returncode == 0 and "cas    KEY VERSION VALUE" in result.stdout, result


def test_no_server():
    result = run("kv-client", "-p", free_port(), "--timeout", "500ms", "get", "key")
    assert result.returncode == 3 and result.stderr.startswith("ERROR: "), result
    assert "tcp" in result.stderr, result


def test_urls():
    with Server() as server:
        for url in (f"tcp://127.0.0.1:{server.port}", f"shm:kv-{server.port}",
                    f"127.0.0.1:{server.port}"):
            result = run("kv-client", "-a", url, "ping")
            assert result.returncode == 0, result


def test_keys():
    with tempfile.TemporaryDirectory() as directory:
        files = {}
        for name in ("write", "read", "wrong"):
            files[name] = os.path.join(directory, name)
            with open(files[name], "w", opener=lambda p, f: os.open(p, f, 0o600)) as file:
                file.write(f"the key to {name} with\n")
        with Server("--key-file", files["write"], "--read-key-file", files["read"]) as server:
            for device in TRANSPORTS:
                server.expect(0, "OK\n", "-k", files["write"], "put", "a", "b", device=device)
                server.expect(0, "b", "-k", files["read"], "get", "a", device=device)
                server.expect(3, "", "-k", files["read"], "put", "a", "c", device=device)
                server.expect(3, "", "-k", files["wrong"], "get", "a", device=device)
                server.expect(3, "", "get", "a", device=device)


# ---------------------------------------------------------------- kv-client, the prompt


def test_prompt_answers():
    """Those of the seed, to the letter."""
    with Server() as server:
        result = server.prompt(["put mykey myvalue", "get mykey", "cas mykey 1 newvalue",
                                "cas mykey 1 newvalue", "get mykey", "del mykey", "get mykey",
                                "del mykey", "", "frobnicate", "put", "quit", "get mykey"])
        assert result.returncode == 0 and not result.stderr, result
        assert result.stdout.decode().splitlines() == [
            "OK", "myvalue", "OK (new version: 2)", "CAS FAILED (current version: 2)", "newvalue",
            "OK", "(nil)", "(nil)", "ERROR: no command 'frobnicate'; help lists all",
            "ERROR: usage: put KEY VALUE [--ttl TIME] [--if-absent]"], result.stdout


def test_prompt_quotes():
    with Server() as server:
        result = server.prompt([r'put "a key" "tab\tquote\" \x41"', "get 'a key'",
                                "put b 'x'\"y\"z", "get b", 'put "open', r'put a "\q"', "put c -",
                                "get c", " ".join(["word"] * 20)])
        assert result.stdout.decode().splitlines() == [
            "OK", 'tab\tquote" A', "OK", "xyz", "ERROR: a quote is not closed",
            r'ERROR: write \n, \r, \t, \\, \" or \x01 to \xff', "OK", "-",
            "ERROR: too many words"], result.stdout


def test_prompt_survives_the_server():
    with Server() as server:
        client = subprocess.Popen([f"{BIN}/kv-client", "-p", server.port, "-T", "300ms"],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            client.stdin.write("put a b\n")
            client.stdin.flush()
            assert client.stdout.readline() == "OK\n"
            server.stop()
            client.stdin.write("get a\n")
            client.stdin.flush()
            assert client.stdout.readline().startswith("ERROR: ")
            client.stdin.write("help\n")
            client.stdin.close()
            assert "cas" in client.stdout.read() and client.wait(20) == 0
        finally:
            client.kill()
            client.wait()
            client.stdout.close()


def test_prompt_on_a_terminal():
    with Server() as server:
        pid, terminal = pty.fork()
        if pid == 0:
            os.execv(f"{BIN}/kv-client", ["kv-client", "-p", server.port])
        seen = b""
        for line, answer in ((b"put a b\n", b"OK\r\nkv> "), (b"get a\n", b"b\r\nkv> "),
                             (b"\x04", None)):
            while not seen.endswith(b"kv> "):
                seen += os.read(terminal, 1000)
            os.write(terminal, line)
            seen = b""
            while answer and not seen.endswith(answer):
                seen += os.read(terminal, 1000)
        assert os.waitpid(pid, 0)[1] == 0
        os.close(terminal)


# ---------------------------------------------------------------- kv-perf


def test_perf():
    tests = ["get", "put", "get-many", "put-many", "async-get", "async-put", "incr", "ping"]
    figures = {"test", "transport", "keys", "key_size", "value_size", "clients", "window",
               "ops_per_s", "bytes_per_s", "p50_ns", "p99_ns", "paths", "round_trips", "samples"}
    with Server() as server:
        for transport in TRANSPORTS:
            for size in ("64", "20KB"):
                result = server.perf(*tests, "--value-size", size, transport=transport)
                assert result.returncode == 0, (transport, size, result)
                rows = [json.loads(line) for line in result.stdout.splitlines()]
                assert [row["test"] for row in rows] == tests, rows
                for row in rows:
                    assert figures <= row.keys(), row
                    assert row["transport"].split()[0] == transport, row
                    assert len(row["samples"]) == 2 and min(row["samples"]) > 0, row
                    assert 0 < row["p50_ns"] <= row["p99_ns"], row


def test_perf_paths():
    """A test measures the path that it is meant to."""
    with Server() as server:
        def paths(*arguments, transport="shm"):
            result = server.perf(*arguments, transport=transport)
            assert result.returncode == 0, result
            return json.loads(result.stdout)["paths"]

        def most_of(counts):
            return max(counts, key=counts.get)
        assert most_of(paths("get")) == "mapped"
        assert most_of(paths("get", "--get-mode", "ask")) == "inline"
        assert most_of(paths("get", "--cached", transport="tcp")) == "location"
        assert most_of(paths("put")) == "eager"
        assert most_of(paths("put", "--value-size", "20KB")) == "landing"
        assert "inline" in paths("view")


def test_perf_clients():
    with Server() as server:
        result = server.perf("get", "put", "--clients", "3")
        assert result.returncode == 0, result
        assert [json.loads(line)["clients"] for line in result.stdout.splitlines()] == [3, 3]
        result = server.perf("idle", "--clients", "5")
        assert result.returncode == 0 and json.loads(result.stdout)["test"] == "idle", result


def test_perf_table():
    with Server() as server:
        result = run("kv-perf", "-p", server.port, "-k", "100", "-t", "5ms", "-r", "1", "get",
                     "put")
        assert [line.split()[0] for line in result.stdout.splitlines()] == ["get", "put"], result


def test_perf_failures():
    with Server() as server:
        result = server.perf("get", "--no-fill")
        assert result.returncode == 1 and "not found" in result.stderr, result
        result = server.perf("view", transport="tcp")
        assert result.returncode == 1 and "shared memory" in result.stderr, result
        assert server.perf("get").returncode == 0
        result = server.perf("get", "--no-fill", "--value-size", "100")
        assert result.returncode == 1 and "--value-size 100" in result.stderr, result
    result = run("kv-perf", "-p", free_port(), "-T", "300ms", "get")
    assert result.returncode == 1 and "connect" in result.stderr, result
    for text, *arguments in (("no test 'fly'", "fly"), ("--keys", "-k", "many"),
                             ("--cpus", "--cpus", "0,x"), ("--cpus", "--cpus", "1,"),
                             ("pin to core 1000", "-p", free_port(), "--cpus", "1000", "get")):
        result = run("kv-perf", *arguments)
        assert result.returncode == 2 and text in result.stderr, (arguments, result)


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


def test_tour():
    with tempfile.TemporaryDirectory() as directory:
        result = subprocess.run([f"{SOURCE}/scripts/kv-tour"], capture_output=True, text=True,
                                timeout=60, stdin=NUL,
                                env={**os.environ, "REMORA_BIN": BIN, "TMPDIR": directory})
        assert result.returncode == 0, result
        assert "OK (new version: 2)\n" in result.stdout, result.stdout
        assert "CAS FAILED (current version: 2)\n" in result.stdout, result.stdout
        assert "\n42\n" in result.stdout, result.stdout
        assert not os.listdir(directory), os.listdir(directory)


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
