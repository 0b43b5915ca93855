#!/usr/bin/env python3
"""Drives the real kv-doctor: on this machine, on trees of files that look like other machines, and
against servers.

usage: kv_doctor_test.py BIN_DIRECTORY [NAME...]

Each test is a function `test_*`; a NAME picks those whose name contains it. The last line counts
them: "N passed, N failed, N skipped".
"""

import fcntl
import json
import os
import pty
import re
import socket
import struct
import subprocess
import sys
import tempfile
import termios

from tool_harness import BIN, NUL, Server, free_port, main

KERNEL = "6.1.0-test"
LIBRARIES = "/usr/lib/x86_64-linux-gnu"


def doctor(*arguments, **more):
    environment = {**os.environ, **more.pop("env", {})}
    return subprocess.run([f"{BIN}/kv-doctor", *arguments], capture_output=True, text=True,
                          timeout=60, stdin=NUL, env=environment, **more)


class Findings:
    """What kv-doctor --json says, by check."""

    def __init__(self, *arguments, **more):
        result = doctor("--json", *arguments, **more)
        assert result.returncode in (0, 1) and not result.stderr, result
        self.code, self.all = result.returncode, {}
        for line in result.stdout.splitlines():
            finding = json.loads(line)
            assert set(finding) == {"group", "check", "status", "finding", "fix"}, finding
            assert finding["status"] in ("OK", "WARN", "FAIL", "n/a"), finding
            assert finding["finding"] and "\n" not in finding["finding"], finding
            # What is wrong comes with a command; what is not, does not.
            broken = finding["status"] in ("WARN", "FAIL")
            assert bool(finding["fix"]) == broken, finding
            key = f"{finding['group']}/{finding['check']}"
            assert key not in self.all, finding
            self.all[key] = finding

    def expect(self, key, status, text="", fix=""):
        finding = self.all.get(key)
        assert finding, f"no {key} in {list(self.all)}"
        assert finding["status"] == status, finding
        assert text in finding["finding"], finding
        assert fix in finding["fix"], finding

    def broken(self):
        """What is not as it should be, without the verdict."""
        return [key for key, finding in self.all.items()
                if finding["status"] in ("WARN", "FAIL") and key != "Verdict/path"]


# ---------------------------------------------------------------- trees


