/*
 * How a value is got.
 *
 *	mapped		the arena is mapped here: reader.h finds and copies it, nobody is asked
 *	location	one READ at the place where the item was seen last
 *	index		READs of bucket and item (get_index.c), if the caller wants that
 *	inline		the server is asked, and the value is in its reply
 *	push		the server is asked, and writes a longer value into our buffer
 *	pieces		one that is longer than our buffer (get_long.c)
 *
 * What was read from afar is believed when its checksum is right (of a long one: or its header is
 * still the same), it has the key, and it is neither dead nor pending: then it was the key's item
 * when its version was read (store/probe.h says why). An item that expires is only believed when it
 * surely had not: store time is known here to within a round trip, and the later end counts. All
 * else is asked for; so is every miss.
 *
 * On one client operations on a key keep their order: a get is sent behind a change of the same key
 * that is still under way, instead of looking by itself.
 */
#include <string.h>
#include <sys/param.h>

#include "base/error.h"
#include "client/internal.h"
#include "store/item.h"
#include "store/size_class.h"

/* Store time is estimated from the last reply; after so long it has to be newer. */
#define CLOCK_GOOD_FOR_MS 10000
/* What clocks may differ by in that time. */
#define CLOCK_DRIFT_MS 10
/* Values from this length on are checked while they are copied, block by block. */
#define COPY_LONG  32768u
#define COPY_BLOCK 8192u
/* A copy of so much takes longer than a question. */
#define MAPPED_LONG ((uint64_t)1 << 20)
/* What is read directly comes in pieces of at least this, and at most so many: all of them are
 * posted at once. */
#define DIRECT_PIECE  131072u
#define DIRECT_PIECES 16u
/* Longer values are pinned, and read in shorter pieces: each that comes is progress. */
#define DIRECT_MAX (64u << 20)

/* ------------------------------------------------------------------------------------------
 * Mapped
 */

int get_mapped(struct kv_client *client, const void *key, size_t key_length, void *value,
	       size_t *length, kv_info_t *info)
{
	struct reader_item item;
	enum reader_status status;
	uint64_t generation;

	if (!life_may_read(client))
		return KV_AGAIN;
	if (client->changes_under_way && call_conflicts(client, NULL, client_hash(key, key_length)))
		return KV_AGAIN;
	generation = client->generation;
	status = reader_get(client->reader, key, key_length, value, *length, &item);
	if (status == READER_ASK)
		return KV_AGAIN;
	if (!life_covers(client)) {
		int proved;

		if (status != READER_FOUND || item_value_length(item.lengths) < MAPPED_LONG)
			return KV_AGAIN;
		/* A long copy may take longer than a sign of life is good for: a short question is
		 * better than another copy. The copy was progress, for the question's deadline. */
		client_progressed(client);
		proved = life_prove(client, generation);
		if (proved != KV_OK)
			return proved;
	}
	client->last_path = KV_PATH_MAPPED;
	client->last_round_trips = 0;
	client->totals.operations[KV_PATH_MAPPED]++;
	if (status == READER_MISS) {
		client->unseen_misses++;
		if (client_must_report(client))
			client_report(client, false);
		return client->last_status = KV_NOT_FOUND;
	}
	*length = item_value_length(item.lengths);
	if (status == READER_NO_ROOM)
		return client->last_status = KV_BUFFER_TOO_SMALL;
	client_touch(client, item.offset, item.version);
	if (info) {
		uint64_t now = item.expires_ms ? reader_clock_ms(&client->link->reader) : 0;

		*info = (kv_info_t){.version = item.version, .length = *length};
		if (item.expires_ms)
			info->ttl_ms = item.expires_ms > now ? item.expires_ms - now : 1;
	}
	if (__builtin_expect(client_must_report(client), 0))
		client_report(client, false);
	return KV_OK;
}

/* ------------------------------------------------------------------------------------------
 * Remembered places
 */

void client_learn(struct kv_client *client, uint64_t hash, const void *key, size_t key_length,
		  const struct kv_reply *reply)
{
	uint64_t size = item_size(key_length, reply->value_length);
	bool is_counter = reply->cell != KV_NO_CELL;
	struct location place = {.hash = hash, .size = (uint32_t)size, .cell = LOCATION_NO_CELL};

	if (!reply->offset || size > UINT32_MAX)
		return;
	/* The cell of a counter that expires is nobody's business: it might be over already. */
	if (is_counter && (reply->cell >= LOCATION_NO_CELL || reply->expires_ms)) {
		locations_forget(&client->locations, hash);
		return;
	}
	if (is_counter) {
		place.cell = (uint32_t)reply->cell;
		place.check = hash64_seed(key, key_length, client->instance);
	} else {
		place.offset = reply->offset;
		place.version = reply->version;
	}
	locations_learn(&client->locations, &place);
}

