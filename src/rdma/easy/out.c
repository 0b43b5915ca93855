/*
 * Our records on their way into the peer's ring.
 *
 *	   credited        completed      announced     written         head
 *	------+----------------+--------------+------------+--------------+------
 *	 free |  the peer has  | the image    | the peer   | in the       | only in
 *	      |  to consume it | is needed    | knows      | peer's ring  | the image
 *
 * A message is copied once into `target`. Where the peer's ring is mapped here, that is the ring
 * itself, and announcing it takes a WRITE_IMM of nothing; elsewhere it is our image of the ring,
 * and the same bytes at the same offset are written. What was put since the last time goes with one
 * WRITE_IMM, however many records that are: callbacks that send a lot cost one doorbell. When
 * the connection takes no more for the moment, the next flush takes what has gathered by then.
 *
 * A short message that nothing follows takes a shorter way where the ring is mapped: it is put
 * together in `stage`, and a SEND brings it. The receiver puts it into its ring where it belongs,
 * and goes on as if it had been written there. So it crosses from core to core in one cache line,
 * not in two. If another one follows before it has left, it goes into the ring after all.
 *
 * The image may be reused when the write is complete. One in signal_every is signaled, and one at
 * least every eighth of the ring: so no more than that ever waits for a completion that is not
 * asked for. Under the lane's lock, all of it.
 */
#include <string.h>

#include "rdma/easy/internal.h"

#define PIECE 1024u

/* So many bytes are announced although more may follow: the peer can begin. In a mapped ring the
 * announcement is what costs, and every one makes the two cores wait for each other's cache lines:
 * larger pieces were a tenth quicker there, and on tcp a little slower. */
static uint64_t enough(const struct link *link)
{
	return link->out_size / (link->is_mapped ? 8 : 16);
}

static uint64_t room(const struct link *link)
{
	uint64_t floor = link->credited;

	if (!link->is_mapped && link->completed < floor)
		floor = link->completed;
	return link->out_size - WIRE_UNIT - (link->head - floor);
}

/* What the record needs, with what it skips at the end of the ring. */
static uint64_t need(const struct link *link, size_t length)
{
	uint64_t size = wire_room(length);
	uint64_t to_end = link->out_size - (link->head & (link->out_size - 1));

	return size > to_end ? to_end + size : size;
}

bool out_has_room(const struct link *link, size_t length)
{
	return need(link, length) <= room(link);
}

void out_want(struct link *link, size_t length)
{
	link->wanted = need(link, length);
}

/* The record that waits goes into the ring after all: another one follows. */
static void unstage(struct link *link)
{
	memcpy(link->target + (link->announced & (link->out_size - 1)), link->stage, link->staged);
	link->staged = 0;
}

/* Where the next record, so large, is put together. */
static uint8_t *place(struct link *link, uint64_t size)
{
	if (link->head == link->announced && size <= link->max_short) {
		link->staged = (uint32_t)size;
		return link->stage;
	}
	if (link->staged)
		unstage(link);
	return link->target + (link->head & (link->out_size - 1));
}

/* A long memcpy is one instruction (rep movsb) where the C library takes that to be quick, and an
 * emulator carries that out byte by byte: messages of 64 KiB then take a tenth longer. Piece by
 * piece it is done by vectors, and elsewhere that costs nothing; but for a mapped ring, where the
 * copy is all there is, and a tenth slower so. (The length of a piece is no constant: the compiler
 * would make such an instruction of it.) */
static void copy(const struct link *link, uint8_t *to, const uint8_t *from, size_t length)
{
	size_t most = link->is_mapped ? length : PIECE;

	while (length > 0) {
		size_t part = length < most ? length : most;

		memcpy(to, from, part);
		to += part;
		from += part;
		length -= part;
	}
}

static void put(struct link *link, enum wire_kind kind, uint32_t immediate, const void *payload,
		size_t length)
{
	uint64_t size = wire_room(length);
	uint8_t *at = place(link, size);
	/* Two words, as struct wire_record has them: what is stored by halves cannot be loaded as a
	 * whole right away, and that is just what a SEND does. */
	const uint64_t record[2] = {(uint64_t)(uint32_t)length | (uint64_t)kind << 32 |
					    (uint64_t)link->out_sequence++ << 48,
				    immediate};

	memcpy(at, record, sizeof(record));
	if (payload)
		copy(link, at + sizeof(record), payload, length);
	link->head += size;
}

bool out_put(struct link *link, enum wire_kind kind, uint32_t immediate, const void *payload,
	     size_t length)
{
	uint64_t to_end = link->out_size - (link->head & (link->out_size - 1));

	if (!out_has_room(link, length))
		return false;
	if (wire_room(length) > to_end) {
		link->skipped = to_end - WIRE_UNIT;
		put(link, RECORD_SKIP, 0, NULL, link->skipped);
	}
	put(link, kind, immediate, payload, length);
	return true;
}

