/*
 * Works: checking them, cutting transfers into stripes, posting the stripes.
 *
 * Which lane gets which stripe is decided when the transfer is posted, in turn: stripe k goes to
 * the k-th lane from where the last transfer ended. So all lanes carry the same, over many
 * transfers as well as within one, and a lane that is slow for a moment holds up no other: each has
 * its own strand and goes on by itself.
 *
 * All checks that can be made here are made before the first stripe is posted, so that a wrong
 * transfer does nothing at all instead of a part.
 */
#include "base/error.h"
#include "fabric/domains_internal.h"

static enum rmr_status check_local(const struct rmr_link *link, const struct rmr_link_work *work)
{
	const struct rmr_domains_region *region = work->region;
	const uint8_t *local = work->local;
	size_t offset;

	if (work->length == 0)
		return RMR_OK;
	if (!region || region->domains != link->domains)
		return error_set(RMR_INVALID, "local memory needs a region of the same domains");
	offset = (size_t)(local - region->address);
	if (local < region->address || offset > region->length ||
	    work->length > region->length - offset)
		return error_set(
			RMR_INVALID, "%zu bytes at %p do not lie in the region of %zu at %p",
			work->length, work->local, region->length, (void *)region->address);
	return RMR_OK;
}

static enum rmr_status check_transfer(const struct rmr_link *link, const struct rmr_link_work *work)
{
	const struct rmr_link_remote *remote = work->remote;
	unsigned right = work->op == RMR_OP_READ ? RMR_READ : RMR_WRITE;

	if (work->flags & ~(unsigned)RMR_UNSIGNALED)
		return error_set(RMR_INVALID, "flags 0x%x: a transfer knows RMR_UNSIGNALED only",
				 work->flags);
	if ((unsigned)work->policy > RMR_STRIPE_PINNED)
		return error_set(RMR_INVALID, "%d is no policy of striping", (int)work->policy);
	if (!remote || remote->link != link)
		return error_set(RMR_INVALID, "the transfer needs a remote of this link");
	if (work->offset > remote->length || work->length > remote->length - work->offset)
		return error_set(RMR_ACCESS, "%zu bytes at %llu, the remote region has %zu",
				 work->length, (unsigned long long)work->offset, remote->length);
	if (!(remote->rights & right))
		return error_set(RMR_ACCESS, "the remote region may not be %s",
				 right == RMR_READ ? "read" : "written");
	return check_local(link, work);
}

static struct slot *take_slot(struct rmr_link *link, const struct rmr_link_work *work)
{
	struct slot *slot = list_first_entry(&link->free, struct slot, link);

	list_remove(&slot->link);
	slot->work = *work;
	slot->status = RMR_OK;
	slot->open = 1;
	list_add_tail(&link->active, &slot->link);
	return slot;
}

void slot_finish(struct slot *slot)
{
	struct rmr_link *link = slot->owner;

	for (int i = 0; i < link->count; i++)
		list_remove(&slot->strands[i].link); /* a canceled transfer has some left */
	list_remove(&slot->link);
	if (slot->status == RMR_OK && (slot->work.flags & RMR_UNSIGNALED))
		list_add(&link->free, &slot->link);
	else
		list_add_tail(&link->domains->done, &slot->link);
}

/* ------------------------------------------------------------------------------------------
 * Messages
 */

static enum rmr_status post_send(struct rmr_link *link, const struct rmr_link_work *work)
{
	struct lane *lane = &link->lanes[0];
	struct rmr_work send = {
		.op = RMR_OP_SEND,
		.flags = work->flags & RMR_INLINE,
		.source = work->source,
		.length = work->length,
	};
	struct slot *slot;
	int taken;

	if (work->flags & ~(unsigned)(RMR_UNSIGNALED | RMR_INLINE))
		return error_set(RMR_INVALID,
				 "flags 0x%x: a message knows RMR_UNSIGNALED and RMR_INLINE",
				 work->flags);
	if (!(work->flags & RMR_INLINE) && work->length > 0) {
		enum rmr_status status = check_local(link, work);

		if (status != RMR_OK)
			return status;
		send.region = work->region->regions[lane->domain];
	}
	slot = take_slot(link, work);
	send.cookie = (uintptr_t)slot;
	taken = rmr_post(lane->conn, &send, 1);
	if (taken == 1)
		return RMR_OK;
	list_remove(&slot->link);
	list_add(&link->free, &slot->link);
	return taken == 0 ? RMR_AGAIN : (enum rmr_status)taken;
}

