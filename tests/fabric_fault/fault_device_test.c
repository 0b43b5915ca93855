/*
 * The fault device over FAULT_INNER: that each fault of a plan happens, and nothing else does.
 * Ordering, tearing and lost connections have files of their own; here are the table, and what
 * concerns opening devices, regions and connections.
 */
#include <stdlib.h>
#include <string.h>

#include "pair.h"
#include "tests.h"

static enum rmr_status open_with(const char *plan, struct rmr_device **device)
{
	return rmr_device_open(DEVICE_NAME, &(struct rmr_device_options){.fault_plan = plan},
			       device);
}

static void test_info_is_the_inner_one(void)
{
	struct rmr_device *outer, *inner;
	struct rmr_device_info expected;

	CHECK_OK(open_with("seed=1", &outer));
	CHECK_OK(rmr_device_open(FAULT_INNER, NULL, &inner));
	expected = *rmr_device_info(inner);
	memset(expected.name, 0, sizeof(expected.name));
	memset(expected.provider, 0, sizeof(expected.provider));
	strcpy(expected.name, DEVICE_NAME);
	strcpy(expected.provider, "fault");
	CHECK_MEM(rmr_device_info(outer), &expected, sizeof(expected));
	rmr_device_close(inner);
	rmr_device_close(outer);
}

static void test_is_not_listed(void)
{
	struct rmr_device_entry entries[32];
	size_t count = rmr_device_list(entries, 32);

	for (size_t i = 0; i < count && i < 32; i++)
		CHECK(strncmp(entries[i].name, "fault", 5) != 0);
}

static void test_bad_names_and_plans(void)
{
	struct rmr_device *device;

	CHECK_STATUS(rmr_device_open("fault", NULL, &device), RMR_NO_DEVICE);
	CHECK_CONTAINS(rmr_error_message(), "fault:shm");
	CHECK_STATUS(rmr_device_open("fault:nothing", NULL, &device), RMR_NO_DEVICE);
	CHECK_STATUS(open_with("sed=1", &device), RMR_INVALID);
	CHECK_CONTAINS(rmr_error_message(), "no key 'sed'");
}

static void test_plan_from_environment(void)
{
	struct rmr_device *device;

	CHECK_EQ(setenv("REMORA_FAULT_PLAN", "nonsense", 1), 0);
	CHECK_STATUS(rmr_device_open(DEVICE_NAME, NULL, &device), RMR_INVALID);
	CHECK_CONTAINS(rmr_error_message(), "nonsense");
	/* What the program says counts more. */
	CHECK_OK(open_with("seed=1", &device));
	rmr_device_close(device);
	CHECK_EQ(setenv("REMORA_FAULT_PLAN", "", 1), 0);
	CHECK_OK(rmr_device_open(DEVICE_NAME, NULL, &device));
	rmr_device_close(device);
}

static void test_refused_region(void)
{
	struct rmr_region *regions[4];
	struct rmr_device *device;
	static uint8_t memory[4096];

	CHECK_OK(open_with("refuse_region=2", &device));
	CHECK_OK(rmr_region_open(device, memory, sizeof(memory), 0, &regions[0]));
	CHECK_STATUS(rmr_region_open(device, memory, sizeof(memory), 0, &regions[1]),
		     RMR_NO_MEMORY);
	CHECK_CONTAINS(rmr_error_message(), "fault plan");
	CHECK_OK(rmr_region_open(device, memory, sizeof(memory), 0, &regions[2]));
	rmr_region_close(regions[0]);
	rmr_region_close(regions[2]);
	rmr_device_close(device);

	CHECK_OK(open_with("refuse_region_percent=100", &device));
	for (int i = 0; i < 10; i++)
		CHECK_STATUS(rmr_region_open(device, memory, sizeof(memory), 0, &regions[0]),
			     RMR_NO_MEMORY);
	rmr_device_close(device);
}

static void serve_until_lost(struct end *end)
{
	end_expect(end, 0, RMR_OP_DISCONNECT, RMR_DISCONNECTED);
}

