/* The parts of the client that know nothing of connections: places in buffers, locations, names. */
#include <string.h>

#include "base/error.h"
#include "client/internal.h"
#include "harness/test.h"

static void test_extents(void)
{
	struct extent held[32] = {{0}};
	struct extents extents;
	struct test_rng rng;
	uint64_t sum = 0;

	test_rng_init(&rng, 1);
	CHECK(extents_init(&extents, 1 << 16, 32));
	for (int i = 0; i < 200000; i++) {
		unsigned at = (unsigned)test_rng_below(&rng, 32);

		if (held[at].length) {
			sum -= held[at].length;
			extents_give(&extents, &held[at]);
		} else if (extents_take(&extents, 1 + test_rng_below(&rng, 8000), &held[at])) {
			sum += held[at].length;
			for (unsigned j = 0; j < 32; j++)
				CHECK(j == at || !held[j].length ||
				      held[j].begin >= held[at].begin + held[at].length ||
				      held[at].begin >= held[j].begin + held[j].length);
		} else {
			CHECK(sum > (1 << 16) / 4);
		}
		CHECK(extents_is_valid(&extents));
	}
	for (unsigned i = 0; i < 32; i++)
		extents_give(&extents, &held[i]);
	CHECK(extents_take(&extents, 1 << 16, &held[0]));
	CHECK(!extents_take(&extents, 1, &held[1]));
	extents_fini(&extents);
}

static void learn(struct locations *locations, uint64_t hash, uint64_t offset)
{
	locations_learn(locations, &(struct location){.hash = hash,
						      .offset = offset,
						      .version = 1,
						      .size = 64,
						      .cell = LOCATION_NO_CELL});
}

static void test_locations(void)
{
	struct locations locations;
	const struct location *found;

	CHECK(locations_init(&locations, 64));
	CHECK(!locations_find(&locations, 5));
	learn(&locations, 5, 1000);
	found = locations_find(&locations, 5);
	CHECK(found);
	CHECK_EQ(found->offset, 1000);
	/* A version is that of a place. */
	locations_confirm(&locations, 5, 1001, 2);
	CHECK_EQ(found->version, 1);
	locations_confirm(&locations, 5, 1000, 2);
	CHECK_EQ(found->version, 2);
	/* One that is wrong again and again is not offered for a while. */
	for (int i = 0; i < 3; i++) {
		locations_doubt(&locations, 5);
		CHECK(!locations_find(&locations, 5));
		learn(&locations, 5, 2000);
	}
	CHECK(!locations_find(&locations, 5));
	for (int i = 0; i < 20; i++)
		(void)locations_find(&locations, 5);
	CHECK(locations_find(&locations, 5));
	/* Bounded: the ones used last stay. */
	for (uint64_t i = 100; i < 100000; i++) {
		learn(&locations, i, i);
		found = locations_find(&locations, i);
		CHECK(found && found->offset == i);
	}
	CHECK(!locations_find(&locations, 5));
	locations_learn(&locations, &(struct location){.hash = 7, .cell = 3, .check = 99});
	CHECK_EQ(locations_find(&locations, 7)->cell, 3);
	locations_clear_cells(&locations);
	CHECK(!locations_find(&locations, 7));
	locations_clear(&locations);
	CHECK(!locations_find(&locations, 99999));
	locations_fini(&locations);
}

static uint64_t spread(uint64_t number)
{
	return number * 0x9e3779b97f4a7c15u;
}

/* The table starts small, keeps what it knows when it doubles, and stops at its limit. */
static void test_locations_grow(void)
{
	const uint32_t limit = 8192;
	struct locations locations;
	uint32_t capacity, doublings = 0;

	CHECK(locations_init(&locations, limit));
	capacity = locations_capacity(&locations);
	CHECK(capacity <= 1024);
	for (uint64_t i = 1; i <= 20 * limit; i++) {
		uint32_t now;

		learn(&locations, spread(i), i);
		now = locations_capacity(&locations);
		if (now == capacity)
			continue;
		/* None is lost by doubling: at least half of the smaller table is there. */
		uint64_t kept = 0;

		for (uint64_t k = 1; k <= i; k++) {
			const struct location *found = locations_find(&locations, spread(k));

			CHECK(!found || found->offset == k);
			kept += found != NULL;
		}
		CHECK(kept > capacity / 2);
		CHECK_EQ(kept, locations.used_count);
		CHECK_EQ(now, 2 * capacity);
		capacity = now;
		doublings++;
	}
	CHECK_EQ(capacity, limit);
	CHECK(doublings >= 3);
	CHECK(locations.used_count <= limit);
	/* The newest of each set are there. */
	CHECK_EQ(locations_find(&locations, spread(20 * limit))->offset, 20 * limit);
	locations_clear(&locations);
	CHECK_EQ(locations.used_count, 0);
	CHECK(!locations_find(&locations, spread(20 * limit)));
	locations_fini(&locations);
	/* A limit below the size to begin with. */
	CHECK(locations_init(&locations, 8));
	for (uint64_t i = 1; i < 1000; i++)
		learn(&locations, spread(i), i);
	CHECK_EQ(locations_capacity(&locations), 8);
	locations_fini(&locations);
}

