#!/usr/bin/env python3
"""Drives the real kv-client, through pipes and through a terminal, against a real kv-server.

usage: kv_client_test.py BIN_DIRECTORY SOURCE_DIRECTORY [NAME...]

Each test is a function `test_*`, with a server of its own where it needs one; a NAME picks those
whose name contains it. The last line counts them: "N passed, N failed, N skipped".
"""

import base64
import contextlib
import fcntl
import json
import os
import re
import resource
import select
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import termios
import time

from tool_harness import BIN, NUL, PUT, Server, Skip, free_port, main, run

SOURCE = sys.argv[2]
TRANSPORTS = ["shm", "tcp"]
LARGE = 24 << 20
PROMPT = r"kv \S+> "
CAS = re.compile(r"OK \(new version: \d+\)\n")
STORED = r"OK \(version: \d+\)"
with open(f"{BIN}/kv-client", "rb") as program:
    HAS_LIBEDIT = b"libedit.so" in program.read()


class ClientServer(Server):
    """A server to be asked."""

    def json(self, code, *words, **more):
        """The only line of the answer, read."""
        result = self.client("--json", *words, **more)
        assert result.returncode == code and not result.stderr, (words, result)
        assert result.stdout.count(b"\n") == 1, (words, result)
        return json.loads(result.stdout)

    def prompt(self, lines):
        return self.client(input="".join(line + "\n" for line in lines).encode(), device="tcp")

    def figure(self, name):
        return int(re.search(rf"^{name} (\d+)$", self.client("stats").stdout.decode(), re.M)[1])

    def wait_for(self, name, value):
        end = time.monotonic() + 20
        while self.figure(name) != value:
            assert time.monotonic() < end, f"{name} is {self.figure(name)}, not {value}"
            time.sleep(0.02)

    @contextlib.contextmanager
    def paused(self):
        """It does nothing for a while: what is sent to it stays under way."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, *command, width=80, height=24, state=None, term="xterm"):
        self.main, side = os.openpty()
        self.resize(width, height)
        environment = {**os.environ, "TERM": term, "HOME": os.environ["REMORA_SHM_DIR"]}
        environment.pop("COLUMNS", None)
        environment.pop("XDG_STATE_HOME", None)
        if state:
            environment["XDG_STATE_HOME"] = state
        self.process = subprocess.Popen(
            [f"{BIN}/{command[0]}", *command[1:]], stdin=side, stdout=side, stderr=side,
            start_new_session=True, env=environment,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(side)
        self.seen = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.main)

    def resize(self, width, height):
        fcntl.ioctl(self.main, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def type(self, text):
        os.write(self.main, text.encode() if isinstance(text, str) else text)

    def read(self, seconds):
        """False: nothing came, and nothing will if the program has ended."""
        if not select.select([self.main], [], [], seconds)[0]:
            return self.process.poll() is None
        try:
            self.seen += os.read(self.main, 65536)
            return True
        except OSError:
            return False

    def expect(self, pattern):
        """Waits until this is seen, and forgets it and all before it."""
        end = time.monotonic() + 30
        pattern = pattern.encode() if isinstance(pattern, str) else pattern
        while not (found := re.search(pattern, self.seen, re.S)):
            more = self.read(0.1)
            assert more and time.monotonic() < end, (pattern, self.seen[-2000:])
        before = self.seen[:found.end()]
        self.seen = self.seen[found.end():]
        return before

    def answer(self, line, pattern):
        """Types a line at the prompt; its answer, up to the next prompt."""
        self.type(line + "\r")
        return self.expect(rf"\r\n{pattern}\r\n{PROMPT}")

    def end(self):
        """Waits for the program's end; its exit code, and what it said last."""
        end = time.monotonic() + 30
        while self.process.poll() is None:
            assert time.monotonic() < end, self.seen[-2000:]
            self.read(0.05)
        while self.read(0.05):
            pass
        return self.process.returncode, self.seen


def visible(text):
    """Without the sequences that move the cursor."""
    return re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", text)


# ---------------------------------------------------------------- one command


def test_commands():
    for device in TRANSPORTS:
        with ClientServer() as server:
            def expect(code, output, *words):
                return server.expect(code, output, *words, device=device)
            expect(0, PUT, "put", "fish", "remora")
            expect(0, "remora", "get", "fish")
            old = server.version("fish")
            expect(0, CAS, "cas", "fish", str(old), "shark")
            new = server.version("fish")
            assert new > old, (old, new)
            expect(1, f"CAS FAILED (current version: {new})\n", "cas", "fish", str(old), "whale")
            expect(0, "1\n", "exists", "fish")
            expect(0, "never expires\n", "ttl", "fish")
            expect(0, f"version {new}\nlength 5\nttl never expires\n", "stat", "fish")
            expect(0, "OK\n", "expire", "fish", "1h")
            assert re.fullmatch(rb"(3600\.000|359\d\.\d{3}) s\n",
                                server.client("ttl", "fish").stdout)
            expect(0, "1\n", "incr", "n")
            expect(0, "-4\n", "incr", "n", "-5")
            expect(0, "-4", "get", "n")
            assert sorted(server.client("scan").stdout.split()) == [b"fish", b"n"]
            assert len(server.client("scan", "--limit", "1").stdout.split()) == 1
            expect(0, "OK\n", "del", "fish")
            expect(0, "OK\n", "flush")
            expect(0, "", "scan")
            assert b"\nkeys 0\n" in server.client("stats", device=device).stdout
            result = server.client("ping", device=device)
            assert re.fullmatch(rb"OK \([\d.]+ us by " + device.encode() + rb".*\)\n",
                                result.stdout), result


def test_not_found():
    with ClientServer() as server:
        for words in (["get"], ["del"], ["delete"], ["ttl"], ["stat"]):
            result = server.expect(1, "", *words, "nothing")
            assert result.stderr == b"(nil)\n", result
        server.expect(1, "", "expire", "nothing", "1s")
        server.expect(1, "", "cas", "nothing", "1", "x")
        server.expect(1, "0\n", "exists", "nothing")
        with tempfile.TemporaryDirectory() as directory:
            server.expect(1, "", "get", "nothing", "--output", f"{directory}/file")
            assert not os.listdir(directory)


