/*
 * Whoever sets up RDMA for the first time meets these: every failure says what is wrong and what to
 * do about it.
 *
 *	verbs_doctor_test		on a machine without adapters: what it says of that
 *	verbs_doctor_test guest		in the lab's guest (scripts/lab/suite.py): all the rest
 *
 * The second one takes rights and links away, so it refuses to run elsewhere. Each test starts by
 * putting right what another may have left broken.
 *
 * What these tests would catch: a message that is empty, names the wrong thing, or asks for less
 * than is needed.
 */
#include <grp.h>
#include <infiniband/verbs.h>
#include <remora/fabric.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "harness/test.h"

#define TESTER	   1000 /* a user without rights */
#define HOST	   "10.77.0.1"
#define OTHER_HOST "10.78.0.1"
#define KIB	   1024ul

static void run(const char *command)
{
	if (system(command) != 0)
		TEST_FAIL("'%s' failed", command);
}

/* As the guest was when it had booted. */
static void repair(void)
{
	run("chmod 0666 /dev/infiniband/uverbs* /dev/infiniband/rdma_cm");
	run("ip link set eth1 up");
	/* The kernel takes it away with the link. */
	run("ip -6 address replace fd78::1/64 dev eth1 nodad");
}

/* Runs a function as a user without rights. */
static void as_user(void (*fn)(void *), void *arg)
{
	test_wait(test_spawn(fn, arg));
}

static void become_user(void)
{
	CHECK_EQ(setgroups(0, NULL), 0);
	CHECK_EQ(setgid(TESTER), 0);
	CHECK_EQ(setuid(TESTER), 0);
	/* Or its own /proc would be closed to it, other than to one who logged in. */
	CHECK_EQ(prctl(PR_SET_DUMPABLE, 1), 0);
}

static void expect_open(const char *name, enum rmr_status status, const char *part)
{
	struct rmr_device *device = NULL;

	CHECK_STATUS(rmr_device_open(name, NULL, &device), status);
	CHECK_CONTAINS(rmr_error_message(), part);
	CHECK_CONTAINS(rmr_error_message(), name);
	CHECK(device == NULL);
}

/* What the list of devices says of one of them; "" when it is usable. */
static void expect_listed(const char *name, const char *reason)
{
	struct rmr_device_entry entries[16];
	size_t count = rmr_device_list(entries, TEST_COUNT(entries));

	CHECK(count <= TEST_COUNT(entries));
	for (size_t i = 0; i < count; i++) {
		if (strcmp(entries[i].name, name) != 0)
			continue;
		CHECK_EQ(entries[i].usable, reason[0] == '\0');
		CHECK_CONTAINS(entries[i].reason, reason);
		return;
	}
	TEST_FAIL("%s is not in the list", name);
}

/* ------------------------------------------------------------------------------------------
 * Without adapters
 */

static void test_no_device(void)
{
	struct ibv_device **list;
	int count = 0;

	list = ibv_get_device_list(&count);
	if (list)
		ibv_free_device_list(list);
	if (count > 0)
		TEST_SKIP("this machine has an adapter");
	/* Which step is the next depends on what is there already; each has its command. */
	expect_open("verbs", RMR_NO_DEVICE, "modprobe ");
	expect_open("verbs:mlx5_0", RMR_NO_DEVICE, "modprobe ");
	expect_listed("verbs", "modprobe ");
	if (access("/sys/class/infiniband", F_OK) != 0)
		expect_open("verbs", RMR_NO_DEVICE, "rdma link add rxe0 type rxe netdev NIC");
}

/* ------------------------------------------------------------------------------------------
 * Adapters and ports
 */

static void test_all_is_well(void)
{
	struct rmr_device *device;

	repair();
	expect_listed("verbs:rxe0", "");
	expect_listed("verbs:rxe1", "");
	CHECK_OK(rmr_device_open("verbs", NULL, &device));
	rmr_device_close(device);
}

static void test_no_such_adapter(void)
{
	repair();
	expect_open("verbs:rxe7", RMR_NO_DEVICE,
		    "there is no adapter 'rxe7'; there are: rxe0 (active), rxe1 (active)");
}

static void test_no_such_port(void)
{
	repair();
	expect_open("verbs:rxe0,port=2", RMR_NO_DEVICE, "rxe0 has no port 2");
}

static void test_port_down(void)
{
	struct rmr_device *device;

	repair();
	run("ip link set eth1 down");
	expect_open("verbs:rxe1", RMR_NO_DEVICE, "no port of rxe1 is active");
	CHECK_CONTAINS(rmr_error_message(), "ip link set NIC up");
	expect_open("verbs:rxe7", RMR_NO_DEVICE, "rxe0 (active), rxe1 (down)");
	CHECK_OK(rmr_device_open("verbs:rxe0", NULL, &device));
	rmr_device_close(device);
	repair();
	CHECK_OK(rmr_device_open("verbs:rxe1", NULL, &device));
	rmr_device_close(device);
}

