/*
 * The server's life: create takes memory and devices, start listeners and threads, stop gives the
 * latter back and destroy the former. All of it runs in the program's threads, one call at a time.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "server/internal.h"
#include "store/layout.h"

static _Thread_local char last_error[ERROR_CHAIN_SIZE];

const char *kv_server_error(void)
{
	return last_error;
}

int server_fail(int status, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(last_error, sizeof(last_error), format, arguments);
	va_end(arguments);
	return status;
}

int server_fail_rmr(enum rmr_status status)
{
	int failed = KV_INTERNAL;

	if (status == RMR_NO_MEMORY || status == RMR_LIMIT)
		failed = KV_NO_MEMORY;
	else if (status == RMR_DENIED)
		failed = KV_DENIED;
	else if (status == RMR_INVALID || status == RMR_BAD_ADDRESS)
		failed = KV_INVALID;
	else if (status == RMR_ADDRESS_IN_USE)
		failed = KV_BUSY;
	else if (status == RMR_NO_DEVICE || status == RMR_UNSUPPORTED)
		failed = KV_UNSUPPORTED;
	return server_fail(failed, "%s", error_chain());
}

/* ------------------------------------------------------------------------------------------
 * Create and destroy
 */

/* Whether some client can be given the cells. */
static bool cells_are_shared(const struct kv_server *server)
{
	for (unsigned i = 0; i < server->path_count; i++) {
		const struct server_path *path = &server->paths[i];

		if (path->device && listen_path_counts(server, path))
			return true;
	}
	return false;
}

/* store_options.cell_swap, where an adapter has to do it. Any worker. */
static bool swap_cell(void *argument, uint64_t cell, int64_t expected, int64_t desired,
		      int64_t *found)
{
	struct kv_server *server = argument;
	_Atomic int64_t *cells = rmr_arena_base(server->cells_arena);
	enum rmr_status status = RMR_NO_DEVICE;
	uint64_t before;

	if (server->counting->cells)
		status = rmr_region_compare_swap(server->counting->cells, cell * sizeof(*cells),
						 (uint64_t)expected, (uint64_t)desired, &before);
	if (status == RMR_OK) {
		*found = (int64_t)before;
		return true;
	}
	if (status != RMR_NO_DEVICE) {
		log_warn_limited("a counter could not be changed: %s", rmr_error_message());
		return false;
	}
	/* Without its adapter nobody else can reach the cells. */
	*found = expected;
	(void)atomic_compare_exchange_strong(&cells[cell], found, desired);
	return true;
}

static enum rmr_status open_store(struct kv_server *server)
{
	const struct store_header *header = rmr_arena_base(server->arena);
	struct store_options options = {
		.memory = rmr_arena_base(server->arena),
		.size = rmr_arena_size(server->arena),
		.cells = rmr_arena_base(server->cells_arena),
		.cells_size = (size_t)server->options.counters * sizeof(uint64_t),
		.cells_are_private = !cells_are_shared(server),
		.cell_swap = server->counting ? swap_cell : NULL,
		.cell_argument = server,
		.on_full = server->options.reject ? STORE_REJECT : STORE_EVICT,
		.zero_freed = server->options.zero_freed,
	};
	enum rmr_status status = store_create(&options, &server->store);

	if (status != RMR_OK)
		return error_context(status, "the store");
	server->instance = header->instance;
	/* All pages but one, which is the index's. Key and header are still to be taken from it. */
	server->max_value = (uint64_t)(header->page_count - header->first_page - 1)
			    << STORE_PAGE_BITS;
	if (server->max_value > SIZE_CLASS_MAX_SIZE)
		server->max_value = SIZE_CLASS_MAX_SIZE;
	return RMR_OK;
}

int kv_server_create(const kv_server_options_t *options, kv_server_t **result)
{
	struct kv_server *server = calloc(1, sizeof(*server));
	enum rmr_status opened;
	int status;

	if (!server)
		return server_fail(KV_NO_MEMORY, "no memory for a server");
	server->stop_fd = -1;
	server->keep_stop_fd = -1;
	pthread_mutex_init(&server->times_past.lock, NULL);
	atomic_store(&server->cells_epoch, 1);
	pthread_mutex_init(&server->keys_lock, NULL);
	identities_init(&server->identities);
	pthread_mutex_init(&server->ghosts_lock, NULL);
	status = options_take(server, options);
	if (status == KV_OK)
		status = listen_plan(server, options);
	if (status == KV_OK)
		status = memory_open(server);
	if (status == KV_OK) {
		listen_choose_counting(server);
		opened = open_store(server);
		status = opened == RMR_OK ? listen_register(server) : server_fail_rmr(opened);
	}
	if (status != KV_OK) {
		kv_server_destroy(server);
		return status;
	}
	/* The caller's strings may go now. */
	server->options.listen = server->options.address = server->options.device = NULL;
	server->options.key_file = server->options.read_key_file = NULL;
	server->options.node_id = NULL;
	*result = server;
	return KV_OK;
}

void kv_server_destroy(kv_server_t *server)
{
	if (!server)
		return;
	kv_server_stop(server);
	listen_close(server);
	cells_close(server);
	store_destroy(server->store);
	rmr_arena_close(server->cells_arena);
	rmr_arena_close(server->arena);
	keys_wipe(&server->keys);
	pthread_mutex_destroy(&server->keys_lock);
	identities_fini(&server->identities);
	pthread_mutex_destroy(&server->ghosts_lock);
	free(server->paths_text);
	pthread_mutex_destroy(&server->times_past.lock);
	free(server);
}

