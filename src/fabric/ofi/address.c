/*
 * Addresses of endpoints that are IP addresses and ports.
 *
 * Such an endpoint listens on all addresses of the host, so what it says of itself is not where it
 * can be reached. The address by which the socket is connected is: that is put in its place. On a
 * host with IPv6 the endpoint is one of IPv6 that takes IPv4 as well, written ::ffff:1.2.3.4; on
 * others it is of IPv4. The two can talk by IPv4, if each writes the other's address as its own
 * endpoint understands it. Addresses of other kinds are passed on as they are.
 */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include "base/error.h"
#include "fabric/ofi/internal.h"

/* An IPv4 address in the form of IPv6. */
static struct sockaddr_in6 to_v6(const struct sockaddr_in *v4)
{
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = v4->sin_port};

	v6.sin6_addr.s6_addr[10] = v6.sin6_addr.s6_addr[11] = 0xff;
	memcpy(&v6.sin6_addr.s6_addr[12], &v4->sin_addr, sizeof(v4->sin_addr));
	return v6;
}

/* And back. False: it is not one. */
static bool to_v4(const struct sockaddr_in6 *v6, struct sockaddr_in *v4)
{
	if (!IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr))
		return false;
	*v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = v6->sin6_port};
	memcpy(&v4->sin_addr, &v6->sin6_addr.s6_addr[12], sizeof(v4->sin_addr));
	return true;
}

static void put(struct ofi_address *address, const void *bytes, size_t length)
{
	*address = (struct ofi_address){.length = (uint8_t)length};
	memcpy(address->bytes, bytes, length);
}

static bool is_any(const struct ofi_address *address)
{
	struct sockaddr_in6 v6;
	struct sockaddr_in v4;

	if (address->length == sizeof(v4)) {
		memcpy(&v4, address->bytes, sizeof(v4));
		return v4.sin_family == AF_INET && v4.sin_addr.s_addr == htonl(INADDR_ANY);
	}
	if (address->length != sizeof(v6))
		return false;
	memcpy(&v6, address->bytes, sizeof(v6));
	return v6.sin6_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&v6.sin6_addr);
}

enum rmr_status address_own(const struct ofi_queue *queue, int fd, struct ofi_address *address)
{
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} local;
	const struct sockaddr_in *own = (const struct sockaddr_in *)address->bytes;
	socklen_t length = sizeof(local);

	if (!is_any(address))
		return RMR_OK;
	if (getsockname(fd, &local.any, &length) != 0)
		return error_errno(RMR_SYSTEM, errno, "cannot tell the own address");
	/* The port is at the same place in both families. */
	local.v4.sin_port = own->sin_port;
	if (local.any.sa_family == AF_INET)
		put(address, &local.v4, sizeof(local.v4));
	else
		put(address, &local.v6, sizeof(local.v6));
	return address_adapt(queue, address);
}

enum rmr_status address_adapt(const struct ofi_queue *queue, struct ofi_address *address)
{
	struct sockaddr_in6 v6;
	struct sockaddr_in v4;

	if (address->length == queue->address.length)
		return RMR_OK;
	if (address->length == sizeof(v4) && queue->address.length == sizeof(v6)) {
		memcpy(&v4, address->bytes, sizeof(v4));
		v6 = to_v6(&v4);
		put(address, &v6, sizeof(v6));
		return RMR_OK;
	}
	if (address->length == sizeof(v6) && queue->address.length == sizeof(v4)) {
		memcpy(&v6, address->bytes, sizeof(v6));
		if (to_v4(&v6, &v4)) {
			put(address, &v4, sizeof(v4));
			return RMR_OK;
		}
	}
	return error_set(RMR_UNSUPPORTED, "'%s' has no IPv6 here; connect by an IPv4 address",
			 queue->stream.base.device->info.name);
}

enum rmr_status address_peer(const struct ofi_queue *queue, int fd, uint16_t port,
			     struct ofi_address *address)
{
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} peer;
	socklen_t length = sizeof(peer);

	if (getpeername(fd, &peer.any, &length) != 0)
		return error_errno(RMR_DISCONNECTED, errno, "the peer hung up");
	peer.v4.sin_port = htons(port);
	if (peer.any.sa_family == AF_INET)
		put(address, &peer.v4, sizeof(peer.v4));
	else
		put(address, &peer.v6, sizeof(peer.v6));
	return address_adapt(queue, address);
}
