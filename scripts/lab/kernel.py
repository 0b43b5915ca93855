"""Gets Debian's kernel without installing it: the package that linux-image-amd64 depends on is
downloaded and unpacked, and the kernel and the few modules that the lab needs are kept in
build/lab/kernel. `make clean` is the way to get a newer one.
"""

import lzma
import os
import re
import shutil
import subprocess
from pathlib import Path

META_PACKAGE = "linux-image-amd64"

# What init loads, and what a test may load with modprobe. In later kernels some are built in.
MODULES = [
    "virtio_pci", "virtio_net", "virtio_console", "dummy", "veth", "sch_netem",
    "crc32_generic",  # rdma_rxe asks for it by another name: `rdma link add` fails without
    "ib_uverbs", "rdma_rxe", "rdma_ucm",
]


class Unavailable(Exception):
    """The lab cannot be set up on this machine; says why."""


def find_program(name, package):
    """Tools of root are often not in PATH, but usable."""
    path = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/bin:/bin")
    if not path:
        raise Unavailable(f"{name} is not installed (package {package})")
    return path


def run(command, **keywords):
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          check=False, **keywords)


# ---------------------------------------------------------------- the package


def package_name(apt_options):
    """The versioned package behind the name that always means the newest kernel."""
    output = run(["apt-cache", *apt_options, "depends", META_PACKAGE]).stdout
    match = re.search(r"Depends: (linux-image-\S+)", output)
    return match[1] if match else None


def try_download(directory, apt_options):
    name = package_name(apt_options)
    if not name:
        return f"apt-get knows no package {META_PACKAGE}"
    # Root's apt-get would warn that its own user cannot write here.
    result = run(["apt-get", *apt_options, "-q", "-o", "APT::Sandbox::User=root", "download", name],
                 cwd=directory, timeout=900)
    if result.returncode != 0:
        return f"apt-get download {name} failed: {result.stderr.strip()}"
    return None


def download(directory):
    """Tries with the package lists of this machine; if they are missing or out of date, with
    lists of our own, which needs no root."""
    find_program("apt-get", "apt")
    if try_download(directory, []) is None:
        return
    lists = directory / "lists"
    (lists / "partial").mkdir(parents=True)
    cache = directory / "cache"
    (cache / "archives" / "partial").mkdir(parents=True)
    own = ["-o", f"Dir::State::lists={lists}", "-o", f"Dir::Cache={cache}",
           "-o", "APT::Sandbox::User=root"]
    run(["apt-get", *own, "-q", "update"], timeout=900)
    reason = try_download(directory, own)
    if reason:
        raise Unavailable(f"no kernel for the guest: {reason}")


def unpack(directory):
    package = next(directory.glob("*.deb"), None)
    if not package:
        raise Unavailable("no kernel for the guest: apt-get downloaded nothing")
    tree = directory / "tree"
    result = run([find_program("dpkg-deb", "dpkg"), "-x", package, tree])
    if result.returncode != 0:
        raise Unavailable(f"{package.name} cannot be unpacked: {result.stderr.strip()}")
    return tree


# ---------------------------------------------------------------- the modules


def read_module(path):
    """A module's bytes; newer packages compress them."""
    data = path.read_bytes()
    return lzma.decompress(data) if path.suffix == ".xz" else data


def module_name(path):
    return re.sub(r"\.ko(\.xz)?$", "", Path(path).name).replace("-", "_")


def direct_dependencies(data):
    """A module carries the names of those it needs."""
    match = re.search(rb"\0depends=([^\0]*)\0", data)
    names = match[1].decode() if match else ""
    return [name.replace("-", "_") for name in names.split(",") if name]


def needed_modules(tree):
    """name -> (bytes, names of all modules to load before it, the next one first), of everything
    in MODULES that is not part of the kernel itself."""
    paths = {module_name(path): path for path in tree.rglob("*.ko*")}
    built_in = set()
    for path in tree.rglob("modules.builtin"):
        built_in |= {module_name(line) for line in path.read_text().split()}
    found = {}

    def visit(name):
        if name in found or name in built_in:
            return
        if name not in paths:
            raise Unavailable(f"this kernel has no module {name}")
        data = read_module(paths[name])
        below = [other for other in direct_dependencies(data) if other not in built_in]
        for other in below:
            visit(other)
        order = []
        for other in below:
            order += [entry for entry in [other, *found[other][1]] if entry not in order]
        found[name] = (data, order)

    for name in MODULES:
        # crc32_generic has become part of others in later kernels.
        if name in paths or name in built_in or name != "crc32_generic":
            visit(name)
    return found


def dependency_file(modules):
    """modules.dep as depmod writes it and modprobe reads it. A module that needs a second one and
    a third one, which the second needs as well, must get the third one first: so the list is
    sorted by how much each needs itself."""
    lines = []
    for name, (_, order) in modules.items():
        order = sorted(order, key=lambda other: -len(modules[other][1]))
        lines.append(f"{name}.ko:" + "".join(f" {other}.ko" for other in order))
    return "\n".join(lines) + "\n"


# ---------------------------------------------------------------- the result


class Kernel:
    def __init__(self, directory):
        self.directory = directory
        self.release = (directory / "release").read_text().strip()
        self.image = directory / "vmlinuz"
        self.modules = directory / "modules"


def keep(tree, directory):
    """Copies what is needed of the unpacked package."""
    image = next((tree / "boot").glob("vmlinuz-*"))
    modules = needed_modules(tree)
    (directory / "modules").mkdir(parents=True)
    for name, (data, _) in modules.items():
        (directory / "modules" / f"{name}.ko").write_bytes(data)
    (directory / "modules" / "modules.dep").write_text(dependency_file(modules))
    shutil.copyfile(image, directory / "vmlinuz")
    (directory / "release").write_text(image.name.removeprefix("vmlinuz-") + "\n")


def get_kernel(lab_directory):
    """The kernel in build/lab/kernel, got first if need be."""
    directory = lab_directory / "kernel"
    # A list of modules that has changed needs another choice from the package.
    wanted = "\n".join(MODULES)
    mark = directory / "complete"
    if mark.exists() and mark.read_text() == wanted:
        return Kernel(directory)
    scratch = lab_directory / f"kernel.{os.getpid()}"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    try:
        download(scratch)
        keep(unpack(scratch), scratch / "kept")
        (scratch / "kept" / "complete").write_text(wanted)
        shutil.rmtree(directory, ignore_errors=True)
        (scratch / "kept").rename(directory)
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"no kernel for the guest: {error.cmd[0]} took too long") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return Kernel(directory)
