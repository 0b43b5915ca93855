#!/usr/bin/env python3
"""Drives the real kv-server: its options and files, what it prints, its signals and its rights.

usage: kv_server_test.py BIN_DIRECTORY SOURCE_DIRECTORY [NAME...]

Each test is a function `test_*`, with a server of its own where it needs one; a NAME picks those
whose name contains it. The last line counts them: "N passed, N failed, N skipped".
"""

import fcntl
import os
import pwd
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile

from tool_harness import BIN, NUL, PUT, Server, Skip, main

SOURCE = sys.argv[2]
NOBODY = "nobody"


class SmallServer(Server):
    """One that takes little memory, and whose clients answer in text."""

    DEFAULTS = ("-a", "127.0.0.1", "-p", "0", "-m", "32")

    def client(self, *words, device="shm"):
        return super().client(*words, device=device, text=True)


def run(*arguments, **more):
    return subprocess.run([f"{BIN}/kv-server", *arguments], capture_output=True, text=True,
                          timeout=60, stdin=NUL, **more)


def expect_failure(code, texts, *arguments, **more):
    """It says in one line what is wrong, and prints nothing else."""
    result = run(*arguments, **more)
    assert result.returncode == code and not result.stdout, (arguments, result)
    assert len(result.stderr.splitlines()) == 1, (arguments, result)
    assert result.stderr.startswith("kv-server: "), (arguments, result)
    for text in texts if isinstance(texts, tuple) else (texts,):
        assert text in result.stderr, (arguments, text, result)


class Files:
    """A directory with files, which are written by name."""

    def __init__(self, **files):
        self.directory = tempfile.TemporaryDirectory(prefix="kv-files-")
        for name, text in files.items():
            self.write(name, text)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.directory.cleanup()

    def path(self, name):
        return os.path.join(self.directory.name, name)

    def write(self, name, text):
        with open(self.path(name), "w", opener=lambda p, f: os.open(p, f, 0o600)) as file:
            file.write(text)
        return self.path(name)


# ---------------------------------------------------------------- the first screen


def test_first_screen():
    with SmallServer("--listen", "shm,tcp", "--node-id", "cache-1", "-w", "2") as server:
        lines = server.text().splitlines()
        assert re.fullmatch(r"kv-server \(Remora\) \d+\.\d+\.\d+", lines[0]), lines
        assert lines[1:3] == ["node: cache-1", "memory: 32MiB, when full: evict"], lines
        assert re.fullmatch(r"pages: \d+ ordinary ones of \d+KiB", lines[3]), lines
        assert lines[4:6] == ["workers: 2 threads",
                              "access: everybody who can reach a path below"], lines
        assert lines[6].startswith("shm: listening at "), lines
        assert lines[7:] == [f"tcp: listening at 127.0.0.1:{server.port}",
                             f"port: {server.port}", "ready"], lines


def listening(port):
    """The addresses that this port is listened at, as the kernel writes them."""
    found = set()
    for name in ("tcp", "tcp6"):
        with open(f"/proc/net/{name}") as file:
            fields = [line.split() for line in file.readlines()[1:]]
        found |= {field[1].split(":")[0] for field in fields
                  if int(field[1].split(":")[1], 16) == int(port) and field[3] == "0A"}
    return found


LOOPBACK = {"0100007F", "00000000000000000000000001000000"}


def test_guarded_by_default():
    """Without a word about who may come, this host alone is served; and it says how to open it."""
    small = ("-p", "0", "-m", "32")
    for arguments in ((), ("--listen", "shm,tcp"), ("--mock",)):
        with SmallServer(*small, *arguments, defaults=()) as server:
            assert listening(server.port) and listening(server.port) <= LOOPBACK, arguments
            text = " ".join(server.text().split())
            assert "access: this host alone" in text and "-a ADDRESS --key-file FILE" in text, text
            assert "WARN" not in text, text
            assert server.client("put", "a", "b").returncode == 0
    with Files(key="k" * 32 + "\n") as files:
        with SmallServer(*small, "--key-file", files.path("key"), defaults=()) as server:
            assert not listening(server.port) <= LOOPBACK
            assert "there is no key" not in server.text(), server.text()
    for arguments in (("-a", "0.0.0.0"), ("--listen", "tcp://0.0.0.0")):
        with SmallServer(*small, *arguments, defaults=()) as server:
            assert not listening(server.port) <= LOOPBACK, arguments
            assert "access: everybody" in server.text() and "there is no key" in server.text()