bool get_is_alive(const struct kv_client *client, uint64_t expires_ms)
{
	const struct link *link = client->link;
	int64_t now;

	if (link->is_mapped)
		return reader_is_alive(&link->reader, expires_ms);
	now = (int64_t)(clock_now_ns() / 1000000);
	return link->clock_ahead_ms != INT64_MAX && now - link->clock_set_ms < CLOCK_GOOD_FOR_MS &&
	       now + link->clock_ahead_ms + CLOCK_DRIFT_MS < (int64_t)expires_ms;
}

/* A long value is copied while its checksum is computed, so that it is fetched once. It may turn
 * out to be wrong: then the caller's memory holds nonsense, and he is told so. */
static bool copy_checked(const struct item *item, const struct item_header *header, uint64_t offset,
			 uint8_t *to)
{
	uint64_t length = item_value_length(header->lengths);
	uint64_t head = item_value_offset(item_key_length(header->lengths), length);
	const uint8_t *from = (const uint8_t *)item + head;
	struct hash_stream stream;

	hash_stream_begin(&stream);
	hash_stream_add(&stream, item->key, head - sizeof(*item));
	for (uint64_t at = 0; at < length; at += COPY_BLOCK) {
		size_t block = MIN(COPY_BLOCK, length - at);

		memcpy(to + at, from + at, block);
		hash_stream_add(&stream, to + at, block);
	}
	return item_has_checksum(header, offset, hash_stream_end(&stream));
}

/* Hashes so many more bytes of a value that is read directly. What stands before it is in the slot
 * since before the value's first byte: if it makes no sense, neither will the checksum. */
static void hash_directly(struct kv_client *client, const struct call *call, uint64_t length)
{
	const struct item *item = (const struct item *)call->slot;
	struct direct_read *direct = &client->direct;

	if (!direct->hashed) {
		hash_stream_begin(&direct->stream);
		hash_stream_add(&direct->stream, item->key,
				item_value_offset(call->request.key_length, ITEM_WIDE) -
					sizeof(*item));
	}
	hash_stream_add(&direct->stream, (uint8_t *)call->value + direct->hashed, length);
	direct->hashed += length;
}

void get_take_piece(struct kv_client *client, const struct call *call)
{
	hash_directly(client, call, client->direct.piece);
	client_progressed(client);
}

/* What was read directly has the length that was read, or is another item. */
static bool is_complete_directly(struct kv_client *client, const struct call *call,
				 const struct item_header *header)
{
	uint64_t lengths = header->lengths, length = item_value_length(lengths);

	if (item_size_of(lengths) != call->place.size ||
	    item_key_length(lengths) != call->request.key_length || length <= client->direct.hashed)
		return false;
	hash_directly(client, call, length - client->direct.hashed);
	return item_has_checksum(header, call->place.offset,
				 hash_stream_end(&client->direct.stream));
}

/* Whether what was read is an item; if it is long and fits, it was copied, too. The server may
 * write to our buffer at any moment: so *header is copied once, checked, and all that is used. */
static bool is_complete(struct kv_client *client, const struct call *call, const struct item *item,
			struct item_header *header, bool *is_copied)
{
	uint64_t length;

	if (call->place.size < sizeof(*item))
		return false;
	*header = item_take_header(item);
	if (!item_is_plausible(header, call->place.size))
		return false;
	if (call->is_confirmed)
		return true;
	length = item_value_length(header->lengths);
	*is_copied = call->is_direct || (length >= COPY_LONG && length <= call->room);
	if (call->is_direct)
		return is_complete_directly(client, call, header);
	if (*is_copied)
		return copy_checked(item, header, call->place.offset, call->value);
	return item_has_checksum(header, call->place.offset,
				 hash64(item->key, item_size_of(header->lengths) - sizeof(*item)));
}

