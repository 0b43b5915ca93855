"""What the tests of the gRPC service share: a server that listens for it, certificates, and where
the tools are. On top of what the tests of the tools share.

A test program has the programs' directory, the source directory and a directory for what it makes
as its arguments, then the NAMEs of tests to run.
"""

import atexit
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tools"))
from tool_harness import NUL, Server, Skip, main  # noqa: E402

SOURCE, MADE = sys.argv[2], sys.argv[3]
WORDS = sys.argv[4:]
WRITE_KEY, READ_KEY = "w" * 32, "r" * 32
# Emulated and sanitized servers are slow: no test waits less than this for what should come.
PATIENCE_S = 20 * int(os.environ.get("TEST_TIME_SCALE", "1"))


class GrpcServer(Server):
    """A kv-server with the gRPC service on a free port of this machine."""

    DEFAULTS = ("--listen", "shm,tcp", "-a", "127.0.0.1", "-p", "0", "-m", "64",
                "--listen-addr", "0")

    def __enter__(self):
        super().__enter__()
        self.address = re.search(r"^grpc: listening at (\S+)", self.text(), re.M)[1]
        return self


def make_directory(prefix):
    """One that goes with this process."""
    os.makedirs(MADE, exist_ok=True)
    directory = tempfile.mkdtemp(prefix=prefix, dir=MADE)
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


def need_program(name, package):
    if not shutil.which(name):
        raise Skip(f"{name} is not installed (Debian: {package})")
    return name


def need_service():
    """The build may have left gRPC out."""
    result = subprocess.run([f"{sys.argv[1]}/kv-server", "--listen-addr", "0", "--check-config"],
                            capture_output=True, text=True, timeout=60, stdin=NUL)
    if "this build has no gRPC" in result.stderr:
        raise Skip(result.stderr.strip())


def python_with_grpc():
    """Runs this program again by a Python that has grpcio, if this one has not. Returns whether
    there is one."""
    try:
        import grpc  # noqa: F401
        import google.protobuf  # noqa: F401
        return True
    except ImportError:
        pass
    other = "/usr/bin/python3"
    if os.path.realpath(sys.executable) != os.path.realpath(other) and os.path.exists(other):
        found = subprocess.run([other, "-c", "import grpc, google.protobuf"], stdin=NUL,
                               stdout=NUL, stderr=NUL, check=False)
        if found.returncode == 0:
            os.execv(other, [other, *sys.argv])
    return False


def make_messages():
    """kv_cache_pb2 and the standard services' messages, by protoc; a directory for sys.path."""
    need_program("protoc", "protobuf-compiler")
    directory = make_directory("messages-")
    protos = [os.path.join(root, name)
              for root, _, names in os.walk(os.path.join(SOURCE, "proto"))
              for name in names if name.endswith(".proto")]
    subprocess.run(["protoc", f"--python_out={directory}", f"-I{SOURCE}/proto", *protos],
                   check=True, timeout=60)
    # Their package is called grpc, as the library is: they get a name of their own.
    os.rename(os.path.join(directory, "grpc"), os.path.join(directory, "grpc_standard"))
    return directory


class Caller:
    """Calls methods without streams by their names: caller.Get(key=b"k"). `messages` is a module
    that protoc made."""

    def __init__(self, server, messages, options=None):
        import grpc
        self.channel = grpc.insecure_channel(server.address, options)
        self.messages = messages

    def __getattr__(self, name):
        request = getattr(self.messages, name + "Request")
        function = self.channel.unary_unary(
            "/kv_cache.KvCacheService/" + name,
            request_serializer=request.SerializeToString,
            response_deserializer=getattr(self.messages, name + "Response").FromString)
        return lambda **fields: function(request(**fields), timeout=PATIENCE_S)


@contextlib.contextmanager
def called_service(messages, *arguments):
    """A server, and a caller of it."""
    with GrpcServer(*arguments) as server:
        caller = Caller(server, messages)
        yield caller
        caller.channel.close()


class Certificates:
    """An authority, and certificates that it has signed for a server and a client."""

    def __init__(self):
        need_program("openssl", "openssl")
        self.directory = make_directory("tls-")
        self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                     "-nodes", "-days", "2", "-subj", "/CN=test authority",
                     "-keyout", self.path("ca.key"), "-out", self.path("ca.pem"))
        self.sign("server", "subjectAltName=IP:127.0.0.1,DNS:localhost")
        self.sign("client", "extendedKeyUsage=clientAuth")
        self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                     "-nodes", "-days", "2", "-subj", "/CN=stranger",
                     "-keyout", self.path("stranger.key"), "-out", self.path("stranger.pem"))

    def openssl(self, *arguments):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)

    def path(self, name):
        return os.path.join(self.directory, name)

    def read(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def sign(self, name, extension):
        with open(self.path(f"{name}.ext"), "w") as file:
            file.write(extension + "\n")
        self.openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                     "-subj", f"/CN={name}", "-keyout", self.path(f"{name}.key"),
                     "-out", self.path(f"{name}.csr"))
        self.openssl("x509", "-req", "-in", self.path(f"{name}.csr"), "-CA", self.path("ca.pem"),
                     "-CAkey", self.path("ca.key"), "-CAcreateserial", "-days", "2",
                     "-extfile", self.path(f"{name}.ext"), "-out", self.path(f"{name}.pem"))


class KeyFiles:
    """Files with the keys to write and to read."""

    def __init__(self):
        self.directory = make_directory("keys-")
        self.write, self.read = self.make("write", WRITE_KEY), self.make("read", READ_KEY)

    def make(self, name, key):
        path = os.path.join(self.directory, name)
        with open(path, "w", opener=lambda p, f: os.open(p, f, 0o600)) as file:
            file.write(key + "\n# a comment does not count\n")
        return path

    def arguments(self):
        return ("--key-file", self.write, "--read-key-file", self.read)


def run_main(tests):
    os.makedirs(MADE, exist_ok=True)
    return main(tests, WORDS)