def test_width():
    """Lines are broken between words, but for those that programs read."""
    for width in (80, 40):
        with SmallServer("-H", env={**os.environ, "COLUMNS": str(width)}) as server:
            lines = server.text().splitlines()
            screen = lines[lines.index(next(l for l in lines if l.startswith("kv-server "))):]
            for line in screen:
                assert len(line) <= width or ": listening at " in line or \
                    not re.search(r"\S \S", line.strip()), line
            assert screen[-1] == "ready" and "memory: 32MiB" in "".join(screen), screen


def test_huge_pages():
    """They are had; or it is said which command makes them."""
    with SmallServer("-H") as server:
        text = " ".join(server.text().split())
        assert re.search(r"pages: 16 huge ones of 2MiB", text) or \
            re.search(r"pages: \d+ ordinary ones of \d+KiB; .*(sysctl -w vm.nr_hugepages=\d+|"
                      r"this kernel has no huge ones|start again)", text), text


def test_memory_is_in_megabytes():
    for option, text, shown in (("-m", "16", "16MiB"), ("--memory", "0.0625GiB", "64MiB"),
                                ("-m", "16777216B", "16MiB"), ("--memory-mb", "16", "16MiB")):
        with SmallServer(option, text, "--on-full", "reject") as server:
            assert f"\nmemory: {shown}, when full: reject\n" in server.text(), server.text()


def test_prefault_is_told():
    with SmallServer("-m", "96", "--prefault", "--log-level", "info") as server:
        assert re.search(r" INFO  touching memory: \d+% of 96MiB\n", server.text()), server.text()
        assert ", all touched\n" in server.text()


def test_paths_that_are_off():
    """What this machine has not is off, with the way to have it; nothing failed."""
    with SmallServer() as server:
        text = " ".join(server.text().split())
        assert "not listening" not in text, text
        if not os.path.isdir("/sys/class/infiniband") or not os.listdir("/sys/class/infiniband"):
            assert re.search(r" verbs: off \([^)]+\)", text), text


def test_sockets_of_killed_servers():
    """The next server removes them, and no others."""
    with tempfile.TemporaryDirectory() as directory:
        environment = {**os.environ, "REMORA_SHM_DIR": directory}
        with SmallServer(env=environment) as living, SmallServer(env=environment) as killed:
            killed.stop(signal.SIGKILL)
            dead = os.path.join(directory, f"kv-{killed.port}.sock")
            for name in ("other.sock", "other.sock.lock", "plain"):
                with open(os.path.join(directory, name), "w"):
                    pass
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as foreign:
                foreign.bind(os.path.join(directory, "foreign.sock"))  # dead, and not ours: no lock
            assert os.path.exists(dead) and os.path.exists(dead + ".lock")
            doctor = subprocess.run([f"{BIN}/kv-doctor", "--json"], capture_output=True,
                                    text=True, env=environment, timeout=60, stdin=NUL)
            assert "of servers that were killed" in doctor.stdout, doctor
            assert f"rm -f {dead} {dead}.lock" in doctor.stdout, doctor
            with SmallServer(env=environment):
                assert not os.path.exists(dead) and not os.path.exists(dead + ".lock")
                left = sorted(os.listdir(directory))
            for name in (f"kv-{living.port}.sock", "other.sock", "other.sock.lock", "plain",
                         "foreign.sock"):
                assert name in left, (name, left)
            result = subprocess.run([f"{BIN}/kv-client", "-p", living.port, "-d", "shm", "ping"],
                                    env=environment, timeout=60, stdin=NUL, capture_output=True)
            assert result.returncode == 0, result


# ---------------------------------------------------------------- options


def test_flags_of_both_seeds():
    for arguments in (["-a", "127.0.0.1", "-p", "0", "-m", "32", "-t", "1000", "-w", "1", "-S"],
                      ["--address", "127.0.0.1", "--port", "0", "--memory-mb", "32", "--node-id",
                       "0", "--log-level", "debug", "--worker-threads", "3", "--num-domains", "0"]):
        with SmallServer(*arguments, defaults=()) as server:
            server.expect(0, PUT, "put", "a", "b")
    with SmallServer("--worker-threads", "3") as server:
        assert "\nworkers: 3 threads\n" in server.text()


