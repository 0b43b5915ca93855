/*
 * Works on their way to the adapter.
 *
 *	            head              next              tail
 *	   done      |  in flight      |   waiting       |      free
 *	-------------+-----------------+-----------------+-----------
 *
 * Usually a work is handed over when it is posted, as one request. It waits when it was posted with
 * RMR_MORE, when the peer is not ready yet, or when the queue pair or the completion queue has no
 * room. What waits leaves as a chain, with one doorbell.
 *
 * A work longer than a message of the adapter (max_chunk) becomes several requests, of which the
 * last one counts; all are signaled, so that keepalive.c sees it get on. The last one of a long
 * WRITE_IMM is a SEND with the immediate and the length of the whole, because the receiver's
 * adapter tells only the length of the last request. If a long work reaches beyond the end of the
 * remote region, its beginning must not be written either: so one request for the byte behind the
 * end goes out instead, which the peer's adapter refuses. A shorter work is one request, which the
 * peer's adapter checks as a whole.
 *
 * Selective signaling. A work with RMR_UNSIGNALED asks the adapter for no completion, but places in
 * the queue pair are only given back by one. So at least every fourth part of the queue pair one is
 * asked for; and all are, while the completion queue is half full: otherwise many connections, each
 * with a few unsignaled ones, could hold all its entries and wait for each other.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "fabric/verbs/internal.h"

/* A request to the adapter, and what it points to. */
struct request {
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	uint64_t whole; /* length of a long WRITE_IMM */
};

static uint8_t *stash_of(const struct verbs_conn *conn, const struct verbs_work *work)
{
	size_t index = (size_t)(work - conn->works);

	return conn->stash + index * conn_device(conn)->max_inline;
}

static bool has_payload(const struct verbs_work *work)
{
	return work->op <= RMR_OP_WRITE_IMM;
}

static void fill_work(struct verbs_conn *conn, struct verbs_work *to, const struct rmr_work *from)
{
	const struct verbs_remote *remote = (const struct verbs_remote *)from->remote;
	const struct verbs_region *region = (const struct verbs_region *)from->region;
	bool touches = from->length != 0 && !(from->flags & RMR_INLINE);

	*to = (struct verbs_work){
		.cookie = from->cookie,
		.local = from->local,
		.length = from->length,
		.lkey = touches ? region->lkey : 0,
		.op = (uint8_t)from->op,
		.flags = (uint8_t)from->flags,
	};
	if (from->op == RMR_OP_SEND)
		return;
	to->address = remote->address + from->offset;
	to->rkey = remote->rkey;
	to->operand = from->op == RMR_OP_WRITE_IMM ? from->immediate : from->operand;
	to->compare = from->compare;
	if (from->length > conn_device(conn)->max_chunk &&
	    (from->offset > remote->base.length ||
	     from->length > remote->base.length - from->offset)) {
		to->address = remote->address + remote->base.length;
		to->length = 1;
	}
}

/* Marks works that have to wait, and keeps the payloads of inline ones: the caller's memory is free
 * again. */
static void keep_inline(struct verbs_conn *conn, uint32_t first_new)
{
	uint32_t at = (int32_t)(conn->next - first_new) > 0 ? conn->next : first_new;

	for (; at != conn->tail; at++) {
		struct verbs_work *work = &conn->works[at & conn->work_mask];

		work->waited = true;
		if (!(work->flags & RMR_INLINE) || work->length == 0)
			continue;
		if (!conn->stash)
			conn->stash = malloc((size_t)(conn->work_mask + 1) *
					     conn_device(conn)->max_inline);
		if (!conn->stash) {
			verbs_conn_fail(conn, RMR_NO_MEMORY);
			return;
		}
		memcpy(stash_of(conn, work), work->local, work->length);
		work->stashed = true;
	}
}

static bool must_signal(const struct verbs_conn *conn)
{
	uint32_t every = conn->send_max / 4 ? conn->send_max / 4 : 1;

	return conn->unsignaled + 1 >= every || conn_queue(conn)->send_room < VERBS_CQ_SENDS / 2;
}

static const enum ibv_wr_opcode opcodes[] = {
	[RMR_OP_SEND] = IBV_WR_SEND,
	[RMR_OP_WRITE] = IBV_WR_RDMA_WRITE,
	[RMR_OP_WRITE_IMM] = IBV_WR_RDMA_WRITE_WITH_IMM,
	[RMR_OP_READ] = IBV_WR_RDMA_READ,
	[RMR_OP_COMPARE_SWAP] = IBV_WR_ATOMIC_CMP_AND_SWP,
	[RMR_OP_FETCH_ADD] = IBV_WR_ATOMIC_FETCH_AND_ADD,
};