static void test_refused_connect(void)
{
	struct peer peer;
	struct end end = {.pipe = &peer.pipe, .side = TEST_PARENT};
	char address[128];

	peer_start(&peer, "seed=1", 1, serve_until_lost);
	end_open(&end, "refuse_connect=1");
	test_recv(end.pipe, end.side, address, sizeof(address));
	CHECK_STATUS(rmr_connect(end.queue, address, PATIENCE_MS, NULL, &end.conns[0]),
		     RMR_REFUSED);
	CHECK_CONTAINS(rmr_error_message(), "fault plan");
	CHECK_OK(rmr_connect(end.queue, address, PATIENCE_MS, NULL, &end.conns[0]));
	end.count = 1;
	end_exchange(&end);
	end_close(&end);
	peer_join(&peer);
}

/* Posts in batches; short counts must occur although there is room, and nothing may be lost. */
static void test_stalled_posts(void)
{
	enum { ROUNDS = 500, BATCH = 8 };
	struct rmr_work works[BATCH];
	struct peer peer;
	struct end end;
	int shorts = 0;

	peer_start(&peer, "seed=1", 1, serve_until_lost);
	end_connect(&end, &peer, "seed=5,stall_percent=50,stall_us=100");
	for (uint64_t round = 0; round < ROUNDS; round++) {
		int done = 0;

		for (int i = 0; i < BATCH; i++) {
			works[i] = end_work(&end, RMR_OP_FETCH_ADD, 0, 8, 64);
			works[i].operand = 1;
			works[i].flags = i + 1 < BATCH ? RMR_UNSIGNALED | RMR_MORE : 0;
		}
		while (done < BATCH) {
			int taken = rmr_post(end.conns[0], works + done, BATCH - done);

			/* No signaled one is in flight that the caller could wait for. */
			CHECK(taken > 0);
			done += taken;
			shorts += done < BATCH;
		}
		end_expect(&end, 0, RMR_OP_FETCH_ADD, RMR_OK);
	}
	CHECK(shorts > ROUNDS / 4);
	works[0] = end_work(&end, RMR_OP_READ, 0, 8, 64);
	end_do(&end, works);
	CHECK_EQ(*(uint64_t *)end.memory, (uint64_t)ROUNDS * BATCH);
	end_close(&end);
	peer_join(&peer);
}

static const struct test tests[] = {
	{"info_is_the_inner_one", test_info_is_the_inner_one},
	{"is_not_listed", test_is_not_listed},
	{"bad_names_and_plans", test_bad_names_and_plans},
	{"plan_from_environment", test_plan_from_environment},
	{"refused_region", test_refused_region},
	{"refused_connect", test_refused_connect},
	{"stalled_posts", test_stalled_posts},
	{"delays_are_honoured", test_delays_are_honoured},
	{"waiting_sleeps", test_waiting_sleeps},
	{"event_loop_is_woken", test_event_loop_is_woken},
	{"order_within_a_connection", test_order_within_a_connection},
	{"sends_and_receives", test_sends_and_receives},
	{"reorder_between_connections", test_reorder_between_connections},
	{"immediates_are_bounded", test_immediates_are_bounded},
	{"torn_reads_are_seen", test_torn_reads_are_seen},
	{"torn_read_of_still_memory", test_torn_read_of_still_memory},
	{"torn_read_before_write", test_torn_read_before_write},
	{"bad_read_is_not_torn", test_bad_read_is_not_torn},
	{"drop_at_write", test_drop_at_write},
	{"drop_at_send", test_drop_at_send},
	{"drop_keeps_what_arrived", test_drop_keeps_what_arrived},
	{"drop_keeps_mappings", test_drop_keeps_mappings},
	{"drop_while_posting", test_drop_while_posting},
	{"drop_limit", test_drop_limit},
	{"same_seed_same_losses", test_same_seed_same_losses},
	{"peer_killed", test_peer_killed},
	{"close_with_works_held_back", test_close_with_works_held_back},
	{"region_closed_under_a_waiting_work", test_region_closed_under_a_waiting_work},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "fault_over_" FAULT_INNER, tests, TEST_COUNT(tests));
}