class Tree:
    """The files of a machine. Nothing is written before kv-doctor runs."""

    def __init__(self):
        self.files, self.links, self.modes = {}, {}, {}
        self.modules = ["nf_tables"]
        self.loadable = ["ib_core", "ib_uverbs", "rdma_cm", "rdma_ucm", "mlx5_ib", "rdma_rxe"]
        self.user, self.capabilities, self.memlock = os.geteuid(), 0, "unlimited"
        self.memories = "0"
        self.files.update({
            "/proc/sys/kernel/osrelease": KERNEL,
            "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "512",
            "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages": "500",
            "/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
            "/sys/kernel/mm/transparent_hugepage/shmem_enabled": "always advise [never]",
            "/sys/devices/system/node/node0/distance": "10 21",
            "/sys/devices/system/node/node1/distance": "21 10",
            f"{LIBRARIES}/libibverbs.so.1": "", f"{LIBRARIES}/librdmacm.so.1": "",
            "/nft.rules": "",
        })
        for name in ("mlx5", "rxe", "efa", "siw"):
            self.files[f"{LIBRARIES}/libibverbs/lib{name}-rdmav34.so"] = ""

    def add_core(self):
        self.modules += ["ib_core", "ib_uverbs", "rdma_cm", "rdma_ucm"]
        self.files["/sys/class/misc/rdma_cm/dev"] = "10:123"
        self.files["/dev/infiniband/rdma_cm"] = ""

    def add_adapter(self, name, number=0, node_type="1: CA", link_layer="Ethernet", driver=None,
                    state="4: ACTIVE", phys_state="5: LinkUp", numa="0"):
        top = f"/sys/class/infiniband/{name}"
        self.files.update({
            f"{top}/node_type": node_type,
            f"{top}/ports/1/state": state, f"{top}/ports/1/phys_state": phys_state,
            f"{top}/ports/1/link_layer": link_layer,
            f"{top}/ports/1/rate": "100 Gb/sec (4X EDR)",
            f"/sys/class/infiniband_verbs/uverbs{number}/ibdev": name,
            f"/dev/infiniband/uverbs{number}": "",
        })
        if driver:
            self.files[f"{top}/device/numa_node"] = numa
            self.links[f"{top}/device/driver"] = f"../../../bus/pci/drivers/{driver}"

    def add_gid(self, name, index, gid, kind="RoCE v2", netdev="eth2"):
        top = f"/sys/class/infiniband/{name}/ports/1"
        self.files[f"{top}/gids/{index}"] = gid
        self.files[f"{top}/gid_attrs/types/{index}"] = kind
        self.files[f"{top}/gid_attrs/ndevs/{index}"] = netdev
        self.files.setdefault(f"/sys/class/net/{netdev}/mtu", "9000")

    def write(self, root):
        files = {
            **self.files,
            "/proc/modules": "".join(f"{name} 16384 0 - Live 0x0\n" for name in self.modules),
            "/proc/self/limits": "Limit                     Soft Limit   Hard Limit   Units\n"
                                 f"Max locked memory         {self.memlock}   unlimited   bytes\n",
            "/proc/self/status": f"Name:\tkv-doctor\nUid:\t{self.user}\t{self.user}\t0\t0\n"
                                 f"Gid:\t70000\t70000\t0\t0\nGroups:\t70001 \n"
                                 f"CapEff:\t{self.capabilities:016x}\n"
                                 f"Mems_allowed_list:\t{self.memories}\n",
            f"/lib/modules/{KERNEL}/modules.builtin": "kernel/net/ipv4/tcp.ko\n",
            f"/lib/modules/{KERNEL}/modules.dep":
                "".join(f"kernel/drivers/{name.replace('_', '-')}.ko.xz:\n"
                        for name in self.loadable),
        }
        for name, text in files.items():
            if text is None:
                continue
            os.makedirs(os.path.dirname(root + name), exist_ok=True)
            with open(root + name, "w") as file:
                file.write(text + "\n" if text and not text.endswith("\n") else text)
        for name, target in self.links.items():
            os.makedirs(os.path.dirname(root + name), exist_ok=True)
            os.symlink(target, root + name)
        for name, mode in self.modes.items():
            os.chmod(root + name, mode)

    def findings(self, *arguments):
        with tempfile.TemporaryDirectory(prefix="kv-doctor-") as root:
            self.write(root)
            return Findings("--sysroot", root, *arguments)


def connectx():
    """A machine on which all is well."""
    tree = Tree()
    tree.add_core()
    tree.modules += ["mlx5_core", "mlx5_ib"]
    tree.add_adapter("mlx5_0", driver="mlx5_core")
    tree.add_gid("mlx5_0", 0, "fe80:0000:0000:0000:0e42:a1ff:fe00:0001", "IB/RoCE v1")
    tree.add_gid("mlx5_0", 1, "fe80:0000:0000:0000:0e42:a1ff:fe00:0001")
    tree.add_gid("mlx5_0", 2, "0000:0000:0000:0000:0000:ffff:0a00:0005", "IB/RoCE v1")
    tree.add_gid("mlx5_0", 3, "0000:0000:0000:0000:0000:ffff:0a00:0005")
    tree.files["/sys/class/infiniband/mlx5_0/ports/1/gids/4"] = ":".join(["0000"] * 8)
    return tree


def soft_roce():
    tree = Tree()
    tree.add_core()
    tree.modules += ["rdma_rxe"]
    tree.add_adapter("rxe0")
    tree.files["/sys/class/infiniband/rxe0/parent"] = "eth0"
    tree.add_gid("rxe0", 0, "fe80:0000:0000:0000:5054:00ff:fe77:0001", netdev="eth0")
    tree.add_gid("rxe0", 1, "0000:0000:0000:0000:0000:ffff:0a4d:0001", netdev="eth0")
    return tree


# ---------------------------------------------------------------- checks on trees