bool get_accept(struct kv_client *client, struct call *call, const uint8_t *bytes)
{
	const struct item *item = (const struct item *)bytes;
	size_t key_length = call->request.key_length;
	struct item_header header = {0};
	uint64_t length;
	bool is_copied = false;

	/* Nobody waits for it any more. */
	if (!call->value && call->room)
		return false;
	if (!is_complete(client, call, item, &header, &is_copied)) {
		client->totals.torn_reads += header.version != 0;
		return false;
	}
	if (!get_is_wanted(client, item, &header, call->key, key_length))
		return false;
	length = item_value_length(header.lengths);
	call->length = length;
	call->reply = (struct kv_reply){.version = header.version,
					.value_length = length,
					.expires_ms = header.expiry,
					.offset = call->place.offset,
					.cell = KV_NO_CELL};
	if (length > call->room) {
		call->status = KV_BUFFER_TOO_SMALL;
		return true;
	}
	if (length && !is_copied)
		memcpy(call->value, bytes + item_value_offset(key_length, length), length);
	client_touch(client, call->place.offset, call->reply.version);
	call->status = KV_OK;
	return true;
}

static uint8_t *memory_of(const struct kv_client *client, const struct call *call)
{
	if (!call->buffer.length)
		return call->slot;
	return (uint8_t *)rmr_arena_base(client->link->buffer) + call->buffer.begin;
}

static void take_location(struct kv_client *client, struct call *call)
{
	if (get_accept(client, call, memory_of(client, call))) {
		locations_confirm(&client->locations, call->hash, call->place.offset,
				  call->reply.version);
		call->path = KV_PATH_LOCATION;
		call_done(client, call, call->status);
		return;
	}
	client->totals.stale_locations++;
	locations_doubt(&client->locations, call->hash);
	call->must_ask = true;
	extents_give(&client->link->buffer_space, &call->buffer);
	call->is_direct = false;
	call->region = NULL;
	call->state = CALL_BEGUN;
}

/*
 * A long value need not be hashed if its header is read again, and is the same.
 *
 * The item had this version, at this place, before the READ of it was posted: that is what is
 * remembered. It has it after all of it has come, for only then the header is read again. No
 * version is given out twice, and items of this length are not moved (life_move), so the item was
 * there all the time; and the bytes of a living item do not change. In which order the adapter has
 * read them is all the same. The get took place when the time to live was read, with the header.
 *
 * All of the header is compared, not the version alone: if the memory belongs to somebody else by
 * now, a small number may well stand there by chance, but not the checksum beside it.
 *
 * Where the peer's processor has to carry out READs it is not asked for another one.
 */
static bool can_be_confirmed(const struct kv_client *client, const struct call *call)
{
	const struct item *item = (const struct item *)memory_of(client, call);
	uint64_t size = call->place.size;

	return size > SLAB_MAX_SIZE && item_size_of(item_get_lengths(item)) == size &&
	       rmr_device_info(client->link->device)->capabilities & RMR_CAP_OFFLOAD &&
	       call->place.version && item_version(item) == call->place.version &&
	       !clock_passed(call_deadline_ns(client, call));
}

static void location_read_again(struct kv_client *client, struct call *call)
{
	call->is_confirmed = memcmp(call->slot, memory_of(client, call), sizeof(struct item)) == 0;
	take_location(client, call); /* by its checksum, if something has changed */
}

static void location_read(struct kv_client *client, struct call *call)
{
	struct rmr_work work = {.op = RMR_OP_READ,
				.remote = client->link->arena,
				.offset = call->place.offset,
				.length = sizeof(struct item),
				.local = call->slot,
				.region = client->link->slots_region};

	if (!can_be_confirmed(client, call)) {
		take_location(client, call);
		return;
	}
	call->read_done = location_read_again;
	/* What is here counts, also when nothing can be asked for any more. */
	if (call_post_read(client, call, &work, CALL_READING) != KV_OK)
		take_location(client, call);
}

void get_continue(struct call *call, const struct location *place)
{
	call->place = *place;
	call->read_done = location_read;
	call->state = CALL_READING;
	call->round_trips = 1;
}

/* The value to where the caller wants it, the rest to the slot. KV_AGAIN: that cannot be done. */
static int read_directly(struct kv_client *client, struct call *call)
{
	struct link *link = client->link;
	uint64_t head = item_value_offset(call->request.key_length, ITEM_WIDE), left, piece;
	struct rmr_work work = {.op = RMR_OP_READ,
				.flags = RMR_UNSIGNALED,
				.remote = link->arena,
				.offset = call->place.offset,
				.length = head,
				.local = call->slot,
				.region = link->slots_region};

	if (call->is_async || !link->callers_region || head > link->max_send ||
	    call->place.size > DIRECT_MAX || call->place.size < head + ITEM_WIDE ||
	    call->place.size - head > call->room)
		return KV_AGAIN;
	call->is_direct = true;
	call->region = link->callers_region;
	call->read_done = location_read;
	client->direct.hashed = 0;
	piece = client->direct.piece = MAX(DIRECT_PIECE, (call->place.size - head) / DIRECT_PIECES);
	if (call_post_part(client, &work) != KV_OK)
		return KV_DISCONNECTED;
	work.flags = 0;
	work.offset += head;
	work.local = call->value;
	work.region = link->callers_region;
	/* The last one is no shorter than the others: it ends behind the value's last byte. */
	for (left = call->place.size - head; left >= 2 * piece; left -= piece) {
		work.length = piece;
		if (call_post_piece(client, call, &work) != KV_OK)
			return KV_DISCONNECTED;
		work.offset += piece;
		work.local = (uint8_t *)work.local + piece;
	}
	work.length = left;
	return call_post_read(client, call, &work, CALL_READING);
}

