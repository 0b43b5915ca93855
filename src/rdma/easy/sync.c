/*
 * Calls that wait: writes and reads by address and key, and atomics.
 *
 * The thread that waits polls the queue itself for a while, under the lane's lock, and so gets its
 * completion without another thread; the runtime leaves the lane to it meanwhile. If it takes
 * longer the thread sleeps, and the runtime tells.
 */
#include <inttypes.h>
#include <sched.h>

#include "base/clock.h"
#include "base/error.h"
#include "rdma/easy/internal.h"

/* How long a thread polls by itself before it sleeps. */
#define DRIVE_US 100

/* What the program asks for. A key of 0 means the space that the peer exposes. */
struct request {
	enum rmr_op op;
	uint64_t local;
	uint32_t lkey;
	uint64_t remote;
	uint32_t rkey;
	uint32_t length;
	bool has_rkey;
	uint64_t operand, compare;
};

static unsigned right_for(enum rmr_op op)
{
	return op == RMR_OP_READ ? RMR_READ : op == RMR_OP_WRITE ? RMR_WRITE : RMR_ATOMIC;
}

/* The remote side of the work. */
static enum rmr_status fill_remote(struct link *link, const struct request *request,
				   struct rmr_work *work)
{
	unsigned right = right_for(request->op);
	enum rmr_status status;

	if (request->has_rkey)
		return peer_memory_find(&link->memory, request->rkey, request->remote,
					request->length, right, &work->remote, &work->offset);
	status = transfer_in_space(link, request->remote, request->length, right);
	work->remote = link->space;
	work->offset = request->remote;
	return status;
}

static enum rmr_status fill_local(RdmaConn *conn, struct link *link, const struct request *request,
				  struct rmr_work *work)
{
	struct memory *memory =
		memory_find_key(conn, request->lkey, request->local, request->length);

	if (!memory || !request->lkey)
		return error_set(RMR_INVALID,
				 "%u bytes at 0x%" PRIx64 " are not in memory with lkey %u",
				 request->length, request->local, request->lkey);
	work->local = (void *)(uintptr_t)request->local;
	return memory_region(memory, link->lane, &work->region);
}

/* Takes a word for the old value of an atomic. False: none is free. */
static bool take_word(struct link *link, struct rmr_work *work, struct operation *operation)
{
	if (!link->free_words)
		return false;
	operation->word = __builtin_ctzll(link->free_words);
	link->free_words &= link->free_words - 1;
	work->local = link->local + LINK_WORDS_AT + 8 * (unsigned)operation->word;
	work->region = link->local_region;
	return true;
}

/* Posts it under the lane's lock. RMR_AGAIN: no room now. */
static enum rmr_status post(RdmaConn *conn, const struct request *request,
			    struct operation *operation)
{
	struct link *link = conn_link(conn);
	bool is_atomic = request->op >= RMR_OP_COMPARE_SWAP;
	struct rmr_work work = {.op = request->op,
				.cookie = (uint64_t)(uintptr_t)operation | COOKIE_OPERATION,
				.length = request->length,
				.operand = request->operand,
				.compare = request->compare};
	enum rmr_status status;
	int posted;

	if (!link)
		return RMR_DISCONNECTED;
	status = fill_remote(link, request, &work);
	if (status == RMR_OK && !is_atomic)
		status = fill_local(conn, link, request, &work);
	if (status != RMR_OK)
		return status;
	if (!transfer_has_room(link, work.op, &conn->options) ||
	    (is_atomic && !take_word(link, &work, operation)))
		return RMR_AGAIN;
	posted = rmr_post(link->fabric, &work, 1);
	if (posted == 1) {
		operation->is_read = work.op >= RMR_OP_READ;
		link->works++;
		link->reads += operation->is_read;
		list_add_tail(&link->operations, &operation->link);
		return RMR_OK;
	}
	if (is_atomic) {
		link->free_words |= 1ull << operation->word;
		operation->word = -1;
	}
	return posted < 0 ? (enum rmr_status)posted : RMR_AGAIN;
}

/* Lets others in for a moment; the lock is held before and after. */
static void pause_lock(struct lane *lane)
{
	lane_leave(lane);
	lane_lock_give(&lane->lock);
	cpu_relax();
	lane_lock_take(&lane->lock);
}

/* Polls until the operation is done, or for DRIVE_US. The lock is held, and given back. */
static void await(struct lane *lane, struct operation *operation)
{
	uint64_t begin = clock_ticks();
	uint64_t limit = (uint64_t)(DRIVE_US * clock_ticks_per_us());

	/* Relaxed: a hint for the runtime. */
	atomic_fetch_add_explicit(&lane->drivers, 1, memory_order_relaxed);
	for (;;) {
		if (lane->queue)
			lane_collect(lane);
		if (waiter_is_done(&operation->waiter) || clock_ticks() - begin > limit)
			break;
		pause_lock(lane);
	}
	atomic_fetch_sub_explicit(&lane->drivers, 1, memory_order_relaxed);
	if (lane->queue)
		lane_leave(lane);
	lane_lock_give(&lane->lock);
	waiter_sleep(&operation->waiter);
}