def test_put_options():
    with ClientServer() as server:
        server.expect(0, PUT, "put", "--if-absent", "key", "1")
        result = server.expect(1, "", "put", "key", "2", "--if-absent")
        assert b"ERROR: the key exists" in result.stderr, result
        server.expect(0, PUT, "put", "key", "--ttl", "1h", "--", "--ttl")
        server.expect(0, "--ttl", "get", "key")
        assert server.client("ttl", "key").stdout != b"never expires\n"
        # An option without its value stores nothing; nor does one that there is not.
        for words, why in ((["--ttl"], b"put --ttl: no value follows"),
                           (["--ttl", "--if-absent"], b"put --ttl: no value follows"),
                           (["x", "--ttl"], b"put --ttl: no value follows"),
                           (["--forever"], b"put --forever: no such option")):
            result = server.expect(2, "", "put", "dashes", *words)
            assert why in result.stderr and b"behind --" in result.stderr, result
        server.expect(1, "0\n", "exists", "dashes")
        server.expect(0, PUT, "put", "key", "short", "--ttl", "50ms")
        time.sleep(0.1)
        server.expect(1, "", "get", "key")
        # The command behind the options; and a key that looks like an option.
        server.expect(0, PUT, "put", "key", "hello world", "--ttl", "60")
        assert re.fullmatch(rb"(60\.000|59\.\d{3}) s\n", server.client("ttl", "key").stdout)
        server.expect(0, PUT, "put", "--", "--json", "dashes")
        server.expect(0, "dashes", "get", "--", "--json")
        server.expect(0, PUT, "put", "key", "--", "--")
        server.expect(0, "--", "get", "key")


def test_put_replace():
    """A value for which there is no room beside the old one."""
    with ClientServer("-m", "40", "--on-full", "reject") as server, \
            tempfile.NamedTemporaryFile() as file:
        for byte in (b"1", b"2"):
            file.seek(0)
            file.write(byte * LARGE)
            file.flush()
            if byte == b"1":
                server.expect(0, PUT, "put", "key", f"@{file.name}")
        result = server.expect(3, "", "put", "key", f"@{file.name}")
        assert b"put with --replace" in result.stderr, result
        assert server.client("get", "key").stdout == b"1" * LARGE
        server.expect(0, PUT, "put", "key", f"@{file.name}", "--replace")
        assert server.client("get", "key").stdout == b"2" * LARGE
        result = server.expect(2, "", "put", "key", "x", "--replace", "--if-absent")
        assert b"give one of them" in result.stderr, result
        assert server.client("get", "key").stdout == b"2" * LARGE


def test_keys_of_any_byte():
    """Whatever scan prints can be given as a key."""
    keys = [bytes([byte]) + b"-" + bytes([byte]) for byte in range(256)]
    keys += [b"\0", b"a\0b", b"\\x41", b"--json", b"@file", b"#x", b'"', b"'", b"tail*"]
    with ClientServer() as server:
        def escape(key):
            return "".join(f"\\x{byte:02x}" for byte in key)
        lines = "".join(f'put {escape(key)} "v\\x00{escape(key)}"\n' for key in keys)
        result = server.client(input=lines.encode())
        assert result.stdout.count(b"OK (version: ") == len(keys), result
        shown = server.client("scan").stdout.decode().splitlines()
        assert len(shown) == len(set(shown)) == len(keys), shown
        # At the prompt, and as words of the command line.
        result = server.client(input="".join(f"get {key}\n" for key in shown).encode())
        assert b"(nil)" not in result.stdout and b"ERROR" not in result.stdout, result
        server.expect(0, "v\0a\0b", "get", r"a\x00b")
        answer = server.json(0, "get", r"\x00")
        assert (answer["key"], answer["value"]) == ("\0", "v\0\0"), answer
        for key in shown[:8]:
            server.expect(0, "OK\n", "del", key)
        assert len(server.client("scan").stdout.splitlines()) == len(keys) - 8
        # A word that is no key and no value is text.
        result = server.prompt([r'incr n "5\x00"', r'put a b --ttl "1\x00"', r'put a "@f\x00"'])
        assert result.stdout.count(b"ERROR: ") == result.stdout.count(b"zero byte") == 3, result


def test_scan_of_a_prefix():
    with ClientServer() as server:
        names = [f"user:{i}" for i in range(600)] + ["users", "group:1", "10", "tail*x"]
        result = server.prompt([f"put {name} x" for name in names])
        assert result.stdout.count(b"OK") == len(names), result
        def scan(*words, **more):
            return sorted(server.client("scan", *words, **more).stdout.decode().split())
        for device in TRANSPORTS:
            assert scan("user:*", device=device) == sorted(names[:600])
            assert scan("user:", device=device) == sorted(names[:600])
            assert scan("*", device=device) == scan(device=device) == sorted(names)
            assert scan("10", device=device) == ["10"]
            assert scan("nothing*", device=device) == []
        assert scan("group*", "--limit", "1") == ["group:1"]
        assert len(scan("user*", "--limit", "300")) == 300
        assert scan("--limit", "0") == []
        assert scan(r"tail\x2a*") == scan("tail*") == ["tail*x"]
        assert server.prompt(['scan "tail*"', 'scan "user*"']).stdout == b"tail*x\n"


def test_values():
    blob = os.urandom(3000000)
    with ClientServer() as server, tempfile.NamedTemporaryFile() as file:
        file.write(blob)
        file.flush()
        for device in TRANSPORTS:
            server.expect(0, PUT, "put", f"file-{device}", f"@{file.name}", device=device)
            server.expect(0, PUT, "put", f"stdin-{device}", "-", device=device, input=blob)
            for reader in TRANSPORTS:
                for kind in ("file", "stdin"):
                    result = server.client("get", f"{kind}-{device}", device=reader)
                    assert result.returncode == 0 and result.stdout == blob, (device, reader)
        server.expect(0, PUT, "put", "empty", "")
        server.expect(0, "", "get", "empty")
        server.expect(0, PUT, "put", "at", "@@home")
        server.expect(0, "@home", "get", "at")
        result = server.expect(3, "", "put", "at", "@/nowhere/at-all")
        assert b"/nowhere/at-all" in result.stderr, result
        # Longer than the memory of the server.
        server.expect(3, "", "put", "long", "-", input=bytes(70 << 20))