def test_connectx_is_fine():
    found = connectx().findings("--want", "verbs")
    assert found.code == 0 and not found.broken(), found.broken()
    for module in ("ib_core", "ib_uverbs", "rdma_cm", "rdma_ucm", "mlx5_ib"):
        found.expect(f"Kernel/{module}", "OK", "loaded")
    found.expect("Kernel/other drivers", "n/a", "efa")
    found.expect("Adapters/mlx5_0", "OK", "driver mlx5_ib")
    found.expect("Adapters/mlx5_0 port 1", "OK", "active, Ethernet, 100 Gb/sec (4X EDR), network "
                                                 "card eth2")
    found.expect("Adapters/mlx5_0 port 1 GID", "OK", "3, RoCE v2, 10.0.0.5, is used")
    found.expect("Adapters/mlx5_0 port 1 MTU", "OK", "4096")
    found.expect("Adapters/mlx5_0 NUMA", "OK", "node 0")
    found.expect("Libraries/libmlx5 for mlx5_0", "OK", "ibverbs-providers")
    found.expect("Memory/locked memory", "OK", "no limit")
    found.expect("Memory/huge pages", "OK", "500 of 512 are free, 1000MiB")
    found.expect("Memory/transparent pages", "OK", "madvise for ordinary memory, never for")
    found.expect("Network/firewall, tcp 12345", "OK")
    found.expect("Transfers/transfers", "n/a", "nothing is tried")
    found.expect("Verdict/path", "OK", "verbs, the wanted path, works; clients here take shm to "
                                       "servers on this host, and verbs:mlx5_0 to others")


def test_built_in_modules():
    tree = connectx()
    tree.modules = []
    tree.files["/proc/modules"] = ""
    tree.loadable = []
    found = tree.findings()
    for module in ("ib_core", "ib_uverbs", "rdma_ucm"):  # by what they made
        found.expect(f"Kernel/{module}", "OK", "built into the kernel")
    assert found.code == 0


def test_port_down():
    tree = connectx()
    tree.add_adapter("mlx5_0", driver="mlx5_core", state="1: DOWN", phys_state="3: Disabled")
    found = tree.findings("--want", "verbs")
    found.expect("Adapters/mlx5_0 port 1", "FAIL", "not active but DOWN, the link is Disabled",
                 "ip link set dev eth2 up")
    found.expect("Verdict/path", "FAIL", "no port of mlx5_0 is active", "ip link set dev eth2 up")
    assert found.code == 1
    found = tree.findings()  # nobody asked for verbs
    found.expect("Verdict/path", "OK", "shm to servers on this host, and tcp to others (verbs: no "
                                       "port of mlx5_0 is active")
    assert found.code == 0
    tree.add_adapter("mlx5_0", driver="mlx5_core", state="1: DOWN", phys_state="2: Polling")
    tree.findings().expect("Adapters/mlx5_0 port 1", "FAIL", "Polling", "ethtool eth2")


def test_one_adapter_of_two_is_down():
    tree = connectx()
    tree.add_adapter("mlx5_1", 1, driver="mlx5_core", state="1: DOWN", phys_state="3: Disabled")
    found = tree.findings("--want", "verbs")
    found.expect("Adapters/mlx5_1 port 1", "FAIL")
    found.expect("Verdict/path", "OK", "verbs:mlx5_0 to others")
    assert found.code == 0


def test_infiniband():
    tree = connectx()
    tree.add_adapter("mlx5_0", driver="mlx5_core", link_layer="InfiniBand")
    found = tree.findings("--want", "verbs")
    found.expect("Adapters/mlx5_0 port 1 GID", "OK", "0, fe80::")
    assert found.code == 0
    tree.add_adapter("mlx5_0", driver="mlx5_core", link_layer="InfiniBand", state="2: INIT")
    tree.findings().expect("Adapters/mlx5_0 port 1", "FAIL", "INIT", "systemctl start opensm")


def test_locked_memory():
    tree = connectx()
    tree.memlock = 65536
    found = tree.findings("--want", "verbs")
    found.expect("Memory/locked memory", "FAIL", "at most 64KiB", "memlock unlimited")
    found.expect("Verdict/path", "FAIL", "64 KiB", "memlock unlimited")
    assert found.code == 1
    tree.memlock = 8 << 20
    found = tree.findings("--want", "verbs")
    found.expect("Memory/locked memory", "WARN", "enough for clients", "LimitMEMLOCK=infinity")
    assert found.code == 0
    tree.memlock = 4 << 30
    tree.findings().expect("Memory/locked memory", "OK", "at most 4GiB")
    tree.memlock, tree.capabilities = 0, 1 << 14
    tree.findings().expect("Memory/locked memory", "OK", "no limit for this user's privileges")
    plain = Tree()
    plain.memlock = 65536
    plain.findings().expect("Memory/locked memory", "n/a", "only verbs lock memory")


