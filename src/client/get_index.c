/*
 * Looking a key up by READs alone: bucket, then item, and the server's processor has nothing to do
 * with it. For who wants that (KV_GET_INDEX); asking takes one round trip less.
 *
 *	header		once for a connection: where everything lies, how many buckets there are
 *	directory	once for a segment: the page of its buckets
 *	bucket		64 bytes; the depth in its header tells whether the index has grown since
 *	item		as long as its size class is
 *
 * When the index has shrunk, the picture leads to buckets that are not there, or to bytes of
 * something else. Then header and directory are read again.
 *
 * Everything that was read is a hint, and is checked against the arena's length before it is used
 * as an address. Only an item with the right checksum and key is believed (get_accept); in all
 * other cases, and for every miss, the server is asked.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "client/internal.h"
#include "store/probe.h"
#include "store/size_class.h"

#define DIRECTORY_BLOCK 16u /* entries that are READ together */
#define MAX_READS	16u

enum search_step { SEARCH_HEADER, SEARCH_DIRECTORY, SEARCH_BUCKET, SEARCH_ITEM };

struct index_search {
	enum search_step step;
	unsigned reads;
	struct probe probe;
	enum probe_step next; /* after the candidates */
	unsigned candidate;
};

struct index_picture {
	uint64_t hash_seed;
	uint64_t bucket_count;
	uint64_t directory, overflow_directory;
	uint64_t first_item;
	uint64_t size;
	uint32_t page_count;
	uint32_t *pages; /* of segments; 0: not known. Then as many of overflow segments. */
	bool is_old;	 /* it led to something that is no bucket: the index may have shrunk */
};

void index_forget(struct kv_client *client)
{
	if (client->picture)
		free(client->picture->pages);
	free(client->picture);
	client->picture = NULL;
}

static void ask_instead(struct kv_client *client, struct call *call)
{
	extents_give(&client->link->buffer_space, &call->buffer);
	call->must_ask = true;
	call->state = CALL_BEGUN;
}

static void search_read(struct kv_client *client, struct call *call);

/* READs `length` bytes at `offset` into the call's slot or buffer. */
static int fetch(struct kv_client *client, struct call *call, enum search_step step,
		 uint64_t offset, size_t length)
{
	struct link *link = client->link;
	struct rmr_work work = {.op = RMR_OP_READ,
				.remote = link->arena,
				.offset = offset,
				.length = length,
				.local = call->slot,
				.region = link->slots_region};
	size_t arena = link->arena_length;

	if (offset > arena || length > arena - offset || ++call->search->reads > MAX_READS)
		return KV_AGAIN;
	if (length > link->max_send) {
		/* No waiting here: what does not fit at once is asked for. */
		if (!link->buffer || !extents_take(&link->buffer_space, length, &call->buffer))
			return KV_AGAIN;
		work.local = (uint8_t *)rmr_arena_base(link->buffer) + call->buffer.begin;
		work.region = link->buffer_region;
	}
	call->search->step = step;
	call->read_done = search_read;
	return call_post_read(client, call, &work, CALL_LOOKING);
}

/* ------------------------------------------------------------------------------------------
 * The picture
 */

static bool take_header(struct kv_client *client, const uint8_t *bytes)
{
	size_t arena = client->link->arena_length;
	struct store_header header;
	struct index_picture *picture;
	uint64_t table;

	memcpy((void *)&header, bytes, sizeof(header));
	table = (uint64_t)header.page_count * sizeof(uint32_t);
	if (header.magic != STORE_MAGIC || header.layout_version != STORE_LAYOUT_VERSION ||
	    header.instance != client->instance || header.size > arena ||
	    header.size >> STORE_PAGE_BITS < header.page_count || header.page_count == 0 ||
	    header.first_page >= header.page_count || !is_bucket_count(header.bucket_count) ||
	    header.directory > arena || table > arena - header.directory ||
	    header.overflow_directory > arena || table > arena - header.overflow_directory)
		return false;
	/* A store does not change its size. */
	if (client->picture && client->picture->page_count != header.page_count)
		return false;
	if (!client->picture) {
		picture = calloc(1, sizeof(*picture));
		if (!picture)
			return false;
		picture->pages = calloc(2 * (size_t)header.page_count, sizeof(*picture->pages));
		if (!picture->pages) {
			free(picture);
			return false;
		}
		client->picture = picture;
	}
	picture = client->picture;
	if (picture->is_old)
		memset(picture->pages, 0, 2 * (size_t)header.page_count * sizeof(*picture->pages));
	picture->is_old = false;
	picture->hash_seed = header.hash_seed;
	picture->bucket_count = header.bucket_count;
	picture->directory = header.directory;
	picture->overflow_directory = header.overflow_directory;
	picture->first_item = (uint64_t)header.first_page << STORE_PAGE_BITS;
	picture->size = (uint64_t)header.page_count << STORE_PAGE_BITS;
	picture->page_count = header.page_count;
	return true;
}

/* The entry of the bucket's segment; NULL: there cannot be one. */
static uint32_t *page_of(struct index_picture *picture, const struct probe *probe)
{
	uint64_t segment = probe->bucket >> SEGMENT_BITS;

	if (segment >= picture->page_count)
		return NULL;
	return &picture->pages[segment + (probe->in_overflow ? picture->page_count : 0)];
}