/* KV_AGAIN: nothing is remembered, or it is too long. */
static int location_start(struct kv_client *client, struct call *call)
{
	struct link *link = client->link;
	const struct location *place = locations_find(&client->locations, call->hash);
	struct rmr_work work = {.op = RMR_OP_READ, .remote = link->arena};
	uint64_t generation;
	int status;

	if (!place || !place->offset || place->offset > link->arena_length ||
	    place->size > link->arena_length - place->offset)
		return KV_AGAIN;
	call->place = *place;
	work.offset = place->offset;
	work.length = place->size;
	work.region = link->slots_region;
	if (work.length > link->max_send) {
		status = read_directly(client, call);
		if (status != KV_AGAIN)
			return status;
		if (work.length > client->options.buffer_size ||
		    work.length > rmr_device_info(link->device)->max_transfer)
			return KV_AGAIN;
		generation = link->generation;
		status = link_need_buffer(client);
		if (status != KV_OK || !client->link || client->link->generation != generation)
			return status;
		status = call_take_space(client, call, work.length, 0);
		if (status != KV_OK)
			return status;
		work.region = link->buffer_region;
	}
	work.local = memory_of(client, call);
	call->read_done = location_read;
	return call_post_read(client, call, &work, CALL_READING);
}

/* ------------------------------------------------------------------------------------------
 * Asking
 */

/* A value may be too long for a reply: room in our buffer, as much as is likely to be needed. */
static int prepare_push(struct kv_client *client, struct call *call)
{
	uint64_t wanted = call->push_length ? call->push_length : call->room;
	struct link *link = client->link;
	int status;

	wanted = MIN(wanted, link->buffer_space.size);
	/* Only what is known to be needed is worth waiting for. */
	if (call->push_length) {
		status = call_take_space(client, call, wanted, 0);
		if (status != KV_OK)
			return status;
	} else if (call->is_async || !extents_take(&link->buffer_space, wanted, &call->buffer)) {
		return KV_OK;
	}
	call->request.flags |= KV_PUSH;
	call->request.place = call->buffer.begin;
	call->request.value_length = MIN(call->request.value_length, call->buffer.length);
	return KV_OK;
}

static void get_take(struct kv_client *client, struct call *call, const struct kv_reply_view *view)
{
	const struct kv_reply *reply = &view->header;
	const uint8_t *from = view->value;

	call->length = reply->value_length;
	if (call->status == KV_BUFFER_TOO_SMALL && reply->value_length <= call->room) {
		/* Ours was too small, not the caller's. */
		extents_give(&client->link->buffer_space, &call->buffer);
		/* Or the server pushes no value of that length, or no more for now. */
		if (reply->value_length > client->options.buffer_size ||
		    client->link->has_no_buffer ||
		    (call->request.flags & KV_PUSH &&
		     reply->value_length <= call->request.value_length)) {
			call_done(client, call, CALL_TOO_LONG);
			return;
		}
		call->push_length = reply->value_length;
		call->state = CALL_BEGUN;
		return;
	}
	if (call->status == KV_NOT_FOUND)
		locations_forget(&client->locations, call->hash);
	if (call->status != KV_OK)
		return;
	call_learn(client, call);
	if (reply->flags & KV_PUSHED) {
		from = memory_of(client, call);
		call->path = KV_PATH_PUSH;
	}
	if (!from ? reply->value_length != 0
		  : reply->value_length > call->room ||
			    (reply->flags & KV_PUSHED
				     ? reply->value_length > call->buffer.length
				     : reply->value_length != view->value_length)) {
		call->status =
			client_fail(client, KV_PROTOCOL, "a value of another length than it says");
		return;
	}
	if (reply->value_length && call->value)
		memcpy(call->value, from, reply->value_length);
}

