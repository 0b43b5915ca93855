#!/usr/bin/env python3
"""Our own programs on two hosts, by both ways to meet: operations flow, also on huge pages and over
two adapters at once; when the wire is cut, an adapter is removed, the server is killed or its host
vanishes they fail in bounded time, on both sides; and a new connection works once all is whole
again. lab_peer.c and lab_link.c are what runs in the hosts."""

import itertools
import re
import sys

from scenario import expect, run_scenarios

PEER = "build/tests/lab_peer"
LINK = "build/tests/lab_link"
PERF = "build/bin/fabric-perf"
KV_SERVER = "build/bin/kv-server"
KV_CLIENT = "build/bin/kv-client"
PORT = 7471
DEAD_AFTER_MS = 2000
# Half of dead_after for the adapter to give up in the best case; hosts are emulated, and slow.
LOST_WITHIN_MS = 4 * DEAD_AFTER_MS
WAYS = ("verbs", "verbs:socket")
# Where another reason than silence is expected, a host that is only slow must not seem dead.
PATIENT_MS = 5000


def start_server(pair, device, address=None, dead_after_ms=DEAD_AFTER_MS):
    server = pair.a.start(f"{PEER} serve {device} {address or pair.ADDRESS_A}:{PORT} "
                          f"{dead_after_ms}")
    server.wait_for("listening at")
    return server


def start_caller(pair, device, manner, address=None, dead_after_ms=DEAD_AFTER_MS):
    client = pair.b.start(f"{PEER} call {device} {address or pair.ADDRESS_A}:{PORT} {manner} "
                          f"{dead_after_ms}")
    client.wait_for("connected")
    return client


def expect_lost(client, timeout_s=60, reason=""):
    """The caller learns of the end, within its time, and can close everything."""
    result = client.wait(timeout_s)
    lost = re.search(rf"lost after (\d+) ms: {reason}", result.output)
    expect(lost and result.code == 0 and "closed" in result.output, f"the caller: {result}")
    expect(int(lost[1]) <= LOST_WITHIN_MS, f"it took {lost[1]} ms to notice")


def check_manners(pair, break_it, mend):
    for device in WAYS:
        for manner in ("reads", "sends", "idle"):
            server = start_server(pair, device)
            client = start_caller(pair, device, manner)
            break_it()
            expect_lost(client)
            server.wait_for("lost", 60)  # the server notices as well, though it only waits
            mend()
            client = start_caller(pair, device, manner)  # the server has gone on
            client.kill()
            server.kill()


def run_perf(pair, device, *arguments):
    words = " ".join(arguments)
    return pair.b.run(f"{PERF} run {pair.ADDRESS_A}:{PORT} --device {device} --seconds 1 {words}",
                      60)


def test_traffic(pair):
    for device in WAYS:
        server = pair.a.start(f"{PERF} serve {pair.ADDRESS_A}:{PORT} --device {device}")
        server.wait_for(f":{PORT}")
        for words in ("--op read --size 8", "--op write --size 65536 --depth 4",
                      "--op send --size 64", "--op fadd"):
            result = run_perf(pair, device, words)
            expect(result.code == 0, f"{device} {words}: {result}")
        server.kill()


def test_ipv6(pair):
    for device in WAYS:
        server = start_server(pair, device, "[fd77::1]")
        client = start_caller(pair, device, "reads", "[fd77::1]")
        server.kill()
        expect_lost(client)


def test_wire_cut(pair):
    check_manners(pair, pair.cut, pair.restore)


def test_server_killed(pair):
    """Its kernel tells the other side at once, also one that is asleep."""
    for device in WAYS:
        for manner in ("reads", "idle"):
            server = start_server(pair, device)
            client = start_caller(pair, device, manner)
            server.kill()
            expect_lost(client, 20)