def test_no_uverbs():
    tree = connectx()
    tree.modules.remove("ib_uverbs")
    del tree.files["/sys/class/infiniband_verbs/uverbs0/ibdev"]
    del tree.files["/dev/infiniband/uverbs0"]
    found = tree.findings("--want", "verbs+socket")
    found.expect("Kernel/ib_uverbs", "FAIL", "not loaded", "modprobe ib_uverbs")
    found.expect("Permissions/uverbs of mlx5_0", "FAIL", "there is no /dev/infiniband/uverbs*",
                 "modprobe ib_uverbs")
    found.expect("Verdict/path", "FAIL", "mlx5_0 has no file in /dev/infiniband",
                 "modprobe ib_uverbs")
    assert found.code == 1
    tree.loadable.remove("ib_uverbs")
    found = tree.findings()
    found.expect("Kernel/ib_uverbs", "FAIL", "this kernel does not have it", "apt-get install")
    found.expect("Kernel/ib_uverbs", "FAIL", fix=KERNEL)


def test_no_connection_manager():
    tree = connectx()
    tree.modules.remove("rdma_ucm")
    del tree.files["/dev/infiniband/rdma_cm"], tree.files["/sys/class/misc/rdma_cm/dev"]
    found = tree.findings("--want", "verbs")
    found.expect("Kernel/rdma_ucm", "FAIL", fix="modprobe rdma_ucm")
    found.expect("Permissions/rdma_cm", "FAIL", "/dev/infiniband/rdma_cm")
    assert found.code == 1
    found = tree.findings("--want", "verbs+socket")
    found.expect("Kernel/rdma_ucm", "WARN")
    assert found.code == 0


def test_permissions():
    tree = connectx()
    tree.user = os.geteuid() + 1  # the files are ours
    tree.modes = {"/dev/infiniband/uverbs0": 0o600, "/dev/infiniband/rdma_cm": 0o666}
    found = tree.findings("--want", "verbs")
    found.expect("Permissions/uverbs of mlx5_0", "FAIL", "must be readable and writable",
                 "chmod 0666 /dev/infiniband/uverbs0")
    found.expect("Permissions/rdma_cm", "OK")
    found.expect("Verdict/path", "FAIL", "no permission for mlx5_0")
    tree.capabilities = 1 << 1  # may do anything with files
    assert tree.findings("--want", "verbs").code == 0


def test_directory_of_sockets():
    tree = Tree()
    tree.findings().expect("Permissions/shm sockets", "OK", "not there yet")
    tree.files["/run/remora/kv-12345.sock"] = ""
    tree.modes["/run/remora"] = 0o755
    tree.findings("--want", "shm").expect("Permissions/shm sockets", "OK", "/run/remora")
    tree.modes["/run/remora"] = 0o777
    found = tree.findings("--want", "shm")
    found.expect("Permissions/shm sockets", "FAIL", "others may write to it",
                 "chmod go-w /run/remora")
    found.expect("Verdict/path", "FAIL", "others may write", "chmod go-w /run/remora")
    assert found.code == 1 and tree.findings("--want", "tcp").code == 0


def test_libraries():
    tree = connectx()
    del tree.files[f"{LIBRARIES}/libibverbs/libmlx5-rdmav34.so"]
    found = tree.findings("--want", "verbs")
    found.expect("Libraries/libmlx5 for mlx5_0", "FAIL", "not installed",
                 "apt-get install ibverbs-providers")
    assert found.code == 1
    tree = connectx()
    del tree.files[f"{LIBRARIES}/libibverbs.so.1"]
    tree.findings().expect("Libraries/libibverbs", "FAIL", fix="apt-get install libibverbs1")
    tree = Tree()
    del tree.files[f"{LIBRARIES}/libibverbs.so.1"]
    tree.findings().expect("Libraries/libibverbs", "n/a", "libibverbs1")