def test_usage():
    for text, *arguments in (("--memory", "-m", "many"), ("--memory", "-m", "0"),
                             ("--port", "-p", "70000"), ("--on-full", "--on-full", "explode"),
                             ("--frobnicate", "--frobnicate"), ("unexpected", "word"),
                             ("did you mean --memory", "--memmory", "1"),
                             ("--listen-addr", "--tls-cert", "some.pem"),
                             ("--node-id", "--node-id", "two words"),
                             ("--node-id", "--node-id", "x" * 64),
                             ("--num-domains", "--num-domains", "-1")):
        expect_failure(2, text, *arguments)
    result = run("--help")
    assert result.returncode == 0 and "grows by itself" in " ".join(result.stdout.split()), result
    assert run("-h").stdout == result.stdout


def test_more_adapters_than_there_are():
    expect_failure(1, ("17 adapters are wanted", "can be used here"), "--num-domains", "17",
                   "-p", "0")
    expect_failure(1, "the list of where to listen has 0", "--num-domains", "1", "-p", "0",
                   "--listen", "shm")


def test_failures():
    """Each says in one sentence what to do."""
    with SmallServer() as server:
        taken = ("-a", "127.0.0.1", "-p", server.port, "-m", "32")
        for listen in ((), ("--listen", "tcp")):
            expect_failure(1, (server.port, "take another port"), *taken, *listen)
        server.expect(0, PUT, "put", "a", "b")
    # 192.0.2.0/24 is for documentation: nobody has it.
    expect_failure(1, ("192.0.2.1", "no such address"), "-a", "192.0.2.1", "-p", "0", "-m", "32")
    expect_failure(1, "ask for less", "-p", "0", "-m", "60TB")
    expect_failure(1, "/nowhere/at-all", "-p", "0", "--key-file", "/nowhere/at-all")
    expect_failure(1, "carrier-pigeon", "-p", "0", "--listen", "carrier-pigeon")
    with Files(short="too short\n") as files:
        expect_failure(1, "openssl rand", "-p", "0", "--key-file", files.path("short"))


# ---------------------------------------------------------------- the configuration file


def test_config():
    with Files() as files:
        config = files.write("kv.conf", "# a server\nport = 0\naddress = 127.0.0.1 # here\n"
                                        "memory = 48\nworkers = 2\non-full = 'reject'\n"
                                        'node-id = "from-file"\n')
        with SmallServer("--config", config, defaults=()) as server:
            assert "\nnode: from-file\nmemory: 48MiB, when full: reject\n" in server.text()
            assert "\nworkers: 2 threads\n" in server.text()
        # The command line wins, before the file and behind it, and by its other names.
        for arguments in (["-m", "32", "-c", config, "--worker-threads", "1"],
                          ["-c", config, "-w", "1", "--memory-mb", "32"]):
            with SmallServer(*arguments, defaults=()) as server:
                assert "\nnode: from-file\nmemory: 32MiB, when full: reject\n" in server.text()
                assert "\nworkers: 1 thread\n" in server.text()


def test_config_mistakes():
    with Files() as files:
        for text, *expected in (("\nprot = 1\n", ":2: ", "did you mean --port?"),
                                ("port = 70000", ":1: port: '70000' is more than 65535"),
                                ("port 1", ":1: ", "'name = value'"),
                                ("memory = 1\n\nmemory-mb = 2", ":3: ", "line 1 has set it"),
                                ('address = "127', ":1: the quote is not closed"),
                                ("config = other", ":1: config belongs to the command line"),
                                ("\nmemory = 12XB", ":2: memory: '12XB' is not a size"),
                                ("memory-mb = 0", ":1: memory-mb: no memory of 0"),
                                ('node-id = "a b"', ":1: node-id: a name has no blanks"),
                                ("tls-key = some.pem", "give --listen-addr")):
            config = files.write("kv.conf", text)
            for more in ([], ["--check-config"]):
                expect_failure(2, tuple(expected), "--config", config, *more)
        expect_failure(2, ("cannot read", "No such file"), "--config", files.path("none"))
        expect_failure(2, "Is a directory", "--config", files.directory.name)


