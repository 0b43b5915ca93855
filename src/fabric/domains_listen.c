/*
 * The listening side of links: connections come in any order, from several callers at once, on any
 * device; here they are put together.
 *
 * Each says by its hello which connection of which link it is. All but the last to come are
 * accepted at once, because the caller makes them one after the other. The last is kept,
 * unanswered, in the request that the user gets: accepting it opens the link, rejecting it tells
 * the caller why.
 *
 * A caller can make us hold one half-built link for each connection it has open here: no more than
 * `backlog` of them in all, each no longer than handshake_timeout_ms after its last connection. A
 * connection that contradicts the link it names is turned down, and leaves the link alone.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "fabric/domains_internal.h"

#define DEFAULT_BACKLOG		     128
#define DEFAULT_HANDSHAKE_TIMEOUT_MS 2000

struct rmr_link_request {
	struct rmr_link *link;	  /* with all lanes but one */
	struct rmr_request *last; /* for this lane: */
	struct lane *lane;
	struct link_terms terms;
};

/* ------------------------------------------------------------------------------------------
 * Listeners
 */

static enum rmr_status listen_on(struct rmr_domains_listener *listener, int index,
				 const char *address)
{
	struct epoll_event event = {.events = EPOLLIN};
	struct rmr_listener **at = &listener->listeners[index];
	size_t used = strlen(listener->address);
	enum rmr_status status;

	if (address && strchr(address, ','))
		return error_set(RMR_BAD_ADDRESS, "'%s' has a comma, which parts addresses",
				 address);
	status = rmr_listener_open(listener->domains->domain[index].device, address,
				   &listener->options.listener, at);
	if (status != RMR_OK)
		return status;
	if (epoll_ctl(listener->epoll_fd, EPOLL_CTL_ADD, rmr_listener_fd(*at), &event) != 0)
		return error_errno(RMR_SYSTEM, errno, "cannot watch a listener");
	snprintf(listener->address + used, sizeof(listener->address) - used, "%s%s",
		 index > 0 ? "," : "", rmr_listener_address(*at));
	return RMR_OK;
}

enum rmr_status rmr_domains_listen(struct rmr_domains *domains, const char *const *addresses,
				   const struct rmr_domains_listener_options *options,
				   struct rmr_domains_listener **out)
{
	struct rmr_domains_listener *listener = calloc(1, sizeof(*listener));
	enum rmr_status status = RMR_OK;

	if (!listener)
		return error_set(RMR_NO_MEMORY, "no memory for a listener");
	listener->domains = domains;
	list_init(&listener->building);
	if (options)
		listener->options = *options;
	listener->terms.dead_after_ms = listener->options.dead_after_ms;
	if (listener->options.grants) {
		listener->terms.limits_grants = true;
		listener->terms.grants = *listener->options.grants;
		listener->options.grants = NULL;
	}
	if (listener->options.listener.backlog <= 0)
		listener->options.listener.backlog = DEFAULT_BACKLOG;
	if (listener->options.listener.handshake_timeout_ms <= 0)
		listener->options.listener.handshake_timeout_ms = DEFAULT_HANDSHAKE_TIMEOUT_MS;
	atomic_fetch_add_explicit(&domains->children, 1, memory_order_relaxed); /* for an assert */
	listener->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (listener->epoll_fd < 0)
		status = error_errno(RMR_SYSTEM, errno, "cannot make an epoll set");
	for (int i = 0; i < domains->count && status == RMR_OK; i++)
		status = listen_on(listener, i, addresses[i]);
	if (status != RMR_OK) {
		rmr_domains_listener_close(listener);
		return status;
	}
	*out = listener;
	return RMR_OK;
}

void rmr_domains_listener_close(struct rmr_domains_listener *listener)
{
	if (!listener)
		return;
	list_for_each_safe (at, &listener->building)
		link_destroy(list_entry(at, struct rmr_link, building_link));
	for (int i = 0; i < listener->domains->count; i++)
		rmr_listener_close(listener->listeners[i]);
	if (listener->epoll_fd >= 0)
		close(listener->epoll_fd);
	atomic_fetch_sub_explicit(&listener->domains->children, 1, memory_order_relaxed);
	free(listener);
}