/* The first one is down: without a name the next one is meant. */
static void test_first_port_down(void)
{
	struct rmr_device *device;

	repair();
	run("ip link set eth0 down");
	if (rmr_device_open("verbs", NULL, &device) != RMR_OK)
		device = NULL;
	run("ip link set eth0 up");
	run("ip -6 address replace fd77::1/64 dev eth0 nodad");
	CHECK(device != NULL);
	rmr_device_close(device);
}

/* ------------------------------------------------------------------------------------------
 * Rights
 */

static void open_without_rights(void *arg)
{
	(void)arg;
	become_user();
	expect_open("verbs:rxe0", RMR_DENIED, "no permission for rxe0");
	CHECK_CONTAINS(rmr_error_message(), "/dev/infiniband must be readable and writable");
	expect_open("verbs", RMR_DENIED, "no permission for rxe");
	expect_open("verbs:rxe7", RMR_NO_DEVICE, "rxe0 (cannot be opened)");
	expect_listed("verbs:rxe0", "no permission for rxe0");
}

static void test_no_permission(void)
{
	repair();
	run("chmod 0600 /dev/infiniband/uverbs*");
	as_user(open_without_rights, NULL);
	repair();
}

static void meet_without_rights(void *arg)
{
	struct rmr_device *device;
	struct rmr_queue *queue;

	(void)arg;
	become_user();
	CHECK_OK(rmr_device_open("verbs:rxe0", NULL, &device));
	CHECK_STATUS(rmr_queue_open(device, NULL, &queue), RMR_DENIED);
	CHECK_CONTAINS(rmr_error_message(), "/dev/infiniband/rdma_cm");
	CHECK_CONTAINS(rmr_error_message(), "'verbs:rxe0,socket'");
	rmr_device_close(device);
	/* The advice is good. */
	CHECK_OK(rmr_device_open("verbs:rxe0,socket", NULL, &device));
	CHECK_OK(rmr_queue_open(device, NULL, &queue));
	rmr_queue_close(queue);
	rmr_device_close(device);
}

static void test_no_permission_for_cm(void)
{
	repair();
	run("chmod 0600 /dev/infiniband/rdma_cm");
	as_user(meet_without_rights, NULL);
	repair();
}

/* ------------------------------------------------------------------------------------------
 * Memory that may be locked
 */

struct locking {
	struct test_pipe pipe;
	unsigned long limit_kib;
	size_t first, second; /* bytes of two regions; 0: a queue */
};

