/*
 * The parts of the fabric's core that need no device: the ring of completions and the receive
 * slots, each against a plain model under random operations; and the registry of devices.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fabric/provider.h"
#include "harness/test.h"

/* Connections are only names here. */
static struct rmr_conn conns[3];

static void count_drop(void *context, const struct rmr_completion *entry)
{
	(void)entry;
	++*(int *)context;
}

static struct rmr_completion take_first(struct completion_ring *ring)
{
	CHECK(!completion_ring_is_empty(ring));
	return ring->entries[ring->head++ & ring->mask];
}

/* The ring is a queue: what comes out is what a plain array says, while it grows, shrinks and
 * connections are forgotten. */
static void test_ring_against_a_model(void)
{
	static struct rmr_completion model[4096];
	struct completion_ring ring = {0};
	uint32_t count = 0, reserved = 0;
	struct test_rng rng;

	test_rng_init(&rng, 1);
	for (uint64_t step = 0; step < 200000; step++) {
		uint64_t dice = test_rng_below(&rng, 100);

		if (dice < 2 && reserved < 3000) {
			uint32_t more = 1 + (uint32_t)test_rng_below(&rng, 50);

			CHECK_OK(completion_ring_reserve(&ring, more));
			reserved += more;
		} else if (dice < 3 && reserved > count) {
			uint32_t less = (uint32_t)test_rng_below(&rng, reserved - count + 1);

			completion_ring_unreserve(&ring, less);
			reserved -= less;
		} else if (dice < 4) {
			const struct rmr_conn *gone = &conns[test_rng_below(&rng, 3)];
			uint32_t kept = 0;
			int dropped = 0;

			completion_ring_forget(&ring, gone, count_drop, &dropped);
			for (uint32_t i = 0; i < count; i++) {
				if (model[i].conn != gone)
					model[kept++] = model[i];
			}
			CHECK_EQ(dropped, count - kept);
			count = kept;
		} else if (dice < 55 && count < reserved) {
			model[count] = (struct rmr_completion){
				.cookie = step, .conn = &conns[test_rng_below(&rng, 3)]};
			completion_ring_push(&ring, &model[count++]);
		} else if (count > 0) {
			struct rmr_completion first = take_first(&ring);

			CHECK_EQ(first.cookie, model[0].cookie);
			CHECK(first.conn == model[0].conn);
			memmove(model, model + 1, --count * sizeof(*model));
		}
		CHECK_EQ(ring.tail - ring.head, count);
		CHECK(reserved == 0 || ring.reserved <= ring.mask + 1);
	}
	completion_ring_fini(&ring);
}

static void test_ring_has_a_limit(void)
{
	struct completion_ring ring = {0};

	CHECK_STATUS(completion_ring_reserve(&ring, UINT32_MAX), RMR_LIMIT);
	CHECK_OK(completion_ring_reserve(&ring, 1));
	CHECK_STATUS(completion_ring_reserve(&ring, UINT32_MAX), RMR_LIMIT);
	completion_ring_fini(&ring);
}

/* No slot is handed out twice, all come back, and their memory does not overlap. */
static void test_slots_against_a_model(void)
{
	enum { SLOTS = 37, SIZE = 100 };
	struct recv_pool pool;
	uint8_t *held[SLOTS];
	struct test_rng rng;
	uint32_t count = 0;

	test_rng_init(&rng, 1);
	CHECK_OK(recv_pool_init(&pool, SLOTS, SIZE));
	for (int step = 0; step < 100000; step++) {
		if (test_rng_below(&rng, 2)) {
			uint8_t *slot = recv_pool_get(&pool);

			CHECK_EQ(slot == NULL, count == SLOTS);
			if (!slot)
				continue;
			CHECK_EQ((uintptr_t)slot % 64, 0);
			for (uint32_t i = 0; i < count; i++)
				CHECK((size_t)labs(slot - held[i]) >= SIZE);
			held[count++] = slot;
		} else if (count > 0) {
			uint32_t i = (uint32_t)test_rng_below(&rng, count);

			recv_pool_put(&pool, held[i]);
			held[i] = held[--count];
		}
		CHECK_EQ(recv_pool_is_empty(&pool), count == SLOTS);
	}
	recv_pool_fini(&pool);
}

