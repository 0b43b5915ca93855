/*
 * One client: a process forked by main.c that connects and takes orders.
 *
 * A measurement begins with a fifth of its time unmeasured. The process ends when its pipe of
 * orders does, so none is left behind when the parent dies.
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "perf.h"

#define WARM_PASSES 2
#define EAGER_VALUE 4096u /* longer ones gain nothing from a window */

bool pipe_read(int fd, void *to, size_t length)
{
	for (size_t have = 0; have < length;) {
		ssize_t got = read(fd, (char *)to + have, length - have);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return false;
		have += (size_t)got;
	}
	return true;
}

bool pipe_write(int fd, const void *from, size_t length)
{
	for (size_t done = 0; done < length;) {
		ssize_t put = write(fd, (const char *)from + done, length - done);

		if (put < 0 && errno == EINTR)
			continue;
		if (put <= 0)
			return false;
		done += (size_t)put;
	}
	return true;
}

static enum rmr_status pin(const struct perf_config *config, unsigned index)
{
	cpu_set_t set;
	int cpu;

	if (!config->cpu_count)
		return RMR_OK;
	cpu = config->cpus[index % (unsigned)config->cpu_count];
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		return error_errno(RMR_INVALID, errno, "pin to core %d", cpu);
	return RMR_OK;
}

static enum rmr_status bench_open(struct bench *bench, const struct perf_config *config,
				  unsigned index)
{
	enum rmr_status status = pin(config, index);
	int got;

	if (status != RMR_OK)
		return status;
	bench->config = config;
	bench->dice.state = (uint64_t)getpid() << 20;
	bench->block.key_size = config->key_size;
	bench->room_count = slice_count(config, TEST_ASYNC_GET);
	bench->value = malloc(config->value_size);
	bench->room = malloc(bench->room_count * config->value_size);
	bench->client = kv_client_create_with(CONN_MODE_AUTO, &config->options);
	if (!bench->value || !bench->room || !bench->client)
		return error_set(RMR_NO_MEMORY, "values of %zu bytes", config->value_size);
	value_prepare(bench->value, config->value_size);
	for (size_t i = 0; i < bench->room_count; i++)
		value_prepare(bench_room(bench, i), config->value_size);
	got = kv_client_connect(bench->client, config->url, config->port);
	if (got != KV_OK)
		return error_set(RMR_REFUSED, "connect: %s: %s", kv_strerror(got),
				 kv_client_error(bench->client));
	return RMR_OK;
}

static void bench_close(struct bench *bench)
{
	kv_client_destroy(bench->client);
	free(bench->room);
	free(bench->value);
}

/* All keys in their order, by the block. */
static enum rmr_status over_all_keys(struct bench *bench, enum test test)
{
	enum rmr_status status = RMR_OK;
	uint64_t keys = bench->config->keys;

	for (uint64_t first = 0; status == RMR_OK && first < keys; first += BLOCK_KEYS) {
		size_t count = keys - first < BLOCK_KEYS ? (size_t)(keys - first) : BLOCK_KEYS;
		size_t step = slice_count(bench->config, test);

		block_in_order(&bench->block, first, count);
		for (size_t at = 0; status == RMR_OK && at < count; at += step)
			status = slice_of(test)(bench, at, count - at < step ? count - at : step);
	}
	return status;
}

/* Places become known by getting: once for the place, once more for those that were pushed out. */
static enum rmr_status warm(struct bench *bench)
{
	enum rmr_status status = RMR_OK;

	for (int pass = 0; status == RMR_OK && pass < WARM_PASSES; pass++)
		status = over_all_keys(bench, TEST_GET);
	return status;
}

static void subtract_totals(kv_client_totals_t *now, const kv_client_totals_t *before)
{
	for (int path = 0; path < KV_PATH_COUNT; path++)
		now->operations[path] -= before->operations[path];
	now->round_trips -= before->round_trips;
	now->stale_locations -= before->stale_locations;
	now->torn_reads -= before->torn_reads;
	now->reconnects -= before->reconnects;
}

static enum rmr_status measure(struct bench *bench, const struct order *order,
			       struct answer *answer)
{
	kv_client_totals_t before;
	enum rmr_status status;

	if (order->test == TEST_IDLE) {
		struct timespec pause = {(time_t)(order->duration_ns / 1000000000),
					 (long)(order->duration_ns % 1000000000)};

		nanosleep(&pause, NULL);
		return RMR_OK;
	}
	status = loop_run(bench, order->test, order->duration_ns / 5, answer);
	if (status != RMR_OK)
		return status;
	kv_client_get_totals(bench->client, &before);
	status = loop_run(bench, order->test, order->duration_ns, answer);
	kv_client_get_totals(bench->client, &answer->totals);
	subtract_totals(&answer->totals, &before);
	answer->latency = bench->latency;
	return status;
}

static enum rmr_status carry_out(struct bench *bench, const struct order *order,
				 struct answer *answer)
{
	switch (order->kind) {
	case ORDER_FILL:
		return error_context(over_all_keys(bench, bench->config->value_size > EAGER_VALUE
								  ? TEST_PUT
								  : TEST_ASYNC_PUT),
				     "fill");
	case ORDER_WARM:
		return error_context(warm(bench), "warm up");
	case ORDER_MEASURE:
		return error_context(measure(bench, order, answer), "%s", test_names[order->test]);
	default:
		return error_set(RMR_INVALID, "an order of kind %d", (int)order->kind);
	}
}

int worker_run(const struct perf_config *config, unsigned index, int orders, int answers)
{
	static struct bench bench;
	static struct answer answer;
	enum rmr_status status = bench_open(&bench, config, index);
	struct order order = {0};

	do {
		if (bench.client)
			snprintf(answer.transport, sizeof(answer.transport), "%s",
				 kv_client_transport(bench.client));
		answer.status = status;
		if (status != RMR_OK)
			snprintf(answer.message, sizeof(answer.message), "%s", error_chain());
		if (!pipe_write(answers, &answer, sizeof(answer)) || status != RMR_OK)
			break;
		if (!pipe_read(orders, &order, sizeof(order)) || order.kind == ORDER_END)
			break;
		memset(&answer, 0, sizeof(answer));
		status = carry_out(&bench, &order, &answer);
	} while (true);
	bench_close(&bench);
	return status == RMR_OK ? PERF_EXIT_OK : PERF_EXIT_FAILED;
}
