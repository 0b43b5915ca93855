"""The servers that the benchmarks start: Redis and memcached, to be held against, and our own.

Each runs on a core of its own, in a directory of its own with its sockets and its log, and is ended
with that directory at the end of a `with` block, whatever happens in it.

Redis and memcached come from build/servers, where `scripts/setup bench` unpacks them, or from the
PATH. They have one thread that serves, no persistence, and no port unless one is asked for.
"""

import os
import shutil
import socket
import subprocess
import tempfile
import time

from benchgoals import Missing, version_of

START_S = 10
END_S = 20


def find_server(build, name):
    for path in (os.path.join(build, "servers/usr/bin", name), shutil.which(name)):
        if path and os.access(path, os.X_OK):
            return path
    raise Missing(f"{name} is not there (scripts/setup bench)")


def server_versions(build):
    """Name -> version, or "not there"."""
    versions = {}
    for name, command in (("redis", "redis-server"), ("memcached", "memcached")):
        try:
            words = version_of([find_server(build, command), "--version"]).split()
            version = [word for word in words if any(c.isdigit() for c in word)][0]
            versions[name] = version.removeprefix("v=")
        except (Missing, IndexError):
            versions[name] = "not there"
    return versions


def free_port():
    """A port that nobody listens at just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A program that listens. In its arguments SOCKET stands for a path in its directory, which is
    self.socket; it is there once something answers at that path, or at the port if one is given."""

    def __init__(self, program, cpu, arguments, port=None):
        self.program, self.cpu, self.arguments, self.port = program, cpu, arguments, port
        self.directory = self.process = self.socket = None

    def __enter__(self):
        self.directory = tempfile.mkdtemp(prefix="bench-")
        self.socket = os.path.join(self.directory, "socket")
        arguments = [word.replace("SOCKET", self.socket) for word in self.arguments]
        with open(os.path.join(self.directory, "log"), "w") as log:
            self.process = subprocess.Popen(
                ["taskset", "-c", str(self.cpu), self.program, *arguments],
                cwd=self.directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            self.wait_until_there()
        except BaseException:
            self.__exit__()
            raise
        return self

    def log(self):
        with open(os.path.join(self.directory, "log")) as log:
            return log.read().strip()

    def connect(self):
        if self.port:
            return socket.create_connection(("127.0.0.1", self.port))
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(self.socket)
        except OSError:
            connection.close()
            raise
        return connection

    def is_there(self):
        try:
            self.connect().close()
            return True
        except OSError:
            return False

    def wait_until_there(self):
        end = time.monotonic() + START_S
        while time.monotonic() < end and self.process.poll() is None:
            if self.is_there():
                return
            time.sleep(0.01)
        raise Missing(f"{self.program} does not start: {self.log()[-200:]}")

    def cpu_seconds(self):
        """What all of its threads have used so far."""
        total = 0
        tasks = f"/proc/{self.process.pid}/task"
        for task in os.listdir(tasks):
            with open(f"{tasks}/{task}/schedstat") as figures:
                total += int(figures.read().split()[0])
        return total / 1e9

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


def redis_server(build, cpu, *more, port=0):
    return Server(find_server(build, "redis-server"), cpu,
                  ["--port", str(port), "--bind", "127.0.0.1", "--unixsocket", "SOCKET", "--save",
                   "", "--appendonly", "no", *more])


def memcached_server(build, cpu, megabytes, *more):
    user = ["-u", "root"] if os.geteuid() == 0 else []
    return Server(find_server(build, "memcached"), cpu,
                  ["-s", "SOCKET", "-m", str(megabytes), "-t", "1", *user, *more])


class KvServer(Server):
    """Ours. It says on its output where it listens, and then "ready"."""

    def __init__(self, build, cpu, *arguments):
        program = os.path.join(build, "bin/kv-server")
        if not os.access(program, os.X_OK):
            raise Missing(f"{program} is not there (make)")
        super().__init__(program, cpu, ["--port", "0", *arguments])

    def is_there(self):
        lines = self.log().splitlines()
        if "ready" not in lines:
            return False
        self.port = int(next(line for line in lines if line.startswith("port: ")).split()[1])
        return True
