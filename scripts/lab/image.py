"""The guest's file system: a chain of two archives, which the kernel unpacks one over the other.

The base has busybox, the modules, and the tools and libraries of this machine that verbs need; it
is kept in build/lab and made again when something that it is made of has changed. The programs
under test are archived for each run: that takes no time, and they are never out of date. Programs
are in /remora under the same path as in the tree, so that a command reads the same here and there.
"""

import glob
import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

from lab.cpio import Archive
from lab.kernel import Unavailable, find_program, get_kernel

ROOT = Path(__file__).resolve().parents[2]
LAB = ROOT / "build" / "lab"
HERE = Path(__file__).resolve().parent

# program, and its package. Those that a test needs and that are missing make the lab unavailable.
TOOLS = [
    ("ip", "iproute2"), ("rdma", "iproute2"), ("tc", "iproute2"),
    ("setpriv", "util-linux"), ("taskset", "util-linux"),
    ("ibv_devinfo", "ibverbs-utils"), ("ibv_rc_pingpong", "ibverbs-utils"),
    ("rping", "rdmacm-utils"),
    ("ib_read_lat", "perftest"), ("ib_write_lat", "perftest"), ("ib_send_lat", "perftest"),
    ("ib_atomic_lat", "perftest"), ("ib_read_bw", "perftest"), ("ib_write_bw", "perftest"),
    ("ib_send_bw", "perftest"),
]
# Not needed by any test, handy in `make vm-shell`.
EXTRAS = ["strace", "ibv_devices", "ibv_asyncwatch", "ucmatose"]
DRIVER_FILES = ["/etc/libibverbs.d/rxe.driver", "/usr/lib/*/libibverbs/librxe-*.so"]
# Opened by glibc at run time (at pthread_exit), so that ldd does not know it.
HIDDEN_LIBRARIES = ["/lib/*/libgcc_s.so.1"]

MOTD = """
This is a guest with real kernel verbs (soft-RoCE), alone: nothing leads out of it.
  rdma link; ibv_devinfo -d rxe0                       its devices, rxe0 and rxe1
  rping -s -a 10.77.0.1 & rping -c -a 10.77.0.1 -C 3 -v
  ib_read_lat -d rxe0 -F & sleep 1; ib_read_lat -d rxe0 -F 10.77.0.1
  build/tests/fabric_conformance --provider tcp        programs of this build, in build/
Leave it with `exit`, or Ctrl-a x.

"""
SMALL_FILES = {
    "/etc/passwd": "root:x:0:0:root:/root:/bin/sh\ntester:x:1000:1000:tester:/tmp:/bin/sh\n",
    "/etc/group": "root:x:0:\ntester:x:1000:\n",
    "/etc/nsswitch.conf": "hosts: files\n",
    "/etc/profile": "PS1='\\h:\\w# '\n",
    "/etc/motd": MOTD,
}
# Added up these say that a file of this machine has changed, without reading it.
STAMP = "{0} {1.st_size} {1.st_mtime_ns}\n"


def libraries_of(program):
    """What the dynamic linker would load for a program; none for a static one or a script."""
    output = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    missing = re.search(r"(\S+) => not found", output)
    if missing:
        raise Unavailable(f"{program} needs {missing[1]}, which is not installed")
    return re.findall(r"(/\S+) \(0x", output)


def add_program(archive, path, source, base=()):
    """A program with its libraries, without those that the base has already."""
    archive.add_file(path, source)
    for library in libraries_of(source):
        if library not in base:
            archive.add_file(library, library)


def add_busybox(archive):
    busybox = find_program("busybox", "busybox-static")
    if libraries_of(busybox):
        raise Unavailable("busybox is not a static one (package busybox-static)")
    archive.add_file("/bin/busybox", busybox)
    names = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout
    for name in names.split():
        archive.add_link(f"/bin/{name}", "busybox")


def add_shells(archive):
    """busybox's own shell would prefer its own small `ip` to the real one."""
    add_program(archive, "/bin/sh", find_program("dash", "dash"))
    add_program(archive, "/bin/bash", find_program("bash", "bash"))


def find_all(pattern, package):
    paths = glob.glob(pattern)
    if not paths:
        raise Unavailable(f"{pattern} is missing (package {package})")
    return paths


def base_archive(kernel):
    """Everything but the programs under test."""
    archive = Archive()
    for name in ("proc", "sys", "dev", "tmp", "run", "root", "remora", "lib64"):
        archive.add_directory(name)
    archive.add_character_device("/dev/console", 5, 1)  # what init speaks to
    for name in ("init", "lane"):
        archive.add_file("/init" if name == "init" else f"/lab/{name}", HERE / name)
    for path, text in SMALL_FILES.items():
        archive.add_text(path, text)
    for module in sorted(kernel.modules.iterdir()):
        archive.add_file(f"/lib/modules/{kernel.release}/{module.name}", module)
    add_shells(archive)
    for name, package in TOOLS:
        add_program(archive, f"/usr/bin/{name}", find_program(name, package))
    for name in EXTRAS:
        if shutil.which(name):
            add_program(archive, f"/usr/bin/{name}", shutil.which(name))
    for pattern in DRIVER_FILES:
        for path in find_all(pattern, "ibverbs-providers"):
            add_program(archive, path, path)
    for pattern in HIDDEN_LIBRARIES:
        for path in find_all(pattern, "libgcc-s1"):
            archive.add_file(path, path)
    add_busybox(archive)
    return archive


def fingerprint(archive):
    """Changes with everything that the archive holds."""
    digest = hashlib.sha256()
    for path, (mode, device, content) in sorted(archive.entries.items()):
        digest.update(f"{path} {mode} {device}\n".encode())
        if isinstance(content, str):
            content = STAMP.format(content, os.stat(content)).encode()
        digest.update(content)
    return digest.hexdigest()


def write_archive(archive, path):
    """Whole or not at all, also when two runs do it at the same time."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    with open(temporary, "wb") as output:
        archive.write(output)
    temporary.rename(path)


class Image:
    """What guests boot from."""

    def __init__(self, kernel, base, base_path):
        self.kernel, self.base, self.base_path = kernel, base, base_path

    def programs_archive(self, programs):
        archive = Archive()
        for program in programs:
            source = ROOT / program
            if not source.exists():
                raise FileNotFoundError(f"{program} is not built")
            add_program(archive, f"/remora/{program}", source, self.base)
        return archive

    def open_initrd(self, programs=()):
        """The file system of one run, as a file in memory: it is gone with its last user."""
        output = open(os.memfd_create("initrd"), "w+b")
        with open(self.base_path, "rb") as base:
            shutil.copyfileobj(base, output)
        self.programs_archive(programs).write(output)
        output.flush()
        return output


def get_image():
    """The image of this tree, made first if need be. Raises Unavailable with the reason if this
    machine cannot have one."""
    find_program("qemu-system-x86_64", "qemu-system-x86")
    LAB.mkdir(parents=True, exist_ok=True)
    kernel = get_kernel(LAB)
    base = base_archive(kernel)
    path = LAB / "base.cpio"
    mark = LAB / "base.fingerprint"
    now = fingerprint(base)
    if not path.exists() or not mark.exists() or mark.read_text() != now:
        write_archive(base, path)
        mark.write_text(now)
    return Image(kernel, base, path)
