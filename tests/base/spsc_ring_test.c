/* Bounds, order, and two threads. */
#include "base/spsc_ring.h"

#include <pthread.h>
#include <sched.h>

#include "harness/test.h"

struct element {
	uint64_t number;
	uint64_t inverse; /* a torn copy would show */
	char odd[5];
};

static void test_bounds(void)
{
	uint32_t slots[4], value;
	struct spsc_ring ring;

	spsc_ring_init(&ring, slots, 4, sizeof(slots[0]));
	CHECK(!spsc_ring_pop(&ring, &value));
	for (uint32_t lap = 0; lap < 10; lap++) {
		for (uint32_t i = 0; i < 4; i++) {
			value = lap * 4 + i;
			CHECK_EQ(spsc_ring_count(&ring), i);
			CHECK(spsc_ring_push(&ring, &value));
		}
		CHECK(!spsc_ring_push(&ring, &value));
		CHECK_EQ(spsc_ring_count(&ring), 4);
		for (uint32_t i = 0; i < 4; i++) {
			CHECK(spsc_ring_pop(&ring, &value));
			CHECK_EQ(value, lap * 4 + i);
		}
		CHECK(!spsc_ring_pop(&ring, &value));
	}
}

static void test_capacity_one(void)
{
	char slot, value = 'a';
	struct spsc_ring ring;

	spsc_ring_init(&ring, &slot, 1, 1);
	CHECK(spsc_ring_push(&ring, &value));
	CHECK(!spsc_ring_push(&ring, &value));
	value = 'b';
	CHECK(spsc_ring_pop(&ring, &value));
	CHECK_EQ(value, 'a');
	CHECK(!spsc_ring_pop(&ring, &value));
}

struct flow {
	struct spsc_ring ring;
	uint64_t count;
};

static void *produce(void *arg)
{
	struct flow *flow = arg;
	struct element element = {.odd = "odd"};

	for (uint64_t i = 0; i < flow->count; i++) {
		element.number = i;
		element.inverse = ~i;
		while (!spsc_ring_push(&flow->ring, &element))
			sched_yield();
	}
	return NULL;
}

static void run_flow(size_t capacity, uint64_t count)
{
	static struct element slots[1024];
	static struct flow flow;
	struct element element;
	pthread_t producer;

	flow.count = count;
	spsc_ring_init(&flow.ring, slots, capacity, sizeof(slots[0]));
	CHECK_EQ(pthread_create(&producer, NULL, produce, &flow), 0);
	for (uint64_t i = 0; i < count; i++) {
		while (!spsc_ring_pop(&flow.ring, &element))
			sched_yield();
		CHECK_EQ(element.number, i);
		CHECK(element.inverse == ~i);
		CHECK(spsc_ring_count(&flow.ring) <= capacity);
	}
	CHECK_EQ(pthread_join(producer, NULL), 0);
	CHECK(!spsc_ring_pop(&flow.ring, &element));
}

static void test_two_threads(void)
{
	run_flow(1, 20000);
	run_flow(2, 50000);
	run_flow(1024, 500000);
}

static const struct test tests[] = {
	{"bounds", test_bounds},
	{"capacity_one", test_capacity_one},
	{"two_threads", test_two_threads},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "spsc_ring_test", tests, TEST_COUNT(tests));
}