static int fetch_directory(struct kv_client *client, struct call *call)
{
	struct index_picture *picture = client->picture;
	const struct probe *probe = &call->search->probe;
	uint64_t first = (probe->bucket >> SEGMENT_BITS) & ~(uint64_t)(DIRECTORY_BLOCK - 1);
	uint64_t count = MIN(DIRECTORY_BLOCK, picture->page_count - first);

	return fetch(client, call, SEARCH_DIRECTORY,
		     (probe->in_overflow ? picture->overflow_directory : picture->directory) +
			     first * sizeof(uint32_t),
		     count * sizeof(uint32_t));
}

static void take_directory(struct index_picture *picture, const struct probe *probe,
			   const uint8_t *bytes)
{
	uint64_t first = (probe->bucket >> SEGMENT_BITS) & ~(uint64_t)(DIRECTORY_BLOCK - 1);
	uint64_t count = MIN(DIRECTORY_BLOCK, picture->page_count - first);

	/* A segment stays where it is until the index shrinks. */
	memcpy(&picture->pages[first + (probe->in_overflow ? picture->page_count : 0)], bytes,
	       count * sizeof(uint32_t));
}

/* ------------------------------------------------------------------------------------------
 * The search
 */

static int fetch_bucket(struct kv_client *client, struct call *call)
{
	struct index_picture *picture = client->picture;
	struct probe *probe = &call->search->probe;
	uint32_t *page = page_of(picture, probe);

	if (!page) {
		picture->is_old = true;
		return KV_AGAIN;
	}
	if (!*page)
		return fetch_directory(client, call);
	return fetch(client, call, SEARCH_BUCKET,
		     ((uint64_t)*page << STORE_PAGE_BITS) +
			     (probe->bucket & (SEGMENT_BUCKETS - 1)) * BUCKET_SIZE,
		     BUCKET_SIZE);
}

/* The next candidate, or the next bucket. */
static int search_on(struct kv_client *client, struct call *call)
{
	struct index_search *search = call->search;

	if (search->candidate < search->probe.candidate_count) {
		uint64_t slot = search->probe.candidates[search->candidate++];
		uint64_t offset = slot_offset(slot), size;

		if (slot_class(slot) >= SLAB_CLASS_COUNT)
			return KV_AGAIN;
		size = size_class_size(slot_class(slot));
		if (offset < client->picture->first_item || offset >= client->picture->size)
			return KV_AGAIN;
		size = MIN(size, client->picture->size - offset);
		call->place = (struct location){.offset = offset, .size = (uint32_t)size};
		return fetch(client, call, SEARCH_ITEM, offset, size);
	}
	return search->next == PROBE_GO_ON ? fetch_bucket(client, call) : KV_AGAIN;
}

static int take_bucket(struct kv_client *client, struct call *call)
{
	struct index_search *search = call->search;
	bool was_in_overflow = search->probe.in_overflow;
	struct bucket bucket;
	unsigned depth;

	memcpy((void *)&bucket, call->slot, sizeof(bucket));
	depth = bucket_depth(bucket.header);
	if (!was_in_overflow && bucket_is_locked(bucket.header))
		return KV_AGAIN;
	search->next = probe_look(&search->probe, &bucket);
	search->candidate = 0;
	if (search->next == PROBE_CONFUSED) {
		client->picture->is_old = true;
		return KV_AGAIN;
	}
	/* A bucket of depth d says that all have d - 1 at least: as many there are, though the
	 * header that was read is older. */
	if (!was_in_overflow && depth > depth_of_count(client->picture->bucket_count) + 1 &&
	    depth <= MAX_DEPTH)
		client->picture->bucket_count = (uint64_t)1 << (depth - 1);
	return search_on(client, call);
}

static int take_item(struct kv_client *client, struct call *call)
{
	const uint8_t *bytes = call->slot;

	if (call->buffer.length)
		bytes = (uint8_t *)rmr_arena_base(client->link->buffer) + call->buffer.begin;
	if (get_accept(client, call, bytes)) {
		call->path = KV_PATH_INDEX;
		call_learn(client, call);
		call_done(client, call, call->status);
		return KV_OK;
	}
	extents_give(&client->link->buffer_space, &call->buffer);
	return search_on(client, call);
}

static void search_begin(struct kv_client *client, struct call *call)
{
	struct index_picture *picture = client->picture;

	probe_begin(&call->search->probe,
		    probe_hash(call->key, call->request.key_length, picture->hash_seed),
		    picture->bucket_count);
}

static void search_read(struct kv_client *client, struct call *call)
{
	int status = KV_AGAIN;

	switch (call->search->step) {
	case SEARCH_HEADER:
		if (!take_header(client, call->slot))
			break;
		search_begin(client, call);
		status = fetch_bucket(client, call);
		break;
	case SEARCH_DIRECTORY: {
		uint32_t *page = page_of(client->picture, &call->search->probe);

		take_directory(client->picture, &call->search->probe, call->slot);
		if (page && *page)
			status = fetch_bucket(client, call);
		else
			client->picture->is_old = true;
		break;
	}
	case SEARCH_BUCKET:
		status = take_bucket(client, call);
		break;
	case SEARCH_ITEM:
		status = take_item(client, call);
		break;
	}
	/* A lost link is noticed by the wheel. */
	if (status == KV_AGAIN)
		ask_instead(client, call);
}

int index_start(struct kv_client *client, struct call *call)
{
	if (!call->search)
		call->search = malloc(sizeof(*call->search));
	if (!call->search)
		return KV_AGAIN;
	*call->search = (struct index_search){0};
	if (!client->picture || client->picture->is_old)
		return fetch(client, call, SEARCH_HEADER, 0, sizeof(struct store_header));
	search_begin(client, call);
	return fetch_bucket(client, call);
}