const char *rmr_domains_listener_address(const struct rmr_domains_listener *listener)
{
	return listener->address;
}

int rmr_domains_listener_fd(const struct rmr_domains_listener *listener)
{
	return listener->epoll_fd;
}

/* ------------------------------------------------------------------------------------------
 * Half-built links
 */

void listener_forget(struct rmr_link *link)
{
	if (list_is_empty(&link->building_link))
		return;
	list_remove(&link->building_link);
	link->listener->building_count--;
}

/* Drops those that waited too long. Returns when the next one will have. */
static uint64_t drop_late(struct rmr_domains_listener *listener)
{
	uint64_t first_ns = CLOCK_NEVER;

	list_for_each_safe (at, &listener->building) {
		struct rmr_link *link = list_entry(at, struct rmr_link, building_link);

		if (clock_passed(link->deadline_ns)) {
			log_info("%s made %d of %d connections and no more", link->peer,
				 link->arrived, link->count);
			link_destroy(link);
		} else if (link->deadline_ns < first_ns) {
			first_ns = link->deadline_ns;
		}
	}
	return first_ns;
}

static struct rmr_link *find_building(const struct rmr_domains_listener *listener, uint64_t id)
{
	list_for_each (at, &listener->building) {
		struct rmr_link *link = list_entry(at, struct rmr_link, building_link);

		if (link->id == id)
			return link;
	}
	return NULL;
}

/* The link that the hello speaks of: one that is being built, or a new one. NULL, and the reason,
 * when there is none. */
static struct rmr_link *link_for(struct rmr_domains_listener *listener,
				 const struct link_hello *hello, const struct rmr_request *caller,
				 const char **reason)
{
	struct rmr_link *link = find_building(listener, hello->id);

	if (link) {
		*reason = "this contradicts another connection of the same link";
		return link->count == hello->connections && !link->lanes[hello->index].conn ? link
											    : NULL;
	}
	*reason = "too many links are being built here";
	if (listener->building_count >= listener->options.listener.backlog ||
	    link_create(listener->domains, hello->connections, &link) != RMR_OK)
		return NULL;
	link->id = hello->id;
	link->listener = listener;
	snprintf(link->peer, sizeof(link->peer), "%s", rmr_request_peer(caller));
	list_add_tail(&listener->building, &link->building_link);
	listener->building_count++;
	return link;
}

static enum rmr_status accept_lane(struct lane *lane, struct rmr_request *caller,
				   const struct link_terms *terms, const void *private_data,
				   size_t private_length)
{
	struct rmr_link *link = lane->link;
	uint8_t bytes[RMR_PRIVATE_MAX];
	struct rmr_conn_options options = {
		.dead_after_ms = terms->dead_after_ms,
		.private_data = bytes,
		.user = lane,
		.grants = terms->limits_grants ? &terms->grants : NULL,
	};

	options.private_length = link_hello_write(bytes, link, (int)(lane - link->lanes),
						  private_data, private_length);
	return rmr_accept(caller, link->domains->domain[lane->domain].queue, &options, &lane->conn);
}

/* All connections are here: the link is off the list, and the user decides. */
static enum rmr_status offer(struct rmr_link *link, struct lane *lane, struct rmr_request *caller,
			     struct rmr_link_request **out)
{
	struct link_terms terms = link->listener->terms;
	struct rmr_link_request *request = calloc(1, sizeof(*request));

	if (!request) {
		rmr_reject(caller, "no memory");
		link_destroy(link);
		return error_set(RMR_NO_MEMORY, "no memory for a request");
	}
	listener_forget(link);
	link->state = LINK_OFFERED;
	*request = (struct rmr_link_request){
		.link = link,
		.last = caller,
		.lane = lane,
		.terms = terms,
	};
	*out = request;
	return RMR_OK;
}

/* Takes one connection. RMR_OK: it was the last of its link, which is offered. RMR_AGAIN: it was
 * not, or it was nonsense. */