/* ------------------------------------------------------------------------------------------
 * Start and stop
 */

/* Signals are the program's: none of our threads takes one. */
static int start_thread(pthread_t *thread, void *(*run)(void *), void *argument, const char *name)
{
	sigset_t all, before;
	int error;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(thread, NULL, run, argument);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error)
		return server_fail(KV_NO_MEMORY, "cannot start a thread: %s", strerror(error));
	pthread_setname_np(*thread, name);
	return KV_OK;
}

static int start_workers(struct kv_server *server)
{
	int status = KV_OK;

	server->workers = aligned_alloc(
		64, ((server->options.workers * sizeof(struct worker)) + 63) & ~(size_t)63);
	if (!server->workers)
		return server_fail(KV_NO_MEMORY, "no memory for workers");
	memset(server->workers, 0, server->options.workers * sizeof(struct worker));
	for (unsigned i = 0; i < server->options.workers && status == KV_OK; i++) {
		struct worker *worker = &server->workers[i];
		char name[24];

		snprintf(name, sizeof(name), "kv-worker-%u", i);
		server->worker_count = i + 1;
		status = worker_open(worker, server);
		if (status == KV_OK)
			status = start_thread(&worker->thread, worker_run, worker, name);
		worker->runs = status == KV_OK;
	}
	return status;
}

/* Clients of a server that had the same address and died may answer from its memory for a while
 * (client/life.c): until then nothing is accepted. An address that the system has picked just now
 * was no predecessor's. */
static void await_succession(const struct kv_server *server)
{
	uint64_t end_ns = server->listening_ns + KV_SUCCESSION_MS * UINT64_C(1000000);
	struct timespec end = {.tv_sec = (time_t)(end_ns / 1000000000u),
			       .tv_nsec = (long)(end_ns % 1000000000u)};

	if (!listen_may_succeed(server))
		return;
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) == EINTR)
		;
}

static int start_others(struct kv_server *server)
{
	int status;

	server->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	server->keep_stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (server->stop_fd < 0 || server->keep_stop_fd < 0)
		return server_fail(KV_INTERNAL, "eventfd: %s", strerror(errno));
	status = start_thread(&server->housekeeper, housekeeper_run, server, "kv-housekeeper");
	if (status != KV_OK)
		return status;
	server->housekeeper_runs = true;
	await_succession(server);
	status = start_thread(&server->acceptor, acceptor_run, server, "kv-acceptor");
	server->acceptor_runs = status == KV_OK;
	return status;
}

int kv_server_start(kv_server_t *server)
{
	int status;

	if (server->workers)
		return server_fail(KV_INVALID, "the server is started already");
	server->started_ns = clock_now_ns();
	status = listen_start(server);
	server->listening_ns = clock_now_ns();
	if (status == KV_OK)
		status = start_workers(server);
	if (status == KV_OK)
		status = start_others(server);
	if (status == KV_OK && !server->keys.write.count && listen_is_open(server))
		log_warn("there is no key: everybody who can reach this host may read and change "
			 "everything; give --key-file, or -a 127.0.0.1");
	if (status != KV_OK)
		kv_server_stop(server);
	return status;
}

static void end_thread(pthread_t thread, bool *runs, int *stop_fd)
{
	uint64_t one = 1;

	if (*runs && write(*stop_fd, &one, sizeof(one)) == sizeof(one))
		pthread_join(thread, NULL);
	*runs = false;
	if (*stop_fd >= 0)
		close(*stop_fd);
	*stop_fd = -1;
}

/* They finish what has arrived, and end. */
static void end_workers(struct kv_server *server)
{
	/* All are told before the first is waited for: clients are waited for once, not once a
	 * worker. Release: pairs with the acquire in worker_run. */
	for (unsigned i = 0; i < server->worker_count; i++) {
		atomic_store_explicit(&server->workers[i].stop, true, memory_order_release);
		if (server->workers[i].runs)
			worker_wake(&server->workers[i]);
	}
	for (unsigned i = 0; i < server->worker_count; i++) {
		if (server->workers[i].runs)
			pthread_join(server->workers[i].thread, NULL);
		server->workers[i].runs = false;
	}
}

static void close_workers(struct kv_server *server)
{
	for (unsigned i = 0; i < server->worker_count; i++) {
		stats_add(&server->past, &server->workers[i].counters);
		worker_close(&server->workers[i]);
	}
	server->worker_count = 0;
	times_forget(server);
	free(server->workers);
	server->workers = NULL;
}

void kv_server_stop(kv_server_t *server)
{
	/* No new clients; then those that are there. While they finish the heart still beats. The
	 * addresses are kept until it has stopped: a successor counts from the moment at which it
	 * gets them (await_succession). */
	end_thread(server->acceptor, &server->acceptor_runs, &server->stop_fd);
	end_workers(server);
	end_thread(server->housekeeper, &server->housekeeper_runs, &server->keep_stop_fd);
	listen_stop(server);
	close_workers(server);
	/* All clients are gone, and what they knew with them, but for ghosts. */
	if (server->ticket_is_out)
		cells_look_after(server);
}

int kv_server_port(const kv_server_t *server)
{
	for (unsigned i = 0; i < server->path_count; i++) {
		if (server->paths[i].listener && server->paths[i].kind != PATH_SHM)
			return server->port;
	}
	return 0;
}