def test_every_byte_through_pipes():
    every = bytes(range(256)) * 3
    with ClientServer() as server:
        for device in TRANSPORTS:
            server.expect(0, PUT, "put", "bytes", "-", input=every, device=device)
            assert server.client("get", "bytes", device=device).stdout == every
            # A reader who has enough ends it, without a word.
            server.expect(0, PUT, "put", "long", "-", input=bytes(LARGE), device=device)
            with subprocess.Popen([f"{BIN}/kv-client", "-p", server.port, "-d", device, "get",
                                   "long"], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE) as client:
                assert client.stdout.read(10) == bytes(10)
                client.stdout.close()
                assert client.stderr.read() == b""
                assert client.wait(20) == -signal.SIGPIPE


def test_full_device():
    with ClientServer() as server, open("/dev/full", "w") as full:
        server.expect(0, PUT, "put", "a", "b")
        result = subprocess.run([f"{BIN}/kv-client", "-p", server.port, "get", "a"], stdin=NUL,
                                stdout=full, stderr=subprocess.PIPE, timeout=60)
        assert result.returncode == 3 and b"stdout" in result.stderr, result


def test_not_a_number():
    with ClientServer() as server:
        server.expect(0, PUT, "put", "text", "abc")
        result = server.expect(3, "", "incr", "text")
        assert result.stderr.startswith(b"ERROR: "), result


def test_usage():
    with contextlib.suppress(KeyError):
        del os.environ["REMORA_KEY_FILE"]
    for arguments in (["frobnicate"], ["get"], ["get", "a", "b"], ["put", "a"], ["cas", "a", "1"],
                      ["--frobnicate"], ["-p", "0", "ping"], ["-p"], ["get", "a", "--output"],
                      ["put", "a", "b", "--forever"], ["put", "--ttl", "1s", "a"],
                      ["get", "a", "--ttl", "1s"], ["top", "--often"], ["help", "frobnicate"],
                      ["-a", "x", "--server-addr", "y:1", "ping"], ["repl", "now"]):
        result = run("kv-client", *arguments)
        assert result.returncode == 2 and len(result.stderr.splitlines()) == 1, (arguments, result)
        assert not result.stdout, (arguments, result)
    with ClientServer() as server:
        for words in (["cas", "a", "one", "v"], ["incr", "a", "x"], ["expire", "a", "soon"],
                      ["scan", "--limit", "-1"], ["scan", "--limit", "many"],
                      ["put", "a", "b", "--ttl", "soon"],
                      ["top", "--interval", "0"], ["top", "--interval", "often"]):
            result = server.client(*words)
            assert result.returncode == 2 and not result.stdout, (words, result)


def test_help():
    result = run("kv-client", "--help")
    assert result.returncode == 0 and "cas    KEY VERSION VALUE" in result.stdout, result
    for program in ("kv-client", "kv-server"):
        assert run(program, "--help").stdout.count("examples:\n") == 1, program
    # One default each, and it is the one in effect.
    for program, line in (("kv-server", "--max-clients N      more are refused (default 4096)"),
                          ("kv-bench", "--num-threads N      its --threads (default 4)")):
        options = run(program, "--help").stdout.split("\n  ")
        assert f"    {line}" in options, options
        assert not [text for text in options if text.count("(default ") > 1], options
    for width in (40, 80):
        text = run("kv-client", "--help", env={**os.environ, "COLUMNS": str(width)}).stdout
        commands = text[text.index("\ncommands:"):text.index("\nexamples:")]
        assert max(map(len, commands.splitlines())) <= width, commands
        # Wrapped where they have to be, and only there.
        codes = text[text.index("\nexit codes:") + 1:].splitlines()
        assert max(map(len, codes)) <= width and (len(codes) == 1) == (width == 80), codes
    result = run("kv-client", "help", "put")
    assert result.returncode == 0 and "--if-absent" in result.stdout, result
    assert "doctor" in run("kv-client", "help").stdout
    lines = run("kv-client", "--json", "help").stdout.splitlines()
    assert "doctor" in [json.loads(line)["command"] for line in lines], lines
    words = json.loads(run("kv-client", "--json", "help", "get").stdout)
    assert words["command"] == "get" and words["arguments"].startswith("KEY"), words


def test_no_server():
    port = free_port()
    result = run("kv-client", "-p", port, "--timeout", "500ms", "get", "key")
    lines = result.stderr.splitlines()
    assert result.returncode == 3, result
    assert lines[0] == (f"ERROR: no server reached at localhost:{port}; start one here: "
                        f"kv-server -p {port}"), lines
    assert lines[1].startswith("  shm: ") and lines[-1].startswith("  tcp: "), lines
    # Of one path that was asked for, too, but a name that leads nowhere is not this host.
    result = run("kv-client", "-a", f"tcp://127.0.0.1:{port}", "get", "key")
    assert f"127.0.0.1:{port}; start" in result.stderr and result.stderr.count("\n  ") == 1, result
    result = run("kv-client", "-a", "nowhere.invalid", "--timeout", "500ms", "get", "key")
    assert result.returncode == 3 and "start one" not in result.stderr, result
    result = run("kv-client", "-p", free_port(), "--timeout", "500ms", "--json", "get", "key")
    assert result.returncode == 3 and json.loads(result.stdout)["status"] == "error", result
    for words in (["top"], []):
        result = run("kv-client", "-p", free_port(), "--timeout", "500ms", *words)
        assert result.returncode == 3 and result.stderr.startswith("ERROR: "), result


