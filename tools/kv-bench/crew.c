/*
 * The clients: forks one process each before it does anything else, so that nothing of the
 * library's is ever inherited, and gives them orders.
 *
 * While an order is carried out the parent looks ten times a second at what the threads have
 * counted, and draws the line of progress. SIGINT and SIGTERM end the wait; the clients, which
 * ignore SIGINT, are then ended from here, and what was started is cleaned up.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "bench.h"
#include "common/progress.h"

#define FRAME_MS      100
#define HEAD_START_NS 2000000 /* for all threads to be there when a pass starts */

struct worker {
	pid_t pid;
	int orders, answers; /* our ends of its pipes */
};

static struct worker workers[BENCH_CLIENTS_MAX];
static unsigned worker_count;
static struct shared *shared;
static volatile sig_atomic_t interrupted;

static void note_signal(int number)
{
	(void)number;
	interrupted++;
}

int crew_signals(void)
{
	return interrupted;
}

bool crew_is_interrupted(void)
{
	return interrupted != 0;
}

struct shared *crew_shared(void)
{
	return shared;
}

/* In the child: of the pipes that were made so far only its own stay open, so that a client sees
 * the end of its orders when the parent is gone, whatever other clients there are. */
__attribute__((noreturn)) static void be_worker(const struct config *config, pid_t parent,
						int orders, int answers)
{
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	signal(SIGTERM, SIG_DFL);
	if (getppid() != parent) /* died before the lines above */
		_exit(BENCH_EXIT_FAILED);
	for (unsigned i = 0; i < worker_count; i++) {
		close(workers[i].orders);
		close(workers[i].answers);
	}
	_exit(crew_work(config, shared, worker_count, orders, answers));
}

static enum rmr_status fork_worker(const struct config *config)
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
	fflush(NULL);
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

static enum rmr_status take_answer(const struct worker *worker)
{
	struct answer answer;

	if (!pipe_read(worker->answers, &answer, sizeof(answer)))
		return error_set(RMR_SYSTEM, "a client ended without a word");
	if (answer.status != RMR_OK)
		return error_set(answer.status, "%s", answer.message);
	return RMR_OK;
}

static uint64_t count_done(void)
{
	uint64_t done = 0;

	for (unsigned i = 0; i < shared->slot_count; i++)
		done += atomic_load_explicit(&shared->slots[i].done, memory_order_relaxed);
	return done;
}

/* Until the worker has answered, or ended. */
static enum rmr_status await_answer(const struct worker *worker, struct progress *progress)
{
	struct pollfd wait = {.fd = worker->answers, .events = POLLIN};

	while (poll(&wait, 1, FRAME_MS) <= 0) {
		if (interrupted)
			return error_set(RMR_SYSTEM, "interrupted");
		if (progress)
			progress_show(progress, progress->unit == PROGRESS_SECONDS
							? clock_now_ns() - progress->start_ns
							: count_done());
	}
	return take_answer(worker);
}

/* What the line counts: operations if their number is known, else time. */
static void begin_progress(struct progress *progress, const struct order *order, const char *title)
{
	if (order->kind == ORDER_PASS && !order->pass.operations)
		progress_begin(progress, title, order->pass.warm_up_ns + order->pass.duration_ns,
			       PROGRESS_SECONDS);
	else if (order->kind == ORDER_LOOP)
		progress_begin(progress, title, order->duration_ns * 6 / 5, PROGRESS_SECONDS);
	else
		progress_begin(progress, title, order->pass.operations, PROGRESS_COUNT);
}

enum rmr_status crew_order(const struct order *order, unsigned count, const char *title)
{
	enum rmr_status status = RMR_OK;
	struct order sent = *order;
	struct progress progress;

	if (interrupted)
		return error_set(RMR_SYSTEM, "interrupted");
	sent.start_ns = clock_now_ns() + HEAD_START_NS;
	for (unsigned i = 0; i < shared->slot_count; i++)
		atomic_store_explicit(&shared->slots[i].done, 0, memory_order_relaxed);
	for (unsigned i = 0; i < count; i++)
		if (!pipe_write(workers[i].orders, &sent, sizeof(sent)))
			return error_set(RMR_SYSTEM, "client %u is gone", i);
	begin_progress(&progress, &sent, title ? title : "");
	for (unsigned i = 0; status == RMR_OK && i < count; i++)
		status = await_answer(&workers[i], title ? &progress : NULL);
	progress_end(&progress);
	return status;
}

static enum rmr_status share_memory(const struct config *config)
{
	unsigned slots = config_slots(config);
	size_t size = sizeof(*shared) + slots * sizeof(shared->slots[0]);

	shared = mmap(NULL, size, PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (shared == MAP_FAILED) {
		shared = NULL;
		return error_errno(RMR_NO_MEMORY, errno, "memory for %u threads", slots);
	}
	shared->slot_count = slots;
	atomic_store(&shared->next, config->keys);
	atomic_store(&shared->visible, config->keys);
	for (unsigned i = 0; i < slots; i++)
		atomic_store(&shared->slots[i].inserting, UINT64_MAX);
	return RMR_OK;
}

void crew_take_signals(void)
{
	struct sigaction action = {.sa_handler = note_signal};

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	signal(SIGPIPE, SIG_IGN);
}

enum rmr_status crew_start(const struct config *config)
{
	enum rmr_status status = share_memory(config);

	for (unsigned i = 0; status == RMR_OK && i < config->clients; i++)
		status = fork_worker(config);
	/* The first answer tells that it is connected. */
	for (unsigned i = 0; status == RMR_OK && i < config->clients; i++)
		status = await_answer(&workers[i], NULL);
	return status;
}

/* Closing its orders ends a client; one that is in the middle of something is told so. */
void crew_end(bool at_once)
{
	for (unsigned i = 0; i < worker_count; i++) {
		close(workers[i].orders);
		close(workers[i].answers);
		if (at_once && workers[i].pid > 0)
			kill(workers[i].pid, SIGTERM);
	}
	for (unsigned i = 0; i < worker_count; i++)
		if (workers[i].pid > 0)
			waitpid(workers[i].pid, NULL, 0);
	worker_count = 0;
}