static void test_slots_too_many(void)
{
	struct recv_pool pool;

	CHECK_STATUS(recv_pool_init(&pool, UINT32_MAX, SIZE_MAX / 2), RMR_NO_MEMORY);
	recv_pool_fini(&pool); /* legal on what could not be made */
}

/* Runs fn in a process of its own, and checks that it ends by an assertion. */
static void asserts(void (*fn)(void))
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		fclose(stderr);
		signal(SIGABRT, SIG_DFL);
		fn();
		_exit(0);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(WIFSIGNALED(status) || WEXITSTATUS(status) != 0);
}

static void release_twice(void)
{
	struct recv_pool pool;
	void *slot;

	if (recv_pool_init(&pool, 4, 64) != RMR_OK)
		_exit(0);
	slot = recv_pool_get(&pool);
	recv_pool_put(&pool, slot);
	recv_pool_put(&pool, slot);
}

static void release_a_stranger(void)
{
	struct recv_pool pool;

	if (recv_pool_init(&pool, 4, 64) != RMR_OK)
		_exit(0);
	recv_pool_put(&pool, (uint8_t *)recv_pool_get(&pool) + 1);
}

static void push_without_room(void)
{
	struct completion_ring ring = {0};

	if (completion_ring_reserve(&ring, 1) != RMR_OK)
		_exit(0);
	completion_ring_push(&ring, &(struct rmr_completion){.cookie = 1});
	completion_ring_push(&ring, &(struct rmr_completion){.cookie = 2});
}

static void test_own_mistakes_are_asserted(void)
{
	asserts(release_twice);
	asserts(release_a_stranger);
	asserts(push_without_room);
}

static void test_devices_by_name(void)
{
	static const char *const unknown[] = {"", "shmx", "sh", "verbs2:mlx5_0", "shm:instance",
					      ":"};
	struct rmr_device_entry entries[16];
	struct rmr_device *device;
	bool shm = false, tcp = false;
	size_t count = rmr_device_list(entries, TEST_COUNT(entries));

	for (size_t i = 0; i < TEST_COUNT(unknown); i++)
		CHECK_STATUS(rmr_device_open(unknown[i], NULL, &device), RMR_NO_DEVICE);
	CHECK_STATUS(rmr_device_open("nothing", NULL, &device), RMR_NO_DEVICE);
	CHECK_CONTAINS(rmr_error_message(), "shm");
	CHECK_CONTAINS(rmr_error_message(), "tcp");
	CHECK_STATUS(rmr_device_open(NULL, NULL, &device), RMR_INVALID);
	CHECK(count <= TEST_COUNT(entries));
	for (size_t i = 0; i < count; i++) {
		shm |= strcmp(entries[i].name, "shm") == 0 && entries[i].usable;
		tcp |= strcmp(entries[i].name, "tcp") == 0 && entries[i].usable;
		CHECK(entries[i].usable || entries[i].reason[0]);
	}
	CHECK(shm && tcp);
	/* What is not built in, or not here, says why, and how to get it. */
	CHECK_STATUS(rmr_device_open("ofi:nonsense", NULL, &device), RMR_NO_DEVICE);
	CHECK_CONTAINS(rmr_error_message(), "libfabric");
	CHECK_EQ(rmr_device_list(NULL, 0), count);
}

static void test_keys_are_random(void)
{
	uint64_t keys[100];

	for (int i = 0; i < 100; i++) {
		CHECK_OK(key_random(&keys[i]));
		CHECK(keys[i] != 0);
		for (int k = 0; k < i; k++)
			CHECK(keys[i] != keys[k]);
	}
}

static const struct test tests[] = {
	{"ring_against_a_model", test_ring_against_a_model},
	{"ring_has_a_limit", test_ring_has_a_limit},
	{"slots_against_a_model", test_slots_against_a_model},
	{"slots_too_many", test_slots_too_many},
	{"own_mistakes_are_asserted", test_own_mistakes_are_asserted},
	{"devices_by_name", test_devices_by_name},
	{"keys_are_random", test_keys_are_random},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "fabric_core", tests, TEST_COUNT(tests));
}