def test_no_adapter():
    found = Tree().findings()
    found.expect("Adapters/adapters", "n/a", "no RDMA device")
    found.expect("Kernel/RDMA modules", "n/a")
    found.expect("Verdict/path", "OK", "tcp to others (verbs: there is no adapter)")
    assert found.code == 0 and not found.broken(), found.broken()
    found = Tree().findings("--want", "verbs")
    found.expect("Adapters/adapters", "FAIL", "no RDMA device",
                 "rdma link add rxe0 type rxe netdev NIC")
    found.expect("Verdict/path", "FAIL", "there is no adapter", "rdma link add rxe0")
    assert found.code == 1


def test_card_without_driver():
    tree = Tree()
    card = "/sys/bus/pci/devices/0000:41:00.0"
    tree.files.update({f"{card}/vendor": "0x15b3", f"{card}/device": "0x101d",
                       f"{card}/class": "0x020000"})
    tree.findings().expect("Kernel/mlx5_ib", "WARN", "the card at 0000:41:00.0",
                           "modprobe mlx5_ib")
    found = tree.findings("--want", "verbs")
    found.expect("Kernel/mlx5_ib", "FAIL", fix="modprobe mlx5_ib")
    found.expect("Adapters/adapters", "FAIL", fix="modprobe -a mlx5_ib ib_uverbs rdma_ucm")


def test_soft_roce():
    tree = soft_roce()
    tree.files["/sys/class/net/eth0/mtu"] = "1500"
    found = tree.findings("--want", "verbs")
    assert found.code == 0
    found.expect("Adapters/rxe0", "OK", "driver rdma_rxe")
    found.expect("Adapters/rxe0 port 1 GID", "OK", "1, RoCE v2, 10.77.0.1, is used")
    found.expect("Adapters/rxe0 port 1 MTU", "WARN", "1024 bytes, for frames of eth0 have 1500",
                 "ip link set dev eth0 mtu 4200")
    found.expect("Adapters/rxe0 NUMA", "n/a")
    found.expect("Network/firewall, udp 4791", "OK")


def test_gids():
    tree = soft_roce()
    for index in (0, 1):
        del tree.files[f"/sys/class/infiniband/rxe0/ports/1/gids/{index}"]
    found = tree.findings("--want", "verbs")
    found.expect("Adapters/rxe0 port 1 GID", "FAIL", "no address", "ip address add ADDRESS/24 dev "
                                                                  "eth0")
    found.expect("Verdict/path", "FAIL", "no GID for RoCE v2")
    tree.add_gid("rxe0", 0, "fe80:0000:0000:0000:5054:00ff:fe77:0001", netdev="eth0")
    tree.findings().expect("Adapters/rxe0 port 1 GID", "WARN", "link-local", "ip address add")
    tree.add_gid("rxe0", 1, "fd77:0000:0000:0000:0000:0000:0000:0001", netdev="eth0")
    tree.findings().expect("Adapters/rxe0 port 1 GID", "OK", "1, RoCE v2, fd77::1, is used")
    # IPv4 comes first, wherever it stands.
    tree.add_gid("rxe0", 2, "0000:0000:0000:0000:0000:ffff:0a4d:0001", netdev="eth0")
    tree.findings().expect("Adapters/rxe0 port 1 GID", "OK", "2, RoCE v2, 10.77.0.1, is used")


def test_adapters_of_other_kinds():
    for name, keywords, text in (
            ("efa_0", {"driver": "efa", "node_type": "7: unspecified", "link_layer": "Unknown"},
             "EFA has no reliable connections"),
            ("siw0", {"node_type": "4: RNIC"}, "iWARP adapters have no WRITE with an immediate")):
        tree = Tree()
        tree.add_core()
        tree.add_adapter(name, **keywords)
        found = tree.findings()
        found.expect(f"Adapters/{name}", "WARN", text, "--want tcp")
        assert found.code == 0
        found = tree.findings("--want", "verbs")
        found.expect(f"Adapters/{name}", "FAIL", text)
        found.expect("Verdict/path", "FAIL", text.split(",", maxsplit=1)[0])
        assert found.code == 1


