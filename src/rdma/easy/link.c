/*
 * Links: a connection of the fabric with its rings, from the first word to the last.
 *
 *	client: create, prepare, say hello, wait, take hello, prepare image	the dialing thread
 *	server: create, wait, prepare, take hello, prepare image, say hello	the runtime
 *
 * How large our image of the peer's ring is, the peer decides: so it is made only when its hello
 * has turned out to be right, is bounded by maxPeerRing, and takes pages only as they are used.
 *
 * What takes memory or time is done before the lock is taken (prepare), what concerns the queue
 * under it. A link can be destroyed in any of these states.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/error.h"
#include "rdma/easy/internal.h"

struct link *easy_link_create(struct lane *lane, uint32_t depth)
{
	struct link *link = calloc(1, sizeof(*link));

	if (!link) {
		error_set(RMR_NO_MEMORY, "no memory for a connection");
		return NULL;
	}
	list_init(&link->lane_link);
	list_init(&link->dirty_link);
	list_init(&link->timer_link);
	list_init(&link->ended_link);
	list_init(&link->operations);
	peer_memory_init(&link->memory);
	link->lane = lane;
	link->depth = depth;
	link->free_words = UINT64_MAX;
	link->status = RMR_DISCONNECTED;
	return link;
}

struct rmr_conn_options easy_link_conn_options(struct link *link, const RdmaOptions *options,
					       const struct rmr_device *device)
{
	static const struct wire_introduction introduction = {WIRE_MAGIC, WIRE_VERSION};
	uint32_t max = rmr_device_info(device)->max_depth;
	uint32_t depth = options->sendDepth + LINK_RESERVE;

	if (depth > max) {
		depth = max;
		link->depth = max > 2 * LINK_RESERVE ? max - LINK_RESERVE : max / 2;
	}
	return (struct rmr_conn_options){.depth = depth,
					 .dead_after_ms = options->deadAfterMs,
					 .private_data = &introduction,
					 .private_length = sizeof(introduction),
					 .user = link};
}

enum rmr_status easy_link_prepare(struct link *link, struct rmr_device *device,
				  const RdmaOptions *options)
{
	const struct rmr_device_info *info = rmr_device_info(device);
	enum rmr_status status;

	link->signal_every = options->signalEvery;
	link->max_inline = (uint32_t)info->max_inline;
	if (options->maxInline && options->maxInline < info->max_inline)
		link->max_inline = options->maxInline;
	link->in_size = options->ringSize;
	status = rmr_arena_open(options->ringSize, RMR_ARENA_PEERS_WRITE, &link->arena);
	if (status != RMR_OK)
		return status;
	link->ring = rmr_arena_base(link->arena);
	status = rmr_region_open(device, link->ring, link->in_size, RMR_WRITE, &link->ring_region);
	if (status != RMR_OK)
		return status;
	link->local = aligned_alloc(4096, LINK_LOCAL_SIZE);
	if (!link->local)
		return error_set(RMR_NO_MEMORY, "no memory for a connection");
	return rmr_region_open(device, link->local, LINK_LOCAL_SIZE, 0, &link->local_region);
}

static enum rmr_status check_hello(const struct link *link, const struct rmr_device *device,
				   const RdmaOptions *options)
{
	const struct wire_hello *hello = &link->hello;
	uint32_t size = hello->ring_size;

	if (hello->magic != WIRE_MAGIC || hello->reserved != 0)
		return error_set(RMR_PROTOCOL, "the peer does not speak as the easy library does");
	if (hello->version != WIRE_VERSION)
		return error_set(RMR_PROTOCOL, "the peer speaks version %u, and we version %u",
				 hello->version, WIRE_VERSION);
	if (size < WIRE_RING_MIN || size > WIRE_RING_MAX || (size & (size - 1)))
		return error_set(RMR_PROTOCOL, "the peer has a ring of %u bytes, which cannot be",
				 size);
	if (size > options->maxPeerRing)
		return error_set(RMR_LIMIT,
				 "the peer has a ring of %u bytes, and maxPeerRing allows %zu; let "
				 "it have a smaller ringSize, or allow more here",
				 size, options->maxPeerRing);
	if (size > rmr_device_info(device)->max_transfer)
		return error_set(RMR_LIMIT,
				 "the peer has a ring of %u bytes, and '%s' moves at "
				 "most %zu at a time; let it have a smaller ringSize",
				 size, rmr_device_info(device)->name,
				 rmr_device_info(device)->max_transfer);
	return RMR_OK;
}

enum rmr_status easy_link_prepare_image(struct link *link, struct rmr_device *device)
{
	size_t size = link->out_size;
	void *image;

	if (link->is_mapped)
		return RMR_OK;
	/* Zeroed, for padding leaves this process; and by the kernel, when it is first used. */
	image = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (image == MAP_FAILED)
		return error_errno(RMR_NO_MEMORY, errno, "no memory for a ring of %zu bytes", size);
	link->image = link->target = image;
	return rmr_region_open(device, link->image, size, 0, &link->image_region);
}

