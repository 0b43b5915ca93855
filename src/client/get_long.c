/*
 * Values that are longer than our buffer: the server pins the item, which keeps its place and bytes
 * then, we READ it piece by piece, and let it go. Nothing can tear, so no checksum is needed, and
 * pieces follow each other without waiting.
 */
#include <string.h>
#include <sys/param.h>
#include <unistd.h>

#include "client/internal.h"
#include "store/item.h"

#define PIECES_AT_ONCE 4u
#define MAX_PIECE      ((size_t)1 << 20)
#define BUSY_US	       1000

void client_unpin(struct kv_client *client, uint64_t handle)
{
	if (client->link && !client->link->is_lost)
		(void)call_tell(client, KV_OP_UNPIN, handle, true);
}

bool pinned_place(const struct kv_client *client, const struct kv_reply *reply, size_t key_length,
		  uint64_t *offset)
{
	size_t arena = client->link->arena_length;
	uint64_t before;

	if (reply->value_length > arena || reply->offset > arena)
		return false;
	before = reply->offset + item_value_offset(key_length, reply->value_length);
	*offset = before;
	return before <= arena && reply->value_length <= arena - before;
}

/* ------------------------------------------------------------------------------------------
 * Pieces. A call's `place.offset` is where the piece lies, `cookie` the link that it was pinned on.
 */

static void piece_read(struct kv_client *client, struct call *call)
{
	memcpy(call->value, (uint8_t *)rmr_arena_base(client->link->buffer) + call->buffer.begin,
	       call->room);
	call_done(client, call, KV_OK);
}

static int piece_start(struct kv_client *client, struct call *call)
{
	struct link *link = client->link;
	struct rmr_work work = {.op = RMR_OP_READ,
				.remote = link->arena,
				.offset = call->place.offset,
				.length = call->room};
	int status;

	if (link->generation != call->cookie) {
		/* That pin is gone. */
		call_done(client, call, KV_AGAIN);
		return KV_OK;
	}
	status = call_take_space(client, call, call->room, 0);
	if (status != KV_OK)
		return status;
	work.local = (uint8_t *)rmr_arena_base(link->buffer) + call->buffer.begin;
	work.region = link->buffer_region;
	call->read_done = piece_read;
	return call_post_read(client, call, &work, CALL_READING);
}

static int piece_begin(struct kv_client *client, uint64_t generation, uint64_t offset, void *to,
		       size_t length, struct call **result)
{
	struct call *call;
	int status = call_begin(client, KV_OP_PING, NULL, 0, true, &call);

	if (status != KV_OK)
		return status;
	call->start = piece_start;
	call->path = KV_PATH_NONE;
	call->cookie = generation;
	call->place.offset = offset;
	call->value = to;
	call->room = length;
	call_launch(client, call);
	*result = call;
	return KV_OK;
}

/* What has come of a value, in all attempts. */
struct arrival {
	size_t pieces;	 /* on this link */
	size_t furthest; /* the most that ever were, on any */
};

static int finish_piece(struct kv_client *client, struct call *call, struct arrival *arrival)
{
	int status = call_finish(client, call, NULL);

	if (status == KV_OK && ++arrival->pieces > arrival->furthest) {
		arrival->furthest = arrival->pieces;
		client_progressed(client);
	}
	return status;
}

/* KV_AGAIN: the link was lost; all of it begins again. */
static int read_pieces(struct kv_client *client, uint64_t offset, uint8_t *to, size_t length,
		       struct arrival *arrival)
{
	uint64_t generation = client->link->generation;
	size_t piece = MIN(client->options.buffer_size / PIECES_AT_ONCE, MAX_PIECE) & ~(size_t)63;
	struct call *pieces[PIECES_AT_ONCE] = {0};
	size_t begun = 0;
	int status = KV_OK;

	arrival->pieces = 0;
	for (unsigned i = 0; begun < length && status == KV_OK; i = (i + 1) % PIECES_AT_ONCE) {
		size_t part = MIN(piece, length - begun);

		if (pieces[i])
			status = finish_piece(client, pieces[i], arrival);
		pieces[i] = NULL;
		if (status == KV_OK)
			status = client_progress(client, begun, length);
		if (status == KV_OK)
			status = piece_begin(client, generation, offset + begun, to + begun, part,
					     &pieces[i]);
		begun += part;
	}
	for (unsigned i = 0; i < PIECES_AT_ONCE; i++) {
		int last = pieces[i] ? finish_piece(client, pieces[i], arrival) : KV_OK;

		if (status == KV_OK)
			status = last;
	}
	return status;
}

static int fetch(struct kv_client *client, const struct kv_reply *reply, size_t key_length,
		 void *value, struct arrival *arrival)
{
	uint64_t offset, generation;
	int status;

	if (!client->link->arena)
		return client_fail(client, KV_UNSUPPORTED,
				   "a value of %llu bytes needs a larger buffer_size here",
				   (unsigned long long)reply->value_length);
	if (!pinned_place(client, reply, key_length, &offset))
		return client_fail(client, KV_PROTOCOL, "an item that lies outside the arena");
	generation = client->generation;
	if (client->link->is_mapped) {
		memcpy(value, client->link->reader.memory + offset, reply->value_length);
		/* The server closes a connection before it lets go of the pins: if it is still
		 * there now, nothing changed during the copy. */
		call_turn(client, 0);
		return client->link && client->generation == generation ? KV_OK : KV_AGAIN;
	}
	status = link_need_buffer(client);
	if (!client->link || client->link->is_lost || client->generation != generation)
		return KV_AGAIN;
	if (status != KV_OK)
		return status;
	return read_pieces(client, offset, value, reply->value_length, arrival);
}

int get_in_pieces(struct kv_client *client, const void *key, size_t key_length, void *value,
		  size_t *length, kv_info_t *info)
{
	uint64_t deadline_ns = clock_deadline_ns(client->options.timeout_ms);
	uint64_t outer_ns = client->deadline_ns;
	struct arrival arrival = {0};
	struct kv_reply reply;
	struct call *call;
	int status;

	if (outer_ns)
		deadline_ns = outer_ns;
	client->deadline_ns = deadline_ns;
	do {
		status = call_begin(client, KV_OP_PIN, key, key_length, true, &call);
		if (status != KV_OK)
			break;
		call->path = KV_PATH_NONE;
		status = call_finish(client, call, &reply);
		if (status == KV_BUSY && !clock_passed(deadline_ns)) {
			/* Others hold views of as much as may be held, for a moment. */
			usleep(BUSY_US);
			status = KV_AGAIN;
			continue;
		}
		if (status != KV_OK)
			break;
		if (reply.value_length > *length)
			status = KV_BUFFER_TOO_SMALL;
		else
			status = client->link ? fetch(client, &reply, key_length, value, &arrival)
					      : KV_AGAIN;
		client_unpin(client, reply.number);
	} while (status == KV_AGAIN && !clock_passed(client_later_ns(client, deadline_ns)));
	client->deadline_ns = outer_ns;
	(void)client_ended(client, status);
	if (status == KV_OK || status == KV_BUFFER_TOO_SMALL)
		*length = reply.value_length;
	if (status != KV_OK)
		return status == KV_AGAIN ? client_fail(client, KV_TIMEOUT, "no time left")
					  : status;
	if (info)
		info_from_reply(&reply, info);
	client->last_path = KV_PATH_RENDEZVOUS;
	client->last_round_trips = 3;
	client->totals.operations[KV_PATH_RENDEZVOUS]++;
	return KV_OK;
}