def test_numa():
    tree = connectx()
    tree.memories = "0-1"
    tree.findings().expect("Adapters/mlx5_0 NUMA", "WARN",
                           "node 0; memory may come from node 1, at distance 21 instead of 10",
                           "numactl --cpunodebind=0 --membind=0 kv-server")
    tree = connectx()
    del tree.files["/sys/devices/system/node/node1/distance"]
    tree.files["/sys/devices/system/node/node0/distance"] = "10"
    tree.findings().expect("Adapters/mlx5_0 NUMA", "OK", "one node has all the memory")


def test_huge_pages():
    tree = Tree()
    top = "/sys/kernel/mm/hugepages/hugepages-2048kB"
    tree.files[f"{top}/free_hugepages"] = "0"
    tree.findings().expect("Memory/huge pages", "WARN", "all 512 are in use",
                           "sysctl vm.nr_hugepages=1024")
    tree.files[f"{top}/nr_hugepages"] = "0"
    tree.findings().expect("Memory/huge pages", "WARN", "none are configured",
                           "sysctl vm.nr_hugepages=512")
    tree.files[f"{top}/nr_hugepages"] = tree.files[f"{top}/free_hugepages"] = None
    tree.findings().expect("Memory/huge pages", "n/a")


NFT = """table inet filter {
	chain input {
		type filter hook input priority filter; policy %s;
		iif "lo" accept
		ct state established,related accept
		tcp dport 22 accept
%s	}
	chain output {
		type filter hook output priority filter; policy accept;
	}
}
"""


def test_firewall():
    for policy, rule, status in (
            ("accept", "", "OK"),
            ("drop", "", "WARN"),
            ("drop", "\t\ttcp dport 12345 accept\n", "OK"),
            ("drop", "\t\ttcp dport { 80, 12000-13000 } accept\n", "OK"),
            ("drop", "\t\tudp dport 12345 accept\n", "WARN"),
            ("accept", "\t\ttcp dport 12345 drop\n", "WARN"),
            ("accept", "\t\tcounter packets 10 bytes 20 reject\n", "WARN")):
        tree = Tree()
        tree.files["/nft.rules"] = NFT % (policy, rule)
        fix = "nft insert rule inet filter input tcp dport 12345 accept" if status != "OK" else ""
        tree.findings().expect("Network/firewall, tcp 12345", status, fix=fix)
    for rules, status in (
            ("-P INPUT DROP\n-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT\n", "WARN"),
            ("-P INPUT DROP\n-A INPUT -p tcp -m multiport --dports 22,12345 -j ACCEPT\n", "OK"),
            ("-P INPUT ACCEPT\n-A INPUT -p tcp -m tcp --dport 12000:13000 -j DROP\n", "WARN"),
            ("-P INPUT ACCEPT\n-A INPUT -j REJECT --reject-with icmp-host-prohibited\n", "WARN"),
            ("-P INPUT ACCEPT\n-P FORWARD DROP\n", "OK")):
        tree = Tree()
        tree.files["/nft.rules"] = None
        tree.files["/iptables.rules"] = rules
        fix = "iptables -I INPUT -p tcp --dport 12345 -j ACCEPT" if status != "OK" else ""
        tree.findings().expect("Network/firewall, tcp 12345", status, fix=fix)
    tree = Tree()
    tree.files["/nft.rules"] = NFT % ("drop", "")
    tree.findings("-p", "22").expect("Network/firewall, tcp 22", "OK")
    tree.files["/nft.rules"] = None
    tree.findings().expect("Network/firewall, tcp 12345", "n/a")


def test_nonsense_in_files():
    tree = connectx()
    for name, text in tree.files.items():
        tree.files[name] = "\x01\xff" * 3000 if text else text
    tree.findings()
    for name in tree.files:
        tree.files[name] = ""
    tree.findings("--want", "verbs")


# ---------------------------------------------------------------- this machine


def test_this_machine():
    """shm and tcp work wherever the tests run."""
    for want in ("auto", "shm", "tcp"):
        found = Findings("--want", want)
        assert found.code == 0, found.all
        for path in ("shm", "tcp"):
            found.expect(f"Transfers/{path}", "OK", "4 MiB there and back are right; a READ takes")
        found.expect("Verdict/path", "OK", "clients here take shm to servers on this host")