def test_check_config():
    with Files(key="the key to read and write with\n") as files:
        config = files.write("kv.conf", f"memory = 48\nkey-file = {files.path('key')}\n"
                                        "node-id = n#1\nworkers = 2\n")
        result = run("--config", config, "-p", "777", "--check-config")
        assert result.returncode == 0 and not result.stderr, result
        lines = result.stdout.splitlines()
        for line in ("memory = 48MiB", "port = 777", f"key-file = {files.path('key')}",
                     'node-id = "n#1"', "workers = 2", '# address = ""', "hugepages = no",
                     "max-clients = 4096", "window = 64", "eager-limit = 8KiB",
                     "inline-limit = 8KiB", "landing-size = 4MiB"):
            assert line in lines, (line, lines)
        # Of 0 there is only what means 0.
        zeros = {line for line in lines if re.search(r"= 0\D*$", line)}
        assert zeros == {"num-domains = 0", "table = 0", "data-port = 0",
                         "max-clients-per-peer = 0"}, zeros
        # What it prints is a configuration of the same meaning.
        again = run("--config", files.write("again.conf", result.stdout), "--check-config")
        assert again.returncode == 0 and again.stdout == result.stdout, again
        for texts, *arguments in (("192.0.2.1", "-a", "192.0.2.1"),
                                  ("/nowhere/at-all", "--key-file", "/nowhere/at-all"),
                                  ("ask for less", "-m", "60TB"),
                                  ("pigeon", "--listen", "pigeon"),
                                  ("no user", "--user", "no-such-user-here"),
                                  (("adapters", "17"), "--num-domains", "17"),
                                  ("verbs:no-such-adapter", "--listen",
                                   "verbs:no-such-adapter")):
            expect_failure(2, texts, "--check-config", *arguments)


def test_check_config_of_verbs():
    """What would not start is not said to be well."""
    if os.path.isdir("/sys/class/infiniband") and os.listdir("/sys/class/infiniband"):
        raise Skip("there is an RDMA device here")
    words = ("--listen", "verbs", "-p", "0", "-m", "32")
    with Files() as files:
        config = files.write("kv.conf", "listen = verbs\nport = 0\nmemory = 32\n")
        for code, *arguments in ((2, *words, "--check-config"),
                                 (2, "--config", config, "--check-config"), (1, *words)):
            expect_failure(code, "cannot listen by verbs: ", *arguments)


def test_check_config_beside_a_server():
    with SmallServer() as server:
        assert run("-a", "127.0.0.1", "-p", server.port, "--check-config").returncode == 0
        server.expect(0, PUT, "put", "a", "b")


def test_example_config():
    """The one that is installed is well, and what it proposes is, too."""
    path = os.path.join(SOURCE, "packaging", "kv-server.conf")
    with open(path) as file, Files(key="k" * 32 + "\n", **{"read-key": "r" * 32 + "\n"}) as files:
        text = file.read()
        # Other users of the host come in, so there has to be a key.
        assert re.search("^any-user = yes", text, re.M) and re.search("^key-file = ", text, re.M)
        shipped = files.write("as-is.conf", text.replace("/etc/remora/", files.path("")))
        assert run("--config", shipped, "--check-config").returncode == 0
        file.seek(0)
        text = re.sub(r"^#(\S+ = )", r"\1", file.read(), flags=re.M)
        text = text.replace("/etc/remora/", files.directory.name + "/")
        assert text.count("\nhugepages = yes\n") == 1, text
        result = run("--config", files.write("all.conf", text), "--check-config")
        assert result.returncode == 0 and "log-level = info" in result.stdout, result


# ---------------------------------------------------------------- signals


def test_stops_by_signal():
    for number in (signal.SIGTERM, signal.SIGINT):
        with SmallServer() as server:
            sockets = re.findall(r"shm: listening at (\S+)", server.text())
            assert server.stop(number) == 0, server.text()
            assert "stopping" in server.text()
            assert sockets and not os.path.exists(sockets[0]), sockets


