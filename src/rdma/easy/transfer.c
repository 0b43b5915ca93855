/*
 * Writes and reads between registered memory and the space that the peer exposes: posted, and
 * called back when they are done. What can be told to be wrong here is refused here, so that it
 * does not cost the connection.
 */
#include <inttypes.h>

#include "base/error.h"
#include "rdma/easy/internal.h"

enum rmr_status transfer_in_space(const struct link *link, uint64_t offset, uint64_t length,
				  unsigned right)
{
	uint64_t size;

	if (!link->space)
		return error_set(link->space_status == RMR_OK ? RMR_ACCESS : link->space_status,
				 link->hello.space_size ? "the peer's space cannot be accessed "
							  "from here"
							: "the peer exposes no memory");
	size = rmr_remote_length(link->space);
	if (offset > size || length > size - offset)
		return error_set(RMR_ACCESS,
				 "%" PRIu64 " bytes at %" PRIu64
				 " do not fit into the peer's space of %" PRIu64,
				 length, offset, size);
	if (!(rmr_remote_rights(link->space) & right))
		return error_set(RMR_UNSUPPORTED, "the peer's space does not allow that");
	return RMR_OK;
}

bool transfer_has_room(const struct link *link, enum rmr_op op, const RdmaOptions *options)
{
	return link->works < link->depth && (op < RMR_OP_READ || link->reads < options->maxReads);
}

/* What the program asks for. */
struct transfer {
	enum rmr_op op; /* READ or WRITE */
	const void *local;
	uint32_t lkey; /* 0: whichever it lies in */
	uint64_t offset;
	size_t length;
};

/* RDMA_OK, RDMA_AGAIN or RDMA_ERR. Under the lane's lock. */
static int post(RdmaConn *conn, struct link *link, const struct transfer *transfer)
{
	bool is_read = transfer->op == RMR_OP_READ;
	struct memory *memory = memory_find_key(
		conn, transfer->lkey, (uint64_t)(uintptr_t)transfer->local, transfer->length);
	struct rmr_work work = {.op = transfer->op,
				.flags = runtime_is_here() ? RMR_MORE : 0,
				.cookie = (uint64_t)transfer->length << 3 |
					  (is_read ? COOKIE_READ : COOKIE_WRITE),
				.source = transfer->local,
				.length = transfer->length,
				.remote = link->space,
				.offset = transfer->offset};
	int posted;

	if (!memory || transfer->length == 0) {
		error_set(RMR_INVALID, "%zu bytes at %p are not in memory of rdmaConnRegMem()%s",
			  transfer->length, transfer->local,
			  transfer->lkey ? " with that key" : "");
		return RDMA_ERR;
	}
	if (transfer_in_space(link, transfer->offset, transfer->length,
			      is_read ? RMR_READ : RMR_WRITE) != RMR_OK ||
	    memory_region(memory, link->lane, &work.region) != RMR_OK)
		return RDMA_ERR;
	if (!transfer_has_room(link, work.op, &conn->options))
		return RDMA_AGAIN;
	posted = rmr_post(link->fabric, &work, 1);
	if (posted <= 0)
		return posted < 0 ? RDMA_ERR : RDMA_AGAIN;
	link->works++;
	link->reads += is_read;
	return RDMA_OK;
}

/* A write with an immediate: the data, then the record that tells of it. Both or none. */
static int post_with_imm(RdmaConn *conn, struct link *link, const struct transfer *transfer,
			 uint32_t immediate)
{
	struct wire_written written = {.offset = transfer->offset, .length = transfer->length};
	enum rmr_status status = memory_tell(conn, link);
	int result;

	if (status != RMR_OK)
		return status == RMR_AGAIN ? RDMA_AGAIN : RDMA_ERR;
	if (!out_has_room(link, sizeof(written))) {
		out_want(link, sizeof(written));
		return RDMA_AGAIN;
	}
	result = post(conn, link, transfer);
	if (result == RDMA_OK) {
		out_put(link, RECORD_WRITTEN, immediate, &written, sizeof(written));
		out_touch(link);
	}
	return result;
}

static int leave(struct lane *lane, int result)
{
	if (result != RDMA_ERR)
		lane_leave(lane);
	lane_lock_give(&lane->lock);
	return result == RDMA_ERR ? easy_fail() : result;
}

/* From where the last one of its kind has ended. immediate may be NULL. */
static int post_next(RdmaConn *conn, struct transfer *transfer, const uint32_t *immediate)
{
	struct link *link;
	int result = RDMA_ERR;

	lane_lock_take(&conn->lane->lock);
	link = conn_link(conn);
	if (link) {
		uint64_t *position =
			transfer->op == RMR_OP_READ ? &link->read_position : &link->write_position;

		transfer->offset = *position;
		result = immediate ? post_with_imm(conn, link, transfer, *immediate)
				   : post(conn, link, transfer);
		if (result == RDMA_OK)
			*position += transfer->length;
	}
	return leave(conn->lane, result);
}

size_t rdmaConnWrite(RdmaConn *conn, const void *data, size_t data_len)
{
	struct transfer transfer = {.op = RMR_OP_WRITE, .local = data, .length = data_len};
	int result = post_next(conn, &transfer, NULL);

	return result == RDMA_OK ? data_len : result == RDMA_AGAIN ? 0 : RDMA_SEND_ERR;
}

int rdmaConnWriteWithImm(RdmaConn *conn, uint32_t imm_data, const void *data, size_t data_len)
{
	struct transfer transfer = {.op = RMR_OP_WRITE, .local = data, .length = data_len};

	return post_next(conn, &transfer, &imm_data);
}

int rdmaConnRead(RdmaConn *conn, void *data_buf, size_t buf_len)
{
	struct transfer transfer = {.op = RMR_OP_READ, .local = data_buf, .length = buf_len};

	return post_next(conn, &transfer, NULL);
}

int rdmaConnSeek(RdmaConn *conn, uint64_t write_position, uint64_t read_position)
{
	struct link *link;
	int result = RDMA_ERR;

	lane_lock_take(&conn->lane->lock);
	link = conn_link(conn);
	if (link && transfer_in_space(link, write_position, 0, RMR_WRITE) == RMR_OK &&
	    transfer_in_space(link, read_position, 0, RMR_READ) == RMR_OK) {
		link->write_position = write_position;
		link->read_position = read_position;
		result = RDMA_OK;
	}
	return leave(conn->lane, result);
}

static int post_at(RdmaConn *conn, const struct transfer *transfer)
{
	struct link *link;
	int result = RDMA_ERR;

	lane_lock_take(&conn->lane->lock);
	link = conn_link(conn);
	if (link)
		result = post(conn, link, transfer);
	return leave(conn->lane, result);
}

int rdmaPAWriteSignaled(RdmaConn *conn, uint64_t local_addr, uint32_t lkey, uint64_t remote_addr,
			uint32_t length)
{
	return post_at(conn, &(struct transfer){.op = RMR_OP_WRITE,
						.local = (const void *)(uintptr_t)local_addr,
						.lkey = lkey,
						.offset = remote_addr,
						.length = length});
}

int rdmaPAReadSignaled(RdmaConn *conn, uint64_t local_addr, uint32_t lkey, uint64_t remote_addr,
		       uint32_t length)
{
	return post_at(conn, &(struct transfer){.op = RMR_OP_READ,
						.local = (const void *)(uintptr_t)local_addr,
						.lkey = lkey,
						.offset = remote_addr,
						.length = length});
}