static enum rmr_status take_caller(struct rmr_domains_listener *listener, int domain,
				   struct rmr_request *caller, struct rmr_link_request **out)
{
	const char *reason = "this listener takes links of domains only (rmr_link_connect)";
	struct rmr_link *link = NULL;
	struct link_hello hello;
	struct lane *lane;
	size_t length;
	const void *bytes = rmr_request_private(caller, &length);

	if (link_hello_read(&hello, bytes, length))
		link = link_for(listener, &hello, caller, &reason);
	if (!link) {
		log_info("turned %s down: %s", rmr_request_peer(caller), reason);
		rmr_reject(caller, reason);
		return RMR_AGAIN;
	}
	link_keep_private(link, bytes, length);
	link->deadline_ns = clock_deadline_ns(listener->options.listener.handshake_timeout_ms);
	link->arrived++;
	lane = &link->lanes[hello.index];
	lane->domain = domain;
	if (link->arrived == link->count)
		return offer(link, lane, caller, out);
	if (accept_lane(lane, caller, &listener->terms, NULL, 0) != RMR_OK) {
		log_warn_limited("a caller is lost: %s", rmr_error_message());
		link_destroy(link);
	}
	return RMR_AGAIN;
}

/* Takes all that wait on one device, up to the first that completes a link. */
static enum rmr_status take_callers(struct rmr_domains_listener *listener, int domain,
				    struct rmr_link_request **out)
{
	for (;;) {
		struct rmr_request *caller;
		enum rmr_status status = rmr_listener_next(listener->listeners[domain], 0, &caller);

		if (status == RMR_OK)
			status = take_caller(listener, domain, caller, out);
		else if (status == RMR_TIMEOUT)
			return RMR_AGAIN;
		if (status != RMR_AGAIN)
			return status;
	}
}

enum rmr_status rmr_domains_listener_next(struct rmr_domains_listener *listener, int timeout_ms,
					  struct rmr_link_request **out)
{
	uint64_t deadline_ns = clock_deadline_ns(timeout_ms);
	struct pollfd fd = {.fd = listener->epoll_fd, .events = POLLIN};

	for (;;) {
		uint64_t wake_ns;

		for (int i = 0; i < listener->domains->count; i++) {
			int domain = (listener->turn + i) % listener->domains->count;
			enum rmr_status status = take_callers(listener, domain, out);

			if (status != RMR_AGAIN) {
				listener->turn = domain + 1; /* so that none is starved */
				return status;
			}
		}
		wake_ns = drop_late(listener);
		if (clock_passed(deadline_ns))
			return error_set(RMR_TIMEOUT, "nobody called at '%s'", listener->address);
		if (deadline_ns < wake_ns)
			wake_ns = deadline_ns;
		(void)poll(&fd, 1, clock_remaining_ms(wake_ns));
	}
}

/* ------------------------------------------------------------------------------------------
 * Requests
 */

const char *rmr_link_request_peer(const struct rmr_link_request *request)
{
	return request->link->peer;
}

const void *rmr_link_request_private(const struct rmr_link_request *request, size_t *length)
{
	*length = request->link->peer_private_length;
	return *length ? request->link->peer_private : NULL;
}

enum rmr_status rmr_link_accept(struct rmr_link_request *request,
				const struct rmr_link_options *options, struct rmr_link **out)
{
	struct rmr_link *link = request->link;
	enum rmr_status status;

	if (link_is_ending(link))
		status = error_set(RMR_DISCONNECTED, "%s did not wait for an answer", link->peer);
	else
		status = link_configure(link, options);
	if (status != RMR_OK) {
		char reason[128];

		snprintf(reason, sizeof(reason), "%s", error_chain());
		rmr_link_reject(request, reason);
		return error_set(status, "accepting a link: %s", reason);
	}
	status = accept_lane(request->lane, request->last, &request->terms,
			     options ? options->private_data : NULL,
			     options ? options->private_length : 0);
	free(request);
	if (status != RMR_OK) {
		link_destroy(link);
		return status;
	}
	link_opened(link);
	if (options && options->grants)
		rmr_link_set_grants(link, options->grants);
	*out = link;
	return RMR_OK;
}

void rmr_link_reject(struct rmr_link_request *request, const char *reason)
{
	if (!request)
		return;
	rmr_reject(request->last, reason);
	link_destroy(request->link);
	free(request);
}