/* The space that the peer exposes. That we may not access it is no fault of the peer's. */
static enum rmr_status open_space(struct link *link)
{
	const struct wire_hello *hello = &link->hello;
	enum rmr_status status;

	link->space_status = RMR_ACCESS;
	if (hello->space_size == 0)
		return RMR_OK;
	status = rmr_remote_open(link->fabric, &hello->space, &link->space);
	link->space_status = status;
	if (status == RMR_DENIED || status == RMR_ACCESS)
		return RMR_OK;
	if (status != RMR_OK)
		return error_set(RMR_PROTOCOL, "the peer's hello does not describe its space");
	if (rmr_remote_length(link->space) != hello->space_size)
		return error_set(RMR_PROTOCOL, "the peer's space is not as large as it says");
	return RMR_OK;
}

static uint32_t shorter(uint32_t a, size_t b)
{
	return a < b ? a : (uint32_t)b;
}

enum rmr_status easy_link_take_hello(struct link *link, const struct rmr_device *device,
				     const RdmaOptions *options)
{
	const struct wire_hello *hello = &link->hello;
	enum rmr_status status = check_hello(link, device, options);
	struct rmr_conn_info info;
	const void *mapped;

	if (status != RMR_OK)
		return status;
	status = rmr_remote_open(link->fabric, &hello->ring, &link->ring_remote);
	if (status != RMR_OK) {
		link->ring_remote = NULL;
		return error_set(RMR_PROTOCOL, "the peer's hello does not describe its ring (%s)",
				 rmr_status_text(status));
	}
	if (rmr_remote_length(link->ring_remote) != hello->ring_size ||
	    !(rmr_remote_rights(link->ring_remote) & RMR_WRITE))
		return error_set(RMR_PROTOCOL, "the peer's ring is not what its hello says");
	mapped = rmr_remote_pointer(link->ring_remote);
	link->is_mapped = mapped != NULL;
	link->target = (uint8_t *)(uintptr_t)mapped;
	link->out_size = hello->ring_size;
	rmr_conn_get_info(link->fabric, &info);
	if (link->is_mapped)
		link->max_short = shorter(LINK_STAGE, shorter(link->max_inline, info.max_send));
	if (!mapped && (rmr_device_info(device)->capabilities & RMR_CAP_MAP))
		return error_set(RMR_PROTOCOL, "the peer's ring is in memory of its own");
	return open_space(link);
}

/* The region of what the program exposes. */
static enum rmr_status find_space(struct link *link, struct rmr_region **region)
{
	RdmaConn *conn = link->conn;
	struct rmr_device *device = link->lane->device;
	unsigned rights = memory_rights(device, false);
	enum rmr_status status;

	if (conn->space.memory)
		return memory_expose(conn->space.memory, link->lane, conn->space.data,
				     conn->space.size, region);
	if ((uintptr_t)conn->space.data % 8)
		rights &= ~(unsigned)RMR_ATOMIC;
	status = rmr_region_open(device, conn->space.data, conn->space.size, rights,
				 &link->space_region);
	*region = link->space_region;
	return status;
}

