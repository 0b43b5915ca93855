/*
 * Connecting a link: the caller's side, and the hello that both sides say.
 *
 * The caller connects lane by lane, each with a hello that says which lane of which link it is; the
 * listener's side is in domains_listen.c. It accepts all but the last at once, and that one when
 * its user agrees: so when the last rmr_connect has returned both sides have all lanes, and no
 * message can come before the other side knows the link.
 *
 * Which device calls which address: the i-th the i-th, modulo their numbers, if there is a way. On
 * networks of separate rails there is none from one rail to another: then the lane takes the next
 * pair that has one, with a warning, first with another device of ours, then to another of theirs.
 * That there is no way is known by RMR_BAD_ADDRESS alone; a refusal is an answer, and final.
 */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "fabric/domains_internal.h"

size_t link_hello_write(uint8_t bytes[RMR_PRIVATE_MAX], const struct rmr_link *link, int index,
			const void *user, size_t user_length)
{
	struct link_hello hello = {
		.magic = htole32(LINK_HELLO_MAGIC),
		.version = LINK_HELLO_VERSION,
		.index = (uint8_t)index,
		.connections = (uint8_t)link->count,
		.id = htole64(link->id),
	};

	memcpy(bytes, &hello, sizeof(hello));
	if (user_length)
		memcpy(bytes + sizeof(hello), user, user_length);
	return sizeof(hello) + user_length;
}

bool link_hello_read(struct link_hello *hello, const void *bytes, size_t length)
{
	if (length < sizeof(*hello))
		return false;
	memcpy(hello, bytes, sizeof(*hello));
	hello->magic = le32toh(hello->magic);
	hello->id = le64toh(hello->id);
	return hello->magic == LINK_HELLO_MAGIC && hello->version == LINK_HELLO_VERSION &&
	       hello->connections <= RMR_DOMAINS_MAX && hello->index < hello->connections;
}

void link_keep_private(struct rmr_link *link, const void *bytes, size_t length)
{
	link->peer_private_length = length - sizeof(struct link_hello);
	memcpy(link->peer_private, (const uint8_t *)bytes + sizeof(struct link_hello),
	       link->peer_private_length);
}

void link_opened(struct rmr_link *link)
{
	const struct domain *domain = &link->domains->domain[link->lanes[0].domain];
	struct rmr_conn_info info;

	rmr_conn_get_info(link->lanes[0].conn, &info);
	snprintf(link->peer, sizeof(link->peer), "%s", info.peer);
	link->max_send = info.max_send;
	link->max_inline = rmr_device_info(domain->device)->max_inline;
	link->state = LINK_OPEN;
}

/* Splits the addresses at their commas, in place. */
static enum rmr_status split_addresses(char *text, const char *parts[RMR_DOMAINS_MAX], int *count)
{
	char *part;

	*count = 0;
	while ((part = strsep(&text, ",")) != NULL) {
		if (*count == RMR_DOMAINS_MAX)
			return error_set(RMR_LIMIT, "more than %d addresses", RMR_DOMAINS_MAX);
		if (*part == '\0')
			return error_set(RMR_BAD_ADDRESS, "address %d is empty", *count + 1);
		parts[(*count)++] = part;
	}
	return RMR_OK;
}

static enum rmr_status connect_lane(struct rmr_link *link, int index, const char *address,
				    uint64_t deadline_ns, const struct rmr_link_options *options)
{
	struct lane *lane = &link->lanes[index]; /* with its domain */
	uint8_t mine[RMR_PRIVATE_MAX];
	struct rmr_conn_options conn_options = {.private_data = mine, .user = lane};
	struct rmr_conn_info info;
	struct link_hello answer;
	enum rmr_status status;

	if (options) {
		conn_options.dead_after_ms = options->dead_after_ms;
		conn_options.grants = options->grants;
		conn_options.private_length = link_hello_write(
			mine, link, index, options->private_data, options->private_length);
	} else {
		conn_options.private_length = link_hello_write(mine, link, index, NULL, 0);
	}
	status = rmr_connect(link->domains->domain[lane->domain].queue, address,
			     clock_remaining_ms(deadline_ns), &conn_options, &lane->conn);
	if (status != RMR_OK)
		return error_context(status, "connection %d of %d", index + 1, link->count);
	rmr_conn_get_info(lane->conn, &info);
	if (!link_hello_read(&answer, info.private_data, info.private_length) ||
	    answer.id != link->id || answer.index != index)
		return error_set(RMR_PROTOCOL,
				 "'%s' is no listener of domains: it does not speak of links",
				 address);
	link_keep_private(link, info.private_data,
			  info.private_length); /* the last has the user's */
	return RMR_OK;
}

/* Connects a lane by the pair that is its own, or the next one that has a way. */
static enum rmr_status find_way(struct rmr_link *link, int index, const char *const *addresses,
				int count, uint64_t deadline_ns,
				const struct rmr_link_options *options)
{
	int devices = link->domains->count;
	char reason[256] = "";

	for (int k = 0; k < devices * count; k++) {
		const char *address = addresses[(index + k / devices) % count];
		struct lane *lane = &link->lanes[index];
		enum rmr_status status;

		lane->domain = (index + k) % devices;
		status = connect_lane(link, index, address, deadline_ns, options);
		if (status == RMR_OK && k > 0)
			log_warn("%s; instead '%s' is called on device %d of %d", reason, address,
				 lane->domain + 1, devices);
		if (status != RMR_BAD_ADDRESS)
			return status;
		if (k == 0)
			snprintf(reason, sizeof(reason), "%s", error_chain());
	}
	return error_set(RMR_BAD_ADDRESS, "%s", reason);
}

static enum rmr_status connect_lanes(struct rmr_link *link, const char *const *addresses, int count,
				     uint64_t deadline_ns, const struct rmr_link_options *options)
{
	enum rmr_status status = link_configure(link, options);

	if (status != RMR_OK)
		return status;
	/* Random, so that nobody else can guess it and join the link while it is being built. */
	if (getrandom(&link->id, sizeof(link->id), 0) != sizeof(link->id))
		return error_errno(RMR_SYSTEM, errno, "no random numbers from the kernel");
	for (int i = 0; i < link->count && status == RMR_OK; i++)
		status = find_way(link, i, addresses, count, deadline_ns, options);
	return status;
}

enum rmr_status rmr_link_connect(struct rmr_domains *domains, const char *addresses, int timeout_ms,
				 const struct rmr_link_options *options, struct rmr_link **out)
{
	uint64_t deadline_ns = clock_deadline_ns(timeout_ms);
	const char *parts[RMR_DOMAINS_MAX];
	struct rmr_link *link;
	enum rmr_status status;
	char *copy;
	int count;

	if (!addresses || !*addresses)
		return error_set(RMR_BAD_ADDRESS, "no address to connect to");
	copy = strdup(addresses);
	if (!copy)
		return error_set(RMR_NO_MEMORY, "no memory for addresses");
	status = split_addresses(copy, parts, &count);
	if (status != RMR_OK)
		goto free_copy;
	status = link_create(domains, count > domains->count ? count : domains->count, &link);
	if (status != RMR_OK)
		goto free_copy;
	status = connect_lanes(link, parts, count, deadline_ns, options);
	if (status != RMR_OK) {
		link_destroy(link);
		goto free_copy;
	}
	link_opened(link);
	*out = link;

free_copy:
	free(copy);
	return error_context(status, "linking to '%s'", addresses);
}