static int get_start(struct kv_client *client, struct call *call)
{
	struct link *link = client->link;
	int status = KV_AGAIN;

	call->is_direct = false;
	call->is_confirmed = false;
	if (!call->must_ask && link->arena && !link->is_mapped &&
	    client->options.get_mode != KV_GET_ASK && !call_conflicts(client, call, call->hash)) {
		status = location_start(client, call);
		if (status == KV_AGAIN && client->options.get_mode == KV_GET_INDEX)
			status = index_start(client, call);
		if (status != KV_AGAIN)
			return status;
	}
	call->path = KV_PATH_INLINE;
	call->request.flags = 0;
	call->request.value_length = call->room;
	call->take = get_take;
	if (call->room > link->reply_room || call->push_length) {
		uint64_t generation = link->generation;

		status = link_need_buffer(client);
		if ((status != KV_OK && status != KV_BUSY) || !client->link ||
		    client->link->generation != generation)
			return status;
		/* Without a buffer there is no push: a long value is pinned, and copied by us. */
		if (status == KV_OK)
			status = prepare_push(client, call);
		if (status != KV_OK && status != KV_BUSY)
			return status;
	}
	return call_ask(client, call);
}

int get_begin(struct kv_client *client, const void *key, size_t key_length, void *value,
	      size_t room, bool may_wait, struct call **result)
{
	struct call *call;
	int status = call_begin(client, KV_OP_GET, key, key_length, may_wait, &call);

	if (status != KV_OK)
		return status;
	call->start = get_start;
	call->value = value;
	call->room = room;
	*result = call;
	return KV_OK;
}

/* ------------------------------------------------------------------------------------------
 * The calls
 */

void info_from_reply(const struct kv_reply *reply, kv_info_t *info)
{
	*info = (kv_info_t){.version = reply->version, .length = reply->value_length};
	if (!reply->expires_ms)
		return;
	info->ttl_ms = reply->expires_ms > reply->server_time_ms
			       ? reply->expires_ms - reply->server_time_ms
			       : 1;
}

/* Time left of what was read one-sidedly, where no reply tells the server's time. */
void get_set_time(const struct kv_client *client, struct kv_reply *reply)
{
	int64_t ahead = client->link ? client->link->clock_ahead_ms : INT64_MAX;

	if (reply->expires_ms && !reply->server_time_ms && ahead != INT64_MAX)
		reply->server_time_ms = (uint64_t)((int64_t)(clock_now_ns() / 1000000) + ahead);
}

/* call: NULL, or the get that is under way. */
static int get_slowly(struct kv_client *client, const void *key, size_t key_length, void *value,
		      size_t *length, kv_info_t *info, struct call *call)
{
	uint64_t outer_ns = client->deadline_ns;
	struct kv_reply reply;
	size_t found;
	int status;

	if (!call) {
		status = get_begin(client, key, key_length, value, *length, true, &call);
		if (status != KV_OK)
			return status;
	}
	if (client->link && *length > client->link->reply_room)
		(void)link_register(client, value, *length);
	status = call_run(client, call);
	reply = call->reply;
	found = call->length;
	if (status == CALL_TOO_LONG)
		client->deadline_ns = call->deadline_ns; /* for all of it */
	call_finish(client, call, NULL);
	link_unregister(client);
	if (status == CALL_TOO_LONG) {
		status = get_in_pieces(client, key, key_length, value, length, info);
		client->deadline_ns = outer_ns;
		return status;
	}
	if (status == KV_OK || status == KV_BUFFER_TOO_SMALL)
		*length = found;
	get_set_time(client, &reply);
	if (status == KV_OK && info)
		info_from_reply(&reply, info);
	return status;
}

int kv_client_get_with(kv_client_t *client, const void *key, size_t key_length, void *value,
		       size_t *length, kv_info_t *info)
{
	struct call *call = NULL;
	int status = KV_AGAIN;

	if (!client)
		return KV_INVALID;
	if (!key_is_right(key, key_length))
		return client_bad_key(client, key_length);
	if (!length || (!value && *length))
		return client_fail(client, KV_INVALID, "get: no buffer for the value");
	client_improve(client);
	if (client->link && client->link->is_mapped)
		status = get_mapped(client, key, key_length, value ? value : (void *)"", length,
				    info);
	else if (client->link && value)
		status = get_quickly(client, key, key_length, value, length, info, &call);
	if (status != KV_AGAIN)
		return status;
	return get_slowly(client, key, key_length, value, length, info, call);
}

int kv_client_get(kv_client_t *client, const void *key, size_t key_length, void *value,
		  size_t *length)
{
	return kv_client_get_with(client, key, key_length, value, length, NULL);
}