enum rmr_status easy_link_say_hello(struct link *link)
{
	RdmaConn *conn = link->conn;
	struct wire_hello *hello = (struct wire_hello *)link->local;
	struct rmr_work work = {.op = RMR_OP_SEND,
				.cookie = COOKIE_HELLO,
				.source = link->local,
				.length = sizeof(*hello),
				.region = link->local_region};
	struct rmr_region *space;
	enum rmr_status status;
	int posted;

	*hello = (struct wire_hello){.magic = WIRE_MAGIC,
				     .version = WIRE_VERSION,
				     .ring_size = (uint32_t)link->in_size,
				     .space_size = conn->space.size};
	status = rmr_region_export(link->ring_region, link->fabric, &hello->ring);
	if (status == RMR_OK && conn->space.size) {
		status = find_space(link, &space);
		if (status == RMR_OK)
			status = rmr_region_export(space, link->fabric, &hello->space);
	}
	if (status != RMR_OK)
		return status;
	posted = rmr_post(link->fabric, &work, 1);
	if (posted < 0)
		return (enum rmr_status)posted;
	if (posted == 0)
		return error_set(RMR_AGAIN, "the connection takes no hello");
	link->is_introduced = true;
	return RMR_OK;
}

/* Why a link ended, if it was not said before. */
static void set_status(struct link *link, enum rmr_status status)
{
	if (link->reason[0])
		return;
	link->status = status;
	snprintf(link->reason, sizeof(link->reason), "%s",
		 status == RMR_DISCONNECTED ? "the peer is gone: it ended, or its host is silent"
		 : status == RMR_ACCESS
			 ? "memory was accessed that was not granted, or is not any more"
			 : rmr_status_text(status));
}

static void breach(struct link *link, const char *how)
{
	set_status(link, RMR_PROTOCOL);
	snprintf(link->reason, sizeof(link->reason), "%s", how);
	lane_push(link->lane, link, EVENT_ENDED, 0);
}

static void take_filled(struct link *link, uint64_t bytes)
{
	link->filled += bytes;
	if (!link->has_records) {
		link->has_records = true;
		lane_push(link->lane, link, EVENT_RECORDS, 0);
	}
}

/* A record that came by SEND: it goes where it would have been written. What it overwrites if it
 * lies is the peer's own. */
static bool take_short(struct link *link, const void *data, size_t length)
{
	uint64_t offset = link->filled & (link->in_size - 1);

	if (!link->ring_remote || length == 0 || length % WIRE_UNIT ||
	    length > link->in_size - offset)
		return false;
	memcpy(link->ring + offset, data, length);
	take_filled(link, length);
	return true;
}

static void take_message(struct link *link, const struct rmr_completion *completion)
{
	bool is_good = link->has_hello;

	if (is_good) {
		is_good = take_short(link, completion->data, completion->length);
	} else if (completion->length == sizeof(link->hello)) {
		memcpy(&link->hello, completion->data, sizeof(link->hello));
		link->has_hello = is_good = true;
		lane_push(link->lane, link, EVENT_HELLO, 0);
	}
	rmr_recv_release(link->lane->queue, completion->data);
	if (!is_good)
		breach(link, "the peer sent something that is neither hello nor record");
}

static void take_immediate(struct link *link, uint32_t immediate)
{
	uint64_t offset, forward;

	if (!link->ring_remote) {
		breach(link, "the peer sends before it has introduced itself");
		return;
	}
	if (immediate & WIRE_CREDIT) {
		out_credit(link, immediate & ~WIRE_CREDIT);
		return;
	}
	offset = (uint64_t)immediate * WIRE_UNIT;
	forward = (offset - link->filled) & (link->in_size - 1);
	if (offset >= link->in_size || forward == 0) {
		breach(link, "the peer names a place that is not in the ring");
		return;
	}
	take_filled(link, forward);
}

/* The operation gives its word back, and keeps what came there. */
static void take_old(struct link *link, struct operation *operation)
{
	operation->old = *(uint64_t *)(link->local + LINK_WORDS_AT + 8 * (unsigned)operation->word);
	link->free_words |= 1ull << operation->word;
	operation->word = -1;
}

