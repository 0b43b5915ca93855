/*
 * Messages: copied into the ring, and gone. In a callback they leave when the batch of callbacks is
 * over, with one doorbell for all; from other threads at once.
 */
#include "base/error.h"
#include "rdma/easy/internal.h"

/* 1: taken. 0: no room. RDMA_ERR. Under the lane's lock. */
static int put(RdmaConn *conn, enum wire_kind kind, uint32_t immediate, const void *data,
	       size_t length)
{
	struct link *link = conn_link(conn);

	if (!link)
		return RDMA_ERR;
	if (length > wire_max_payload(link->out_size)) {
		error_set(RMR_TOO_LONG, "%zu bytes; the peer takes messages up to %zu", length,
			  (size_t)wire_max_payload(link->out_size));
		return RDMA_ERR;
	}
	if (__builtin_expect(conn->has_tellings, 0)) {
		enum rmr_status status = memory_tell(conn, link);

		if (status != RMR_OK)
			return status == RMR_AGAIN ? 0 : RDMA_ERR;
	}
	if (!out_put(link, kind, immediate, data, length)) {
		/* Perhaps credit has come that nobody has looked at yet; or the peer waits for what
		 * was held back. */
		lane_collect(link->lane);
		out_flush(link);
		if (!out_put(link, kind, immediate, data, length)) {
			out_want(link, length);
			return 0;
		}
	}
	out_touch(link);
	return 1;
}

static int send(RdmaConn *conn, enum wire_kind kind, uint32_t immediate, const void *data,
		size_t length)
{
	struct lane *lane = conn->lane;
	int result;

	lane_lock_take(&lane->lock);
	result = put(conn, kind, immediate, data, length);
	if (result != RDMA_ERR)
		lane_leave(lane);
	lane_lock_give(&lane->lock);
	if (result == RDMA_ERR)
		easy_fail();
	return result;
}

size_t rdmaConnSend(RdmaConn *conn, const void *data, size_t data_len)
{
	int result;

	if (!data || !data_len) {
		error_set(RMR_INVALID, "a message has at least one byte");
		easy_fail();
		return RDMA_SEND_ERR;
	}
	result = send(conn, RECORD_MESSAGE, 0, data, data_len);
	return result == RDMA_ERR ? RDMA_SEND_ERR : result == 0 ? 0 : data_len;
}

size_t rdmaConnSendWithImm(RdmaConn *conn, uint32_t imm_data, const void *data, size_t data_len)
{
	int result;

	if (!data && data_len) {
		error_set(RMR_INVALID, "%zu bytes of nothing", data_len);
		easy_fail();
		return RDMA_SEND_ERR;
	}
	result = send(conn, RECORD_MESSAGE_IMM, imm_data, data_len ? data : NULL, data_len);
	return result == RDMA_ERR ? RDMA_SEND_ERR : result == 0 ? 0 : data_len ? data_len : 1;
}