def test_no_rdma_here():
    if os.path.exists("/sys/class/infiniband"):
        return  # then what it says is for people to judge
    found = Findings("--want", "verbs")
    found.expect("Transfers/verbs", "FAIL")
    found.expect("Verdict/path", "FAIL", "verbs, the wanted path, does not work: ")
    assert found.code == 1
    Findings().expect("Transfers/verbs", "n/a")


def test_sockets_that_others_could_plant():
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o777)
        found = Findings("--want", "shm", env={"REMORA_SHM_DIR": directory})
        found.expect("Permissions/shm sockets", "FAIL", directory, "chmod go-w")
        found.expect("Transfers/shm", "FAIL", "others may write to it", "REMORA_SHM_DIR")
        found.expect("Verdict/path", "FAIL", "others may write", "chmod go-w")
        assert found.code == 1
        found = Findings(env={"REMORA_SHM_DIR": directory})
        found.expect("Verdict/path", "OK", "clients here take tcp to servers on this host (shm: ")
        assert found.code == 0


def test_width():
    """No line is longer than the terminal, but for one that is a single word."""
    for width in (24, 40, 80, 120):
        with tempfile.TemporaryDirectory(prefix="kd-") as root:
            connectx().write(root)
            result = doctor("--sysroot", root, env={"COLUMNS": str(width)})
        assert result.returncode == 0, result
        for line in result.stdout.splitlines():
            assert len(line) <= width or len(line.split()) == 1, (width, line)
        assert "\x1b" not in result.stdout
        words = " ".join(result.stdout.split())
        assert "Kernel OK ib_core loaded" in words, words


def run_on_terminal(width, environment):
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    cleared = {name: value for name, value in os.environ.items()
               if name not in ("COLUMNS", "NO_COLOR", "TERM")}
    process = subprocess.Popen([f"{BIN}/kv-doctor"], stdin=NUL, stdout=slave, stderr=slave,
                               env={**cleared, **environment})
    os.close(slave)
    output = b""
    while True:
        try:
            data = os.read(master, 65536)
        except OSError:
            break
        if not data:
            break
        output += data
    os.close(master)
    assert process.wait(30) == 0, output
    return output.decode()