def test_addresses():
    """Those of both seeds."""
    with ClientServer() as server:
        for arguments in (["-a", f"tcp://127.0.0.1:{server.port}"],
                          ["-a", f"shm:kv-{server.port}"], ["-a", f"127.0.0.1:{server.port}"],
                          ["--server-addr", f"127.0.0.1:{server.port}"],
                          ["--mock", "-p", server.port], ["--mock", "true", "-p", server.port],
                          ["--mock", "false", "-p", server.port],
                          ["--buffer-mb", "8", "-p", server.port]):
            result = run("kv-client", *arguments, "ping")
            assert result.returncode == 0, result
            if arguments[0] == "--mock" and arguments[1] != "false":
                assert " by shm)" in result.stdout, result


def test_keys():
    with tempfile.TemporaryDirectory() as directory:
        files = {}
        for name in ("write", "read", "wrong"):
            files[name] = os.path.join(directory, name)
            with open(files[name], "w", opener=lambda p, f: os.open(p, f, 0o600)) as file:
                file.write(f"the key to {name} with\n")
        with ClientServer("--key-file", files["write"], "--read-key-file", files["read"]) as server:
            for device in TRANSPORTS:
                server.expect(0, PUT, "-k", files["write"], "put", "a", "b", device=device)
                server.expect(0, "b", "-k", files["read"], "get", "a", device=device)
                server.expect(3, "", "-k", files["read"], "put", "a", "c", device=device)
                server.expect(3, "", "-k", files["wrong"], "get", "a", device=device)
                # What to do about it is said in words of the command line.
                result = server.expect(3, "", "get", "a", device=device)
                assert b" set --key-file, or REMORA_KEY_FILE " in result.stderr, result


# ---------------------------------------------------------------- JSON and files


def test_json():
    with ClientServer() as server:
        answer = server.json(0, "put", "a", 'x"\n\\ü')
        old = answer["version"]
        assert answer == {"status": "ok", "version": server.version("a")}, answer
        assert server.json(0, "get", "a") == {
            "status": "ok", "key": "a", "version": old, "length": 6, "ttl_ms": None,
            "value": 'x"\n\\ü'}
        assert server.json(1, "put", "a", "y", "--if-absent") == {"status": "exists",
                                                                  "version": old}
        answer = server.json(0, "cas", "a", str(old), "z")
        new = answer["version"]
        assert answer == {"status": "ok", "version": new} and new > old, answer
        assert server.json(1, "cas", "a", str(old), "z") == {"status": "cas_failed",
                                                             "version": new}
        assert server.json(0, "incr", "n", "-7") == {"status": "ok", "number": -7}
        assert server.json(0, "exists", "a") == {"status": "ok", "exists": True}
        assert server.json(1, "exists", "b") == {"status": "ok", "exists": False}
        assert server.json(0, "expire", "a", "1h") == {"status": "ok"}
        assert 0 < server.json(0, "ttl", "a")["ttl_ms"] <= 3600000
        info = server.json(0, "stat", "a")
        assert info["version"] == new and info["length"] == 1, info
        for command in ("get", "del", "ttl", "stat"):
            assert server.json(1, command, "nothing") == {"status": "not_found"}
        assert "number" in server.json(3, "incr", "a")["error"]
        assert server.json(0, "ping")["transport"] == "shm"
        assert server.json(0, "stats")["keys"] == 2
        assert server.json(0, "del", "n") == {"status": "ok"}
        assert server.json(0, "scan")["key"] == "a"
        assert server.json(0, "flush") == {"status": "ok"}
        assert server.json(2, "incr", "a", "x")["status"] == "error"
        # Bytes that are no text; and the option behind the command.
        for blob in (b"\xff\x00", b"\xc0\x80a", b"abc\xe2\x82"):
            server.client("put", "blob", "-", input=blob)
            answer = json.loads(server.client("get", "blob", "--json").stdout)
            assert base64.b64decode(answer["value_base64"]) == blob, answer


def test_output_file():
    blob = os.urandom(LARGE)
    with ClientServer() as server, tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "file")
        server.expect(0, PUT, "put", "blob", "-", input=blob)
        for device in TRANSPORTS:
            server.expect(0, "", "get", "blob", "--output", path, device=device)
            with open(path, "rb") as file:
                assert file.read() == blob
            assert os.listdir(directory) == ["file"], os.listdir(directory)
        # What is replaced keeps its mode, and a link stays a link.
        os.chmod(path, 0o640)
        link = os.path.join(directory, "link")
        os.symlink("file", link)
        server.expect(0, PUT, "put", "blob", "short")
        server.expect(0, "", "get", "--output", link, "blob")
        assert os.path.islink(link) and stat.S_IMODE(os.stat(path).st_mode) == 0o640
        with open(path) as file:
            assert file.read() == "short"
        assert server.json(0, "get", "blob", "--output", path)["output"] == path
        for wrong in (f"{directory}/no/file", directory, "/dev/full"):
            result = server.expect(3, "", "get", "blob", "--output", wrong)
            assert result.stderr.startswith(b"ERROR: "), result
        server.expect(0, "short", "get", "blob", "--output", "/dev/stdout")
        assert sorted(os.listdir(directory)) == ["file", "link"], os.listdir(directory)


