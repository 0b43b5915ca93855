/*
 * `fabric-perf run`: goes through the operations, sizes and depths that were asked for, and
 * measures one row for each.
 *
 * Whether the device can do it at all is looked at before the server is called, so that a row that
 * is impossible costs nobody time. With "--op all" such rows are left out with a remark; when they
 * were asked for by name it is an error.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "loops.h"
#include "spawn.h"

#define CASES_MAX (PERF_OP_COUNT * PERF_LIST_MAX * PERF_LIST_MAX)

struct plan {
	struct perf_case cases[CASES_MAX];
	int count;
	struct session_needs needs;
};

/* Why the device cannot do it, or NULL. */
static const char *find_obstacle(const struct perf_config *config,
				 const struct rmr_device_info *info, const struct perf_case *test)
{
	unsigned atomic = config->plain ? RMR_CAP_ATOMIC_PLAIN : RMR_CAP_ATOMIC;
	bool can_inline =
		test->op == PERF_SEND || test->op == PERF_WRITE || test->op == PERF_WRITE_IMM;

	if (test->depth > info->max_depth)
		return "the depth is more than the device's max_depth";
	if (test->op == PERF_SEND && test->size > info->max_message)
		return "the size is more than the device's max_message";
	if (test->op != PERF_SEND && test->size > info->max_transfer)
		return "the size is more than the device's max_transfer";
	if (perf_op_is_atomic(test->op) && !(info->capabilities & atomic))
		return "the device has no atomics on this kind of memory";
	if (config->use_inline && can_inline && test->size > info->max_inline)
		return "the size is more than the device's max_inline";
	return NULL;
}

static enum rmr_status plan_case(struct plan *plan, const struct perf_config *config,
				 const struct rmr_device_info *info, const struct perf_case *test)
{
	const char *obstacle = find_obstacle(config, info, test);
	size_t area = layout_of(test->size, test->depth).total;

	if (obstacle && !config->all)
		return error_set(RMR_INVALID, "%s, %llu bytes, depth %u: %s",
				 perf_op_names[test->op], (unsigned long long)test->size,
				 test->depth, obstacle);
	if (obstacle) {
		fprintf(stderr, "fabric-perf: left out: %s, %llu bytes, depth %u: %s\n",
			perf_op_names[test->op], (unsigned long long)test->size, test->depth,
			obstacle);
		return RMR_OK;
	}
	plan->cases[plan->count++] = *test;
	if (area > plan->needs.area)
		plan->needs.area = area;
	if (test->op == PERF_SEND && test->size > plan->needs.message)
		plan->needs.message = test->size;
	if (test->depth > plan->needs.depth)
		plan->needs.depth = test->depth;
	return RMR_OK;
}

static uint32_t batch_of(const struct perf_config *config, uint32_t depth)
{
	uint32_t batch = config->batch ? config->batch : depth / 2;

	if (batch > depth)
		batch = depth;
	return batch ? batch : 1;
}

static enum rmr_status make_plan(struct plan *plan, const struct perf_config *config,
				 const struct rmr_device_info *info)
{
	*plan = (struct plan){0};
	for (int op = 0; op < PERF_OP_COUNT; op++) {
		bool fixed = perf_op_is_atomic(op) || op == PERF_IDLE;
		int sizes = fixed ? 1 : config->size_count;
		int depths = op == PERF_IDLE ? 1 : config->depth_count;

		for (int i = 0; config->ops[op] && i < sizes * depths; i++) {
			uint32_t depth = op == PERF_IDLE ? 1 : config->depths[i % depths];
			struct perf_case test = {
				.op = op,
				.size = fixed ? 8 : config->sizes[i / depths],
				.depth = depth,
				.batch = batch_of(config, depth),
			};
			enum rmr_status status = plan_case(plan, config, info, &test);

			if (status != RMR_OK)
				return status;
		}
	}
	if (!plan->count)
		return error_set(RMR_INVALID, "nothing left to measure");
	return RMR_OK;
}

