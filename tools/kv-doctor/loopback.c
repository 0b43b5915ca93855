/*
 * A real transfer by each device of this machine, from this process to itself.
 *
 *	near, this thread			far, a thread of its own
 *	-----------------			------------------------
 *	connect		------------------>	accept
 *			<------------------	SEND: the descriptor of its memory
 *	WRITE, READ back, compare
 *	READ small: latency
 *	READ large: bandwidth
 *	close		------------------>	ends
 *
 * The numbers are of a moment, without warming up and on whatever core this is: they tell whether a
 * path is in order, not how fast it can be.
 */
#include <inttypes.h>
#include <pthread.h>
#include <remora/fabric.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "doctor.h"

#define GROUP "Transfers"

#define BLOCK	     ((size_t)1 << 20)
#define BLOCKS	     4u /* that are written, read back and compared */
#define LATENCY_MAX  200
#define LATENCY_NS   UINT64_C(100000000)
#define BANDWIDTH_NS UINT64_C(200000000)
#define LOOK_MS	     50 /* how often the far side looks whether it is over */
#define MAX_DEVICES  32

struct far {
	struct rmr_listener *listener;
	struct rmr_queue *queue;
	struct rmr_region *region;
	struct rmr_conn *conn;
	uint8_t *note; /* a place in the region for the descriptor, behind the blocks */
	int timeout_ms;
	atomic_bool stop; /* nobody comes any more; relaxed, for it only ends the waiting */
	char reason[512]; /* "": all is well */
};

struct transfer {
	struct rmr_device *device;
	struct rmr_arena *near_arena, *far_arena;
	struct rmr_region *near_region;
	struct rmr_queue *queue;
	struct rmr_conn *conn;
	struct rmr_remote *remote;
	struct far far;
	uint64_t deadline_ns;
	double latency_us, bytes_per_s;
	char address[256]; /* where they met */
};

/* ------------------------------------------------------------------------------------------
 * The far side
 */

static enum rmr_status far_greet(struct far *far)
{
	struct rmr_descriptor descriptor;
	struct rmr_work work = {
		.op = RMR_OP_SEND,
		.source = far->note,
		.length = sizeof(descriptor),
		.region = far->region,
	};
	enum rmr_status status = rmr_region_export(far->region, far->conn, &descriptor);
	int posted;

	if (status != RMR_OK)
		return status;
	memcpy(far->note, &descriptor, sizeof(descriptor));
	posted = rmr_post(far->conn, &work, 1);
	return posted == 1 ? RMR_OK : posted < 0 ? (enum rmr_status)posted : RMR_LIMIT;
}

static bool far_is_over(struct far *far, uint64_t deadline_ns)
{
	return atomic_load_explicit(&far->stop, memory_order_relaxed) || clock_passed(deadline_ns);
}

static enum rmr_status far_serve(struct far *far)
{
	uint64_t deadline_ns = clock_deadline_ns(far->timeout_ms);
	struct rmr_request *request;
	struct rmr_completion completion;
	enum rmr_status status;

	do
		status = rmr_listener_next(far->listener, LOOK_MS, &request);
	while (status == RMR_TIMEOUT && !far_is_over(far, deadline_ns));
	if (status != RMR_OK)
		return status;
	status = rmr_accept(request, far->queue, NULL, &far->conn);
	if (status == RMR_OK)
		status = far_greet(far);
	while (status == RMR_OK && !far_is_over(far, deadline_ns)) {
		if (rmr_wait(far->queue, &completion, 1, LOOK_MS) == 1 &&
		    completion.op == RMR_OP_DISCONNECT)
			break;
	}
	return status;
}

static void *far_main(void *argument)
{
	struct far *far = argument;

	enum rmr_status status = far_serve(far);

	if (status != RMR_OK && status != RMR_TIMEOUT) /* nobody came: the near side knows why */
		snprintf(far->reason, sizeof(far->reason), "%s", error_chain());
	rmr_conn_close(far->conn);
	far->conn = NULL;
	return NULL;
}

/* ------------------------------------------------------------------------------------------
 * The near side
 */

/* Waits for the completion of `op`. */
static enum rmr_status await(struct transfer *transfer, enum rmr_op op,
			     struct rmr_completion *completion)
{
	while (!clock_passed(transfer->deadline_ns)) {
		if (rmr_wait(transfer->queue, completion, 1,
			     clock_remaining_ms(transfer->deadline_ns)) != 1)
			continue;
		if (completion->op == RMR_OP_DISCONNECT)
			return error_set(RMR_DISCONNECTED, "the connection was lost");
		if (completion->status != RMR_OK)
			return error_set(completion->status, "an operation failed: %s",
					 rmr_status_text(completion->status));
		if (completion->op == op)
			return RMR_OK;
	}
	return error_set(RMR_TIMEOUT, "nothing came in time");
}