/* Its thread may be gone with it as soon as the waiter is complete. */
static void finish(struct link *link, struct operation *operation, enum rmr_status status)
{
	if (operation->word >= 0)
		take_old(link, operation);
	list_remove(&operation->link);
	link->works--;
	link->reads -= operation->is_read;
	operation->status = status;
	waiter_complete(&operation->waiter);
}

/* One of ours is done. */
static void take_done(struct link *link, const struct rmr_completion *completion)
{
	uint64_t value = completion->cookie >> 3;
	bool is_ok = completion->status == RMR_OK;

	switch ((enum cookie_tag)(completion->cookie & 7)) {
	case COOKIE_RING:
		if (is_ok)
			out_complete(link, value);
		break;
	case COOKIE_WRITE:
	case COOKIE_READ:
		link->works--;
		link->reads -= (completion->cookie & 7) == COOKIE_READ;
		if (is_ok)
			lane_push(link->lane, link,
				  (completion->cookie & 7) == COOKIE_READ ? EVENT_READ
									  : EVENT_WRITTEN,
				  value);
		break;
	case COOKIE_OPERATION:
		finish(link, (struct operation *)(uintptr_t)(value << 3), completion->status);
		break;
	case COOKIE_HELLO:
		break;
	}
}

void easy_link_complete(struct link *link, const struct rmr_completion *completion)
{
	if (completion->op == RMR_OP_RECV_IMM && completion->status == RMR_OK) {
		take_immediate(link, completion->immediate);
	} else if (completion->op == RMR_OP_RECV && completion->status == RMR_OK) {
		take_message(link, completion);
	} else if (completion->op == RMR_OP_DISCONNECT) {
		set_status(link, completion->status);
		lane_push(link->lane, link, EVENT_ENDED, 0);
	} else {
		/* The first failure tells why; what was behind it is only canceled. An operation
		 * that fails without a cookie of its own is one of the ring. */
		if (completion->status != RMR_OK && completion->status != RMR_CANCELED)
			set_status(link, completion->status);
		if (completion->status == RMR_OK || completion->cookie)
			take_done(link, completion);
	}
}

void easy_link_say_bye(struct link *link)
{
	link->is_leaving = true;
	if (link->is_saying_bye)
		return;
	/* If there is no room yet, credit will come, and then it is tried again. */
	if (!out_put(link, RECORD_BYE, 0, NULL, 0))
		return;
	link->is_saying_bye = true;
	if (!out_flush(link) && list_is_empty(&link->dirty_link))
		list_add_tail(&link->lane->dirty, &link->dirty_link);
}

/* Nothing of it may be left where others look. */
static void detach(struct link *link)
{
	struct lane *lane = link->lane;
	unsigned kept = 0;

	for (unsigned i = 0; i < lane->event_count; i++) {
		if (lane->events[i].link != link)
			lane->events[kept++] = lane->events[i];
	}
	lane->event_count = kept;
	list_remove(&link->dirty_link);
	if (!list_is_empty(&link->lane_link)) {
		list_remove(&link->lane_link);
		lane->link_count--;
	}
	while (!list_is_empty(&link->operations))
		finish(link, list_first_entry(&link->operations, struct operation, link),
		       RMR_DISCONNECTED);
}

void easy_link_destroy(struct link *link)
{
	struct lane *lane = link->lane;

	lane_lock_take(&lane->lock);
	detach(link);
	peer_memory_fini(&link->memory);
	rmr_conn_close(link->fabric);
	lane_lock_give(&lane->lock);
	list_remove(&link->timer_link);
	list_remove(&link->ended_link);
	rmr_region_close(link->space_region);
	rmr_region_close(link->image_region);
	rmr_region_close(link->local_region);
	rmr_region_close(link->ring_region);
	rmr_arena_close(link->arena);
	if (link->image)
		munmap(link->image, link->out_size);
	free(link->local);
	free(link);
}
