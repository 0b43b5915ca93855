/*
 * Arenas, regions, and a peer's memory mapped here.
 *
 * What these tests would catch: an arena that is not sealed, rights that are given although the
 * arena forbids them, a region count that is not kept, a mapped pointer that is off by the region's
 * place in its arena.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "conformance.h"
#include "puppet.h"

static void test_arena(void)
{
	static const size_t sizes[] = {1, 4096, 4097, MIB, 3 * MIB + 1};
	static const unsigned flags[] = {0, RMR_ARENA_PEERS_WRITE, RMR_ARENA_PREFAULT,
					 RMR_ARENA_HUGE, RMR_ARENA_HUGE | RMR_ARENA_PREFAULT};
	struct rmr_arena *arena;
	enum rmr_status status;
	size_t i, k, page;

	for (i = 0; i < TEST_COUNT(sizes); i++) {
		for (k = 0; k < TEST_COUNT(flags); k++) {
			CHECK_OK(rmr_arena_open(sizes[i], flags[k], &arena));
			page = rmr_arena_page_size(arena);
			CHECK(page >= 4096 && (page & (page - 1)) == 0);
			CHECK(rmr_arena_size(arena) >= sizes[i]);
			CHECK_EQ(rmr_arena_size(arena) % page, 0);
			CHECK(rmr_arena_size(arena) < sizes[i] + page);
			CHECK_EQ((uintptr_t)rmr_arena_base(arena) % page, 0);
			guard_check(rmr_arena_base(arena), sizes[i], 0, "a fresh arena");
			memset(rmr_arena_base(arena), 0xff, rmr_arena_size(arena));
			rmr_arena_close(arena);
		}
	}
	CHECK_STATUS(rmr_arena_open(0, 0, &arena), RMR_INVALID);
	status = rmr_arena_open(SIZE_MAX / 2, 0, &arena);
	CHECK(status == RMR_NO_MEMORY || status == RMR_INVALID);
}

/* How many pages of the memory are there without having been touched. */
static size_t resident(const struct rmr_arena *arena)
{
	size_t pages = rmr_arena_size(arena) / 4096, i, count = 0;
	unsigned char *map = malloc(pages);

	CHECK(map != NULL);
	CHECK_EQ(mincore(rmr_arena_base(arena), rmr_arena_size(arena), map), 0);
	for (i = 0; i < pages; i++)
		count += map[i] & 1;
	free(map);
	return count;
}

static void test_prefault(void)
{
	struct rmr_arena *arena;

	CHECK_OK(rmr_arena_open(4 * MIB, RMR_ARENA_PREFAULT, &arena));
	CHECK_EQ(resident(arena), 1024);
	rmr_arena_close(arena);
	CHECK_OK(rmr_arena_open(4 * MIB, 0, &arena));
	CHECK(resident(arena) < 512);
	rmr_arena_close(arena);
}

static void test_rights(void)
{
	static const unsigned writing[] = {RMR_WRITE, RMR_ATOMIC, RMR_READ | RMR_WRITE,
					   RMR_READ | RMR_WRITE | RMR_ATOMIC};
	struct rmr_arena *arena;
	struct rmr_region *region;
	struct node node = {0};
	uint8_t plain[64];
	size_t i;

	node_open(&node, NULL);
	CHECK_OK(rmr_arena_open(8192, 0, &arena));
	for (i = 0; i < TEST_COUNT(writing); i++)
		CHECK_STATUS(rmr_region_open(node.device, rmr_arena_base(arena), 4096, writing[i],
					     &region),
			     RMR_DENIED);
	CHECK_OK(rmr_region_open(node.device, rmr_arena_base(arena), 8192, RMR_READ, &region));
	rmr_region_close(region);
	rmr_arena_close(arena);
	if (!(node.info->capabilities & RMR_CAP_ATOMIC_PLAIN))
		CHECK_STATUS(
			rmr_region_open(node.device, plain, sizeof(plain), RMR_ATOMIC, &region),
			RMR_UNSUPPORTED);
	CHECK_STATUS(rmr_region_open(node.device, plain, sizeof(plain), 1u << 20, &region),
		     RMR_INVALID);
	node_close(&node);
}