def test_card_down(pair):
    """The adapter says that its port is down; the connection ends, and after it is up again a new
    one works. (By RDMA CM soft-RoCE itself has to be made anew: rping cannot connect either, see
    docs/rationale.md.)"""
    for device, manner in itertools.product(WAYS, ("reads", "idle")):
        server = start_server(pair, device)
        client = start_caller(pair, device, manner)
        pair.b.run("ip link set eth0 down")
        expect_lost(client)
        server.wait_for("lost", 60)
        pair.b.run("ip link set eth0 up")
        pair.b.restore_addresses()
        if device == "verbs":
            pair.b.run("rdma link delete rxe0; rdma link add rxe0 type rxe netdev eth0")
        client = start_caller(pair, device, "reads")
        client.kill()
        server.kill()


def expect_added(guest, number):
    result = guest.run(f"rdma link add rxe{number} type rxe netdev eth{number}")
    expect(result.code == 0, f"rxe{number} cannot be added: {result}")


def expect_removed(removal):
    """`rdma link delete` ends when the last program has closed the adapter."""
    result = removal.wait(20)
    expect(result.code == 0, f"the adapter was not removed: {result}")


def test_adapter_removed(pair):
    """The caller is told that it is gone, can close everything, and a new one finds the new one."""
    for device, manner in itertools.product(WAYS, ("reads", "idle")):
        server = start_server(pair, device, dead_after_ms=PATIENT_MS)
        client = start_caller(pair, device, manner, dead_after_ms=PATIENT_MS)
        removal = pair.b.start("rdma link delete rxe0")
        expect_lost(client, reason="no-device")
        expect_removed(removal)
        server.wait_for("lost", 60)
        expect_added(pair.b, 0)
        start_caller(pair, device, manner).kill()
        server.kill()


def test_adapter_of_server_removed(pair):
    """Its connections and its listener end, too."""
    for device in WAYS:
        server = start_server(pair, device, dead_after_ms=PATIENT_MS)
        client = start_caller(pair, device, "idle", dead_after_ms=PATIENT_MS)
        removal = pair.a.start("rdma link delete rxe0")
        result = server.wait(20)
        expect("lost: no-device" in result.output and result.code == 0
               and "closed" in result.output, f"the server: {result}")
        expect_lost(client)
        expect_removed(removal)
        expect_added(pair.a, 0)
        server = start_server(pair, device)
        start_caller(pair, device, "reads").kill()
        server.kill()


def read_huge_free(guest):
    return int(re.search(r"HugePages_Free: +(\d+)", guest.run("cat /proc/meminfo").output)[1])


def test_huge_pages(pair):
    """Arenas of both sides are registered in huge pages, and work; or in others, with a warning."""
    perf = f"{PERF} run --device verbs --huge --check --op read,write --size 65536 --iterations"
    free = read_huge_free(pair.b)
    running = pair.b.start(f"{perf} 1000000")
    running.wait_for("op  ")
    used = free - read_huge_free(pair.b)
    maps = pair.b.run("cat /proc/[0-9]*/smaps | grep -A3 remora-arena | grep KernelPageSize")
    running.kill()
    sizes = re.findall(r"(\d+) kB", maps.output)
    expect(sizes and set(sizes) == {"2048"} and used > 0,
           f"{used} huge pages are used, the arenas' are of {sizes} KiB: {running.result}")
    result = pair.b.run(f"{perf} 50")
    expect(result.code == 0 and "WARN" not in result.output, f"with huge pages: {result}")
    reserve = "echo {} > /proc/sys/vm/nr_hugepages"
    pair.b.run(reserve.format(0))
    result = pair.b.run(f"{perf} 50")
    expect(result.code == 0 and "no huge pages for" in result.output, f"without: {result}")
    pair.b.run(reserve.format(free))


def start_link(guest, devices, addresses):
    server = guest.start(f"{LINK} serve {devices} {addresses}")
    server.wait_for("listening at")
    return server