def test_output_on_a_full_disk():
    """The old file stays, and no temporary one."""
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        # Enough for the memory that the client shares with others.
        resource.setrlimit(resource.RLIMIT_FSIZE, (LARGE // 2, LARGE // 2))
    with ClientServer() as server, tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "file")
        with open(path, "w") as file:
            file.write("old")
        server.expect(0, PUT, "put", "blob", "-", input=bytes(LARGE))
        result = server.expect(3, "", "get", "blob", "--output", path, device="tcp",
                               preexec_fn=limit)
        assert path.encode() in result.stderr, result
        assert os.listdir(directory) == ["file"], os.listdir(directory)
        with open(path) as file:
            assert file.read() == "old"


# ---------------------------------------------------------------- Ctrl-C


def test_interrupt_of_a_large_put():
    """Killed in the middle, nothing of it is ever seen."""
    for device in TRANSPORTS:
        with ClientServer() as server:
            server.expect(0, PUT, "put", "key", "old")
            server.wait_for("clients", 1)  # that one has left
            with subprocess.Popen(
                    [f"{BIN}/kv-client", "-p", server.port, "-d", device, "-T", "60s", "put", "key",
                     "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE) as client:
                client.stdin.write(b"new")
                client.stdin.flush()
                # With the one that asks.
                server.wait_for("clients", 2)
                with server.paused():
                    client.stdin.write(bytes(LARGE))
                    client.stdin.close()
                    time.sleep(0.3)
                    assert client.poll() is None
                    client.send_signal(signal.SIGINT)
                    assert client.wait(20) == -signal.SIGINT
                assert client.stdout.read() == b""
            server.wait_for("clients", 1)
            server.expect(0, "old", "get", "key")
            assert server.figure("drafts") == 0
            assert server.figure("items") == 1


def test_interrupt_at_the_prompt():
    """Ctrl-C ends the command, and the prompt goes on; long puts show how far they are."""
    with ClientServer() as server, tempfile.NamedTemporaryFile() as file:
        file.write(bytes(LARGE))
        file.flush()
        for width in (80, 40):
            with Terminal("kv-client", "-p", server.port, "-d", "tcp", "-T", "60s",
                          width=width) as terminal:
                terminal.expect(PROMPT)
                terminal.answer("put key old", STORED)
                with server.paused():
                    terminal.type(f"put key @{file.name}\r")
                    terminal.expect(r"\r\n")
                    time.sleep(0.4)
                    terminal.type("\x03")
                    terminal.expect(r"\^C")
                    time.sleep(0.1)
                terminal.expect(rf"ERROR: canceled after \d+ of \d+ bytes.*\r\n{PROMPT}")
                terminal.answer("get key", "old")
                assert server.figure("drafts") == 0
                with server.paused():
                    terminal.type(f"put key @{file.name}\r")
                    terminal.expect(r"\r\n")
                    time.sleep(0.4)
                shown = terminal.expect(rf"{STORED}\r\n{PROMPT}")
                lines = [visible(part) for part in shown.split(b"\r") if b"putting key" in part]
                assert lines and b"%" in lines[-1] and max(map(len, lines)) < width, shown
                terminal.answer("stat key", rf"version \d+\r\nlength {LARGE}\r\nttl never expires")
                terminal.type("\x04")
                assert terminal.end()[0] == 0


def test_interrupt_of_an_output():
    """By a signal while the file is written: no temporary one stays."""
    with ClientServer() as server, tempfile.TemporaryDirectory() as directory:
        server.expect(0, PUT, "put", "blob", "-", input=bytes(LARGE))
        path = os.path.join(directory, "file")
        for _ in range(20):
            client = subprocess.Popen([f"{BIN}/kv-client", "-p", server.port, "get", "blob",
                                       "--output", path], stdin=NUL, stderr=NUL)
            end = time.monotonic() + 20
            # As soon as anything of it is there.
            while client.poll() is None and not os.listdir(directory):
                assert time.monotonic() < end
            client.send_signal(signal.SIGTERM)
            code = client.wait(20)
            assert code in (0, -signal.SIGTERM), code
            if os.path.exists(path):
                assert os.path.getsize(path) == LARGE
                os.unlink(path)
            assert not os.listdir(directory), os.listdir(directory)


# ---------------------------------------------------------------- the prompt


def test_prompt_answers():
    """Those of the seed; put also tells the version that cas takes."""
    with ClientServer() as server:
        server.expect(0, PUT, "put", "mykey", "first")
        old = server.version("mykey")
        result = server.prompt(["get mykey", f"cas mykey {old} newvalue",
                                f"cas mykey {old} newvalue", "get mykey", "del mykey", "get mykey",
                                "del mykey", "", "frobnicate", "put", "putt a b", "gte a",
                                "# a comment", "   # get mykey", "put #a #b", "get #a", "quit",
                                "get mykey"])
        assert result.returncode == 0 and not result.stderr, result
        new = re.search(rb"new version: (\d+)", result.stdout)[1].decode()
        assert int(new) > old
        lines = result.stdout.decode().splitlines()
        assert re.fullmatch(STORED, lines.pop(-2)), lines
        assert lines == [
            "first", f"OK (new version: {new})", f"CAS FAILED (current version: {new})",
            "newvalue", "OK", "(nil)", "(nil)", "ERROR: unknown command 'frobnicate': help lists "
            "all", "ERROR: usage: put KEY VALUE [--ttl TIME] [--if-absent | --replace]",
            "ERROR: unknown command 'putt': did you mean put?",
            "ERROR: unknown command 'gte': did you mean get?", "#b"], result.stdout
        result = run("kv-client", "-p", server.port, "sacn")
        assert result.returncode == 2 and "did you mean scan?" in result.stderr, result


def test_prompt_quotes():
    with ClientServer() as server:
        result = server.prompt([r'put "a key" "tab\tquote\" \x41"', "get 'a key'",
                                "put b 'x'\"y\"z", "get b", 'put "open', r'put a "\q"', "put c -",
                                "get c", " ".join(["word"] * 40)])
        said = re.sub(STORED, "OK", result.stdout.decode())
        assert said.splitlines() == [
            "OK", 'tab\tquote" A', "OK", "xyz", "ERROR: a quote is not closed",
            r'ERROR: write \n, \r, \t, \\, \" or \x00 to \xff', "OK", "-",
            "ERROR: too many words"], result.stdout
        # Quotes make it a word like any other: no option, and no escape but those of the quotes.
        result = server.prompt(["put k '--ttl'", "get k", r"put 'a\x41' v", "scan a*",
                                "get 'a\\x41'"])
        lines = re.sub(STORED, "OK", result.stdout.decode()).splitlines()
        lines[3:5] = sorted(lines[3:5])  # scan has no order
        assert lines == ["OK", "--ttl", "OK", r"a\x20key", r"a\x5cx41", "v"], result


def test_repl():
    with ClientServer() as server:
        result = server.client("repl", input=b"put a b --ttl 60\nhelp get\nget a --json\nexit\n")
        lines = result.stdout.decode().splitlines()
        assert result.returncode == 0 and lines[1] == "get KEY [--output FILE]", result
        assert re.fullmatch(STORED, lines[0]), result
        assert json.loads(lines[-1])["value"] == "b", result


def test_prompt_survives_the_server():
    with ClientServer() as server:
        client = subprocess.Popen([f"{BIN}/kv-client", "-p", server.port, "-T", "300ms"],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            client.stdin.write("put a b\n")
            client.stdin.flush()
            assert PUT.fullmatch(client.stdout.readline())
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


def test_interrupt_of_a_script():
    """Commands from a pipe: Ctrl-C ends them all."""
    with ClientServer() as server:
        with subprocess.Popen([f"{BIN}/kv-client", "-p", server.port], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as client:
            client.stdin.write(b"put a b\n")
            client.stdin.flush()
            assert PUT.fullmatch(client.stdout.readline().decode())
            client.send_signal(signal.SIGINT)
            assert client.wait(20) == -signal.SIGINT


def test_prompt_names_the_server():
    with ClientServer() as server:
        for term in ("xterm", "dumb"):
            for arguments, name in ((["-p", server.port], f"localhost:{server.port}"),
                                    (["-a", f"127.0.0.1:{server.port}"],
                                     f"127.0.0.1:{server.port}"),
                                    (["-a", f"shm:kv-{server.port}"], f"shm:kv-{server.port}")):
                with Terminal("kv-client", *arguments, term=term) as terminal:
                    terminal.expect(re.escape(f"kv {name}> "))
                    terminal.type("\x04")
                    assert terminal.end()[0] == 0


def test_prompt_on_a_terminal():
    """With an editor and without, wide and narrow: the same answers."""
    with ClientServer() as server:
        for term, width in (("xterm", 80), ("xterm", 40), ("dumb", 80)):
            with Terminal("kv-client", "-p", server.port, term=term, width=width) as terminal:
                terminal.expect(PROMPT)
                terminal.answer("put a b", STORED)
                terminal.answer("get a", "b")
                terminal.answer("get nothing", r"\(nil\)")
                terminal.answer(r'put c "x\x1b[31m\xff\n"', STORED)
                terminal.answer("get c", r"x\\x1b\[31m\\xff\r\n")
                # A line that is given up, then an ordinary one.
                terminal.type("put a lost")
                terminal.expect("t" if term == "xterm" else "lost")
                terminal.type("\x03")
                terminal.expect(rf"\^C.*{PROMPT}")
                terminal.answer("get a", "b")
                # A signal, not the key, and a terminal of another size.
                terminal.process.send_signal(signal.SIGINT)
                time.sleep(0.1)
                terminal.resize(60, 24)
                terminal.answer("get a", "b")
                terminal.type("\x04")
                assert terminal.end()[0] == 0


def test_value_on_a_terminal():
    with ClientServer() as server:
        server.client("put", "key", "-", input=b"\x1b]0;owned\x07 gr\xc3\xbcn \xe2\x80\xae\n")
        with Terminal("kv-client", "-p", server.port, "get", "key") as terminal:
            code, shown = terminal.end()
            assert code == 0, shown
            assert shown == b"\\x1b]0;owned\\x07 gr\xc3\xbcn \\xe2\\x80\\xae\r\n\r\n", shown


def test_history():
    if not HAS_LIBEDIT:
        raise Skip("built without libedit")
    with ClientServer() as server, tempfile.TemporaryDirectory() as state:
        with Terminal("kv-client", "-p", server.port, state=state) as terminal:
            terminal.expect(PROMPT)
            terminal.answer("put key first", STORED)
            terminal.answer(" put secret word", STORED)
            terminal.answer("get key", "first")
            terminal.type("\x1b[A\x1b[A\x7f\x7f\x7f\x7f\x7fsecond\r")
            terminal.expect(rf"\r\n{STORED}\r\n{PROMPT}")
            terminal.type("quit\r")
            assert terminal.end()[0] == 0
        path = os.path.join(state, "remora", "history")
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        assert stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700
        with open(path) as file:
            assert file.read().splitlines() == ["put key first", "get key", "put key second",
                                                "quit"]
        # Of an earlier prompt; by searching, too.
        with Terminal("kv-client", "-p", server.port, state=state) as terminal:
            terminal.expect(PROMPT)
            terminal.type("\x1b[A\x1b[A\x1b[A\r")
            terminal.expect(rf"\r\nsecond\r\n{PROMPT}")
            terminal.type("\x04")
            assert terminal.end()[0] == 0
        # It does not grow for ever.
        with open(path, "a") as file:
            file.writelines(f"get key-{i}\n" for i in range(2500))
        with Terminal("kv-client", "-p", server.port, state=state) as terminal:
            terminal.expect(PROMPT)
            terminal.type("quit\r")
            assert terminal.end()[0] == 0
        with open(path) as file:
            lines = file.read().splitlines()
        assert len(lines) == 1001 and lines[0] == "get key-1500", (len(lines), lines[0])
        assert os.listdir(os.path.dirname(path)) == ["history"]
        # Without the variable, at home.
        with Terminal("kv-client", "-p", server.port) as terminal:
            terminal.expect(PROMPT)
            terminal.type("quit\r")
            assert terminal.end()[0] == 0
        home = os.environ["REMORA_SHM_DIR"]
        assert os.path.exists(f"{home}/.local/state/remora/history")
        # Nowhere to keep it is no reason to fail.
        with Terminal("kv-client", "-p", server.port, state="/dev/null/nowhere") as terminal:
            terminal.expect(PROMPT)
            terminal.answer("get key", "second")
            terminal.type("quit\r")
            assert terminal.end()[0] == 0


def test_completion_and_hints():
    if not HAS_LIBEDIT:
        raise Skip("built without libedit")
    with ClientServer() as server, tempfile.TemporaryDirectory() as directory:
        with open(os.path.join(directory, "some-file"), "w") as file:
            file.write("content")
        for key in ("alpha", "alphabet", "beta"):
            server.expect(0, PUT, "put", key, f"of {key}")
        server.client("put", "a\x1bx", "hidden")
        with Terminal("kv-client", "-p", server.port) as terminal:
            terminal.expect(PROMPT)
            terminal.type("ge\t")
            terminal.expect(r"KEY \[--output FILE\]")  # the hint
            terminal.type("al\t")
            terminal.expect("pha")
            terminal.type("\t")
            terminal.expect("alpha +alphabet")
            terminal.type("b\t\r")
            terminal.expect(rf"\r\nof alphabet\r\n{PROMPT}")
            terminal.type("ex\t\t")
            terminal.expect("exists +expire")
            terminal.type("\x15get be\t--o\t")
            terminal.type(f"{directory}/out\r")
            terminal.expect(rf"\r\nOK\r\n{PROMPT}")
            terminal.type(f"put file @{directory}/some\t\r")
            terminal.expect(rf"\r\n{STORED}\r\n{PROMPT}")
            terminal.answer("get file", "content")
            terminal.type("help ca\t\r")
            terminal.expect(r"cas KEY VERSION VALUE\r\n")
            terminal.expect(PROMPT)
            terminal.type("\x04")
            assert terminal.end()[0] == 0
        with open(os.path.join(directory, "out")) as file:
            assert file.read() == "of beta"


def test_no_terminal_at_all():
    with ClientServer() as server:
        for words in (["put", "a", "b"], ["get", "a"], ["top", "--interval", "50ms"], []):
            result = server.client(*words, start_new_session=True)
            assert result.returncode == 0 and not result.stderr, (words, result)
            assert b"\x1b" not in result.stdout, result


# ---------------------------------------------------------------- top


def test_top_once():
    with ClientServer() as server:
        for device in TRANSPORTS:
            server.expect(0, PUT, "put", f"key-{device}", "x" * 500, device=device)
            server.client("--json", "stat", f"key-{device}", device=device)
        server.client("get", "nothing", device="tcp")
        text = server.client("top", "--interval", "50ms").stdout.decode()
        for pattern in (r"^kv-server port \d+ +up \d+s +ping [\d.]+[num]s",
                        r"^clients 1 of \d+: shm 1, tcp 0, verbs 0, grpc 0$",
                        r"^OPERATION +/s +p50 +p99 +p99.9 +shm/s +tcp/s +verbs/s +grpc/s$",
                        r"^put +[\d.]+ +[\d.]+[num]s +[\d.]+[num]s +[\d.]+[num]s +[\d.]+ +[\d.]+ ",
                        r"^stat +", r"^ping +[\d.]+ ", r"^hit ratio \d+\.\d%",
                        r"^one-sided gets [\d.]+/s ", r"^keys 2 +memory 64",
                        r"^CLASS +items +used", r"^\d{3} +2 "):
            assert re.search(pattern, text, re.M), (pattern, text)
        frame = server.json(0, "top", "--once", "--interval", "50ms")
        assert frame["keys"] == 2 and frame["clients"] == 1, frame
        assert frame["clients.shm"] == 1 and frame["clients.tcp"] == 0, frame
        assert frame["clients_max"] > 1 and frame["hit_ratio"] == 0, frame
        assert frame["expired_per_s"] == 0 and frame["evicted_per_s"] == 0, frame
        operations = {row["op"]: row for row in frame["operations"]}
        assert operations["ping"]["ops_per_s"] > 0 and operations["ping"]["shm"] > 0, frame
        assert 0 < operations["put"]["p50_ns"] <= operations["put"]["p999_ns"], frame
        assert [row["items"] for row in frame["classes"]] == [2], frame


def test_top_counts_one_sided_gets():
    """A reader of mapped memory asks the server for nothing: its misses are seen all the same."""
    with ClientServer() as server, contextlib.ExitStack() as stack:
        lines = subprocess.Popen(["yes", "get nothing"], stdout=subprocess.PIPE)
        stack.callback(lines.wait)
        stack.callback(lines.kill)
        reader = subprocess.Popen([f"{BIN}/kv-client", "-p", server.port, "-d", "shm"],
                                  stdin=lines.stdout, stdout=NUL, stderr=NUL)
        stack.callback(reader.wait)
        stack.callback(reader.kill)
        lines.stdout.close()
        end = time.monotonic() + 20
        frame = server.json(0, "top", "--once", "--interval", "100ms")
        while frame["one_sided_gets_per_s"] == 0:
            assert time.monotonic() < end, frame
            frame = server.json(0, "top", "--once", "--interval", "100ms")
        assert frame["hit_ratio"] == 0 and frame["clients.grpc"] == 0, frame


def test_top_live():
    with ClientServer() as server:
        server.expect(0, PUT, "put", "a", "b")
        with Terminal("kv-client", "-p", server.port, "top", "--interval", "100ms") as terminal:
            terminal.expect(r"\x1b\[\?1049h")
            for _ in range(3):
                terminal.expect(r"\x1b\[Hkv-server port")
            # Narrow and low: no line is longer, and there are no more of them.
            terminal.resize(40, 10)
            terminal.process.send_signal(signal.SIGWINCH)
            terminal.expect(r"\x1b\[2J")
            frame = visible(terminal.expect(r"\x1b\[J"))
            lines = frame.split(b"\r\n")
            assert max(map(len, lines)) < 40 and len(lines) <= 10, lines
            assert b"kv-server" in lines[0] and any(b"put" in line for line in lines), lines
            terminal.type("q")
            code, shown = terminal.end()
            assert code == 0 and shown.endswith(b"\x1b[?25h\x1b[?1049l"), (code, shown)
        for end, code in ((signal.SIGINT, 0), (signal.SIGTERM, -signal.SIGTERM)):
            with Terminal("kv-client", "-p", server.port, "top") as terminal:
                terminal.expect(r"kv-server port")
                terminal.process.send_signal(end)
                got, shown = terminal.end()
                assert got == code and b"\x1b[?1049l" in shown, (got, shown)
                mode = termios.tcgetattr(terminal.main)[3]
                assert mode & termios.ICANON and mode & termios.ECHO


def test_top_at_the_prompt():
    with ClientServer() as server:
        with Terminal("kv-client", "-p", server.port, "-T", "300ms") as terminal:
            terminal.expect(PROMPT)
            terminal.type("top --interval 100ms\r")
            terminal.expect(r"\x1b\[\?1049h.*kv-server port")
            # The server goes away: that is said, and waited for.
            server.stop()
            terminal.expect(r"connect|closed|lost|server")
            terminal.type("\x03")
            terminal.expect(rf"\x1b\[\?1049l.*{PROMPT}")
            terminal.type("\x04")
            assert terminal.end()[0] == 0


# ---------------------------------------------------------------- bench, doctor, completion


@contextlib.contextmanager
def stand_ins():
    """kv-client in a directory with programs that tell how they were called."""
    with tempfile.TemporaryDirectory(prefix="kv-stand-in-") as directory:
        shutil.copy(f"{BIN}/kv-client", directory)
        for name in ("kv-bench", "kv-doctor"):
            path = os.path.join(directory, name)
            with open(path, "w") as file:
                file.write('#!/bin/sh\necho "${0##*/} $*"\nexit 7\n')
            os.chmod(path, 0o755)
        yield directory


def test_programs():
    with stand_ins() as directory:
        def call(*words, **more):
            return subprocess.run([f"{directory}/kv-client", *words], stdin=NUL, timeout=60,
                                  capture_output=True, text=True, **more)
        for words, called in (
                (["bench"], "kv-bench "),
                (["bench", "1000"], "kv-bench --operations 1000"),
                (["bench", "--ops", "1000", "--value-size", "1024"],
                 "kv-bench --operations 1000 --value-size 1024"),
                (["-p", "77", "-d", "tcp", "-T", "2s", "-k", "file", "--json", "bench"],
                 "kv-bench --port 77 --device tcp --key-file file --timeout 2000ms --json"),
                (["-a", "tcp://host:9", "bench"], "kv-bench --url tcp://host:9"),
                (["-a", "host", "-S", "bench"], "kv-bench --url verbs+socket://host"),
                (["-d", "mlx5_0", "doctor"], "kv-doctor --want verbs"),
                (["-d", "tcp", "-j", "doctor"], "kv-doctor --want tcp --json"),
                (["doctor"], "kv-doctor "), (["-p", "77", "doctor"],
                                             "kv-doctor --server 127.0.0.1:77"),
                (["-a", "host", "doctor", "--quick"], "kv-doctor --server host:12345 --quick"),
                (["--server-addr", "host:9", "doctor"], "kv-doctor --server host:9")):
            result = call(*words)
            assert result.returncode == 7 and result.stdout == called + "\n", (words, result)
        # Not beside it, then in PATH.
        with tempfile.TemporaryDirectory() as other:
            shutil.move(f"{directory}/kv-bench", other)
            result = call("bench", env={**os.environ, "PATH": f"{other}:{os.environ['PATH']}"})
            assert result.stdout == "kv-bench \n", result
        result = call("bench", env={**os.environ, "PATH": directory})
        assert result.returncode == 3 and "kv-bench is neither" in result.stderr, result
        with ClientServer() as server:
            result = subprocess.run([f"{directory}/kv-client", "-p", server.port], timeout=60,
                                    input="doctor\nput a b\nbench\nget a\n", text=True,
                                    capture_output=True, env={**os.environ, "PATH": "/bin"})
            lines = result.stdout.splitlines()
            assert lines[0] == f"kv-doctor --server 127.0.0.1:{server.port}", result
            assert re.fullmatch(STORED, lines[1]), result
            assert "neither" in lines[2] and lines[3] == "b", result


def test_bash_completion():
    if not shutil.which("bash"):
        raise Skip("no bash")
    script = f"""
        . '{SOURCE}/tools/completion/kv-tools.bash'
        PATH='{BIN}':$PATH
        ask() {{
            COMP_WORDS=("$@")
            COMP_CWORD=$(($# - 1))
            _kv_tools "$1" "${{COMP_WORDS[COMP_CWORD]}}" "${{COMP_WORDS[COMP_CWORD - 1]}}"
            echo "${{COMPREPLY[*]}}"
        }}
        complete -p kv-server kv-client kv-bench kv-doctor > /dev/null || exit 1
    """
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "some-file")
        with open(path, "w"):
            pass
        cases = [(["kv-client", "p"], "put ping"), (["kv-client", "-p", "1", "ca"], "cas"),
                 (["kv-client", "--ser"], "--server-addr"),
                 (["kv-client", "--log-level", "d"], "debug"),
                 (["kv-client", "--log-level", "=", "d"], "debug"),
                 (["kv-client", "--key-file", path[:-2]], path),
                 (["kv-client", "put", "k", "v", "--"], "--json --ttl --if-absent --replace"),
                 (["kv-client", "put", "k", "@" + path[:-2]], "@" + path),
                 (["kv-client", "put", "k", "@", path[:-2]], path),
                 (["kv-client", "get", "k", "--output", path[:-2]], path),
                 (["kv-client", "help", "sca"], "scan"), (["kv-client", "get", "k"], ""),
                 (["kv-server", "--on-full", ""], "evict reject"),
                 (["kv-server", "--eager"], "--eager-limit"), (["kv-server", "x"], "")]
        for words, _ in cases:
            script += "ask " + " ".join(f"'{word}'" for word in words) + "\n"
        result = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60,
                                stdin=NUL)
        assert result.returncode == 0 and not result.stderr, result
        for (words, expected), got in zip(cases, result.stdout.split("\n")):
            assert got == expected, (words, expected, got)
        # And of what bash itself makes of a line.
        result = subprocess.run(["bash", "-c", script + "complete -p kv-client"], text=True,
                                capture_output=True, timeout=60, stdin=NUL)
        assert "complete -F _kv_tools kv-client" in result.stdout, result


if __name__ == "__main__":
    sys.exit(main(globals(), sys.argv[3:]))
