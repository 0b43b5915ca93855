#!/usr/bin/env python3
"""What `make install` and `cpack -G DEB` put where, from a build that is there.

usage: package_test.py BUILD_DIRECTORY

Nothing is installed by this test: one goes below a directory of its own, the other is only read.
scripts/test-deb installs the package for real, in a bare Debian.
"""

import os
import re
import shutil
import subprocess
import sys

from script_harness import ROOT, Failure, Skip, run_tests

BUILD = sys.argv[1]
PROGRAMS = ["fabric-perf", "kv-bench", "kv-client", "kv-doctor", "kv-server", "store-perf"]
HEADERS = sorted(path.name for path in (ROOT / "include" / "remora").glob("*.h"))
with open(os.path.join(BUILD, "CMakeCache.txt")) as cache:
    # "lib", or Debian's directory of this processor where the first configuration was for /usr.
    LIBRARIES = re.search(r"^CMAKE_INSTALL_LIBDIR:\w+=(.*)$", cache.read(), re.M)[1]


def run(*command, **more):
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False,
                            **more)
    if result.returncode != 0:
        raise Failure(f"{command}: {result.returncode} {result.stdout} {result.stderr}")
    return result.stdout


def check_files(files, prefix, sysconf):
    """`files` are absolute names."""
    expected = [f"{prefix}/bin/{name}" for name in PROGRAMS]
    expected += [f"{prefix}/include/remora/{name}" for name in HEADERS]
    expected += [f"{prefix}/share/man/man1/{name}.1" for name in PROGRAMS]
    expected += [f"{prefix}/share/man/man3/remora-{name[:-2]}.3" for name in HEADERS]
    expected += [f"{prefix}/share/man/man3/{name}.3" for name in ("rmr_post", "kv_client_get")]
    for library in ("remora", "remora-server"):
        directory = f"{prefix}/{LIBRARIES}"
        expected += [f"{directory}/lib{library}.so", f"{directory}/lib{library}.so.0",
                     f"{directory}/pkgconfig/{library}.pc"]
    expected += [f"{prefix}/lib/systemd/system/kv-server.service",
                 f"{prefix}/share/remora/kv_cache.proto",
                 f"{prefix}/share/doc/remora/copyright",
                 f"{prefix}/share/doc/remora/docs/providers.md",  # messages name it
                 f"{prefix}/share/doc/remora/examples/kv-server.conf",
                 f"{sysconf}/remora/kv-server.conf"]
    missing = [name for name in expected if name not in files]
    if missing:
        raise Failure(f"missing: {missing}; there are {sorted(files)}")
    roots = (f"{prefix}/", f"{sysconf}/remora/")
    stray = [name for name in files if not name.startswith(roots) or name.endswith(".a")]
    if stray:
        raise Failure(f"not expected: {stray}")


def check_places(root, prefix, sysconf):
    """Files that name others name them as they will be."""
    unit = (root / f"{prefix[1:]}/lib/systemd/system/kv-server.service").read_text()
    start = f"\nExecStart={prefix}/bin/kv-server --config {sysconf}/remora/kv-server.conf\n"
    if start not in unit or "@BINDIR@" in unit or "@SYSCONFDIR@" in unit:
        raise Failure(f"the unit does not start {prefix}/bin/kv-server: {unit}")
    for library in ("remora", "remora-server"):
        text = (root / f"{prefix[1:]}/{LIBRARIES}/pkgconfig/{library}.pc").read_text()
        if f"prefix={prefix}\n" not in text or f"-l{library}\n" not in text:
            raise Failure(f"{library}.pc: {text}")


def list_files(root):
    return {"/" + os.path.relpath(os.path.join(directory, name), root)
            for directory, _, names in os.walk(root) for name in names}


def install(root):
    run("cmake", "--install", BUILD, "--prefix", "/opt/remora",
        env={**os.environ, "DESTDIR": str(root)})


def test_install(root):
    install(root)
    check_files(list_files(root), "/opt/remora", "/opt/remora/etc")
    check_places(root, "/opt/remora", "/opt/remora/etc")
    key = root / "key"
    key.write_text("k" * 32 + "\n")
    run(root / "opt/remora/bin/kv-server", "--config",
        root / "opt/remora/etc/remora/kv-server.conf", "--key-file", key, "--check-config")


def test_install_keeps_the_configuration(root):
    install(root)
    config = root / "opt/remora/etc/remora/kv-server.conf"
    config.write_text("# mine\n")
    install(root)
    if config.read_text() != "# mine\n":
        raise Failure("the configuration was overwritten")


def test_uninstall(root):
    """All goes but the configuration; what others have there stays."""
    install(root)
    other = root / "opt/remora/bin/other"
    other.write_text("of others")
    # The manifest is the last installation's, which may be another test's.
    manifest = root / "manifest"
    manifest.write_text("".join(f"{name}\n" for name in sorted(list_files(root))
                                if name.startswith("/opt/") and name != "/opt/remora/bin/other"))
    run("cmake", f"-DMANIFEST={manifest}", "-P", ROOT / "cmake/Uninstall.cmake",
        env={**os.environ, "DESTDIR": str(root)})
    left = sorted(list_files(root) - {"/manifest"})
    if left != ["/opt/remora/bin/other", "/opt/remora/etc/remora/kv-server.conf"]:
        raise Failure(f"left: {left}")
    if (root / "opt/remora/include/remora").exists():
        raise Failure("an empty directory of ours is left")