/* ------------------------------------------------------------------------------------------
 * Transfers
 */

static bool post_stripe(struct lane *lane, struct strand *strand)
{
	struct rmr_link *link = lane->link;
	struct domain *domain = &link->domains->domain[lane->domain];
	const struct rmr_link_work *work = &strand->slot->work;
	uint64_t left = work->length - strand->next;
	struct rmr_work stripe = {
		.op = work->op,
		.flags = RMR_MORE,
		.cookie = (uintptr_t)strand->slot,
		.local = (uint8_t *)work->local + strand->next,
		.length = left < link->options.stripe ? left : link->options.stripe,
		.region = work->length > 0 ? work->region->regions[lane->domain] : NULL,
		.remote = work->remote->remotes[lane - link->lanes],
		.offset = work->offset + strand->next,
	};
	int taken = rmr_post(lane->conn, &stripe, 1);

	/* 0: messages have used up the connection's depth; their completions bring us back. A lost
	 * connection will tell so by itself. */
	if (taken < 0 && taken != RMR_DISCONNECTED)
		link_fail(link, (enum rmr_status)taken);
	if (taken != 1)
		return false;
	lane->inflight++;
	lane->bytes += stripe.length;
	domain->stripes++;
	*(work->op == RMR_OP_READ ? &domain->read_bytes : &domain->write_bytes) += stripe.length;
	strand->next += strand->step;
	strand->left--;
	return true;
}

void lane_pump(struct lane *lane)
{
	struct rmr_link *link = lane->link;

	if (link->state != LINK_OPEN || link_is_ending(link))
		return;
	while (lane->inflight < link->options.window && !list_is_empty(&lane->strands)) {
		struct strand *strand = list_first_entry(&lane->strands, struct strand, link);

		if (!post_stripe(lane, strand))
			break;
		/* To the end of the line: the others have their turn before its next stripe. */
		list_remove(&strand->link);
		if (strand->left > 0)
			list_add_tail(&lane->strands, &strand->link);
	}
	rmr_flush(lane->conn);
}

/* Gives the lane `left` stripes of the transfer, the first at `next`. */
static void deal(struct slot *slot, int lane, uint64_t next, uint64_t step, uint64_t left)
{
	struct strand *strand = &slot->strands[lane];

	strand->next = next;
	strand->step = step;
	strand->left = left;
	list_add_tail(&slot->owner->lanes[lane].strands, &strand->link);
	lane_pump(&slot->owner->lanes[lane]);
}

static void post_transfer(struct rmr_link *link, const struct rmr_link_work *work)
{
	uint64_t stripe = link->options.stripe, count = (uint64_t)link->count;
	uint64_t stripes = work->length / stripe + (work->length % stripe != 0);
	enum rmr_stripe policy = work->policy;
	uint32_t pin = work->pin;
	struct slot *slot = take_slot(link, work);

	if (stripes == 0)
		stripes = 1; /* nothing to move, but the peer is asked whether it may be done */
	slot->open = stripes;
	if (policy == RMR_STRIPE_DEFAULT) {
		policy = link->options.policy;
		pin = link->options.pin;
	}
	if (policy == RMR_STRIPE_PINNED) {
		deal(slot, (int)(pin % count), 0, stripe, stripes);
		return;
	}
	for (uint64_t k = 0; k < count && k < stripes; k++)
		deal(slot, (int)(((uint64_t)link->turn + k) % count), k * stripe, count * stripe,
		     (stripes - k + count - 1) / count);
	link->turn = (int)(((uint64_t)link->turn + stripes) % count);
}

enum rmr_status rmr_link_post(struct rmr_link *link, const struct rmr_link_work *work)
{
	enum rmr_status status;

	if (link_is_ending(link))
		return error_set(RMR_DISCONNECTED, "the link to %s is lost", link->peer);
	if (work->op != RMR_OP_SEND && work->op != RMR_OP_READ && work->op != RMR_OP_WRITE)
		return error_set(RMR_INVALID, "a link knows READ, WRITE and SEND, not %d",
				 (int)work->op);
	if (list_is_empty(&link->free))
		return RMR_AGAIN;
	if (work->op == RMR_OP_SEND)
		return post_send(link, work);
	status = check_transfer(link, work);
	if (status == RMR_OK)
		post_transfer(link, work);
	return status;
}
