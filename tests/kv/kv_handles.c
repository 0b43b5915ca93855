/*
 * What a client handle costs while it does little: memory and descriptors, in the client's process
 * and in the server's.
 *
 * Memory is what /proc/PID/smaps_rollup counts as anonymous and as shared memory, each page divided
 * by the number of its mappings. So a page that both processes map is counted once in the sum, and
 * the pages of programs and libraries, which other processes map and unmap, are left out.
 */
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fixture.h"

#define HANDLES	   50
#define KEYS	   40
#define MOST_BYTES (256u << 10)

struct cost {
	uint64_t bytes;
	unsigned descriptors;
};

static struct cost cost_of(pid_t pid)
{
	struct cost cost = {0};
	char path[64], line[256];
	uint64_t kilobytes;
	unsigned fields = 0;
	FILE *file;
	DIR *directory;

	snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", (int)pid);
	file = fopen(path, "r");
	if (!file)
		TEST_SKIP("this kernel has no smaps_rollup");
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "Pss_Anon: %" SCNu64, &kilobytes) != 1 &&
		    sscanf(line, "Pss_Shmem: %" SCNu64, &kilobytes) != 1)
			continue;
		cost.bytes += kilobytes << 10;
		fields++;
	}
	fclose(file);
	if (fields != 2)
		TEST_SKIP("this kernel does not tell kinds of memory apart");
	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	directory = opendir(path);
	CHECK(directory);
	while (readdir(directory))
		cost.descriptors++;
	closedir(directory);
	return cost;
}

static void use(kv_client_t *client)
{
	char key[32], value[1024];

	for (uint64_t i = 0; i < KEYS; i++) {
		size_t length = i % 4 ? 64 : sizeof(value), got = sizeof(value);

		snprintf(key, sizeof(key), "key %" PRIu64, i * 0x9e3779b97f4a7c15u);
		value_fill(value, length, i);
		CHECK_KV(client, kv_client_put(client, key, strlen(key), value, length), KV_OK);
		CHECK_KV(client, kv_client_get(client, key, strlen(key), value, &got), KV_OK);
		CHECK_EQ(got, length);
		CHECK(value_is(value, length, i));
	}
}

static void check_bound(const char *whose, struct cost before, struct cost after, unsigned most)
{
	uint64_t bytes = after.bytes > before.bytes ? after.bytes - before.bytes : 0;
	unsigned descriptors = after.descriptors - before.descriptors;

	printf("# %s: %" PRIu64 " KB and %.1f descriptors a handle\n", whose, bytes / HANDLES >> 10,
	       (double)descriptors / HANDLES);
	if (descriptors > HANDLES * most)
		TEST_FAIL("%s: %u descriptors for %d handles, at most %u for each", whose,
			  descriptors, HANDLES, most);
	/* Sanitizers add memory of their own. */
	if (!TEST_HAS_SANITIZER && bytes > (uint64_t)HANDLES * MOST_BYTES)
		TEST_FAIL("%s: %" PRIu64 " KB for each of %d handles, at most %u", whose,
			  bytes / HANDLES >> 10, HANDLES, MOST_BYTES >> 10);
}

static void test_cost(void)
{
	bool is_shm = strcmp(setup.device, "shm") == 0;
	struct cost mine, its;
	kv_client_t *clients[HANDLES + 1];
	struct server server;

	if (!is_shm && strcmp(setup.device, "tcp") != 0)
		TEST_SKIP("measured on shm and tcp");
	server_start(&server, NULL);
	clients[HANDLES] = client_open(&server, NULL);
	use(clients[HANDLES]);
	mine = cost_of(getpid());
	its = cost_of(server.pid);
	for (int i = 0; i < HANDLES; i++) {
		clients[i] = client_open(&server, NULL);
		use(clients[i]);
	}
	check_bound("client", mine, cost_of(getpid()), is_shm ? 3 : 4);
	check_bound("server", its, cost_of(server.pid), is_shm ? 2 : 1);
	for (int i = 0; i <= HANDLES; i++)
		kv_client_destroy(clients[i]);
	server_stop(&server);
}

const struct test handle_tests[] = {
	{"cost_of_a_handle", test_cost},
	{NULL},
};
