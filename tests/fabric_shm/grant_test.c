/*
 * Memory that peers grant: it costs a descriptor until it is asked for, is bounded in number and
 * bytes, and cannot be taken away under us.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "fabric/shm/internal.h"
#include "fabric_shm/impostor.h"
#include "harness/test.h"

#define MIB	 ((size_t)1 << 20)
#define TIB	 ((uint64_t)1 << 40)
#define HUGE	 (2 * MIB)
#define SECONDS	 (1000u * TEST_TIME_FACTOR)
#define POOL	 "/proc/sys/vm/nr_hugepages"
#define READ_KEY 77u

static struct rmr_device *device;
static struct rmr_queue *queue;
static struct rmr_listener *listener;
static char path[108];

static void set_up(const struct rmr_grant_limits *all)
{
	struct rmr_device_options options = {.grants = all};

	snprintf(path, sizeof(path), "%s/granted.sock", test_tmpdir());
	CHECK_OK(rmr_device_open("shm", &options, &device));
	CHECK_OK(rmr_queue_open(device, NULL, &queue));
	CHECK_OK(rmr_listener_open(device, path, NULL, &listener));
}

static void clean_up(void)
{
	rmr_listener_close(listener);
	rmr_queue_close(queue);
	rmr_device_close(device);
}

static struct rmr_conn *let_in(struct impostor *impostor, const struct rmr_grant_limits *limits)
{
	struct rmr_conn_options options = {.grants = limits};
	struct rmr_request *request;
	struct rmr_conn *conn;

	CHECK(impostor_open(impostor, path));
	CHECK(impostor_introduce(impostor));
	CHECK_OK(rmr_listener_next(listener, 10 * (int)SECONDS, &request));
	CHECK_OK(rmr_accept(request, queue, &options, &conn));
	return conn;
}

/* A sealed memfd; writable ones lack the seal that forbids holes. */
static int make_memory(uint64_t size, bool writable, unsigned more_flags)
{
	int fd = memfd_create("impostor", MFD_CLOEXEC | MFD_ALLOW_SEALING | more_flags);
	int seals = F_SEAL_SHRINK | F_SEAL_GROW | (writable ? 0 : F_SEAL_FUTURE_WRITE);

	CHECK(fd >= 0);
	CHECK_EQ(ftruncate(fd, (off_t)size), 0);
	CHECK_EQ(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

/* False: the socket is full. */
static bool grant(struct impostor *impostor, uint64_t id, uint64_t size, bool writable, int fd)
{
	struct shm_packet packet = {.magic = PACKET_MAGIC,
				    .version = PACKET_VERSION,
				    .type = PACKET_GRANT,
				    .arena_id = id,
				    .arena_size = size,
				    .arena_writable = writable};

	return impostor_send(impostor, &packet, sizeof(packet), &fd, 1);
}

/* Publishes the first bytes of an arena as a region, and describes it as our library would. */
static struct rmr_descriptor describe(struct impostor *impostor, uint64_t id, size_t length,
				      bool writable)
{
	uint64_t index = id % IMPOSTOR_REGIONS;
	struct shm_table_entry *entry = (struct shm_table_entry *)impostor->table + index;
	unsigned rights = RMR_READ | (writable ? RMR_WRITE : 0);
	struct descriptor_wire wire = {.magic = DESCRIPTOR_MAGIC,
				       .version = DESCRIPTOR_VERSION,
				       .provider = 1,
				       .rights = (uint8_t)rights,
				       .length = length,
				       .key = READ_KEY,
				       .word = {index}};
	struct rmr_descriptor descriptor;

	entry->arena_id = id;
	entry->offset = 0;
	entry->length = length;
	entry->rights = rights;
	atomic_store(&entry->key, READ_KEY);
	wire.word[1] = hash64_seed((uint64_t[]){READ_KEY, index}, 2 * sizeof(uint64_t), 0);
	memcpy(&descriptor, &wire, sizeof(wire));
	return descriptor;
}

/* Grants memory, closes our own descriptor of it, and asks for it on the other side. */
static enum rmr_status grant_and_open(struct impostor *impostor, struct rmr_conn *conn, uint64_t id,
				      uint64_t size, bool writable, int fd,
				      struct rmr_remote **remote)
{
	struct rmr_descriptor descriptor = describe(impostor, id, 4096, writable);

	CHECK(grant(impostor, id, size, writable, fd));
	return rmr_remote_open(conn, &descriptor, remote);
}

/* How many maps of memory of impostors this process has. Their own segments have another name. */
static int maps(void)
{
	FILE *file = fopen("/proc/self/maps", "r");
	char line[512];
	int count = 0;

	CHECK(file);
	while (fgets(line, sizeof(line), file))
		count += strstr(line, "memfd:impostor") != NULL;
	fclose(file);
	return count;
}

static enum rmr_status await_end(const struct rmr_conn *conn)
{
	struct rmr_completion completion;

	CHECK_EQ(rmr_wait(queue, &completion, 1, 10 * (int)SECONDS), 1);
	CHECK(completion.conn == conn);
	CHECK_EQ(completion.op, RMR_OP_DISCONNECT);
	return completion.status;
}

static enum rmr_status write_to(struct rmr_conn *conn, struct rmr_remote *remote)
{
	struct rmr_work work = {.op = RMR_OP_WRITE,
				.flags = RMR_INLINE,
				.source = "hello",
				.length = 5,
				.remote = remote};
	struct rmr_completion completion;

	CHECK_EQ(rmr_post(conn, &work, 1), 1);
	CHECK_EQ(rmr_wait(queue, &completion, 1, 10 * (int)SECONDS), 1);
	return completion.status;
}

/* ------------------------------------------------------------------------------------------ */

/* A terabyte of nothing is neither mapped when it comes nor, beyond the limit, when it is asked
 * for. The connection goes on. */
static void test_sparse_terabyte(void)
{
	static const struct rmr_grant_limits limits = {.arenas = 4, .bytes = 64 * MIB};
	struct rmr_remote *remote = NULL;
	struct impostor impostor;
	struct rmr_conn *conn;
	int large, small;

	set_up(NULL);
	conn = let_in(&impostor, &limits);
	large = make_memory(TIB, true, 0);
	CHECK_STATUS(grant_and_open(&impostor, conn, 1, TIB, true, large, &remote), RMR_LIMIT);
	CHECK_CONTAINS(rmr_error_message(), "may grant");
	CHECK_EQ(maps(), 0);
	small = make_memory(MIB, true, 0);
	CHECK_OK(grant_and_open(&impostor, conn, 2, MIB, true, small, &remote));
	CHECK_EQ(maps(), 1);
	CHECK_EQ(write_to(conn, remote), RMR_OK);
	rmr_conn_close(conn);
	CHECK_EQ(maps(), 0);
	impostor_close(&impostor);
	close(large);
	close(small);
	clean_up();
}

/* A caller that has not proved itself grants nothing: the first grant ends the connection, and a
 * thousand of them leave neither a map nor a descriptor. */
static void test_no_grants_before_the_proof(void)
{
	static const struct rmr_grant_limits none;
	struct impostor impostor;
	struct rmr_conn *conn;
	int fd, before;

	set_up(NULL);
	fd = make_memory(MIB, true, 0);
	before = test_open_fds();
	conn = let_in(&impostor, &none);
	for (uint64_t id = 1; id <= 1000; id++)
		(void)grant(&impostor, id, MIB, true, fd); /* until the socket is full */
	CHECK_EQ(await_end(conn), RMR_LIMIT);
	CHECK_EQ(maps(), 0);
	rmr_conn_close(conn);
	impostor_close(&impostor);
	CHECK_EQ(test_open_fds(), before);
	close(fd);
	clean_up();
}

/* Limits are raised when the caller is trusted; and count, one arena too many included. */
static void test_limits_are_raised(void)
{
	static const struct rmr_grant_limits none, some = {.arenas = 2, .bytes = 2 * MIB};
	struct rmr_remote *remote = NULL;
	struct impostor impostor;
	struct rmr_conn *conn;
	int fd;

	set_up(NULL);
	fd = make_memory(MIB, true, 0);
	conn = let_in(&impostor, &none);
	rmr_conn_set_grants(conn, &some);
	CHECK_OK(grant_and_open(&impostor, conn, 1, MIB, true, fd, &remote));
	CHECK_OK(grant_and_open(&impostor, conn, 2, MIB, true, fd, &remote));
	CHECK_EQ(maps(), 2);
	CHECK(grant(&impostor, 3, MIB, true, fd));
	CHECK_EQ(await_end(conn), RMR_LIMIT);
	rmr_conn_close(conn);
	CHECK_EQ(maps(), 0);
	impostor_close(&impostor);
	close(fd);
	clean_up();
}

/* What all connections have mapped together is bounded as well, and given back. */
static void test_budget_of_the_device(void)
{
	static const struct rmr_grant_limits all = {.arenas = 100, .bytes = 2 * MIB};
	struct impostor first, second;
	struct rmr_conn *one, *two;
	struct rmr_remote *remote;
	int fd;

	set_up(&all);
	fd = make_memory(MIB, true, 0);
	one = let_in(&first, NULL);
	two = let_in(&second, NULL);
	CHECK_OK(grant_and_open(&first, one, 1, MIB, true, fd, &remote));
	CHECK_OK(grant_and_open(&first, one, 2, MIB, true, fd, &remote));
	CHECK_STATUS(grant_and_open(&second, two, 1, MIB, true, fd, &remote), RMR_LIMIT);
	CHECK_CONTAINS(rmr_error_message(), "all peers together");
	rmr_conn_close(one);
	CHECK_OK(grant_and_open(&second, two, 2, MIB, true, fd, &remote));
	rmr_conn_close(two);
	impostor_close(&first);
	impostor_close(&second);
	close(fd);
	clean_up();
}

/* Descriptors that wait are bounded: half of the process's stay its own. */
static void test_waiting_descriptors(void)
{
	struct rlimit limit = {.rlim_cur = 64, .rlim_max = 64};
	struct impostor impostor;
	struct rmr_conn *conn;
	int fd, before;

	set_up(NULL);
	fd = make_memory(4096, true, 0);
	before = test_open_fds();
	CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
	conn = let_in(&impostor, NULL);
	for (uint64_t id = 1; id <= 33;) {
		struct rmr_completion completion;

		if (grant(&impostor, id, 4096, true, fd))
			id++;
		else
			CHECK_EQ(rmr_poll(queue, &completion, 1), 0);
	}
	CHECK_EQ(await_end(conn), RMR_LIMIT);
	rmr_conn_close(conn);
	impostor_close(&impostor);
	CHECK_EQ(test_open_fds(), before);
	close(fd);
	clean_up();
}

/* A hole in ordinary pages is filled by the next access. */
static void test_hole_after_the_grant(void)
{
	struct rmr_remote *remote = NULL;
	struct impostor impostor;
	struct rmr_conn *conn;
	char bytes[5];
	int fd;

	set_up(NULL);
	fd = make_memory(MIB, true, 0);
	conn = let_in(&impostor, NULL);
	CHECK_OK(grant_and_open(&impostor, conn, 1, MIB, true, fd, &remote));
	CHECK_EQ(write_to(conn, remote), RMR_OK);
	CHECK_EQ(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)MIB), 0);
	CHECK_EQ(write_to(conn, remote), RMR_OK);
	CHECK_EQ(pread(fd, bytes, 5, 0), 5);
	CHECK_MEM(bytes, "hello", 5);
	rmr_conn_close(conn);
	impostor_close(&impostor);
	close(fd);
	clean_up();
}