def test_terminal():
    text = run_on_terminal(40, {"TERM": "xterm"})
    assert "\x1b[32mOK" in text, text
    plain = re.sub("\x1b\\[[0-9]*m", "", text)
    assert plain != text and "\x1b" not in plain
    for line in plain.splitlines():
        assert len(line) <= 40 or len(line.split()) == 1, line
    for environment in ({"TERM": "xterm", "NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert "\x1b" not in run_on_terminal(80, environment)


def test_usage():
    for text, *arguments in (("--want", "--want", "pigeon"), ("--frobnicate", "--frobnicate"),
                             ("unexpected", "word"), ("--port", "-p", "0"),
                             ("--server", "--write"), ("no directory", "--sysroot", "/no/where"),
                             ("one of them", "--sysroot", "/", "--server", "localhost")):
        result = doctor(*arguments)
        assert result.returncode == 2 and text in result.stderr and not result.stdout, result
        assert len(result.stderr.splitlines()) == 1, result
    result = doctor("--help")
    assert result.returncode == 0 and "--sysroot" in result.stdout, result
    with open("/dev/full", "w") as full:
        result = subprocess.run([f"{BIN}/kv-doctor", "--sysroot", tempfile.gettempdir()],
                                stdin=NUL, stdout=full, stderr=subprocess.PIPE, timeout=60)
    assert result.returncode == 1 and b"stdout" in result.stderr, result


# ---------------------------------------------------------------- servers


class DoctorServer(Server):
    """A server to be looked at."""

    def keys(self):
        return subprocess.run([f"{BIN}/kv-client", "-p", self.port, "scan"], capture_output=True,
                              timeout=60, stdin=NUL, check=True).stdout


def test_server():
    with DoctorServer("--listen", "shm,tcp") as server:
        found = Findings("--server", f"127.0.0.1:{server.port}")
        assert found.code == 0
        found.expect("Server/name", "OK", "is 127.0.0.1")
        for path in ("shm", "tcp"):
            found.expect(f"Server/{path}", "OK", "a round trip takes")
        found.expect("Server/authentication", "OK", "asks for no key")
        found.expect("Server/limits", "OK", "memory 64MiB")
        assert re.search(r"with \d{1,2}MiB free", found.all["Server/limits"]["finding"])
        assert "Server/writing" not in found.all
        found.expect("Verdict/path", "OK", "clients here reach the server by shm")
        found = Findings("--server", "localhost", "-p", server.port, "--want", "tcp", "--write")
        found.expect("Server/writing", "OK", "100 bytes: put ")
        found.expect("Verdict/path", "OK", "tcp, the wanted path, reaches the server")
        assert found.code == 0 and server.keys() == b""


def test_server_by_url():
    with DoctorServer("--listen", "shm,tcp") as server:
        for url, path, other in ((f"tcp://127.0.0.1:{server.port}", "tcp", "shm"),
                                 (f"shm:kv-{server.port}", "shm", "tcp")):
            found = Findings("--server", url)
            found.expect(f"Server/{path}", "OK")
            assert found.code == 0 and f"Server/{other}" not in found.all, found.all
    for url in ("carrier://pigeon", "127.0.0.1:nowhere"):
        found = Findings("--server", url)
        found.expect("Server/name", "FAIL")
        assert found.code == 1


def test_server_without_shm():
    with DoctorServer("--listen", "tcp") as server:
        address = f"127.0.0.1:{server.port}"
        found = Findings("--server", address)
        found.expect("Server/shm", "WARN", "nobody listens", f"kv-server -p {server.port}")
        found.expect("Verdict/path", "OK", "clients here reach the server by tcp (shm: ")
        assert found.code == 0
        found = Findings("--server", address, "--want", "shm")
        found.expect("Server/shm", "FAIL")
        found.expect("Verdict/path", "FAIL", "shm, the wanted path, does not reach the server")
        assert found.code == 1


def test_server_with_key():
    with tempfile.TemporaryDirectory() as directory:
        files = {}
        for name in ("write", "read", "wrong"):
            files[name] = os.path.join(directory, name)
            with open(files[name], "w", opener=lambda p, f: os.open(p, f, 0o600)) as file:
                file.write(f"the key to {name} with\n")
        with DoctorServer("--key-file", files["write"], "--read-key-file", files["read"]) as server:
            address = f"127.0.0.1:{server.port}"
            found = Findings("--server", address)
            found.expect("Server/authentication", "FAIL", "wants a key",
                         f"kv-doctor --server {address} --key-file FILE")
            found.expect("Verdict/path", "FAIL", "",
                         f"kv-doctor --server {address} --key-file FILE")
            assert found.code == 1
            found = Findings("--server", address, "--key-file", files["wrong"])
            found.expect("Server/authentication", "FAIL", fix=files["wrong"])
            assert found.code == 1
            found = Findings("--server", address, "--key-file", files["write"], "--write")
            found.expect("Server/authentication", "OK", "both ends know the key")
            found.expect("Server/writing", "OK")
            assert found.code == 0
            found = Findings("--server", address, "--write",
                             env={"REMORA_KEY_FILE": files["read"]})
            found.expect("Server/writing", "WARN", fix="the key to write with")
            assert found.code == 0
        with DoctorServer() as server:
            found = Findings("--server", f"127.0.0.1:{server.port}", "-k", files["write"])
            found.expect("Server/authentication", "FAIL", "this server has none", "without")


def test_no_server():
    port = free_port()
    found = Findings("--server", f"127.0.0.1:{port}", "-T", "2")
    found.expect("Server/shm", "FAIL", "nobody listens")
    found.expect("Server/tcp", "FAIL", "nobody listens", f"kv-server -p {port}")
    found.expect("Verdict/path", "FAIL", "do not reach the server at all", "kv-server")
    assert found.code == 1


def test_not_a_server():
    """Something else has the port: it takes connections, and says nothing."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen(8)
        found = Findings("--server", f"tcp://127.0.0.1:{other.getsockname()[1]}", "-T", "300ms")
        found.expect("Server/tcp", "FAIL")
        assert found.code == 1


if __name__ == "__main__":
    sys.exit(main(globals(), sys.argv[2:]))