static uint64_t cpu_time_ns(void)
{
	struct timespec used;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	return (uint64_t)used.tv_sec * 1000000000 + (uint64_t)used.tv_nsec;
}

/* Both sides of the connection sleep in rmr_wait; how much CPU time do they use meanwhile? */
static enum rmr_status measure_idle(struct session *session, struct perf_row *row)
{
	int wait_ms = (int)(session->config->duration_ns / 1000000);
	struct perf_answer ready, done;
	struct rmr_completion completion;
	uint64_t start_ns, used_ns;
	enum rmr_status status;

	status = session_begin(session, &row->test, &ready);
	if (status != RMR_OK)
		return status;
	start_ns = clock_now_ns();
	used_ns = cpu_time_ns();
	if (rmr_wait(session->queue, &completion, 1, wait_ms))
		return completion.status != RMR_OK || completion.op == RMR_OP_DISCONNECT
			       ? session_completion_failed(&completion)
			       : error_set(RMR_PROTOCOL, "something came in from an idle server");
	row->client_cpu = (double)(cpu_time_ns() - used_ns);
	status = session_end(session, &done);
	if (status != RMR_OK)
		return status;
	row->elapsed_ns = (double)(clock_now_ns() - start_ns);
	row->client_cpu /= row->elapsed_ns;
	row->server_cpu = (double)(done.cpu_ns - ready.cpu_ns) / row->elapsed_ns;
	return RMR_OK;
}

static enum rmr_status measure_case(struct session *session, struct perf_row *row)
{
	const struct perf_case *test = &row->test;
	bool streaming = test->depth > 1;
	struct perf_answer ready, done;
	enum rmr_status status;
	uint64_t start = 0;
	struct loop loop;

	status = loop_init(&loop, session, test);
	if (status != RMR_OK)
		return status;
	status = session_begin(session, test, &ready);
	if (status == RMR_OK)
		status = streaming ? stream_measure(&loop, row, &start)
				   : latency_measure(&loop, row);
	if (status == RMR_OK)
		status = session_end(session, &done);
	if (status == RMR_OK && streaming && perf_op_is_two_sided(test->op))
		row->elapsed_ns = (double)(clock_ticks() - start) * 1000 / clock_ticks_per_us();
	if (status == RMR_OK)
		status = verify_end(&loop, &done);
	loop_fini(&loop);
	return status;
}

static enum rmr_status measure_all(struct session *session, const struct plan *plan)
{
	static struct perf_row row; /* a histogram is too large for the stack */

	for (int i = 0; i < plan->count; i++) {
		enum rmr_status status;

		memset(&row, 0, sizeof(row));
		histogram_init(&row.latency);
		row.test = plan->cases[i];
		status = row.test.op == PERF_IDLE ? measure_idle(session, &row)
						  : measure_case(session, &row);
		if (status != RMR_OK)
			return status;
		report_row(session->config, &row);
	}
	return RMR_OK;
}

enum rmr_status perf_run(const struct perf_config *config)
{
	static struct plan plan;
	struct spawned spawned = {0};
	struct session session = {0};
	enum rmr_status status = RMR_OK;
	char server[320];
	bool had_client;

	if (!config->address)
		status = spawn_server(config, &spawned);
	if (status != RMR_OK)
		return status;
	clock_ticks_per_us();
	snprintf(server, sizeof(server), "server at %s", config->address);
	if (spawned.pid)
		snprintf(server, sizeof(server), "own server, forked as process %d, at %s",
			 (int)spawned.pid, spawned.address);
	status = perf_pin(config->cpu);
	if (status == RMR_OK)
		status = session_open(&session, config);
	if (status == RMR_OK)
		status = make_plan(&plan, config, rmr_device_info(session.device));
	if (status == RMR_OK)
		status = session_connect(&session, spawned.pid ? spawned.address : config->address,
					 &plan.needs);
	if (status == RMR_OK) {
		report_begin(config, server);
		status = measure_all(&session, &plan);
	}
	had_client = session.conn != NULL;
	session_close(&session);
	spawn_reap(&spawned, had_client);
	return status;
}
