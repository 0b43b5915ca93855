/*
 * Callers become connections: taken from the listeners, introduced, shown to the accept callback,
 * and only then answered, so that what the callback exposes or sends is part of the first words.
 *
 * A caller that sends nonsense, or nothing, costs itself its connection. The runtime runs this.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "rdma/easy/internal.h"

/* Callers taken in one go. */
#define BUDGET 16
/* When listening fails for a moment, for want of descriptors for instance. */
#define RETRY_MS 100

/* NULL: it is one of ours. */
static const char *find_fault(const struct rmr_request *request, char *text, size_t size)
{
	struct wire_introduction introduction = {0};
	size_t length;
	const void *data = rmr_request_private(request, &length);

	if (length >= sizeof(introduction))
		memcpy(&introduction, data, sizeof(introduction));
	if (introduction.magic != WIRE_MAGIC)
		return "here is a server of the easy RDMA library, and you are no client of it";
	if (introduction.version == WIRE_VERSION)
		return NULL;
	snprintf(text, size, "the server speaks version %u, the client version %u", WIRE_VERSION,
		 introduction.version);
	return text;
}

/* Takes the request as a link that has to introduce itself. */
static void take(struct path *path, struct rmr_request *request)
{
	const RdmaOptions *options = &path->owner->options;
	struct lane *lane = &path->lane;
	struct link *link = easy_link_create(lane, options->sendDepth);
	struct rmr_conn_options conn_options;
	enum rmr_status status;

	if (!link) {
		rmr_reject(request, "the server has no memory");
		return;
	}
	link->listener = path->owner;
	conn_options = easy_link_conn_options(link, options, lane->device);
	lane_lock_take(&lane->lock);
	status = rmr_accept(request, lane->queue, &conn_options, &link->fabric);
	if (status == RMR_OK) {
		list_add_tail(&lane->links, &link->lane_link);
		lane->link_count++;
	}
	lane_lock_give(&lane->lock);
	if (status == RMR_OK)
		status = loop_add_lane(lane);
	if (status != RMR_OK) {
		log_warn_limited("a caller was lost: %s", error_chain());
		easy_link_destroy(link);
		return;
	}
	loop_set_timer(link, clock_deadline_ns(options->connectTimeoutMs));
}

void accept_callers(struct path *path)
{
	for (int i = 0; i < BUDGET; i++) {
		struct rmr_request *request;
		const char *fault;
		char text[128];
		enum rmr_status status;

		/* It may have been stopped since epoll was asked. */
		if (!path->is_watched || atomic_load(&path->owner->serving) != SERVING)
			return;
		status = rmr_listener_next(path->listener, 0, &request);
		if (status == RMR_TIMEOUT)
			return;
		if (status != RMR_OK) {
			log_warn_limited("%s: %s", path->lane.device_name, error_chain());
			loop_watch_path(path, false);
			path->is_gone = status == RMR_NO_DEVICE;
			loop.resume_ns = clock_deadline_ns(RETRY_MS);
			return;
		}
		fault = find_fault(request, text, sizeof(text));
		if (!fault) {
			take(path, request);
			continue;
		}
		log_warn_limited("%s turned down: %s", rmr_request_peer(request), fault);
		rmr_reject(request, fault);
	}
}

/* Everything that the caller's hello needs. */
static enum rmr_status prepare(struct link *link)
{
	struct lane *lane = link->lane;
	const RdmaOptions *options = &link->listener->options;
	enum rmr_status status = easy_link_prepare(link, lane->device, options);

	if (status != RMR_OK)
		return status;
	lane_lock_take(&lane->lock);
	status = easy_link_take_hello(link, lane->device, options);
	lane_lock_give(&lane->lock);
	if (status == RMR_OK)
		status = easy_link_prepare_image(link, lane->device);
	return status;
}

static void greet(struct link *link)
{
	struct lane *lane = link->lane;
	enum rmr_status status;

	lane_lock_take(&lane->lock);
	status = easy_link_say_hello(link);
	if (status == RMR_OK && !out_flush(link) && list_is_empty(&link->dirty_link))
		list_add_tail(&lane->dirty, &link->dirty_link);
	lane_lock_give(&lane->lock);
	if (status != RMR_OK)
		loop_end_link(link, status, error_chain());
}

void accept_introduced(struct link *link)
{
	RdmaListener *listener = link->listener;
	RdmaAcceptCallback callback =
		atomic_load_explicit(&listener->accepted, memory_order_acquire);
	struct lane *lane = link->lane;
	enum rmr_status status = prepare(link);
	RdmaConn *conn = NULL;

	list_remove(&link->timer_link);
	if (status == RMR_OK && atomic_load(&listener->is_releasing))
		status = error_set(RMR_CANCELED, "the server ends");
	if (status == RMR_OK)
		status = conn_create(&listener->options, listener, lane, &conn);
	if (status != RMR_OK) {
		loop_end_link(link, status, error_chain());
		return;
	}
	lane_lock_take(&lane->lock);
	conn_set_up(conn, link);
	lane_lock_give(&lane->lock);
	if (callback)
		callback(listener, conn);
	if (!atomic_load_explicit(&conn->is_closing, memory_order_relaxed))
		greet(link);
}
