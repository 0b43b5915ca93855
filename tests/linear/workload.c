/*
 * A client process: it connects, chooses, calls, and adds up its figures. The last two keys are
 * mostly counted with, the others mostly put.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"
#include "value.h"
#include "worker.h"

#define COUNTERS 2u

uint64_t new_value(struct worker *me)
{
	return value_make_id(me->load->process, ++me->serial, &me->rng);
}

enum history_kind pick_kind(struct worker *me, uint32_t key)
{
	bool is_counter = key >= WORKLOAD_KEYS - COUNTERS;
	uint64_t dice = test_rng_below(&me->rng, 100);
	enum history_kind kind;

	if (dice < 50)
		return HISTORY_GET;
	if (dice < 90 && is_counter)
		return HISTORY_INCR;
	if (dice < 70)
		return HISTORY_PUT;
	if (dice < 75)
		return HISTORY_PUT_IF_ABSENT;
	if (dice < 90)
		kind = HISTORY_CAS;
	else if (dice < 95)
		return is_counter && dice < 93 ? HISTORY_COUNTER_CAS : HISTORY_DELETE;
	else if (dice < 98)
		kind = HISTORY_DELETE_IF_VERSION;
	else
		return is_counter ? HISTORY_PUT : HISTORY_INCR;
	/* 0 is no version. */
	return me->versions[key] ? kind : HISTORY_GET;
}

/* The next connection meets another fate: the client opens its device anew for each, and with the
 * same seed it would be lost at the same operation every time. */
static void choose_fate(struct worker *me)
{
	char plan[200];

	snprintf(plan, sizeof(plan), "seed=%" PRIu64 ",%s", test_rng_below(&me->rng, 1000000),
		 me->load->fault_plan);
	CHECK_EQ(setenv("REMORA_FAULT_PLAN", plan, 1), 0);
}

static void watch_fate(struct worker *me)
{
	kv_client_totals_t totals;

	kv_client_get_totals(me->client, &totals);
	if (totals.reconnects != me->reconnects)
		choose_fate(me);
	me->reconnects = totals.reconnects;
}

static void connect_client(struct worker *me)
{
	const struct workload *load = me->load;
	kv_client_options_t options = {.device = load->device,
				       .get_mode = load->get_mode,
				       .timeout_ms = load->fault_plan ? 1000 : 5000};
	int status = KV_OK;

	options.timeout_ms *= (int)TEST_TIME_FACTOR;
	options.connect_timeout_ms = 5000 * (int)TEST_TIME_FACTOR;
	me->client = kv_client_create_with(CONN_MODE_AUTO, &options);
	CHECK(me->client);
	/* The plan may cut the connection while it is made. */
	for (int tries = 0; tries < 10; tries++) {
		if (load->fault_plan)
			choose_fate(me);
		status = kv_client_connect(me->client, load->server, load->port);
		if (status == KV_OK || !load->fault_plan)
			break;
	}
	if (status != KV_OK)
		TEST_FAIL("cannot connect to %s: %s", load->server, kv_client_error(me->client));
}

static void add_figures(struct worker *me)
{
	struct workload_figures *figures = me->load->figures;
	kv_client_totals_t totals;

	kv_client_get_totals(me->client, &totals);
	for (int i = 0; i < KV_PATH_COUNT; i++)
		atomic_fetch_add(&figures->paths[i], totals.operations[i]);
	atomic_fetch_add(&figures->stale_locations, totals.stale_locations);
	atomic_fetch_add(&figures->torn_reads, totals.torn_reads);
	atomic_fetch_add(&figures->reconnects, totals.reconnects);
}

void workload_run(void *workload)
{
	struct worker *me = calloc(1, sizeof(*me));
	bool goes_on = true;

	CHECK(me);
	me->load = workload;
	test_rng_init(&me->rng, me->load->round * 1000 + me->load->process);
	me->out = malloc(VALUE_LONGEST);
	me->in = malloc(VALUE_LONGEST);
	CHECK(me->out && me->in);
	for (uint32_t i = 0; i < WORKLOAD_KEYS; i++)
		snprintf(me->keys[i], sizeof(me->keys[i]), "linear-%" PRIu64 "-%" PRIu32,
			 me->load->round, i);
	connect_client(me);
	while (goes_on && !clock_passed(me->load->deadline_ns)) {
		uint32_t key = (uint32_t)test_rng_below(&me->rng, WORKLOAD_KEYS);

		if (me->load->is_async)
			goes_on = call_async(me);
		else
			goes_on = call(me, pick_kind(me, key), key);
		if (me->load->fault_plan)
			watch_fate(me);
	}
	add_figures(me);
	kv_client_destroy(me->client);
	free(me->out);
	free(me->in);
	free(me);
}
