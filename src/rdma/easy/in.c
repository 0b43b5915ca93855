/*
 * The peer's records in our ring: checked, called back, consumed.
 *
 * The peer may be hostile, and on shm it can change the ring while we read: so a record is copied
 * before it is looked at, and everything in it is checked. (What a message says is the program's to
 * judge; it, too, could change during the callback.) A peer that breaks the rules loses its
 * connection, and nobody else anything.
 *
 * Credit is given back lazily, for an eighth of the ring at a time. The runtime's thread runs this,
 * without the lock; what it shares with others it takes the lock for.
 */
#include <string.h>

#include "base/error.h"
#include "rdma/easy/internal.h"

static void broke_the_rules(struct link *link, const char *how)
{
	loop_end_link(link, RMR_PROTOCOL, how);
}

static bool is_closing(const RdmaConn *conn)
{
	/* Relaxed: a callback that ran before on this thread is seen, and others wait for us. */
	return atomic_load_explicit(&conn->is_closing, memory_order_relaxed);
}

static void deliver(RdmaConn *conn, const void *data, size_t length)
{
	RdmaRecvCallback callback = atomic_load_explicit(&conn->received, memory_order_acquire);

	if (callback && !is_closing(conn))
		callback(conn, data, length);
}

static void deliver_imm(RdmaConn *conn, uint32_t immediate, const void *data, size_t length)
{
	RdmaRecvImmCallback callback =
		atomic_load_explicit(&conn->received_imm, memory_order_acquire);

	if (!callback)
		deliver(conn, data, length);
	else if (!is_closing(conn))
		callback(conn, immediate, data, length);
}

static void take_written(struct link *link, const struct wire_record *record, const void *payload)
{
	RdmaConn *conn = link->conn;
	struct wire_written written;

	if (record->length != sizeof(written)) {
		broke_the_rules(link, "a record of a write that has the wrong length");
		return;
	}
	memcpy(&written, payload, sizeof(written));
	if (written.offset > conn->space.size ||
	    written.length > conn->space.size - written.offset) {
		broke_the_rules(link, "it says that it wrote where it cannot");
		return;
	}
	deliver_imm(conn, record->immediate, (uint8_t *)conn->space.data + written.offset,
		    written.length);
}

static void take_notice(struct link *link, const struct wire_record *record, const void *payload)
{
	enum rmr_status status;

	lane_lock_take(&link->lane->lock);
	status = peer_memory_take(&link->memory, link->fabric, payload, record->length);
	lane_lock_give(&link->lane->lock);
	if (status != RMR_OK)
		broke_the_rules(link, error_chain());
}

static void take(struct link *link, const struct wire_record *record, void *payload)
{
	switch (record->kind) {
	case RECORD_MESSAGE:
		deliver(link->conn, payload, record->length);
		break;
	case RECORD_MESSAGE_IMM:
		deliver_imm(link->conn, record->immediate, payload, record->length);
		break;
	case RECORD_WRITTEN:
		take_written(link, record, payload);
		break;
	case RECORD_NOTICE:
		take_notice(link, record, payload);
		break;
	case RECORD_SKIP:
		break;
	case RECORD_BYE:
		loop_end_link(link, RMR_DISCONNECTED, "the peer closed the connection");
		break;
	default:
		broke_the_rules(link, "a record of an unknown kind");
	}
}

/* Reads it once, whatever the compiler thinks of reading it again. */
static struct wire_record fetch(const void *at)
{
	const volatile uint64_t *words = at;
	const uint64_t copy[2] = {words[0], words[1]};
	struct wire_record record;

	memcpy(&record, copy, sizeof(record));
	return record;
}

/* Is it the record that must come here? */
static bool is_sound(const struct link *link, const struct wire_record *record, uint64_t filled)
{
	uint64_t size = wire_room(record->length);
	uint64_t to_end = link->in_size - (link->consumed & (link->in_size - 1));

	return record->sequence == link->in_sequence && record->reserved == 0 && size <= to_end &&
	       size <= filled - link->consumed;
}

static bool owes_much(const struct link *link)
{
	return link->consumed - link->returned >= link->in_size / 8;
}

bool in_give_credit(struct link *link)
{
	uint64_t units = (link->consumed - link->returned) / WIRE_UNIT;
	struct rmr_work work = {.op = RMR_OP_WRITE_IMM,
				.flags = RMR_UNSIGNALED,
				.remote = link->ring_remote,
				.immediate = WIRE_CREDIT | (uint32_t)units};

	if (!owes_much(link) || link->is_ended)
		return true;
	if (rmr_post(link->fabric, &work, 1) == 0)
		return false;
	link->returned = link->consumed;
	return true;
}

static void give_credit(struct link *link)
{
	struct lane *lane = link->lane;

	lane_lock_take(&lane->lock);
	if (!in_give_credit(link) && list_is_empty(&link->dirty_link))
		list_add_tail(&lane->dirty, &link->dirty_link);
	lane_lock_give(&lane->lock);
}

void in_walk(struct link *link, uint64_t filled)
{
	bool is_last = loop.is_last;

	if (filled - link->consumed >= link->in_size) {
		broke_the_rules(link, "it wrote more into the ring than there is room for");
		return;
	}
	while (link->consumed != filled && !link->is_ended) {
		uint8_t *at = link->ring + (link->consumed & (link->in_size - 1));
		struct wire_record record = fetch(at);

		if (!is_sound(link, &record, filled)) {
			broke_the_rules(link, "something in the ring that is no record");
			return;
		}
		link->in_sequence++;
		loop.is_last = is_last && link->consumed + wire_room(record.length) == filled;
		take(link, &record, at + sizeof(record));
		link->consumed += wire_room(record.length);
		if (owes_much(link))
			give_credit(link);
	}
}