static enum rmr_status post_in_time(RdmaConn *conn, const struct request *request,
				    struct operation *operation)
{
	struct lane *lane = conn->lane;
	enum rmr_status status;

	/* Room comes as others complete. */
	while ((status = post(conn, request, operation)) == RMR_AGAIN) {
		lane_collect(lane);
		lane_leave(lane);
		lane_lock_give(&lane->lock);
		sched_yield();
		lane_lock_take(&lane->lock);
	}
	return status;
}

static enum rmr_status carry_out(RdmaConn *conn, const struct request *request, uint64_t *old)
{
	struct lane *lane = conn->lane;
	struct operation operation = {.status = RMR_OK, .word = -1};
	enum rmr_status status;

	waiter_init(&operation.waiter);
	list_init(&operation.link);
	lane_lock_take(&lane->lock);
	status = post_in_time(conn, request, &operation);
	if (status != RMR_OK) {
		lane_lock_give(&lane->lock);
		return status;
	}
	await(lane, &operation);
	status = operation.status;
	if (status == RMR_OK) {
		if (old)
			*old = operation.old;
		return status;
	}
	return error_set(status, "the connection ended before it was done");
}

static int wait_for(RdmaConn *conn, const struct request *request, uint64_t *old)
{
	enum rmr_status status;

	if (runtime_is_here()) {
		error_set(RMR_INVALID, "this call waits, which a callback must not");
		return easy_fail();
	}
	if (conn->options.mode != RDMA_BLOCKING) {
		error_set(RMR_INVALID, "this call needs RdmaOptions with mode RDMA_BLOCKING");
		return easy_fail();
	}
	if (request->length == 0) {
		error_set(RMR_INVALID, "nothing to move");
		return easy_fail();
	}
	/* While we are in here the endpoint is not freed, though it be closed. */
	atomic_fetch_add(&conn->callers, 1);
	status = carry_out(conn, request, old);
	atomic_fetch_sub(&conn->callers, 1);
	return status == RMR_OK ? RDMA_OK : easy_fail();
}

int rdmaSyncWriteSignaled(RdmaConn *conn, uint64_t local_addr, uint32_t lkey, uint64_t remote_addr,
			  uint32_t rkey, uint32_t length)
{
	struct request request = {.op = RMR_OP_WRITE,
				  .local = local_addr,
				  .lkey = lkey,
				  .remote = remote_addr,
				  .rkey = rkey,
				  .has_rkey = true,
				  .length = length};

	return wait_for(conn, &request, NULL);
}

int rdmaSyncReadSignaled(RdmaConn *conn, uint64_t local_addr, uint32_t lkey, uint64_t remote_addr,
			 uint32_t rkey, uint32_t length)
{
	struct request request = {.op = RMR_OP_READ,
				  .local = local_addr,
				  .lkey = lkey,
				  .remote = remote_addr,
				  .rkey = rkey,
				  .has_rkey = true,
				  .length = length};

	return wait_for(conn, &request, NULL);
}

int rdmaPASyncWriteSignaled(RdmaConn *conn, uint64_t local_addr, uint32_t lkey,
			    uint64_t remote_addr, uint32_t length)
{
	struct request request = {.op = RMR_OP_WRITE,
				  .local = local_addr,
				  .lkey = lkey,
				  .remote = remote_addr,
				  .length = length};

	return wait_for(conn, &request, NULL);
}

int rdmaPASyncReadSignaled(RdmaConn *conn, uint64_t local_addr, uint32_t lkey, uint64_t remote_addr,
			   uint32_t length)
{
	struct request request = {.op = RMR_OP_READ,
				  .local = local_addr,
				  .lkey = lkey,
				  .remote = remote_addr,
				  .length = length};

	return wait_for(conn, &request, NULL);
}

static int do_atomic(RdmaConn *conn, const struct request *request, uint64_t *old)
{
	uint64_t before = 0;

	if (request->remote % 8) {
		error_set(RMR_INVALID, "an atomic works at a multiple of 8");
		return easy_fail();
	}
	if (wait_for(conn, request, &before) != RDMA_OK)
		return RDMA_ERR;
	if (old)
		*old = before;
	return RDMA_OK;
}

int rdmaConnFetchAdd(RdmaConn *conn, uint64_t remote_addr, uint64_t add, uint64_t *old)
{
	struct request request = {
		.op = RMR_OP_FETCH_ADD, .remote = remote_addr, .length = 8, .operand = add};

	return do_atomic(conn, &request, old);
}

int rdmaConnCompareSwap(RdmaConn *conn, uint64_t remote_addr, uint64_t compare, uint64_t swap,
			uint64_t *old)
{
	struct request request = {.op = RMR_OP_COMPARE_SWAP,
				  .remote = remote_addr,
				  .length = 8,
				  .operand = swap,
				  .compare = compare};

	return do_atomic(conn, &request, old);
}
