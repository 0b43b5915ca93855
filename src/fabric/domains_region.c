/*
 * Memory of domains: a region on each device, and a peer's regions over the lanes of a link.
 *
 * What travels is a set of the fabric's descriptors, one for each connection of the link in their
 * order, behind a header that says whose they are. The header is only a claim, too: each
 * descriptor is checked by rmr_remote_open on its own connection, and what the header says must be
 * what they say.
 */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "fabric/domains_internal.h"

/* The bytes of struct rmr_link_descriptor. Little endian. */
struct descriptor_set {
	uint32_t magic;
	uint16_t version;
	uint8_t count; /* of descriptors: as many as the link has connections */
	uint8_t rights;
	uint64_t length;
	uint64_t link_id;
	uint64_t zero;
	struct rmr_descriptor descriptors[RMR_DOMAINS_MAX]; /* those from count on are zeroed */
};
static_assert(sizeof(struct descriptor_set) == sizeof(struct rmr_link_descriptor),
	      "travels as such");

#define SET_MAGIC   0x73726d52u /* "Rmrs" */
#define SET_VERSION 1

enum rmr_status rmr_domains_region_open(struct rmr_domains *domains, void *address, size_t length,
					unsigned rights, struct rmr_domains_region **out)
{
	struct rmr_domains_region *region;
	enum rmr_status status = RMR_OK;

	if (rights & ~(unsigned)(RMR_READ | RMR_WRITE))
		return error_set(RMR_INVALID, "rights 0x%x: domains know RMR_READ and RMR_WRITE",
				 rights);
	region = calloc(1, sizeof(*region));
	if (!region)
		return error_set(RMR_NO_MEMORY, "no memory for a region");
	region->domains = domains;
	region->address = address;
	region->length = length;
	region->rights = rights;
	/* Relaxed, here and in close: a count for an assert, it publishes nothing. */
	atomic_fetch_add_explicit(&domains->children, 1, memory_order_relaxed);
	for (int i = 0; i < domains->count && status == RMR_OK; i++)
		status = rmr_region_open(domains->domain[i].device, address, length, rights,
					 &region->regions[i]);
	if (status != RMR_OK) {
		rmr_domains_region_close(region);
		return status;
	}
	*out = region;
	return RMR_OK;
}

void rmr_domains_region_close(struct rmr_domains_region *region)
{
	if (!region)
		return;
	for (int i = 0; i < region->domains->count; i++)
		rmr_region_close(region->regions[i]);
	atomic_fetch_sub_explicit(&region->domains->children, 1, memory_order_relaxed);
	free(region);
}

enum rmr_status rmr_link_export(struct rmr_link *link, struct rmr_domains_region *region,
				struct rmr_link_descriptor *descriptor)
{
	struct descriptor_set set = {
		.magic = htole32(SET_MAGIC),
		.version = htole16(SET_VERSION),
		.count = (uint8_t)link->count,
	};

	if (!region || region->domains != link->domains)
		return error_set(RMR_INVALID, "the region is of other domains than the link");
	if (link_is_ending(link))
		return error_set(RMR_DISCONNECTED, "the link to %s is lost", link->peer);
	set.rights = (uint8_t)region->rights;
	set.length = htole64(region->length);
	set.link_id = htole64(link->id);
	for (int i = 0; i < link->count; i++) {
		const struct lane *lane = &link->lanes[i];
		enum rmr_status status = rmr_region_export(region->regions[lane->domain],
							   lane->conn, &set.descriptors[i]);

		if (status != RMR_OK)
			return error_context(status, "connection %d of %d", i + 1, link->count);
	}
	memcpy(descriptor, &set, sizeof(set));
	return RMR_OK;
}

static enum rmr_status check_set(const struct rmr_link *link, const struct descriptor_set *set)
{
	if (le32toh(set->magic) != SET_MAGIC || le16toh(set->version) != SET_VERSION)
		return error_set(RMR_INVALID, "these bytes are no descriptor of a link");
	if (le64toh(set->link_id) != link->id)
		return error_set(RMR_INVALID, "the descriptor was made for another link");
	if (set->count != link->count)
		return error_set(RMR_INVALID,
				 "the descriptor is for %d connections, the link has %d",
				 set->count, link->count);
	return RMR_OK;
}

/* Opens the set's descriptors one by one; those that are open stay so on failure. */
static enum rmr_status open_remotes(struct rmr_link_remote *remote,
				    const struct descriptor_set *set)
{
	struct rmr_link *link = remote->link;

	for (int i = 0; i < link->count; i++) {
		struct rmr_remote **at = &remote->remotes[i];
		enum rmr_status status =
			rmr_remote_open(link->lanes[i].conn, &set->descriptors[i], at);

		if (status != RMR_OK)
			return error_context(status, "connection %d of %d", i + 1, link->count);
		if (rmr_remote_length(*at) != remote->length ||
		    rmr_remote_rights(*at) != remote->rights)
			return error_set(RMR_INVALID,
					 "the descriptors of one set contradict each other");
	}
	return RMR_OK;
}

enum rmr_status rmr_link_remote_open(struct rmr_link *link,
				     const struct rmr_link_descriptor *descriptor,
				     struct rmr_link_remote **out)
{
	struct rmr_link_remote *remote;
	struct descriptor_set set;
	enum rmr_status status;

	memcpy(&set, descriptor, sizeof(set));
	status = check_set(link, &set);
	if (status == RMR_OK && link_is_ending(link))
		status = error_set(RMR_DISCONNECTED, "the link to %s is lost", link->peer);
	if (status != RMR_OK)
		return status;
	remote = calloc(1, sizeof(*remote));
	if (!remote)
		return error_set(RMR_NO_MEMORY, "no memory for a remote region");
	remote->link = link;
	remote->length = le64toh(set.length);
	remote->rights = set.rights;
	list_add_tail(&link->remotes, &remote->list_link);
	status = open_remotes(remote, &set);
	if (status != RMR_OK) {
		rmr_link_remote_close(remote);
		return status;
	}
	*out = remote;
	return RMR_OK;
}

void rmr_link_remote_close(struct rmr_link_remote *remote)
{
	if (!remote)
		return;
	for (int i = 0; i < remote->link->count; i++)
		rmr_remote_close(remote->remotes[i]);
	list_remove(&remote->list_link);
	free(remote);
}

void link_forget_remotes(struct rmr_link *link)
{
	list_for_each (at, &link->remotes) {
		struct rmr_link_remote *remote = list_entry(at, struct rmr_link_remote, list_link);

		for (int i = 0; i < link->count; i++)
			remote->remotes[i] = NULL;
	}
}

size_t rmr_link_remote_length(const struct rmr_link_remote *remote)
{
	return remote->length;
}

unsigned rmr_link_remote_rights(const struct rmr_link_remote *remote)
{
	return remote->rights;
}
