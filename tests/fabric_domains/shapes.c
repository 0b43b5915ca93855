/*
 * Sides with different numbers of devices, all lengths around the stripe, both policies; and that
 * round robin gives every connection the same, pinned only one.
 *
 * What these tests would catch: stripes that go to the wrong place, twice or not at all; a length
 * that is rounded; a lane that is never used; a device of the side that has more, idle.
 */
#include <string.h>

#include "side.h"

#define GUARD 64

struct pair {
	struct server server;
	struct side side;
};

static void pair_open(struct pair *pair, int ours, int theirs)
{
	struct rmr_link_info info;

	server_start(&pair->server, servant, theirs);
	side_open(&pair->side, ours);
	side_connect(&pair->side, &pair->server, NULL);
	rmr_link_get_info(pair->side.link, &info);
	CHECK_EQ(info.connections, ours > theirs ? ours : theirs);
	CHECK(info.alive);
	CHECK_EQ(rmr_link_remote_length(pair->side.remote), pair->side.size);
	CHECK_EQ(rmr_link_remote_rights(pair->side.remote), RMR_READ | RMR_WRITE);
}

static void pair_close(struct pair *pair)
{
	side_close(&pair->side);
	server_join(&pair->server);
}

/* Writes `length` bytes, has them checked there, reads others back; nothing beside them changes. */
static void check_length(struct side *side, size_t length, enum rmr_stripe policy, uint32_t pin)
{
	static uint64_t seed;
	size_t at = GUARD + 3, from = GUARD + 5; /* at odd places */
	struct rmr_link_work work = side_work(side, RMR_OP_WRITE, at, length, from);

	work.policy = policy;
	work.pin = pin;
	work.cookie = ++seed;
	pattern_fill(side->memory + at, length, seed);
	side_do(side, &work);
	servant_check(side, from, length, seed);
	servant_fill(side, from, length, ++seed);
	memset(side->memory + at - GUARD, 0xa5, length + 2 * GUARD);
	work.op = RMR_OP_READ;
	side_do(side, &work);
	pattern_check(side->memory + at, length, seed, "what was read");
	guard_check(side->memory + at - GUARD, GUARD, 0xa5, "before what was read");
	guard_check(side->memory + at + length, GUARD, 0xa5, "behind what was read");
}

static void check_shape(int ours, int theirs)
{
	const size_t lengths[] = {0, 1, STRIPE - 1, STRIPE, STRIPE + 1, 5 * STRIPE + 7};
	struct pair pair;

	pair_open(&pair, ours, theirs);
	for (size_t i = 0; i < TEST_COUNT(lengths); i++) {
		check_length(&pair.side, lengths[i], RMR_STRIPE_DEFAULT, 0);
		check_length(&pair.side, lengths[i], RMR_STRIPE_PINNED, (uint32_t)i);
	}
	check_length(&pair.side, setup.large + 13, RMR_STRIPE_ROUND_ROBIN, 0);
	pair_close(&pair);
}

static void test_1_1(void)
{
	check_shape(1, 1);
}

static void test_2_2(void)
{
	check_shape(2, 2);
}

static void test_2_1(void)
{
	check_shape(2, 1);
}

static void test_1_3(void)
{
	check_shape(1, 3);
}

static void test_3_2(void)
{
	check_shape(3, 2);
}

/* The devices' counters are the sums of those of their connections. */
static void check_domains(struct side *side, uint64_t stripes)
{
	uint64_t sums[RMR_DOMAINS_MAX] = {0}, total = 0;
	struct rmr_domains_info domains;
	struct rmr_link_info link;

	rmr_link_get_info(side->link, &link);
	rmr_domains_get_info(side->domains, &domains);
	CHECK_EQ(domains.count, side->count);
	for (int i = 0; i < link.connections; i++) {
		/* With addresses of separate networks not every pair has a way. */
		CHECK(link.connection[i].domain < side->count);
		if (!setup.addresses[0])
			CHECK_EQ(link.connection[i].domain, i % side->count);
		sums[link.connection[i].domain] += link.connection[i].bytes;
	}
	for (int i = 0; i < domains.count; i++) {
		CHECK_STR(domains.domain[i].device->name, setup.devices[i % setup.count]);
		CHECK_EQ(domains.domain[i].read_bytes + domains.domain[i].write_bytes, sums[i]);
		total += domains.domain[i].stripes;
	}
	CHECK_EQ(total, stripes);
}

static void check_even(int ours, int theirs)
{
	struct rmr_link_info info;
	struct rmr_link_work work;
	struct pair pair;
	unsigned n;

	pair_open(&pair, ours, theirs);
	rmr_link_get_info(pair.side.link, &info);
	n = (unsigned)info.connections;
	/* Each has one stripe more than there are connections, so each begins at the next one. */
	work = side_work(&pair.side, RMR_OP_READ, 0, (n + 1) * STRIPE, 0);
	for (unsigned i = 0; i < n; i++)
		side_do(&pair.side, &work);
	work = side_work(&pair.side, RMR_OP_WRITE, 0, 100, 0);
	for (unsigned i = 0; i < 4 * n; i++)
		side_do(&pair.side, &work);
	rmr_link_get_info(pair.side.link, &info);
	for (unsigned i = 0; i < n; i++)
		CHECK_EQ(info.connection[i].bytes, (n + 1) * STRIPE + 400);
	check_domains(&pair.side, n * (n + 1) + 4 * n);
	pair_close(&pair);
}

static void test_even(void)
{
	check_even(2, 2);
	check_even(1, 3);
	check_even(3, 2);
}

static void test_pinned(void)
{
	struct rmr_link_options options = {.policy = RMR_STRIPE_PINNED, .pin = 4, .stripe = STRIPE};
	struct rmr_link_info info;
	struct rmr_link_work work;
	struct pair pair;

	server_start(&pair.server, servant, 3);
	side_open(&pair.side, 2);
	side_connect(&pair.side, &pair.server, &options);
	work = side_work(&pair.side, RMR_OP_READ, 0, 5 * STRIPE, 0);
	side_do(&pair.side, &work); /* 4 modulo 3 */
	work.policy = RMR_STRIPE_PINNED;
	work.pin = 2;
	work.length = 100;
	side_do(&pair.side, &work);
	rmr_link_get_info(pair.side.link, &info);
	CHECK_EQ(info.connection[0].bytes, 0);
	CHECK_EQ(info.connection[1].bytes, 5 * STRIPE);
	CHECK_EQ(info.connection[2].bytes, 100);
	work.policy = RMR_STRIPE_ROUND_ROBIN;
	work.length = 3 * STRIPE;
	side_do(&pair.side, &work);
	rmr_link_get_info(pair.side.link, &info);
	CHECK_EQ(info.connection[0].bytes, STRIPE);
	pair_close(&pair);
}

const struct test shape_tests[] = {
	{"shape_1_1", test_1_1},       {"shape_2_2", test_2_2},
	{"shape_2_1", test_2_1},       {"shape_1_3", test_1_3},
	{"shape_3_2", test_3_2},       {"shape_even", test_even},
	{"shape_pinned", test_pinned}, {0},
};