def make_packages(root):
    for tool in ("cpack", "dpkg-deb", "dpkg-shlibdeps", "file"):
        if not shutil.which(tool):
            raise Skip(f"{tool} is not installed (scripts/setup deb)")
    run("cpack", "-G", "DEB", "-B", root / "package", cwd=BUILD)
    return {package.name.split("_")[0]: package for package in (root / "package").glob("*.deb")}


def check_fields(package, name, *texts):
    version = re.search(r"project\(remora VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())[1]
    fields = run("dpkg-deb", "-f", package, "Package", "Version", "Depends", "Maintainer",
                 "Description")
    for library in ("hiredis", "memcached"):  # which only a benchmark's modules need
        if library in fields:
            raise Failure(f"the package needs {library}: {fields}")
    for text in (f"Package: {name}\n", f"Version: {version}\n", "Maintainer: ",
                 "Description: key-value store on RDMA", *texts):
        if text not in fields:
            raise Failure(f"no '{text}' in {fields}")
    if not re.fullmatch(rf"{name}_{re.escape(version)}_\w+\.deb", package.name):
        raise Failure(package.name)


def test_packages(root):
    packages = make_packages(root)
    if sorted(packages) != ["libremora-dev", "libremora0", "remora"]:
        raise Failure(f"made {packages}")
    check_fields(packages["remora"], "remora", "libc6 (>= ", "libssl")
    check_fields(packages["libremora0"], "libremora0", "libc6 (>= ", "libssl")
    check_fields(packages["libremora-dev"], "libremora-dev", "Depends: libremora0 (= ")
    content = {}
    for name, package in packages.items():
        run("dpkg-deb", "-R", package, root / name)
        shutil.move(root / name / "DEBIAN", root / f"{name}-control")
        content[name] = list_files(root / name)
        shutil.copytree(root / name, root / "all", symlinks=True, dirs_exist_ok=True)
        listing = run("dpkg-deb", "-c", package)
        wrong = [line for line in listing.splitlines() if " root/root " not in line or
                 re.match(r"[-d].......w", line)]
        if wrong:
            raise Failure(f"owners and rights: {wrong}")
    control = root / "remora-control"
    if (control / "conffiles").read_text() != "/etc/remora/kv-server.conf\n":
        raise Failure("conffiles")
    if "ldconfig" not in (root / "libremora0-control" / "triggers").read_text():
        raise Failure("triggers")
    for script in ("postinst", "prerm", "postrm"):
        run("sh", "-n", control / script)
    # Other users of the host may come in: only with a key, which installing makes.
    shipped = (root / "remora/etc/remora/kv-server.conf").read_text()
    if re.search("^any-user = yes", shipped, re.M):
        if not re.search("^key-file = /etc/remora/key$", shipped, re.M):
            raise Failure("the package lets everybody in")
        if "/etc/remora/key" not in (control / "postinst").read_text():
            raise Failure("the package makes no key")
    check_split(content)
    check_files(list_files(root / "all"), "/usr", "/etc")
    check_places(root / "all", "/usr", "/etc")


def check_split(content):
    """Nothing twice; programs need no headers, and libraries lie where Debian has them."""
    names = sum(map(sorted, content.values()), [])
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise Failure(f"in two packages: {twice}")
    for name, pattern in (("remora", r"/include/|\.so|/man3/|\.pc$"),
                          ("libremora0", r"/include/|/bin/|/man/|\.pc$|\.so$"),
                          ("libremora-dev", r"/bin/|\.so\.")):
        wrong = [file for file in content[name] if re.search(pattern, file)]
        if wrong:
            raise Failure(f"{name} has {wrong}")
    if os.path.exists("/etc/debian_version") and not any(
            re.fullmatch(r"/usr/lib/[a-z0-9_]+-linux-gnu\w*/libremora\.so\.0", file)
            for file in content["libremora0"]):
        raise Failure(f"no multiarch directory: {sorted(content['libremora0'])}")


def run_postinst(root, *arguments):
    """What it asks systemd for; where systemd runs, as the file says that it does."""
    script = (ROOT / "packaging/debian/postinst").read_text()
    (root / "postinst").write_text(script.replace("/run/systemd/system", str(root))
                                   .replace("/etc/remora", str(root)))
    for name in ("systemctl", "getent", "groupadd", "chgrp"):
        (root / name).write_text("#!/bin/sh\n" if name != "systemctl" else
                                 f"#!/bin/sh\necho \"$*\" >> {root}/asked\n")
        (root / name).chmod(0o755)
    (root / "asked").write_text("")
    run("sh", root / "postinst", *arguments,
        env={**os.environ, "PATH": f"{root}:{os.environ['PATH']}"})
    return (root / "asked").read_text().splitlines()


def test_upgrade_restarts(root):
    reload = "--system daemon-reload"
    for arguments, asked in ((["configure", ""], [reload]),
                             (["configure", "0.0.9"],
                              [reload, "try-restart kv-server.service"]),
                             (["abort-upgrade"], [])):
        if (got := run_postinst(root, *arguments)) != asked:
            raise Failure(f"postinst {arguments}: {got}")


if __name__ == "__main__":
    tests = [(name[5:], function, ()) for name, function in list(globals().items())
             if name.startswith("test_")]
    sys.exit(run_tests(tests))