static enum rmr_status move(struct transfer *transfer, enum rmr_op op, size_t local, size_t offset,
			    size_t length)
{
	struct rmr_work work = {
		.op = op,
		.local = (uint8_t *)rmr_arena_base(transfer->near_arena) + local,
		.length = length,
		.region = transfer->near_region,
		.remote = transfer->remote,
		.offset = offset,
	};
	struct rmr_completion completion;
	int posted = rmr_post(transfer->conn, &work, 1);

	if (posted != 1)
		return posted < 0 ? (enum rmr_status)posted : RMR_LIMIT;
	return await(transfer, op, &completion);
}

/* Writes blocks that differ, reads them back into other memory, and compares. */
static enum rmr_status verify(struct transfer *transfer)
{
	uint8_t *base = rmr_arena_base(transfer->near_arena);
	enum rmr_status status;

	for (unsigned block = 0; block < BLOCKS; block++) {
		uint64_t *words = (uint64_t *)base;

		for (size_t i = 0; i < BLOCK / 8; i++)
			words[i] = (i + 1) * UINT64_C(0x9e3779b97f4a7c15) + block;
		memset(base + BLOCK, 0, BLOCK);
		status = move(transfer, RMR_OP_WRITE, 0, 0, BLOCK);
		if (status == RMR_OK)
			status = move(transfer, RMR_OP_READ, BLOCK, 0, BLOCK);
		if (status != RMR_OK)
			return status;
		if (memcmp(base, base + BLOCK, BLOCK) != 0)
			return error_set(RMR_SYSTEM, "other bytes came back than were written: "
						     "trust no data that goes by this path");
	}
	return RMR_OK;
}

static int compare(const void *a, const void *b)
{
	const uint64_t *first = a, *second = b;

	return *first < *second ? -1 : *first > *second;
}

static enum rmr_status measure(struct transfer *transfer)
{
	uint64_t times[LATENCY_MAX], start = clock_now_ns(), now = start, bytes = 0;
	enum rmr_status status = RMR_OK;
	unsigned count = 0;

	while (count < LATENCY_MAX && now - start < LATENCY_NS && status == RMR_OK) {
		uint64_t before = now;

		status = move(transfer, RMR_OP_READ, 0, 0, 8);
		now = clock_now_ns();
		times[count++] = now - before;
	}
	qsort(times, count, sizeof(times[0]), compare);
	transfer->latency_us = (double)times[count / 2] / 1000;
	start = now = clock_now_ns();
	while ((!bytes || now - start < BANDWIDTH_NS) && status == RMR_OK) {
		status = move(transfer, RMR_OP_READ, 0, 0, BLOCK);
		bytes += BLOCK;
		now = clock_now_ns();
	}
	transfer->bytes_per_s = (double)bytes * 1e9 / (double)(now - start + 1);
	return status;
}

static enum rmr_status meet(struct transfer *transfer)
{
	const char *address = rmr_listener_address(transfer->far.listener);
	struct rmr_descriptor descriptor;
	struct rmr_completion completion;
	enum rmr_status status;

	snprintf(transfer->address, sizeof(transfer->address), "%s", address);
	status = rmr_connect(transfer->queue, address, transfer->far.timeout_ms, NULL,
			     &transfer->conn);
	if (status != RMR_OK)
		return status;
	status = await(transfer, RMR_OP_RECV, &completion);
	if (status != RMR_OK)
		return error_context(status, "waiting for the first message");
	memcpy(&descriptor, completion.data, sizeof(descriptor));
	rmr_recv_release(transfer->queue, completion.data);
	return rmr_remote_open(transfer->conn, &descriptor, &transfer->remote);
}

/* ------------------------------------------------------------------------------------------
 * All of it
 */

static enum rmr_status open_memory(struct transfer *transfer)
{
	size_t note = BLOCK, far_size = BLOCK + 4096;
	enum rmr_status status = rmr_arena_open(2 * BLOCK, 0, &transfer->near_arena);