static void limit_locking(unsigned long kib)
{
	struct rlimit limit = {kib * KIB, kib * KIB};

	CHECK_EQ(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
	become_user();
}

static enum rmr_status lock(struct rmr_device *device, size_t length)
{
	struct rmr_region *region;
	struct rmr_queue *queue;

	if (length == 0)
		return rmr_queue_open(device, NULL, &queue);
	return rmr_region_open(device, aligned_alloc(4 * KIB, length), length, 0, &region);
}

/* Tells how many KiB the message asks for; 0 when all went well. Leaves all open: it ends. */
static void lock_memory(void *arg)
{
	struct locking *locking = arg;
	unsigned long asked_for = 0, allowed = 0;
	struct rmr_device *device;
	enum rmr_status status;
	const char *text;

	limit_locking(locking->limit_kib);
	CHECK_OK(rmr_device_open("verbs:rxe0", NULL, &device));
	if (locking->first)
		CHECK_OK(lock(device, locking->first));
	status = lock(device, locking->second);
	if (status != RMR_OK) {
		CHECK_EQ(status, RMR_NO_MEMORY);
		text = strstr(rmr_error_message(), " and ");
		CHECK(text != NULL);
		CHECK_EQ(sscanf(text, " and %lu KiB are allowed", &allowed), 1);
		CHECK_EQ(allowed, locking->limit_kib);
		text = strstr(rmr_error_message(), "at least ");
		CHECK(text != NULL);
		CHECK_EQ(sscanf(text, "at least %lu (ulimit -l", &asked_for), 1);
	}
	test_send(&locking->pipe, TEST_CHILD, &asked_for, sizeof(asked_for));
	_exit(0);
}

static unsigned long try_locking(unsigned long limit_kib, size_t first, size_t second)
{
	struct locking locking = {.limit_kib = limit_kib, .first = first, .second = second};
	unsigned long asked_for;
	pid_t pid;

	test_pipe_open(&locking.pipe);
	pid = test_spawn(lock_memory, &locking);
	test_recv(&locking.pipe, TEST_PARENT, &asked_for, sizeof(asked_for));
	test_wait(pid);
	test_pipe_close(&locking.pipe);
	return asked_for;
}

static void test_memlock(void)
{
	unsigned long needed;

	repair();
	CHECK_EQ(try_locking(64, 0, 1024 * KIB), 1024);
	CHECK_EQ(try_locking(1023, 0, 1024 * KIB), 1024);
	CHECK_EQ(try_locking(1024, 0, 1024 * KIB), 0);
	/* What is locked already counts. */
	CHECK_EQ(try_locking(1024, 512 * KIB, 1024 * KIB), 1536);
	CHECK_EQ(try_locking(1536, 512 * KIB, 1024 * KIB), 0);
	/* A queue locks its slots. Who follows the advice has it. */
	needed = try_locking(64, 0, 0);
	CHECK(needed > 64);
	CHECK_EQ(try_locking(needed, 0, 0), 0);
	CHECK_EQ(try_locking(needed - 1, 0, 0), needed);
}

/* ------------------------------------------------------------------------------------------
 * Addresses
 */

struct end {
	struct rmr_device *device;
	struct rmr_queue *queue;
	struct rmr_listener *listener;
};

static void end_open(struct end *end, const char *name)
{
	memset(end, 0, sizeof(*end));
	CHECK_OK(rmr_device_open(name, NULL, &end->device));
	CHECK_OK(rmr_queue_open(end->device, NULL, &end->queue));
}

static void end_close(struct end *end)
{
	rmr_listener_close(end->listener);
	rmr_queue_close(end->queue);
	rmr_device_close(end->device);
}

static void expect_connect(struct end *end, const char *address, enum rmr_status status,
			   const char *part)
{
	struct rmr_conn *conn;

	CHECK_STATUS(rmr_connect(end->queue, address, 5000, NULL, &conn), status);
	CHECK_CONTAINS(rmr_error_message(), part);
	CHECK_CONTAINS(rmr_error_message(), address);
}

static void expect_listen(struct end *end, const char *address, enum rmr_status status,
			  const char *part)
{
	struct rmr_listener *listener;

	if (rmr_listener_open(end->device, address, NULL, &listener) != status)
		TEST_FAIL("listening at %s: %s", address, rmr_error_message());
	CHECK_CONTAINS(rmr_error_message(), part);
}

static void test_no_such_gid(void)
{
	struct end caller, host;

	repair();
	end_open(&host, "verbs:rxe0,socket");
	CHECK_OK(rmr_listener_open(host.device, HOST ":0", NULL, &host.listener));
	end_open(&caller, "verbs:rxe0,socket,gid=99");
	expect_connect(&caller, rmr_listener_address(host.listener), RMR_INVALID,
		       "rxe0 has no GID 99 at port 1; it has: [0] ");
	CHECK_CONTAINS(rmr_error_message(), "RoCE v2 " HOST);
	end_close(&caller);
	end_close(&host);
}

static void test_wrong_adapter(void)
{
	struct end caller, host;

	repair();
	end_open(&host, "verbs:rxe0");
	CHECK_OK(rmr_listener_open(host.device, HOST ":0", NULL, &host.listener));
	end_open(&caller, "verbs:rxe1");
	expect_connect(&caller, rmr_listener_address(host.listener), RMR_BAD_ADDRESS,
		       "the way there is through adapter rxe0, and this device is rxe1: open "
		       "'verbs:rxe0'");
	/* An address of the other adapter, and one of nobody. */
	expect_listen(&caller, HOST ":0", RMR_BAD_ADDRESS, "rxe1 does not have this address");
	CHECK_CONTAINS(rmr_error_message(), "it has: " OTHER_HOST);
	expect_listen(&caller, "192.0.2.1:0", RMR_BAD_ADDRESS, "rxe1 does not have this address");
	CHECK_OK(rmr_listener_open(caller.device, OTHER_HOST ":0", NULL, &caller.listener));
	end_close(&caller);
	end_close(&host);
}

static void test_no_way(void)
{
	struct end caller;

	repair();
	end_open(&caller, "verbs:rxe0");
	expect_connect(&caller, "192.0.2.1:7", RMR_BAD_ADDRESS, "no RDMA adapter of this machine");
	CHECK_CONTAINS(rmr_error_message(), "ip route get");
	/* Nobody is there: the wire leads nowhere. */
	expect_connect(&caller, "10.77.0.99:7", RMR_TIMEOUT, "host");
	/* Nobody listens. */
	expect_connect(&caller, HOST ":7", RMR_REFUSED, "nobody listens there");
	CHECK_CONTAINS(rmr_error_message(), "not by TCP ('socket')");
	end_close(&caller);
}

static const struct test outside_tests[] = {
	{"no_device", test_no_device},
};

static const struct test guest_tests[] = {
	{"all_is_well", test_all_is_well},
	{"no_such_adapter", test_no_such_adapter},
	{"no_such_port", test_no_such_port},
	{"port_down", test_port_down},
	{"first_port_down", test_first_port_down},
	{"no_permission", test_no_permission},
	{"no_permission_for_cm", test_no_permission_for_cm},
	{"memlock", test_memlock},
	{"no_such_gid", test_no_such_gid},
	{"wrong_adapter", test_wrong_adapter},
	{"no_way", test_no_way},
};

int main(int argc, char **argv)
{
	bool in_guest = argc > 1 && strcmp(argv[1], "guest") == 0;

	if (!in_guest)
		return test_main(argc, argv, "verbs_doctor", outside_tests,
				 TEST_COUNT(outside_tests));
	if (access("/lab/lane", F_OK) != 0) {
		fprintf(stderr, "this is not the lab's guest\n");
		return 1;
	}
	return test_main(argc - 1, argv + 1, "verbs_doctor", guest_tests, TEST_COUNT(guest_tests));
}
