/* Regions: closing one waits for the threads inside; keys of connections are derived. */
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

/* The reference vector of SipHash-2-4: key 00..0f, message 00..07. */
static void test_derived_key(void)
{
	struct key_secret secret = {{0x0706050403020100, 0x0f0e0d0c0b0a0908}};

	CHECK(key_derive(&secret, 0x0706050403020100) == 0x93f5f5799a932462);
	secret.word[1] ^= 1;
	CHECK(key_derive(&secret, 0x0706050403020100) != 0x93f5f5799a932462);
}

/* A connection that was granted nothing gets in with no key. */
static void test_enter_needs_a_secret(void)
{
	struct key_secret none = {{0, 0}}, own = {{1, 2}}, others = {{1, 3}};
	struct rmr_device *device;
	struct rmr_region *region;
	struct region_slot *slot;
	uint64_t key, found;
	char memory[64];

	CHECK_OK(rmr_device_open("tcp", NULL, &device));
	CHECK_OK(rmr_region_open(device, memory, sizeof(memory), RMR_WRITE, &region));
	slot = ((struct tcp_region *)region)->slot;
	key = ((struct tcp_region *)region)->key;
	CHECK(!region_enter_granted(slot, &none, key, &found));
	CHECK(!region_enter_granted(slot, &none, key_derive(&none, key), &found));
	CHECK(!region_enter_granted(slot, &own, key, &found));
	CHECK(!region_enter_granted(slot, &own, key_derive(&others, key), &found));
	CHECK(region_enter_granted(slot, &own, key_derive(&own, key), &found));
	CHECK(found == key);
	region_leave(slot);
	rmr_region_close(region);
	CHECK(!region_enter_granted(slot, &own, key_derive(&own, key), &found));
	rmr_device_close(device);
}

static const struct test tests[] = {
	{"region_close_waits", test_close_waits},
	{"region_derived_key", test_derived_key},
	{"region_enter_needs_a_secret", test_enter_needs_a_secret},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "tcp_region", tests, TEST_COUNT(tests));
}
