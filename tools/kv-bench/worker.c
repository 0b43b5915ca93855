/*
 * One client: a process forked by crew.c whose threads connect and take orders.
 *
 * Threads are made for each order and end with it; a connection is handed from one to the next. A
 * tight loop begins with a fifth of its time unmeasured. The process ends when its pipe of orders
 * does, so none is left behind when the parent dies.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "store.h"

#define WARM_PASSES 2
#define EAGER_VALUE 4096u /* longer ones gain nothing from a window */

struct worker_thread {
	struct bench bench;
	const struct order *order;
	pthread_t thread;
	enum rmr_status status;
	char message[sizeof(((struct answer *)0)->message)];
};

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

static enum rmr_status pin(const struct config *config, unsigned index)
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

/* As many values as any of the measurements has under way, of the largest size. */
static size_t rooms_of(const struct config *config)
{
	size_t most = 1;

	if (config->has_loops)
		return slice_count(config, LOOP_ASYNC_GET, config_largest_value(config));
	for (int i = 0; i < config->pass_count; i++)
		if (config->passes[i].window > most)
			most = config->passes[i].window;
	return most;
}

static void take_size(struct bench *bench, size_t value_size)
{
	bench->value_size = value_size;
	value_prepare(bench->value, value_size);
	for (size_t i = 0; i < bench->room_count; i++)
		value_prepare(bench_room(bench, i), value_size);
	for (int i = 0; i < bench->config->contestant_count; i++)
		bench->stores[i]->value_size = value_size;
}

static enum rmr_status bench_connect(struct bench *bench, int i)
{
	const struct config *config = bench->config;
	const struct contestant *contestant = &config->contestants[i];
	const struct store_ops *ops = store_ops_of(contestant->kind);
	char error[STORE_ERROR_MAX];

	bench->stores[i] = ops->open(config, contestant, error);
	if (!bench->stores[i])
		return error_set(RMR_REFUSED, "%s", error);
	bench->stores[i]->ops = ops;
	bench->stores[i]->key_size = config->key_size;
	snprintf(bench->slot->transport[i], TRANSPORT_MAX, "%s", ops->transport(bench->stores[i]));
	return RMR_OK;
}

static enum rmr_status bench_open(struct bench *bench, const struct config *config,
				  struct shared *shared, unsigned index)
{
	enum rmr_status status = pin(config, index);
	size_t size = config_largest_value(config);

	bench->config = config;
	bench->shared = shared;
	bench->slot = &shared->slots[index];
	bench->index = index;
	bench->dice.state = (uint64_t)getpid() << 20 ^ (uint64_t)index << 44;
	bench->block.key_size = config->key_size;
	bench->block.prefix = config->prefix;
	bench->room_count = rooms_of(config);
	bench->value = malloc(size);
	bench->room = malloc(bench->room_count * size);
	if (!bench->value || !bench->room)
		return error_set(RMR_NO_MEMORY, "values of %zu bytes", size);
	for (int i = 0; status == RMR_OK && i < config->contestant_count; i++)
		status = bench_connect(bench, i);
	if (status != RMR_OK)
		return status;
	bench->client = bench->stores[0]->ops->client(bench->stores[0]);
	take_size(bench, config->value_sizes[0]);
	return RMR_OK;
}

static void bench_close(struct bench *bench)
{
	for (int i = 0; i < STORE_COUNT; i++)
		if (bench->stores[i])
			bench->stores[i]->ops->close(bench->stores[i]);
	free(bench->room);
	free(bench->value);
}

/* All keys in their order, by the block. */
static enum rmr_status over_all_keys(struct bench *bench, enum loop loop)
{
	enum rmr_status status = RMR_OK;
	uint64_t keys = bench->config->keys;

	for (uint64_t first = 0; status == RMR_OK && first < keys; first += BLOCK_KEYS) {
		size_t count = keys - first < BLOCK_KEYS ? (size_t)(keys - first) : BLOCK_KEYS;
		size_t step = slice_count(bench->config, loop, bench->value_size);

		block_in_order(&bench->block, first, count);
		for (size_t at = 0; status == RMR_OK && at < count; at += step)
			status = slice_of(loop)(bench, at, count - at < step ? count - at : step);
		atomic_store_explicit(&bench->slot->done, first + count, memory_order_relaxed);
	}
	return status;
}

/* Places become known by getting: once for the place, once more for those that were pushed out. */
static enum rmr_status warm(struct bench *bench)
{
	enum rmr_status status = RMR_OK;

