/*
 * Requests that are done become completions of works.
 *
 * Requests of a queue pair are carried out in order, so a successful entry means that all before it
 * succeeded too; entries of unsignaled ones do not come. A failed entry is followed by one for each
 * request behind it; but we do not wait for those (internal.h): the first failure ends the
 * connection, and whatever is left fails when the queue pair is gone.
 */
#include "base/log.h"
#include "fabric/verbs/internal.h"

/* All requests before number `end` are done. */
static void requests_done(struct verbs_conn *conn, uint32_t end)
{
	conn_queue(conn)->send_room += end - conn->done;
	conn->done = end;
	if ((int32_t)(end - conn->last_probe) > 0)
		conn->probes = 0;
}

/* All works whose last request is before number `end` have succeeded. */
static inline void works_done(struct verbs_conn *conn, uint32_t end)
{
	while (conn->head != conn->next) {
		const struct verbs_work *work = &conn->works[conn->head & conn->work_mask];

		if ((int32_t)(work->last - end) >= 0)
			break;
		conn->head++;
		conn_completed(&conn->base, work->op, work->flags, work->cookie, work->length,
			       RMR_OK);
	}
}

/* The work that a request belongs to, if it is the first one left. */
static const struct verbs_work *owner_of(const struct verbs_conn *conn, uint32_t number)
{
	const struct verbs_work *work = &conn->works[conn->head & conn->work_mask];
	bool begun = conn->head != conn->next || (conn->head != conn->tail && work->started > 0);

	return begun && (int32_t)(number - work->first) >= 0 ? work : NULL;
}

static enum rmr_status status_of(enum ibv_wc_status status, const struct verbs_work *work)
{
	switch (status) {
	case IBV_WC_REM_ACCESS_ERR: /* the peer's region, or its rights */
	case IBV_WC_LOC_PROT_ERR:   /* our region, closed meanwhile */
	case IBV_WC_LOC_ACCESS_ERR:
		return RMR_ACCESS;
	case IBV_WC_REM_INV_REQ_ERR: /* a SEND too long for its slot, an atomic unaligned */
		return work && work->op != RMR_OP_SEND ? RMR_ACCESS : RMR_PROTOCOL;
	case IBV_WC_LOC_LEN_ERR:
	case IBV_WC_BAD_RESP_ERR:
		return RMR_PROTOCOL;
	default: /* retries used up, flushed, port down, the peer's queue pair is broken */
		return RMR_DISCONNECTED;
	}
}

void complete_take(struct verbs_queue *queue, const struct ibv_wc *wc)
{
	struct verbs_conn *conn = queue_find_conn(queue, wc->qp_num);
	uint32_t number = (uint32_t)wc->wr_id;
	const struct verbs_work *work;

	if (!conn)
		return;
	if (wc->status == IBV_WC_SUCCESS) {
		requests_done(conn, number + 1);
		works_done(conn, number + 1);
		if (conn->next != conn->tail && list_is_empty(&conn->starved_link))
			post_start(conn);
		return;
	}
	if (conn->broken)
		return;
	conn->broken = true;
	works_done(conn, number);
	if (conn->state >= CONN_ENDING)
		return;
	work = owner_of(conn, number);
	conn->has_culprit = work != NULL;
	log_info("%s: connection to %s: %s (0x%x)", queue->base.device->info.name, conn->base.peer,
		 ibv_wc_status_str(wc->status), wc->vendor_err);
	verbs_conn_fail(conn, status_of(wc->status, work));
}

void complete_rest(struct verbs_conn *conn)
{
	bool first = true;

	requests_done(conn, conn->posted);
	for (; conn->head != conn->tail; conn->head++) {
		const struct verbs_work *work = &conn->works[conn->head & conn->work_mask];
		enum rmr_status status = RMR_CANCELED;

		/* The one that failed, or the first of which nobody knows how far it got. */
		if (first && conn->has_culprit)
			status = conn->failure;
		else if (first && (conn->head != conn->next || work->started > 0))
			status = RMR_DISCONNECTED;
		first = false;
		conn_completed(&conn->base, work->op, work->flags, work->cookie, 0, status);
	}
	conn->next = conn->head;
}