def test_stops_before_the_start():
    """A signal that comes while memory is being touched is not kept waiting."""
    def send_early():
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        os.kill(os.getpid(), signal.SIGTERM)
    with Files() as files:
        result = run("-p", "0", "-m", "64", "--prefault", "--pid-file", files.path("pid"),
                     preexec_fn=send_early)
        assert result.returncode == 0 and "before the start" in result.stdout, result
        assert not os.path.exists(files.path("pid"))


def test_statistics_by_signal():
    with SmallServer("--node-id", "cache-1") as server:
        server.expect(0, PUT, "put", "a", "b")
        server.process.send_signal(signal.SIGUSR1)
        server.wait_for_text("\nkeys 1\n")
        assert "\nnode_id cache-1\nuptime_ms " in server.text(), server.text()
        server.expect(0, "b", "get", "a")


def test_log_has_the_name():
    with SmallServer("--node-id", "cache-1", "--log-level", "info") as server:
        assert re.search(r"^[\d:.]+ cache-1\[\d+\] INFO ", server.text(), re.M), server.text()


def test_new_keys_by_signal():
    with Files(key="the first key of them\n", old="the first key of them\n",
               new="the second key of them\n") as files:
        key, old, new = (files.path(name) for name in ("key", "old", "new"))
        with SmallServer("--key-file", key, "--log-level", "info") as server:
            assert "\naccess: with the shared key\n" in server.text()
            server.expect(0, PUT, "-k", old, "put", "a", "b")
            server.expect(3, "", "-k", new, "get", "a")
            shutil.copy(new, key)
            server.process.send_signal(signal.SIGHUP)
            server.wait_for_text("the key files were read anew")
            server.expect(0, "b", "-k", new, "get", "a")
            server.expect(3, "", "-k", old, "get", "a")
            os.unlink(key)
            server.process.send_signal(signal.SIGHUP)
            server.wait_for_text("the old keys stay")
            server.expect(0, "b", "-k", new, "get", "a")


def test_hangup_without_keys():
    with SmallServer("--log-level", "info") as server:
        server.process.send_signal(signal.SIGHUP)
        server.wait_for_text("there are no key files to read")
        server.expect(0, PUT, "put", "a", "b")


# ---------------------------------------------------------------- the pid file


def test_pid_file():
    with Files() as files:
        path = files.path("pid")
        with SmallServer("--pid-file", path) as server:
            with open(path) as file:
                assert file.read() == f"{server.process.pid}\n"
            expect_failure(1, (str(server.process.pid), "stop it"), "-p", "0", "--pid-file", path)
            server.expect(0, PUT, "put", "a", "b")
            assert server.stop() == 0
            assert not os.path.exists(path)


def test_pid_file_left_behind():
    with Files() as files:
        path = files.path("pid")
        with SmallServer("--pid-file", path) as server:
            server.stop(signal.SIGKILL)
        assert os.path.exists(path)
        with SmallServer("--pid-file", path) as server:
            with open(path) as file:
                assert file.read() == f"{server.process.pid}\n"


def test_pid_file_failures():
    with Files(notes="remember the milk\n", lock="") as files:
        expect_failure(1, "something else", "-p", "0", "--pid-file", files.path("notes"))
        with open(files.path("notes")) as file:
            assert file.read() == "remember the milk\n"
        expect_failure(1, "cannot write", "-p", "0", "--pid-file", files.path("no/such"))
        with open(files.path("lock")) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            expect_failure(1, "another server has", "-p", "0", "--pid-file", files.path("lock"))
        # A start that fails takes its file away.
        expect_failure(1, "no such address", "-a", "192.0.2.1", "-p", "0", "--pid-file",
                       files.path("pid"))
        assert not os.path.exists(files.path("pid"))


# ---------------------------------------------------------------- users


def threads_of(pid):
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/status") as file:
            yield dict(line.split(":\t", 1) for line in file.read().splitlines() if ":\t" in line)


def low_port():
    for port in range(1023, 600, -1):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return str(port)
            except OSError:
                continue
    raise Skip("no port below 1024 is free, or they are not for us")