/* ------------------------------------------------------------------------------------------
 * Huge pages
 */

static long pool_size(void)
{
	FILE *file = fopen(POOL, "r");
	long size = -1;

	if (!file || fscanf(file, "%ld", &size) != 1)
		TEST_SKIP("no huge pages in this kernel (%s)", POOL);
	fclose(file);
	return size;
}

static bool resize_pool(long size)
{
	FILE *file = fopen(POOL, "w");

	if (!file)
		return false;
	fprintf(file, "%ld\n", size);
	return fclose(file) == 0 && pool_size() >= size;
}

/* Writable memory in huge pages is never mapped: its owner can take pages away. Read-only memory
 * is, where the program allows it: there nothing can. */
static void test_huge_pages(void)
{
	static const struct rmr_grant_limits huge = {.arenas = 8, .bytes = 64 * MIB, .huge = true};
	struct rmr_remote *remote = NULL;
	struct impostor impostor, trusted;
	struct rmr_conn *conn, *chosen;
	long before = pool_size();
	int writable, sealed;

	if (!resize_pool(before + 8))
		TEST_SKIP("no huge pages can be reserved (%s)", POOL);
	set_up(NULL);
	writable = make_memory(HUGE, true, MFD_HUGETLB | MFD_HUGE_2MB);
	sealed = make_memory(HUGE, false, MFD_HUGETLB | MFD_HUGE_2MB);
	conn = let_in(&impostor, NULL);
	chosen = let_in(&trusted, &huge);
	CHECK_STATUS(grant_and_open(&impostor, conn, 1, HUGE, true, writable, &remote), RMR_DENIED);
	CHECK_STATUS(grant_and_open(&impostor, conn, 2, HUGE, false, sealed, &remote), RMR_DENIED);
	CHECK_CONTAINS(rmr_error_message(), "huge pages");
	CHECK_STATUS(grant_and_open(&trusted, chosen, 1, HUGE, true, writable, &remote),
		     RMR_DENIED);
	CHECK_OK(grant_and_open(&trusted, chosen, 2, HUGE, false, sealed, &remote));
	CHECK_EQ(*(const volatile char *)rmr_remote_pointer(remote), 0);
	/* What keeps the reader alive. */
	CHECK(fallocate(sealed, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)HUGE) != 0);
	CHECK_EQ(errno, EPERM);
	(void)resize_pool(0); /* only pages that are free leave */
	CHECK_EQ(*(const volatile char *)rmr_remote_pointer(remote), 0);
	rmr_conn_close(conn);
	rmr_conn_close(chosen);
	impostor_close(&impostor);
	impostor_close(&trusted);
	close(writable);
	close(sealed);
	clean_up();
	CHECK(resize_pool(before));
}

static const struct test tests[] = {
	{"sparse_terabyte", test_sparse_terabyte},
	{"no_grants_before_the_proof", test_no_grants_before_the_proof},
	{"limits_are_raised", test_limits_are_raised},
	{"budget_of_the_device", test_budget_of_the_device},
	{"waiting_descriptors", test_waiting_descriptors},
	{"hole_after_the_grant", test_hole_after_the_grant},
	{"huge_pages", test_huge_pages},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "shm_grant", tests, TEST_COUNT(tests));
}
