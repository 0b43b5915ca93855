/* Bounds, order per producer, nothing lost between many producers, and publication. */
#include "base/mpsc_ring.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "harness/test.h"

#define PRODUCERS    4
#define PER_PRODUCER 100000u

static void test_bounds(void)
{
	struct mpsc_ring ring = {0};
	uint64_t value;

	CHECK_STATUS(mpsc_ring_init(&ring, 0), RMR_INVALID);
	CHECK_STATUS(mpsc_ring_init(&ring, 1), RMR_INVALID);
	CHECK_STATUS(mpsc_ring_init(&ring, 3), RMR_INVALID);
	mpsc_ring_fini(&ring); /* never initialized */
	CHECK_OK(mpsc_ring_init(&ring, 4));
	CHECK(!mpsc_ring_pop(&ring, &value));
	for (uint64_t lap = 0; lap < 10; lap++) {
		CHECK(mpsc_ring_is_empty(&ring));
		for (uint64_t i = 0; i < 4; i++)
			CHECK(mpsc_ring_push(&ring, lap * 4 + i));
		CHECK(!mpsc_ring_push(&ring, 99));
		CHECK(!mpsc_ring_is_empty(&ring));
		for (uint64_t i = 0; i < 4; i++) {
			CHECK(mpsc_ring_pop(&ring, &value));
			CHECK_EQ(value, lap * 4 + i);
		}
		CHECK(!mpsc_ring_pop(&ring, &value));
	}
	mpsc_ring_fini(&ring);
	mpsc_ring_fini(&ring);
}

struct producer {
	pthread_t thread;
	struct mpsc_ring *ring;
	uint64_t number;
};

static void *produce(void *arg)
{
	struct producer *producer = arg;

	for (uint64_t i = 0; i < PER_PRODUCER; i++) {
		while (!mpsc_ring_push(producer->ring, producer->number << 32 | i))
			sched_yield();
	}
	return NULL;
}

static void run_producers(size_t capacity)
{
	struct producer producers[PRODUCERS];
	uint64_t next[PRODUCERS] = {0};
	struct mpsc_ring ring;
	uint64_t value;

	CHECK_OK(mpsc_ring_init(&ring, capacity));
	for (uint64_t i = 0; i < PRODUCERS; i++) {
		producers[i] = (struct producer){.ring = &ring, .number = i};
		CHECK_EQ(pthread_create(&producers[i].thread, NULL, produce, &producers[i]), 0);
	}
	for (uint64_t i = 0; i < PRODUCERS * PER_PRODUCER; i++) {
		while (!mpsc_ring_pop(&ring, &value))
			sched_yield();
		CHECK(value >> 32 < PRODUCERS);
		/* Each producer's elements come in their order, none lost, none twice. */
		CHECK_EQ(value & UINT32_MAX, next[value >> 32]++);
	}
	for (uint64_t i = 0; i < PRODUCERS; i++)
		CHECK_EQ(pthread_join(producers[i].thread, NULL), 0);
	CHECK(mpsc_ring_is_empty(&ring));
	mpsc_ring_fini(&ring);
}

static void test_many_producers(void)
{
	run_producers(2);
	run_producers(1024);
}

static void *produce_objects(void *arg)
{
	for (uint64_t i = 0; i < 10000; i++) {
		uint64_t *object = malloc(sizeof(*object));

		CHECK(object != NULL);
		*object = i;
		while (!mpsc_ring_push(arg, (uintptr_t)object))
			sched_yield();
	}
	return NULL;
}

/* What a pushed pointer points to is seen by the consumer: the thread sanitizer watches. */
static void test_publication(void)
{
	struct mpsc_ring ring;
	pthread_t thread;
	uint64_t value;

	CHECK_OK(mpsc_ring_init(&ring, 64));
	CHECK_EQ(pthread_create(&thread, NULL, produce_objects, &ring), 0);
	for (uint64_t i = 0; i < 10000; i++) {
		uint64_t *object;

		while (!mpsc_ring_pop(&ring, &value))
			sched_yield();
		object = (uint64_t *)(uintptr_t)value;
		CHECK_EQ(*object, i);
		free(object);
	}
	CHECK_EQ(pthread_join(thread, NULL), 0);
	mpsc_ring_fini(&ring);
}

static const struct test tests[] = {
	{"bounds", test_bounds},
	{"many_producers", test_many_producers},
	{"publication", test_publication},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "mpsc_ring_test", tests, TEST_COUNT(tests));
}