def test_user():
    """No thread keeps any right, and all paths work."""
    if os.geteuid() != 0:
        raise Skip("only root can become somebody else")
    uid, gid = pwd.getpwnam(NOBODY)[2:4]
    with Files(key="the key that root alone can read\n") as files:
        key, port = files.path("key"), low_port()
        os.chmod(files.directory.name, 0o711)
        sockets = files.path("sockets")
        os.mkdir(sockets)
        os.chown(sockets, uid, gid)
        with SmallServer("-p", port, "--user", NOBODY, "--key-file", key, "--pid-file",
                    files.path("pid"), env={**os.environ, "REMORA_SHM_DIR": sockets}) as server:
            assert server.port == port
            threads = list(threads_of(server.process.pid))
            assert len(threads) >= 3
            for thread in threads:
                assert thread["Uid"].split() == [str(uid)] * 4, thread
                assert thread["Gid"].split() == [str(gid)] * 4, thread
                assert int(thread["CapEff"], 16) == int(thread["CapPrm"], 16) == 0, thread
            path = re.search(r"shm: listening at (\S+)", server.text())[1]
            assert os.stat(path).st_uid == uid and stat.S_ISSOCK(os.stat(path).st_mode)
            server.expect(0, PUT, "-k", key, "put", "a", "b", device="tcp")
            result = subprocess.run([f"{BIN}/kv-client", "-a", f"shm:{path}", "-k", key, "get",
                                     "a"], capture_output=True, text=True, timeout=60, stdin=NUL)
            assert (result.returncode, result.stdout) == (0, "b"), result
            assert server.stop() == 0, server.text()
            assert not os.path.exists(path)
            # The directory is root's, so it can only be emptied.
            assert os.path.getsize(files.path("pid")) == 0


def test_user_that_we_are():
    with SmallServer("--user", pwd.getpwuid(os.geteuid()).pw_name) as server:
        server.expect(0, PUT, "put", "a", "b")


def test_user_failures():
    expect_failure(1, "no user 'no-such-user-here'", "-p", "0", "--user", "no-such-user-here")
    expect_failure(1, "no group 'no-such-group'", "-p", "0", "--user",
                   f"{pwd.getpwuid(os.geteuid()).pw_name}:no-such-group")
    if os.geteuid() != 0:
        expect_failure(1, "only root can become", "-p", "0", "--user", "root")
        return
    try:
        expect_failure(1, "only root can become", "-p", "0", "--user", "root", user=NOBODY)
    except PermissionError as error:
        raise Skip("the programs lie where others may not read") from error


# ---------------------------------------------------------------- systemd


def test_notification():
    with Files() as files:
        for name in (files.path("notify"), f"\0kv-server-test-{os.getpid()}"):
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
                listener.bind(name)
                listener.settimeout(30)
                environment = {**os.environ, "NOTIFY_SOCKET": name.replace("\0", "@")}
                with SmallServer(env=environment) as server:
                    assert listener.recv(1000).startswith(b"READY=1\n")
                    assert server.stop() == 0
                    assert listener.recv(1000).startswith(b"STOPPING=1\n")
                with SmallServer("-m", "64", "--prefault", env=environment):
                    assert listener.recv(1000).startswith(b"EXTEND_TIMEOUT_USEC=")
                    while not listener.recv(1000).startswith(b"READY=1\n"):
                        pass


def test_notification_to_nobody():
    for name in ("/nowhere/at-all", "", "relative", "@" + "x" * 200):
        with SmallServer(env={**os.environ, "NOTIFY_SOCKET": name}) as server:
            assert server.stop() == 0


def test_unit():
    if not shutil.which("systemd-analyze"):
        raise Skip("systemd-analyze is not installed")
    with open(f"{SOURCE}/packaging/kv-server.service.in") as file, Files() as files:
        text = file.read().replace("@BINDIR@", os.path.abspath(BIN)).replace("@SYSCONFDIR@", "/etc")
        assert "@" not in re.sub("^#.*|=@[a-z-]+", "", text, flags=re.M), text
        unit = files.write("kv-server.service", text)
        result = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], text=True,
                                capture_output=True, timeout=60)
        assert result.returncode == 0 and "kv-server" not in result.stderr, result
        # It is able to find fault.
        files.write("kv-server.service", text.replace("/kv-server --config", "/no-such --config"))
        assert subprocess.run(["systemd-analyze", "verify", "--man=no", unit], timeout=60,
                              capture_output=True).returncode != 0


if __name__ == "__main__":
    sys.exit(main(globals(), sys.argv[3:]))