/* In a callback more may follow, of this one or the next; but for the first message of the last. */
static bool may_wait(const struct link *link)
{
	if (!runtime_is_here() || link->head - link->announced >= enough(link))
		return false;
	if (!loop.is_last)
		return true;
	loop.is_last = false;
	return false;
}

void out_touch(struct link *link)
{
	if ((may_wait(link) || !out_flush(link)) && list_is_empty(&link->dirty_link))
		list_add_tail(&link->lane->dirty, &link->dirty_link);
}

/* Should the write that ends at head be signaled, and what for? */
static void sign(struct link *link, struct rmr_work *work)
{
	if (link->is_mapped || (link->unsignaled + 1 < link->signal_every &&
				link->head - link->signaled < link->out_size / 8))
		return;
	work->flags &= ~(unsigned)RMR_UNSIGNALED;
	work->cookie = link->head << 3 | COOKIE_RING;
}

/* Makes it a write of the image from `written` on, so long. */
static void fill_piece(struct link *link, struct rmr_work *work, uint64_t length)
{
	uint64_t offset = link->written & (link->out_size - 1);

	work->remote = link->ring_remote;
	work->length = length;
	if (length == 0)
		return;
	work->offset = offset;
	work->source = link->image + offset;
	work->region = link->image_region;
	if (length <= link->max_inline)
		work->flags |= RMR_INLINE;
}

/* What lies up to the end of the ring, when records go on at its beginning; but not what is skipped
 * there, which may be as long as a message. (head - written is less than the ring, so it goes
 * across the end once at most, and `skipped` is of that time.) */
static bool write_end(struct link *link)
{
	uint64_t offset = link->written & (link->out_size - 1);
	uint64_t to_end = link->out_size - offset;
	struct rmr_work work = {.op = RMR_OP_WRITE, .flags = RMR_UNSIGNALED | RMR_MORE};

	if (link->head - link->written <= to_end)
		return true;
	fill_piece(link, &work, to_end - link->skipped);
	if (rmr_post(link->fabric, &work, 1) != 1)
		return false;
	link->written += to_end;
	link->skipped = 0;
	return true;
}

/* Makes it the work that announces all that was put. */
static void fill_announcement(struct link *link, struct rmr_work *work)
{
	if (link->staged) {
		work->op = RMR_OP_SEND;
		work->flags |= RMR_INLINE;
		work->source = link->stage;
		work->length = link->staged;
		return;
	}
	if (link->is_mapped)
		link->written = link->head;
	work->op = RMR_OP_WRITE_IMM;
	work->immediate = (uint32_t)((link->head & (link->out_size - 1)) / WIRE_UNIT);
	fill_piece(link, work, link->head - link->written);
}

bool out_flush(struct link *link)
{
	struct rmr_work work = {.flags = RMR_UNSIGNALED};

	if (link->announced == link->head)
		return true;
	if (!link->is_introduced || link->is_ended)
		return false;
	if (!link->is_mapped && !write_end(link))
		return false;
	fill_announcement(link, &work);
	sign(link, &work);
	if (rmr_post(link->fabric, &work, 1) == 0)
		return false;
	/* If it failed the connection is lost, and soon we are told. */
	link->unsignaled++;
	if (!(work.flags & RMR_UNSIGNALED)) {
		link->signaled = link->head;
		link->unsignaled = 0;
	}
	link->staged = 0;
	link->written = link->announced = link->head;
	return true;
}

/* There is more room than before, perhaps enough for who waits. */
static void tell_of_room(struct link *link)
{
	if (link->is_leaving)
		easy_link_say_bye(link);
	if (link->wanted && room(link) >= link->wanted && !link->is_sendable) {
		link->wanted = 0;
		link->is_sendable = true;
		lane_push(link->lane, link, EVENT_SENDABLE, 0);
	}
}

void out_complete(struct link *link, uint64_t position)
{
	if (position <= link->completed)
		return;
	link->completed = position;
	tell_of_room(link);
}

void out_credit(struct link *link, uint32_t units)
{
	uint64_t bytes = (uint64_t)units * WIRE_UNIT;

	if (bytes == 0 || bytes > link->announced - link->credited) {
		link->status = RMR_PROTOCOL;
		strcpy(link->reason, "the peer gives credit for what it was not sent");
		lane_push(link->lane, link, EVENT_ENDED, 0);
		return;
	}
	link->credited += bytes;
	tell_of_room(link);
}