/* As many regions as the device says, over the same bytes if one likes, and not one more. */
static void test_region_count(void)
{
	struct rmr_region **regions, *extra;
	struct node node = {0};
	uint32_t count, i;
	uint8_t plain[64];

	node_open(&node, NULL);
	count = node.info->max_regions;
	if (count > 200000)
		TEST_SKIP("%u regions are too many to try", count);
	regions = calloc(count, sizeof(*regions));
	CHECK(regions != NULL);
	for (i = 0; i < count; i++)
		CHECK_OK(rmr_region_open(node.device, plain, sizeof(plain), RMR_READ, &regions[i]));
	CHECK_STATUS(rmr_region_open(node.device, plain, sizeof(plain), RMR_READ, &extra),
		     RMR_LIMIT);
	rmr_region_close(regions[0]);
	CHECK_OK(rmr_region_open(node.device, plain, sizeof(plain), RMR_READ, &regions[0]));
	for (i = 0; i < count; i++)
		rmr_region_close(regions[i]);
	free(regions);
	node_close(&node);
}

/* ------------------------------------------------------------------------------------------
 * Part of an arena, and a peer's arena mapped
 */

/* Exports the middle of an arena; all around are guard bytes. */
static void export_middle(struct node *node)
{
	bool sealed = *(bool *)node->arg;
	struct memory whole;

	node_open(node, NULL);
	memory_open(node, &whole, sealed ? MEMORY_SEALED : MEMORY_ARENA, 64 * KIB, 0);
	memset(whole.base, 0xcc, whole.size);
	pattern_fill(whole.base + 5000, 3000, 1);
	node->memory.base = whole.base + 5000;
	node->memory.size = 3000;
	CHECK_OK(rmr_region_open(node->device, node->memory.base, 3000,
				 sealed ? RMR_READ : RMR_READ | RMR_WRITE, &node->memory.region));
	node_accept(node, NULL);
	node_export(node);
	test_await(node->pipe, TEST_CHILD);
	pattern_check(node->memory.base, 3000, sealed ? 1 : 2, "the region");
	pattern_fill(node->memory.base, 3000, 3);
	test_signal(node->pipe, TEST_CHILD);
	test_await(node->pipe, TEST_CHILD);
	guard_check(whole.base, 5000, 0xcc, "before the region");
	guard_check(whole.base + 8000, whole.size - 8000, 0xcc, "after the region");
	rmr_region_close(node->memory.region);
	node->memory = whole;
	node_close(node);
}

static void check_pointer(const struct node *node, bool sealed)
{
	const uint8_t *pointer = rmr_remote_pointer(node->remote);
	uint8_t *page = (uint8_t *)((uintptr_t)pointer & ~4095ul);

	if (!(node->info->capabilities & RMR_CAP_MAP)) {
		CHECK(pointer == NULL);
		return;
	}
	CHECK(pointer != NULL);
	pattern_check(pointer, 3000, sealed ? 1 : 2, "mapped memory");
	if (sealed) {
		errno = 0;
		CHECK_EQ(mprotect(page, 4096, PROT_READ | PROT_WRITE), -1);
		CHECK_EQ(errno, EACCES);
	}
}

static void check_middle(bool sealed)
{
	struct peer peer;
	struct node node = {0};
	struct rmr_work work;

	peer_start(&peer, export_middle, &sealed);
	node_open(&node, NULL);
	node_memory(&node, MEMORY_ARENA, 4096, 0);
	node_connect(&node, &peer, NULL);
	node_import(&node);
	CHECK_EQ(rmr_remote_length(node.remote), 3000);
	CHECK_EQ(rmr_remote_rights(node.remote), sealed ? RMR_READ : RMR_READ | RMR_WRITE);
	work = work_of(&node, RMR_OP_READ, 0, 3000, 0);
	node_do(&node, &work);
	pattern_check(node.memory.base, 3000, 1, "READ of the middle");
	if (!sealed) {
		work = work_of(&node, RMR_OP_WRITE, 0, 3000, 0);
		pattern_fill(node.memory.base, 3000, 2);
		node_do(&node, &work);
	}
	check_pointer(&node, sealed);
	test_signal(&peer.pipe, TEST_PARENT);
	test_await(&peer.pipe, TEST_PARENT);
	if (rmr_remote_pointer(node.remote) != NULL)
		pattern_check(rmr_remote_pointer(node.remote), 3000, 3, "mapped memory, later");
	test_signal(&peer.pipe, TEST_PARENT);
	peer_join(&peer);
	if (rmr_remote_pointer(node.remote) != NULL)
		pattern_check(rmr_remote_pointer(node.remote), 3000, 3, "mapped, peer gone");
	node_close(&node);
}

static void test_middle(void)
{
	check_middle(true);
	check_middle(false);
}

