/* Closing a region waits for whoever is inside. */
#include <pthread.h>
#include <stdatomic.h>

#include "fabric/tcp/internal.h"
#include "harness/test.h"

static atomic_bool closed;

static void *close_region(void *region)
{
	rmr_region_close(region);
	atomic_store(&closed, true);
	return NULL;
}

static void test_close_waits(void)
{
	struct rmr_device *device;
	struct rmr_region *region;
	struct region_slot *slot;
	pthread_t thread;
	uint64_t key;
	char memory[64];

	CHECK_OK(rmr_device_open("tcp", NULL, &device));
	CHECK_OK(rmr_region_open(device, memory, sizeof(memory), RMR_WRITE, &region));
	slot = ((struct tcp_region *)region)->slot;
	key = ((struct tcp_region *)region)->key;
	CHECK(region_enter(slot, key));
	CHECK_EQ(pthread_create(&thread, NULL, close_region, region), 0);
	test_sleep_ms(100);
	CHECK(!atomic_load(&closed));
	CHECK(!region_enter(slot, key)); /* nobody comes in any more */
	region_leave(slot);
	pthread_join(thread, NULL);
	rmr_device_close(device);
}

static const struct test tests[] = {
	{"region_close_waits", test_close_waits},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "tcp_region", tests, TEST_COUNT(tests));
}