/* Few keys, used again and again, never make it grow. */
static void test_locations_stay_small(void)
{
	struct locations locations;
	uint32_t capacity;

	CHECK(locations_init(&locations, 65536));
	capacity = locations_capacity(&locations);
	for (uint64_t i = 0; i < 100000; i++)
		learn(&locations, spread(i % (capacity / 3)), i + 1);
	CHECK_EQ(locations_capacity(&locations), capacity);
	locations_fini(&locations);
}

static void check_target(const char *server, int port, conn_mode_t mode, const char *device,
			 const char *address)
{
	struct target_list list;

	CHECK_EQ(targets_find(mode, server, port, NULL, &list), KV_OK);
	CHECK(list.count >= 1);
	CHECK_STR(list.targets[list.count - 1].device, device);
	CHECK_STR(list.targets[list.count - 1].address, address);
}

static void test_names(void)
{
	struct target_list list;

	check_target(NULL, 0, CONN_MODE_SHM, "shm", "kv-12345");
	check_target("shm:cache", 0, CONN_MODE_AUTO, "shm", "cache");
	check_target("shm:", 77, CONN_MODE_AUTO, "shm", "kv-77");
	check_target("tcp://10.0.0.1", 0, CONN_MODE_AUTO, "tcp", "10.0.0.1:12345");
	check_target("tcp://10.0.0.1:8", 9, CONN_MODE_AUTO, "tcp", "10.0.0.1:8");
	check_target("ofi://10.0.0.1:8", 9, CONN_MODE_AUTO, "ofi", "10.0.0.1:8");
	check_target("ofi:tcp://10.0.0.1", 9, CONN_MODE_AUTO, "ofi:tcp", "10.0.0.1:9");
	check_target("ofi:efa:rdmap0s6-rdm://h", 9, CONN_MODE_SOCKET, "ofi:efa:rdmap0s6-rdm",
		     "h:9");
	check_target("10.0.0.1:8", 0, CONN_MODE_TCP, "tcp", "10.0.0.1:8");
	check_target("[::1]:8", 0, CONN_MODE_TCP, "tcp", "[::1]:8");
	check_target("::1", 8, CONN_MODE_TCP, "tcp", "[::1]:8");
	check_target(NULL, 8, CONN_MODE_AUTO, "tcp", "localhost:8");
	CHECK_EQ(targets_find(CONN_MODE_AUTO, "localhost", 8, NULL, &list), KV_OK);
	CHECK_STR(list.targets[0].device, "shm");
	CHECK_STR(list.targets[0].reason, "");
	CHECK_EQ(targets_find(CONN_MODE_AUTO, "192.0.2.1", 8, NULL, &list), KV_OK);
	CHECK_CONTAINS(list.targets[0].reason, "another host");
	CHECK_EQ(targets_find(CONN_MODE_SOCKET, "h", 8, "mlx5_0", &list), KV_OK);
	CHECK_STR(list.targets[0].device, "verbs:mlx5_0,socket");
	CHECK_EQ(targets_find(CONN_MODE_AUTO, "h", 8, "fault:tcp", &list), KV_OK);
	CHECK_STR(list.targets[0].device, "fault:tcp");
	CHECK_EQ(targets_find(CONN_MODE_AUTO, "h:x", 8, NULL, &list), KV_INVALID);
	CHECK_EQ(targets_find(CONN_MODE_AUTO, "h:0", 8, NULL, &list), KV_INVALID);
	CHECK_EQ(targets_find(CONN_MODE_AUTO, "[::1", 8, NULL, &list), KV_INVALID);
	CHECK_EQ(targets_find(CONN_MODE_AUTO, "ftp://h", 8, NULL, &list), KV_INVALID);
	CHECK_CONTAINS(error_chain(), "tcp://");
}

static const struct test tests[] = {
	{"extents", test_extents},
	{"locations", test_locations},
	{"locations_grow", test_locations_grow},
	{"locations_stay_small", test_locations_stay_small},
	{"names", test_names},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "kv_client_parts", tests, TEST_COUNT(tests));
}