/* What is done to the peer's memory. */
static inline void fill_operation(struct ibv_send_wr *wr, enum rmr_op op, uint64_t address,
				  uint32_t rkey, uint64_t operand, uint64_t compare)
{
	wr->opcode = opcodes[op];
	if (op == RMR_OP_WRITE_IMM)
		wr->imm_data = htobe32((uint32_t)operand);
	if (op >= RMR_OP_COMPARE_SWAP) {
		bool swaps = op == RMR_OP_COMPARE_SWAP;

		wr->wr.atomic.remote_addr = address;
		wr->wr.atomic.rkey = rkey;
		wr->wr.atomic.compare_add = swaps ? compare : operand;
		wr->wr.atomic.swap = swaps ? operand : 0;
	} else {
		wr->wr.rdma.remote_addr = address;
		wr->wr.rdma.rkey = rkey;
	}
}

/* Where the work goes on: its operation on the next part of its memory. */
static void fill_transfer(const struct verbs_conn *conn, const struct verbs_work *work,
			  struct request *request)
{
	struct ibv_send_wr *wr = &request->wr;

	request->sge.addr =
		(uintptr_t)(work->stashed ? stash_of(conn, work) : work->local) + work->started;
	fill_operation(wr, work->op, work->address + work->started, work->rkey, work->operand,
		       work->compare);
	/* Unasked only at once: later the program may have closed the region, and the memory may be
	 * gone; the adapter notices, we would not. */
	if (has_payload(work) && work->length != 0 &&
	    work->length <= conn_device(conn)->max_inline && (work->stashed || !work->waited))
		wr->send_flags |= IBV_SEND_INLINE;
}

/* The next request of a work. */
static void fill_request(struct verbs_conn *conn, struct verbs_work *work, struct request *request)
{
	uint32_t max_chunk = conn_device(conn)->max_chunk;
	uint64_t left = work->length - work->started;
	uint32_t part = left < max_chunk ? (uint32_t)left : max_chunk;
	bool announced = work->op == RMR_OP_WRITE_IMM && work->length > max_chunk;
	bool is_last = announced ? left == 0 : part == left;
	bool is_told = !is_last || !(work->flags & RMR_UNSIGNALED);
	struct ibv_send_wr *wr = &request->wr;

	wr->wr_id = conn->posted;
	wr->send_flags = 0;
	fill_transfer(conn, work, request);
	request->sge.length = part;
	if (announced && !is_last) {
		wr->opcode = IBV_WR_RDMA_WRITE;
	} else if (announced) {
		wr->opcode = IBV_WR_SEND_WITH_IMM;
		wr->send_flags |= IBV_SEND_INLINE;
		request->whole = htole64(work->length);
		request->sge.addr = (uintptr_t)&request->whole;
		request->sge.length = sizeof(request->whole);
	}
	request->sge.lkey = work->lkey;
	wr->sg_list = &request->sge;
	wr->num_sge = request->sge.length != 0;
	if (is_told || must_signal(conn))
		wr->send_flags |= IBV_SEND_SIGNALED;
	conn->unsignaled = wr->send_flags & IBV_SEND_SIGNALED ? 0 : conn->unsignaled + 1;
	if (work->started == 0)
		work->first = conn->posted;
	work->started += part;
	if (is_last) {
		work->last = conn->posted;
		conn->next++;
	}
}

/* Hands a chain to the adapter. It has room for it, so a failure means that it is broken. */
static bool ring(struct verbs_conn *conn, struct ibv_send_wr *chain)
{
	struct ibv_send_wr *bad = NULL;
	int error = ibv_post_send(conn->qp, chain, &bad);

	if (error == 0)
		return true;
	for (; bad; bad = bad->next) { /* these will not be heard of again */
		conn->posted--;
		conn_queue(conn)->send_room++;
	}
	log_warn_limited("%s: connection to %s ends: ibv_post_send: %s",
			 conn->base.queue->device->info.name, conn->base.peer, strerror(error));
	verbs_conn_fail(conn, RMR_SYSTEM);
	return false;
}

static bool has_room(const struct verbs_conn *conn)
{
	return conn->posted - conn->done < conn->send_max && conn_queue(conn)->send_room > 0;
}

void post_start(struct verbs_conn *conn)
{
	struct verbs_queue *queue = conn_queue(conn);
	struct request chain[VERBS_CHAIN_MAX];

	while (conn->state == CONN_OPEN && conn->next != conn->tail && has_room(conn)) {
		int count = 0;

		while (count < VERBS_CHAIN_MAX && conn->next != conn->tail && has_room(conn)) {
			fill_request(conn, &conn->works[conn->next & conn->work_mask],
				     &chain[count]);
			chain[count].wr.next = NULL;
			if (count > 0)
				chain[count - 1].wr.next = &chain[count].wr;
			count++;
			conn->posted++;
			queue->send_room--;
		}
		if (!ring(conn, &chain[0].wr))
			return;
	}
	if (conn->state == CONN_OPEN && conn->next != conn->tail && queue->send_room == 0 &&
	    list_is_empty(&conn->starved_link))
		list_add_tail(&queue->starved, &conn->starved_link);
}