	for (int pass = 0; status == RMR_OK && pass < WARM_PASSES; pass++)
		status = over_all_keys(bench, LOOP_GET);
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

static enum rmr_status measure(struct bench *bench, const struct order *order)
{
	struct slot *slot = bench->slot;
	kv_client_totals_t before;
	enum rmr_status status;

	slot->operations = slot->time_ns = 0;
	if (order->loop == LOOP_IDLE) {
		struct timespec pause = {(time_t)(order->duration_ns / 1000000000),
					 (long)(order->duration_ns % 1000000000)};

		nanosleep(&pause, NULL);
		return RMR_OK;
	}
	status = loop_measure(bench, order->loop, order->duration_ns / 5);
	if (status != RMR_OK)
		return status;
	kv_client_get_totals(bench->client, &before);
	status = loop_measure(bench, order->loop, order->duration_ns);
	kv_client_get_totals(bench->client, &slot->totals);
	subtract_totals(&slot->totals, &before);
	return status;
}

static enum rmr_status carry_out(struct bench *bench, const struct order *order)
{
	bool is_first = bench->index == 0;

	switch (order->kind) {
	case ORDER_SIZE:
		take_size(bench, order->value_size);
		return RMR_OK;
	case ORDER_FILL:
		if (!is_first)
			return RMR_OK;
		return error_context(over_all_keys(bench, bench->value_size > EAGER_VALUE
								  ? LOOP_PUT
								  : LOOP_ASYNC_PUT),
				     "fill");
	case ORDER_WARM:
		return error_context(warm(bench), "warm up");
	case ORDER_LOOP:
		return error_context(measure(bench, order), "%s", loop_names[order->loop]);
	case ORDER_PASS:
		if (order->pass.alone && !is_first)
			return RMR_OK;
		return error_context(
			drive_run(bench, bench->stores[order->contestant], order), "%s: %s",
			store_names[bench->config->contestants[order->contestant].kind],
			order->pass.name);
	default:
		return error_set(RMR_INVALID, "an order of kind %d", (int)order->kind);
	}
}

/* A thread for an order. */
static void *run_order(void *argument)
{
	struct worker_thread *thread = argument;

	atomic_store_explicit(&thread->bench.slot->done, 0, memory_order_relaxed);
	thread->status = pin(thread->bench.config, thread->bench.index);
	if (thread->status == RMR_OK)
		thread->status = carry_out(&thread->bench, thread->order);
	if (thread->status != RMR_OK)
		snprintf(thread->message, sizeof(thread->message), "%s", error_chain());
	return NULL;
}

/* By all threads at once; a single one needs no other than this. */
static void run_threads(struct worker_thread *threads, unsigned count, const struct order *order,
			struct answer *answer)
{
	unsigned made = 0;

	for (unsigned i = 0; i < count; i++)
		threads[i].order = order;
	if (count == 1)
		run_order(&threads[0]);
	while (count > 1 && made < count) {
		if (pthread_create(&threads[made].thread, NULL, run_order, &threads[made])) {
			answer->status = RMR_SYSTEM;
			snprintf(answer->message, sizeof(answer->message),
				 "no more threads than %u", made);
			break;
		}
		made++;
	}
	for (unsigned i = 0; i < made; i++)
		pthread_join(threads[i].thread, NULL);
	for (unsigned i = 0; answer->status == RMR_OK && i < count; i++) {
		answer->status = threads[i].status;
		memcpy(answer->message, threads[i].message, sizeof(answer->message));
	}
}

int crew_work(const struct config *config, struct shared *shared, unsigned index, int orders,
	      int answers)
{
	struct worker_thread *threads = calloc(config->threads, sizeof(*threads));
	struct answer answer = {.status = threads ? RMR_OK : RMR_NO_MEMORY};
	static struct order order;

	signal(SIGINT, SIG_IGN); /* the parent's to take */
	for (unsigned i = 0; answer.status == RMR_OK && i < config->threads; i++) {
		answer.status =
			bench_open(&threads[i].bench, config, shared, index * config->threads + i);
		if (answer.status != RMR_OK)
			snprintf(answer.message, sizeof(answer.message), "%s", error_chain());
	}
	do {
		if (!pipe_write(answers, &answer, sizeof(answer)) || answer.status != RMR_OK)
			break;
		if (!pipe_read(orders, &order, sizeof(order)) || order.kind == ORDER_END)
			break;
		memset(&answer, 0, sizeof(answer));
		run_threads(threads, config->threads, &order, &answer);
	} while (true);
	for (unsigned i = 0; threads && i < config->threads; i++)
		bench_close(&threads[i].bench);
	free(threads);
	return answer.status == RMR_OK ? BENCH_EXIT_OK : BENCH_EXIT_FAILED;
}
