/*
 * The life of a link: making it, what its connections have to say, and its end. How it is connected
 * is in domains_connect.c.
 *
 * The end. A link that loses a lane, or on which an operation fails, is lost as a whole. But what
 * the peer had sent before must come out first, on lane 0, and why it ended may be told by another
 * lane than the one that is seen to end first. So a failing link posts nothing more and waits, for
 * the first of
 *
 *	- the end of all lanes: nothing can come any more. If the peer died or closed the link, that
 *	  is a matter of moments;
 *	- END_GRACE_MS, when only one adapter or cable failed. No time at all when an operation went
 *	  wrong, or the peer broke the rules: then we know why, and it is us who end the link. In
 *	  both cases lane 0's queue must have been polled to its end.
 *
 * Then all connections are closed, which drops what is in flight; after that no adapter touches our
 * memory any more, and the works are completed.
 */
#include <stdlib.h>
#include <sys/timerfd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "fabric/domains_internal.h"

#define DEFAULT_STRIPE (256u << 10)
#define DEFAULT_DEPTH  64
#define DEFAULT_WINDOW 8
#define END_GRACE_MS   1000

enum rmr_status link_create(struct rmr_domains *domains, int count, struct rmr_link **out)
{
	struct rmr_link *link = calloc(1, sizeof(*link));

	if (!link)
		return error_set(RMR_NO_MEMORY, "no memory for a link");
	link->domains = domains;
	link->count = count;
	for (int i = 0; i < count; i++) {
		link->lanes[i].link = link;
		list_init(&link->lanes[i].strands);
		list_init(&link->lanes[i].dirty_link);
	}
	list_init(&link->failing_link);
	list_init(&link->building_link);
	list_init(&link->free);
	list_init(&link->active);
	list_init(&link->farewell.link);
	list_init(&link->remotes);
	link->farewell.owner = link;
	link->farewell.work.op = RMR_OP_DISCONNECT;
	atomic_fetch_add_explicit(&domains->children, 1, memory_order_relaxed); /* for an assert */
	*out = link;
	return RMR_OK;
}