/* Plain memory is never mapped. */
static void test_plain_pointer(void)
{
	struct pair_options options = {.puppet = {.kind = MEMORY_PLAIN}};
	struct puppet puppet;
	struct node node;

	pair_open(&puppet, &node, &options);
	CHECK(rmr_remote_pointer(node.remote) == NULL);
	pair_close(&puppet, &node);
}

static bool can_detach(struct rmr_device *device)
{
	struct rmr_region *region;
	enum rmr_status status;
	uint8_t plain[64];

	CHECK_OK(rmr_region_open(device, plain, sizeof(plain), RMR_READ, &region));
	status = rmr_region_detach(region);
	CHECK(status == RMR_OK || status == RMR_UNSUPPORTED);
	if (status == RMR_OK)
		CHECK_STATUS(rmr_region_detach(region), RMR_INVALID);
	rmr_region_close(region);
	return status == RMR_OK;
}

/* The peer's memory is its own again; operations under way, and later ones, use a copy. */
static void test_detach(void)
{
	struct pair_options options = {.test.size = 2 * MIB,
				       .puppet = {.kind = MEMORY_PLAIN, .size = MIB}};
	struct puppet puppet;
	struct rmr_work work;
	struct node node;
	int i;

	pair_open(&puppet, &node, &options);
	if (!can_detach(node.device)) {
		pair_close(&puppet, &node);
		TEST_SKIP("this device cannot detach regions");
	}
	puppet_fill(&puppet, 0, MIB, 5);
	for (i = 0; i < 16; i++) {
		work = work_of(&node, RMR_OP_READ, (size_t)i * 64 * KIB, 64 * KIB,
			       (size_t)i * 64 * KIB);
		node_post(&node, &work);
	}
	puppet_detach_region(&puppet);
	puppet_set(&puppet, 0, MIB, 0xcc);
	for (i = 0; i < 16; i++)
		CHECK_EQ(node_next(&node).status, RMR_OK);
	pattern_check(node.memory.base, MIB, 5, "READs posted before");
	memset(node.memory.base, 0, MIB);
	work = work_of(&node, RMR_OP_READ, 0, MIB, 0);
	node_do(&node, &work);
	pattern_check(node.memory.base, MIB, 5, "a READ posted afterwards");
	memset(node.memory.base, 0x77, MIB);
	work = work_of(&node, RMR_OP_WRITE, 0, MIB, 0);
	node_do(&node, &work);
	puppet_check_guard(&puppet, 0, MIB, 0xcc);
	pair_close(&puppet, &node);
}

/* The same for the local side: what is read lands in the copy, what is written comes from it. */
static void test_detach_own(void)
{
	struct pair_options options = {.test = {.kind = MEMORY_PLAIN, .size = MIB},
				       .puppet.size = 2 * MIB};
	struct rmr_region *region;
	struct puppet puppet;
	struct rmr_work work;
	struct node node;
	uint8_t *plain = malloc(2 * MIB);

	pair_open(&puppet, &node, &options);
	if (!can_detach(node.device)) {
		pair_close(&puppet, &node);
		TEST_SKIP("this device cannot detach regions");
	}
	CHECK(plain != NULL);
	CHECK_OK(rmr_region_open(node.device, plain, 2 * MIB, 0, &region));
	puppet_fill(&puppet, 0, MIB, 5);
	puppet_set(&puppet, MIB, MIB, 0);
	pattern_fill(plain + MIB, MIB, 6);
	work = work_of(&node, RMR_OP_WRITE, 0, MIB, MIB);
	work.local = plain + MIB;
	work.region = region;
	node_post(&node, &work);
	work = work_of(&node, RMR_OP_READ, 0, MIB, 0);
	work.local = plain;
	work.region = region;
	node_post(&node, &work);
	CHECK_OK(rmr_region_detach(region));
	memset(plain, 0xcc, 2 * MIB);
	CHECK_EQ(node_next(&node).status, RMR_OK);
	CHECK_EQ(node_next(&node).status, RMR_OK);
	guard_check(plain, 2 * MIB, 0xcc, "memory that was detached");
	puppet_check(&puppet, MIB, MIB, 6);
	rmr_region_close(region);
	free(plain);
	pair_close(&puppet, &node);
}

const struct test memory_tests[] = {
	{"memory_arena", test_arena},
	{"memory_prefault", test_prefault},
	{"memory_rights", test_rights},
	{"memory_region_count", test_region_count},
	{"memory_middle_of_an_arena", test_middle},
	{"memory_plain_is_not_mapped", test_plain_pointer},
	{"memory_detach", test_detach},
	{"memory_detach_own", test_detach_own},
	{NULL},
};
