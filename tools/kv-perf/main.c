/*
 * kv-perf: how fast is a kv-server, seen from the client library?
 *
 *	kv-perf [--url URL] [TEST...]
 *
 * Forks one process a client before it does anything else, so that nothing of the library's is
 * ever inherited. Then it gives orders: one client fills the server, and in every round each test
 * is measured by all clients at once. A round's rate is the sum of the clients' own.
 *
 * The exit code says what went wrong: see enum perf_exit.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "perf.h"

struct worker {
	pid_t pid;
	int orders, answers; /* our ends of its pipes */
};

static struct worker workers[PERF_CLIENTS_MAX];
static unsigned worker_count;

/* In the child: of the pipes that were made so far only its own stay open, so that a client sees
 * the end of its orders when the parent is gone, whatever other clients there are. */
__attribute__((noreturn)) static void be_worker(const struct perf_config *config, pid_t parent,
						int orders, int answers)
{
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent) /* died before the line above */
		_exit(PERF_EXIT_FAILED);
	for (unsigned i = 0; i < worker_count; i++) {
		close(workers[i].orders);
		close(workers[i].answers);
	}
	_exit(worker_run(config, worker_count, orders, answers));
}

static enum rmr_status fork_worker(const struct perf_config *config)
{
	struct worker *worker = &workers[worker_count];
	pid_t parent = getpid();
	int down[2], up[2];

	if (pipe(down))
		return error_errno(RMR_SYSTEM, errno, "pipe");
	if (pipe(up)) {
		close(down[0]);
		close(down[1]);
		return error_errno(RMR_SYSTEM, errno, "pipe");
	}
	worker->pid = fork();
	if (worker->pid == 0) {
		close(down[1]);
		close(up[0]);
		be_worker(config, parent, down[0], up[1]);
	}
	close(down[0]);
	close(up[1]);
	worker->orders = down[1];
	worker->answers = up[0];
	worker_count++;
	return worker->pid < 0 ? error_errno(RMR_SYSTEM, errno, "fork") : RMR_OK;
}

/* What a worker has to say: it is added to the row, if there is one. */
static enum rmr_status take_answer(const struct worker *worker, struct row *row)
{
	static struct answer answer;
	static char transport[TRANSPORT_MAX];

	if (!pipe_read(worker->answers, &answer, sizeof(answer)))
		return error_set(RMR_SYSTEM, "a client ended without a word");
	if (answer.status != RMR_OK)
		return error_set(answer.status, "%s", answer.message);
	if (!row)
		return RMR_OK;
	memcpy(transport, answer.transport, sizeof(transport));
	row->transport = transport;
	if (answer.time_ns)
		row->samples[row->sample_count] +=
			(double)answer.operations * 1e9 / (double)answer.time_ns;
	if (answer.latency.count)
		histogram_merge(&row->latency, &answer.latency);
	for (int path = 0; path < KV_PATH_COUNT; path++)
		row->totals.operations[path] += answer.totals.operations[path];
	row->totals.round_trips += answer.totals.round_trips;
	row->totals.stale_locations += answer.totals.stale_locations;
	row->totals.torn_reads += answer.totals.torn_reads;
	row->totals.reconnects += answer.totals.reconnects;
	return RMR_OK;
}

/* Gives the first `count` clients an order, and waits for all of their answers. */
static enum rmr_status give_order(const struct order *order, unsigned count, struct row *row)
{
	enum rmr_status status = RMR_OK;

	for (unsigned i = 0; i < count; i++)
		if (!pipe_write(workers[i].orders, order, sizeof(*order)))
			return error_set(RMR_SYSTEM, "client %u is gone", i);
	for (unsigned i = 0; status == RMR_OK && i < count; i++)
		status = take_answer(&workers[i], row);
	if (row)
		row->sample_count++;
	return status;
}

static enum rmr_status start(const struct perf_config *config)
{
	enum rmr_status status = RMR_OK;
	struct order order = {.kind = ORDER_FILL};

	for (unsigned i = 0; status == RMR_OK && i < config->clients; i++)
		status = fork_worker(config);
	/* The first answer tells that it is connected. */
	for (unsigned i = 0; status == RMR_OK && i < config->clients; i++)
		status = take_answer(&workers[i], NULL);
	if (status == RMR_OK && config->fill)
		status = give_order(&order, 1, NULL);
	order.kind = ORDER_WARM;
	if (status == RMR_OK && config->cached)
		status = give_order(&order, config->clients, NULL);
	return status;
}

/* Who measures what the idle clients cost wants to know when they are all there. */
static enum rmr_status be_idle(const struct perf_config *config, struct row *row)
{
	struct order order = {ORDER_MEASURE, TEST_IDLE, 0};
	enum rmr_status status = give_order(&order, config->clients, row);

	if (status != RMR_OK)
		return status;
	row_print(config, row);
	order.duration_ns = config->duration_ns;
	return give_order(&order, config->clients, NULL);
}

static enum rmr_status measure_all(const struct perf_config *config, struct row *rows)
{
	enum rmr_status status = RMR_OK;

	for (int round = 0; status == RMR_OK && round < config->rounds; round++) {
		for (int at = 0; status == RMR_OK && at < TEST_IDLE; at++) {
			int test = round % 2 ? TEST_IDLE - 1 - at : at;
			struct order order = {ORDER_MEASURE, (enum test)test, config->duration_ns};

			if (config->tests[test])
				status = give_order(&order, config->clients, &rows[test]);
		}
	}
	for (int test = 0; status == RMR_OK && test < TEST_IDLE; test++)
		if (config->tests[test])
			row_print(config, &rows[test]);
	if (status == RMR_OK && config->tests[TEST_IDLE])
		status = be_idle(config, &rows[TEST_IDLE]);
	return status;
}

/* Closing its orders ends a client. */
static void end_workers(void)
{
	for (unsigned i = 0; i < worker_count; i++) {
		close(workers[i].orders);
		close(workers[i].answers);
	}
	for (unsigned i = 0; i < worker_count; i++)
		if (workers[i].pid > 0)
			waitpid(workers[i].pid, NULL, 0);
}

int main(int argc, char **argv)
{
	static struct row rows[TEST_COUNT];
	struct perf_config config;
	enum rmr_status status;

	perf_parse(argc, argv, &config);
	signal(SIGPIPE, SIG_IGN);
	clock_ticks_per_us(); /* once, for all clients */
	for (int test = 0; test < TEST_COUNT; test++) {
		rows[test].test = (enum test)test;
		rows[test].transport = "";
		histogram_init(&rows[test].latency);
	}
	status = start(&config);
	if (status == RMR_OK)
		status = measure_all(&config, rows);
	if (status != RMR_OK)
		fprintf(stderr, "kv-perf: %s\n", rmr_error_message());
	end_workers();
	if (status == RMR_OK)
		return PERF_EXIT_OK;
	return status == RMR_INVALID ? PERF_EXIT_USAGE : PERF_EXIT_FAILED;
}