	if (status == RMR_OK)
		status = rmr_arena_open(far_size, RMR_ARENA_PEERS_WRITE, &transfer->far_arena);
	if (status == RMR_OK)
		status = rmr_region_open(transfer->device, rmr_arena_base(transfer->near_arena),
					 2 * BLOCK, 0, &transfer->near_region);
	if (status == RMR_OK)
		status = rmr_region_open(transfer->device, rmr_arena_base(transfer->far_arena),
					 far_size, RMR_READ | RMR_WRITE, &transfer->far.region);
	if (status == RMR_OK)
		transfer->far.note = (uint8_t *)rmr_arena_base(transfer->far_arena) + note;
	return status;
}

static enum rmr_status open_all(struct transfer *transfer, const char *device, const char *address)
{
	struct rmr_queue_options options = {.recv_slots = 8, .recv_size = 256};
	enum rmr_status status = rmr_device_open(device, NULL, &transfer->device);

	if (status == RMR_OK)
		status = open_memory(transfer);
	if (status == RMR_OK)
		status = rmr_queue_open(transfer->device, &options, &transfer->queue);
	if (status == RMR_OK)
		status = rmr_queue_open(transfer->device, &options, &transfer->far.queue);
	if (status == RMR_OK)
		status =
			rmr_listener_open(transfer->device, address, NULL, &transfer->far.listener);
	return status;
}

static void close_all(struct transfer *transfer)
{
	rmr_listener_close(transfer->far.listener);
	rmr_queue_close(transfer->far.queue);
	rmr_queue_close(transfer->queue);
	rmr_region_close(transfer->far.region);
	rmr_region_close(transfer->near_region);
	rmr_arena_close(transfer->far_arena);
	rmr_arena_close(transfer->near_arena);
	rmr_device_close(transfer->device);
}

static enum rmr_status run(struct transfer *transfer, const char *device, const char *address,
			   char *reason, size_t size)
{
	enum rmr_status status = open_all(transfer, device, address);
	pthread_t thread;

	if (status == RMR_OK && pthread_create(&thread, NULL, far_main, &transfer->far) != 0)
		status = error_set(RMR_SYSTEM, "no thread can be started");
	if (status != RMR_OK) {
		snprintf(reason, size, "%s", error_chain());
		close_all(transfer);
		return status;
	}
	transfer->deadline_ns = clock_deadline_ns(transfer->far.timeout_ms);
	status = meet(transfer);
	if (status == RMR_OK)
		status = verify(transfer);
	if (status == RMR_OK)
		status = measure(transfer);
	if (status != RMR_OK)
		snprintf(reason, size, "%s", error_chain());
	rmr_conn_close(transfer->conn);
	atomic_store_explicit(&transfer->far.stop, true, memory_order_relaxed);
	pthread_join(thread, NULL);
	/* A far side that came so far as to fail knows more. */
	if (status != RMR_OK && transfer->far.reason[0])
		snprintf(reason, size, "%s", transfer->far.reason);
	close_all(transfer);
	return status;
}

/* What a check of this adapter has said to do already; NULL: all of it was well. */
static const char *known_fix(const struct report *report, const char *device)
{
	const char *adapter = strchr(device, ':');
	char name[64];

	if (!adapter)
		return NULL;
	snprintf(name, sizeof(name), "%.*s", (int)strcspn(adapter + 1, ","), adapter + 1);
	for (size_t i = 0; i < report->count; i++) {
		const struct finding *finding = &report->findings[i];

		if (finding->verdict == VERDICT_FAIL && strcmp(finding->group, GROUP) != 0 &&
		    strstr(finding->check, name))
			return finding->fix;
	}
	return NULL;
}

/* What may put a failed transfer right. */
static void fix_transfer(const struct report *report, struct finding *finding, enum path path,
			 enum rmr_status status)
{
	const char *known = known_fix(report, finding->check);

	if (known)
		report_fix(finding, "%s", known);
	else if (path == PATH_SHM && status == RMR_DENIED)
		report_fix(finding, "export REMORA_SHM_DIR=$HOME/.remora");
	else if (path == PATH_TCP)
		report_fix(finding, "ip link set dev lo up");
	else if (status == RMR_NO_MEMORY)
		report_fix(finding, "ulimit -l unlimited");
	else if (status == RMR_TIMEOUT && path != PATH_SHM)
		report_fix(finding, "nft insert rule inet filter input udp dport 4791 accept");
	else
		report_fix(finding, "REMORA_LOG=debug kv-doctor --want %s # tells more",
			   path_names[path]);
}

/* Of "10.0.0.1:7471". */
static int host_length(const char *address)
{
	const char *colon = strrchr(address, ':');

	return colon ? (int)(colon - address) : (int)strlen(address);
}