def expect_link(result, devices):
    """The bytes are right, and each lane, on this device of the caller's, has moved half."""
    lanes = re.findall(r"lane \d: device (\d), (\d+) bytes", result)
    expect(lanes == [(device, "1048576") for device in devices] and "right" in result,
           f"the link: {result}")


def set_up_rails(pair):
    """Two adapters on one network: each must answer for its own address alone."""
    for text in ("net.ipv4.conf.all.arp_ignore=1", "net.ipv4.conf.all.arp_announce=2"):
        pair.a.run(f"sysctl -q -w {text}")
    pair.a.run("ip link set eth1 mtu 4200 up; ip address add 10.78.0.1/24 dev eth1")
    pair.b.run("ip address add 10.78.0.2/24 dev eth0")
    expect_added(pair.a, 1)


def test_rails(pair):
    """A host with two adapters and one with one: both of the first are used, whoever calls. When
    one of them fails the link ends, on both sides."""
    set_up_rails(pair)
    for options in ("", ",socket"):
        rails, rail = f"verbs:rxe0{options}+verbs:rxe1{options}", f"verbs:rxe0{options}"
        server = start_link(pair.b, rail, f"*:{PORT}")
        # Its one adapter has an address in the network of each rail, so each finds a way.
        result = pair.a.run(f"{LINK} call {rails} {pair.ADDRESS_B}:{PORT},10.78.0.2:{PORT}")
        expect_link(result.output, "01")
        server.kill()
        addresses = f"{pair.ADDRESS_A}:{PORT},10.78.0.1:{PORT}"
        server = start_link(pair.a, rails, addresses)
        client = pair.b.start(f"{LINK} call {rail} {addresses} {DEAD_AFTER_MS}")
        client.wait_for("right")
        expect_link(client.output(), "00")
        pair.a.run("ip link set eth1 down")
        expect_lost(client)
        server.wait_for("lost")
        server.kill()
        pair.a.run("ip link set eth1 up")
    pair.a.run("rdma link delete rxe1")


def test_rails_of_the_server(pair):
    """kv-server listens by as many adapters as it is told to, each at its own address."""
    set_up_rails(pair)
    for count in (1, 2):
        server = pair.a.start(f"{KV_SERVER} -p {PORT} -m 32 --num-domains {count}")
        server.wait_for("\nready")
        addresses = re.findall(r"verbs:rxe\d: listening at (\S+):", server.output())
        expect(addresses == [pair.ADDRESS_A, "10.78.0.1"][:count], server.output())
        for address in addresses:
            call = f"{KV_CLIENT} -a {address} -p {PORT} -d verbs"
            result = pair.b.run(f"{call} put key {address} && {call} get key", 60)
            expect(result.code == 0 and address in result.output, f"{address}: {result}")
        server.kill()
    result = pair.a.run(f"{KV_SERVER} -p {PORT} -m 32 --num-domains 3", 60)
    expect(result.code == 1 and "3 adapters are wanted" in result.output, f"three: {result}")
    pair.a.run("rdma link delete rxe1")


def test_host_vanishes(pair):
    start_server(pair, "verbs")
    client = start_caller(pair, "verbs", "idle")
    pair.a.kill()
    expect_lost(client)


SCENARIOS = [
    ("traffic", test_traffic),
    ("ipv6", test_ipv6),
    ("wire_cut", test_wire_cut),
    ("server_killed", test_server_killed),
    ("card_down", test_card_down),
    ("adapter_removed", test_adapter_removed),
    ("adapter_of_server_removed", test_adapter_of_server_removed),
    ("huge_pages", test_huge_pages),
    ("rails", test_rails),
    ("rails_of_the_server", test_rails_of_the_server),
    ("host_vanishes", test_host_vanishes),
]

if __name__ == "__main__":
    sys.exit(run_scenarios(SCENARIOS, programs=[PEER, LINK, PERF, KV_SERVER, KV_CLIENT]))