/* Sets the timer for the failing link that is due first, or stops it. */
static void set_timer(struct rmr_domains *domains)
{
	struct itimerspec when = {0};
	uint64_t first_ns = 0;

	list_for_each (at, &domains->failing) {
		const struct rmr_link *link = list_entry(at, struct rmr_link, failing_link);

		if (first_ns == 0 || link->end_ns < first_ns)
			first_ns = link->end_ns;
	}
	when.it_value.tv_sec = (time_t)(first_ns / 1000000000u);
	when.it_value.tv_nsec = (long)(first_ns % 1000000000u);
	(void)timerfd_settime(domains->timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
}

static void close_lanes(struct rmr_link *link)
{
	link_forget_remotes(link); /* closing a connection closes its remotes */
	for (int i = 0; i < link->count; i++) {
		rmr_conn_close(link->lanes[i].conn);
		link->lanes[i].conn = NULL;
		list_remove(&link->lanes[i].dirty_link);
	}
	if (!list_is_empty(&link->failing_link)) {
		list_remove(&link->failing_link);
		set_timer(link->domains);
	}
}

void link_destroy(struct rmr_link *link)
{
	listener_forget(link);
	close_lanes(link);
	list_for_each_safe (at, &link->remotes)
		rmr_link_remote_close(list_entry(at, struct rmr_link_remote, list_link));
	for (uint32_t i = 0; link->slots && i < link->options.depth; i++)
		list_remove(&link->slots[i].link); /* some may be in domains->done */
	list_remove(&link->farewell.link);
	atomic_fetch_sub_explicit(&link->domains->children, 1, memory_order_relaxed);
	free(link->strands);
	free(link->slots);
	free(link);
}

void rmr_link_set_grants(struct rmr_link *link, const struct rmr_grant_limits *limits)
{
	for (int i = 0; i < link->count; i++) {
		if (link->lanes[i].conn)
			rmr_conn_set_grants(link->lanes[i].conn, limits);
	}
}

void rmr_link_close(struct rmr_link *link)
{
	if (link)
		link_destroy(link);
}

/* ------------------------------------------------------------------------------------------
 * Options and slots
 */

static enum rmr_status check_options(const struct rmr_link_options *options, size_t stripe_max)
{
	if ((unsigned)options->policy > RMR_STRIPE_PINNED)
		return error_set(RMR_INVALID, "%d is no policy of striping", (int)options->policy);
	if (options->stripe < RMR_LINK_STRIPE_MIN || options->stripe > stripe_max)
		return error_set(RMR_INVALID, "stripes of %zu bytes: they can have %d to %zu",
				 options->stripe, RMR_LINK_STRIPE_MIN, stripe_max);
	if (options->depth > RMR_LINK_DEPTH_MAX)
		return error_set(RMR_LIMIT, "depth %u, the limit is %d", options->depth,
				 RMR_LINK_DEPTH_MAX);
	if (options->window > RMR_LINK_WINDOW_MAX)
		return error_set(RMR_LIMIT, "window %u, the limit is %d", options->window,
				 RMR_LINK_WINDOW_MAX);
	if (options->private_length > RMR_LINK_PRIVATE_MAX)
		return error_set(RMR_TOO_LONG, "%zu bytes of private data, at most %d fit",
				 options->private_length, RMR_LINK_PRIVATE_MAX);
	return RMR_OK;
}

/* The longest stripe that all devices take. */
static size_t longest_stripe(const struct rmr_domains *domains)
{
	size_t longest = SIZE_MAX;

	for (int i = 0; i < domains->count; i++) {
		size_t limit = rmr_device_info(domains->domain[i].device)->max_transfer;

		longest = limit < longest ? limit : longest;
	}
	return longest;
}

static enum rmr_status allocate_slots(struct rmr_link *link)
{
	uint32_t depth = link->options.depth;

	link->slots = calloc(depth, sizeof(*link->slots));
	link->strands = calloc((size_t)depth * (size_t)link->count, sizeof(*link->strands));
	if (!link->slots || !link->strands) {
		free(link->slots);
		link->slots = NULL;
		return error_set(RMR_NO_MEMORY, "no memory for %u works", depth);
	}
	for (uint32_t i = 0; i < depth; i++) {
		struct slot *slot = &link->slots[i];

		slot->owner = link;
		slot->strands = &link->strands[i * (uint32_t)link->count];
		for (int k = 0; k < link->count; k++) {
			slot->strands[k].slot = slot;
			list_init(&slot->strands[k].link);
		}
		list_add_tail(&link->free, &slot->link);
	}
	return RMR_OK;
}

enum rmr_status link_configure(struct rmr_link *link, const struct rmr_link_options *options)
{
	struct rmr_link_options own = {0};
	size_t stripe_max = longest_stripe(link->domains);
	enum rmr_status status;

	if (options)
		own = *options;
	if (own.policy == RMR_STRIPE_DEFAULT)
		own.policy = RMR_STRIPE_ROUND_ROBIN;
	if (own.stripe == 0)
		own.stripe = DEFAULT_STRIPE < stripe_max ? DEFAULT_STRIPE : stripe_max;
	if (own.depth == 0)
		own.depth = DEFAULT_DEPTH;
	if (own.window == 0)
		own.window = DEFAULT_WINDOW;
	status = check_options(&own, stripe_max);
	if (status != RMR_OK)
		return status;
	link->options = own;
	link->options.private_data = NULL; /* the caller's, and may be gone soon */
	return allocate_slots(link);
}

/* ------------------------------------------------------------------------------------------
 * What the connections say
 */

/* Does the status say why, and not only that the connection is gone? */
static bool is_reason(enum rmr_status status)
{
	return status != RMR_OK && status != RMR_DISCONNECTED && status != RMR_CANCELED;
}

void link_fail(struct rmr_link *link, enum rmr_status cause)
{
	if (link->state == LINK_ENDED)
		return;
	if (!list_is_empty(&link->failing_link)) {
		if (!is_reason(cause) || is_reason(link->cause))
			return;
	} else {
		list_add_tail(&link->domains->failing, &link->failing_link);
	}
	link->cause = cause == RMR_CANCELED ? RMR_DISCONNECTED : cause;
	link->end_ns = clock_deadline_ns(is_reason(cause) ? 0 : END_GRACE_MS);
	set_timer(link->domains);
}

/* A stripe or a message is done. */
static void complete(struct lane *lane, const struct rmr_completion *completion)
{
	struct slot *slot = (struct slot *)(uintptr_t)completion->cookie;

	if (completion->op != RMR_OP_SEND)
		lane->inflight--;
	if (completion->status != RMR_OK) {
		if (slot->status == RMR_OK ||
		    (is_reason(completion->status) && !is_reason(slot->status)))
			slot->status = completion->status;
		link_fail(lane->link, completion->status);
	}
	if (--slot->open == 0)
		slot_finish(slot);
	if (list_is_empty(&lane->dirty_link))
		list_add_tail(&lane->link->domains->dirty, &lane->dirty_link);
}

bool link_take(struct rmr_domains *domains, int domain, const struct rmr_completion *completion,
	       struct rmr_link_event *event)
{
	struct lane *lane = rmr_conn_user(completion->conn);
	struct rmr_link *link = lane->link;

	if (completion->op == RMR_OP_DISCONNECT) {
		lane->lost = true;
		link_fail(link, completion->status);
	} else if (completion->op <= RMR_OP_FETCH_ADD) {
		complete(lane, completion);
	} else if (completion->op == RMR_OP_RECV && lane == &link->lanes[0] &&
		   link->state == LINK_OPEN) {
		*event = (struct rmr_link_event){
			.link = link,
			.op = RMR_OP_RECV,
			.data = completion->data,
			.length = completion->length,
			.domain = domain,
		};
		return true;
	} else {
		/* Who keeps to the rules sends on no other lane, nor before the link is open. */
		if (completion->op == RMR_OP_RECV)
			rmr_recv_release(domains->domain[domain].queue, completion->data);
		link_fail(link, RMR_PROTOCOL);
	}
	return false;
}

/* ------------------------------------------------------------------------------------------
 * The end
 */

static void end(struct rmr_link *link)
{
	enum link_state was = link->state;

	if (was == LINK_BUILDING) {
		log_info("a half-built link of %s ended: %s", link->peer,
			 rmr_status_text(link->cause));
		link_destroy(link); /* nobody knows it yet */
		return;
	}
	close_lanes(link);
	link->state = LINK_ENDED;
	if (was == LINK_OFFERED)
		return; /* rmr_link_accept will find out */
	log_info("link to %s ended: %s", link->peer, rmr_status_text(link->cause));
	list_for_each_safe (at, &link->active) {
		struct slot *slot = list_entry(at, struct slot, link);

		if (slot->status == RMR_OK)
			slot->status = RMR_CANCELED;
		slot_finish(slot);
	}
	link->farewell.status = link->cause;
	list_add_tail(&link->domains->done, &link->farewell.link);
}

static bool may_end(const struct rmr_link *link)
{
	const struct domain *first = &link->domains->domain[link->lanes[0].domain];
	int lost = 0;

	for (int i = 0; i < link->count; i++)
		lost += link->lanes[i].lost;
	if (link->state != LINK_OPEN || lost == link->count)
		return true;
	if (!clock_passed(link->end_ns))
		return false;
	/* A queue that other links never let run empty must not keep this one for ever. */
	return first->drained || clock_passed(link->end_ns + END_GRACE_MS * 1000000ull);
}

void link_end_failing(struct rmr_domains *domains)
{
	list_for_each_safe (at, &domains->failing) {
		struct rmr_link *link = list_entry(at, struct rmr_link, failing_link);

		if (may_end(link))
			end(link);
	}
}

/* ------------------------------------------------------------------------------------------ */

void rmr_link_get_info(const struct rmr_link *link, struct rmr_link_info *info)
{
	*info = (struct rmr_link_info){
		.peer = link->peer,
		.private_data = link->peer_private_length ? link->peer_private : NULL,
		.private_length = link->peer_private_length,
		.connections = link->count,
		.max_send = link->max_send,
		.max_inline = link->max_inline,
		.stripe = link->options.stripe,
		.depth = link->options.depth,
		.alive = !link_is_ending(link),
	};
	for (int i = 0; i < link->count; i++) {
		info->connection[i].domain = link->lanes[i].domain;
		info->connection[i].bytes = link->lanes[i].bytes;
	}
}

void *rmr_link_user(const struct rmr_link *link)
{
	return link->options.user;
}