static void try_device(const char *device, enum path path, int timeout_ms, struct report *report,
		       struct outcomes *outcomes)
{
	struct outcome *outcome = outcome_add(outcomes, path, device);
	struct transfer transfer = {.far.timeout_ms = timeout_ms};
	enum rmr_status status;
	char address[64];

	if (!outcome)
		return;
	if (path == PATH_SHM)
		snprintf(address, sizeof(address), "doctor-%d", (int)getpid());
	else
		snprintf(address, sizeof(address), path == PATH_TCP ? "127.0.0.1:0" : "*:0");
	error_clear();
	status = run(&transfer, device, address, outcome->reason, sizeof(outcome->reason));
	outcome->works = status == RMR_OK;
	if (status == RMR_OK) {
		report_add(report, GROUP, device, VERDICT_OK,
			   "%u MiB there and back are right; a READ takes %.1f us, %.2f GB/s%s%.*s",
			   BLOCKS, transfer.latency_us, transfer.bytes_per_s / 1e9,
			   path == PATH_SHM || path == PATH_TCP ? "" : " by ",
			   path == PATH_SHM || path == PATH_TCP ? 0 : host_length(transfer.address),
			   transfer.address);
		return;
	}
	if (!outcome->reason[0])
		snprintf(outcome->reason, sizeof(outcome->reason), "%s", rmr_status_text(status));
	fix_transfer(report, report_add(report, GROUP, device, VERDICT_FAIL, "%s", outcome->reason),
		     path, status);
}

static enum path path_of(const char *device)
{
	if (strcmp(device, "shm") == 0)
		return PATH_SHM;
	if (strcmp(device, "tcp") == 0)
		return PATH_TCP;
	if (strncmp(device, "verbs", 5) == 0)
		return PATH_VERBS;
	return strncmp(device, "ofi", 3) == 0 ? PATH_OFI : PATH_COUNT;
}

static bool is_wanted(enum path want, const char *device)
{
	if (strncmp(device, "ofi", 3) == 0)
		return want == PATH_OFI;
	return strncmp(device, "verbs", 5) == 0 && (want == PATH_VERBS || want == PATH_SOCKET);
}

/* The whole reason is what the check of adapters has said already, if there is none. */
static void add_unusable(const struct rmr_device_entry *entry, enum path want,
			 struct report *report)
{
	bool ofi = path_of(entry->name) == PATH_OFI;
	bool named = strchr(entry->name, ':') != NULL && !ofi;
	int length = named ? (int)strlen(entry->reason) : clause_length(entry->reason);
	struct finding *finding;

	finding = report_add(report, GROUP, entry->name,
			     !ofi && (named || is_wanted(want, entry->name)) ? VERDICT_FAIL
									     : VERDICT_NONE,
			     "%.*s", length, entry->reason);
	if (named)
		report_fix(finding, "modprobe ib_uverbs && chmod 0666 /dev/infiniband/uverbs*");
	else if (is_wanted(want, entry->name) && entry->reason[length])
		report_fix(finding, "%s", entry->reason + length + strlen("; "));
	else if (is_wanted(want, entry->name))
		report_fix(finding, "apt-get install %s # and build Remora again",
			   ofi ? "libfabric-dev" : "libibverbs-dev librdmacm-dev");
}

void loopback_all(int timeout_ms, enum path want, struct report *report, struct outcomes *outcomes)
{
	struct rmr_device_entry entries[MAX_DEVICES];
	size_t count = rmr_device_list(entries, MAX_DEVICES);

	for (size_t i = 0; i < count && i < MAX_DEVICES; i++) {
		const char *name = entries[i].name;
		bool verbs = strncmp(name, "verbs", 5) == 0, ofi = strncmp(name, "ofi", 3) == 0;
		char by_socket[80];

		if (!entries[i].usable) {
			struct outcome *outcome = outcome_add(outcomes, path_of(name), name);

			if (outcome)
				snprintf(outcome->reason, sizeof(outcome->reason), "%s",
					 entries[i].reason);
			add_unusable(&entries[i], want, report);
			continue;
		}
		if (!verbs) {
			if (!ofi || want == PATH_OFI)
				try_device(name, path_of(name), timeout_ms, report, outcomes);
			continue;
		}
		try_device(name, PATH_VERBS, timeout_ms, report, outcomes);
		snprintf(by_socket, sizeof(by_socket), "%.60s,socket", name);
		try_device(by_socket, PATH_SOCKET, timeout_ms, report, outcomes);
	}
}