/* Whether a work can be handed over at once, as one request. */
static bool can_start_now(const struct verbs_conn *conn, const struct rmr_work *work)
{
	return conn->state == CONN_OPEN && conn->next == conn->tail && has_room(conn) &&
	       !(work->flags & RMR_MORE) && work->length <= conn_device(conn)->max_chunk;
}

/* What post_start() would do with it, in fewer steps: of the work only that is kept which its
 * completion needs. */
static void start_now(struct verbs_conn *conn, const struct rmr_work *from)
{
	const struct verbs_remote *remote = (const struct verbs_remote *)from->remote;
	const struct verbs_region *region = (const struct verbs_region *)from->region;
	struct verbs_work *work = &conn->works[conn->tail & conn->work_mask];
	bool touches = from->length != 0 && !(from->flags & RMR_INLINE);
	struct request request; /* field by field: zeros for all that verbs knows take longer */
	struct ibv_send_wr *wr = &request.wr;

	request.sge.addr = (uintptr_t)from->local;
	request.sge.length = (uint32_t)from->length;
	request.sge.lkey = touches ? region->lkey : 0;
	wr->wr_id = conn->posted;
	wr->next = NULL;
	wr->sg_list = &request.sge;
	wr->num_sge = from->length != 0;
	wr->opcode = IBV_WR_SEND;
	wr->send_flags = 0;
	if (from->op != RMR_OP_SEND)
		fill_operation(wr, from->op, remote->address + from->offset, remote->rkey,
			       from->op == RMR_OP_WRITE_IMM ? from->immediate : from->operand,
			       from->compare);
	if (from->op <= RMR_OP_WRITE_IMM && from->length != 0 &&
	    from->length <= conn_device(conn)->max_inline)
		wr->send_flags = IBV_SEND_INLINE;
	if (!(from->flags & RMR_UNSIGNALED) || must_signal(conn))
		wr->send_flags |= IBV_SEND_SIGNALED;
	conn->unsignaled = wr->send_flags & IBV_SEND_SIGNALED ? 0 : conn->unsignaled + 1;
	work->cookie = from->cookie;
	work->length = work->started = from->length;
	work->first = work->last = conn->posted++;
	work->op = (uint8_t)from->op;
	work->flags = (uint8_t)from->flags;
	conn->next = ++conn->tail;
	conn_queue(conn)->send_room--;
	(void)ring(conn, wr);
}

int verbs_post(struct rmr_conn *base, const struct rmr_work *works, int count)
{
	struct verbs_conn *conn = (struct verbs_conn *)base;
	uint32_t first_new = conn->tail;

	if (count == 1 && conn_room(base) > 0 && can_start_now(conn, works)) {
		base->outstanding++;
		start_now(conn, works);
		return 1;
	}
	if ((uint32_t)count > conn_room(base))
		count = (int)conn_room(base);
	for (int i = 0; i < count; i++) {
		base->outstanding++;
		if (conn->state == CONN_ENDED)
			conn_completed(base, works[i].op, works[i].flags, works[i].cookie, 0,
				       RMR_CANCELED);
		else
			fill_work(conn, &conn->works[conn->tail++ & conn->work_mask], &works[i]);
	}
	if (count > 0 && !(works[count - 1].flags & RMR_MORE))
		post_start(conn);
	if (conn->next != conn->tail)
		keep_inline(conn, first_new);
	return count;
}

void verbs_flush(struct rmr_conn *base)
{
	struct verbs_conn *conn = (struct verbs_conn *)base;

	if (conn->next != conn->tail)
		post_start(conn);
}

bool post_probe(struct verbs_conn *conn, bool is_stuck)
{
	/* Of no length: it needs neither memory nor a key on the other side. */
	struct ibv_send_wr wr = {
		.wr_id = conn->posted,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
	};

	/* Not needed while something is under way that will be heard of. The queue pair has places
	 * for them beyond the depth. */
	if (conn->state != CONN_OPEN || conn_queue(conn)->send_room == 0)
		return false;
	if (is_stuck ? conn->probes == VERBS_PROBES_MAX
		     : conn->posted - conn->done != conn->unsignaled)
		return false;
	conn->probes++;
	conn->last_probe = conn->posted;
	conn->posted++;
	conn_queue(conn)->send_room--;
	conn->unsignaled = 0;
	return ring(conn, &wr);
}
