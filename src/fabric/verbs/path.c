/*
 * Joining two queue pairs. See path.h.
 *
 * What the peer says was checked by exchange.c: no number is out of range. What is left is whether
 * it is true. A wrong queue pair or sequence number makes packets that nobody answers, and the
 * connection ends as one to a silent host does. A wrong GID can cost us time: for RoCE the kernel
 * looks for the hardware address behind it while we wait, up to a second. A listener must not wait
 * for strangers, so it takes a GID only from the address that it belongs to, whose hardware address
 * the kernel knows since the socket was opened.
 */
#include "fabric/verbs/path.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"

#define HOP_LIMIT 64
#define PSN_MASK  0xffffffu

static_assert((int)EXCHANGE_GID_IB == IBV_GID_TYPE_IB &&
		      (int)EXCHANGE_GID_ROCE_V1 == IBV_GID_TYPE_ROCE_V1 &&
		      (int)EXCHANGE_GID_ROCE_V2 == IBV_GID_TYPE_ROCE_V2,
	      "types of GIDs travel as the adapter numbers them");

enum rmr_status path_check_device(const struct verbs_device *device)
{
	const char *name = ibv_get_device_name(device->context->device);

	if (device->reads_out == 0 || device->reads_in == 0)
		return error_set(RMR_UNSUPPORTED, "%s has no RDMA READ", name);
	return RMR_OK;
}

static int mtu_bytes(int mtu)
{
	return 128 << mtu; /* enum ibv_mtu begins with 1: 256 */
}

/* The port's, within what the device's name allows. */
static uint8_t choose_mtu(const struct verbs_device *device, const struct ibv_port_attr *port)
{
	int mtu = (int)port->active_mtu;

	if (mtu > IBV_MTU_4096)
		mtu = IBV_MTU_4096;
	while (mtu > IBV_MTU_256 && device->name.mtu != 0 && mtu_bytes(mtu) > device->name.mtu)
		mtu--;
	return (uint8_t)(mtu < IBV_MTU_256 ? IBV_MTU_256 : mtu);
}

static enum rmr_status describe_gid(struct verbs_device *device, int fd, struct path_end *own)
{
	struct sockaddr_storage local;
	socklen_t length = sizeof(local);
	struct ibv_gid_entry entry;
	union ibv_gid gid;
	enum rmr_status status;
	int error;

	if (getsockname(fd, (struct sockaddr *)&local, &length) != 0)
		return error_errno(RMR_SYSTEM, errno, "a socket without an address");
	status = gid_choose(device, (struct sockaddr *)&local, &own->gid_index, &gid);
	if (status != RMR_OK)
		return status;
	memcpy(own->exchange.gid, gid.raw, sizeof(gid.raw));
	if (!device->is_roce)
		return RMR_OK;
	error = ibv_query_gid_ex(device->context, device->port_number, (uint32_t)own->gid_index,
				 &entry, 0);
	if (error != 0)
		return error_errno(RMR_SYSTEM, error, "cannot read GID %d", own->gid_index);
	own->exchange.gid_type = (uint8_t)entry.gid_type;
	if (entry.gid_type != IBV_GID_TYPE_ROCE_V1 && entry.gid_type != IBV_GID_TYPE_ROCE_V2)
		return error_set(RMR_UNSUPPORTED, "GID %d is not one of RoCE", own->gid_index);
	return RMR_OK;
}

static enum rmr_status describe_port(struct verbs_device *device, struct exchange *own)
{
	const char *name = ibv_get_device_name(device->context->device);
	struct ibv_port_attr port;
	int error = ibv_query_port(device->context, device->port_number, &port);

	/* Asked again: a LID may change while a device is open. */
	if (error != 0)
		return error_errno(RMR_SYSTEM, error, "cannot query port %u of %s",
				   device->port_number, name);
	if (port.state != IBV_PORT_ACTIVE)
		return error_set(RMR_NO_DEVICE, "port %u of %s is down", device->port_number, name);
	own->link = device->is_roce ? EXCHANGE_ETHERNET : EXCHANGE_INFINIBAND;
	own->lid = device->is_roce ? 0 : port.lid;
	own->mtu = choose_mtu(device, &port);
	own->reads_out = device->reads_out;
	own->reads_in = device->reads_in;
	if (!device->is_roce && (port.lid == 0 || port.lid > 0xbfff))
		return error_set(RMR_NO_DEVICE,
				 "port %u of %s has no LID; does a subnet manager "
				 "(opensm) run?",
				 device->port_number, name);
	return RMR_OK;
}

enum rmr_status path_begin(struct verbs_conn *conn, int fd, enum greeting_kind kind,
			   struct path_end *own)
{
	struct verbs_device *device = conn_device(conn);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = device->port_number};
	enum rmr_status status;

	memset(own, 0, sizeof(*own));
	status = describe_port(device, &own->exchange);
	if (status == RMR_OK)
		status = describe_gid(device, fd, own);
	if (status == RMR_OK)
		status = verbs_conn_move(conn, &attr,
					 IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT);
	if (status != RMR_OK)
		return status;
	/* Unguessable: whoever knows the number could slip packets in. */
	if (getrandom(&own->exchange.psn, sizeof(own->exchange.psn), 0) !=
	    sizeof(own->exchange.psn))
		return error_errno(RMR_SYSTEM, errno, "no random number");
	own->exchange.psn &= PSN_MASK;
	own->exchange.qpn = conn->qpn;
	verbs_conn_greeting(conn, &own->exchange.greeting);
	own->exchange.greeting.kind = (uint8_t)kind;
	return RMR_OK;
}

static const char *link_name(uint8_t link)
{
	return link == EXCHANGE_INFINIBAND ? "InfiniBand" : "Ethernet";
}

enum rmr_status path_check(const struct path_end *own, const struct exchange *peer)
{
	const struct exchange *mine = &own->exchange;

	if (mine->link != peer->link)
		return error_set(
			RMR_REFUSED,
			"one end is on %s, the other on %s: choose adapters of one network",
			link_name(peer->link), link_name(mine->link));
	if (mine->gid_type != peer->gid_type)
		return error_set(RMR_REFUSED,
				 "one end uses RoCE v%u, the other v%u: give the same kind by "
				 "gid=N",
				 peer->gid_type, mine->gid_type);
	if (mine->link == EXCHANGE_ETHERNET && gid_is_ipv4(mine->gid) != gid_is_ipv4(peer->gid))
		return error_set(RMR_REFUSED, "one end has a GID of IPv4, the other of IPv6: give "
					      "the same kind by gid=N");
	return RMR_OK;
}

/* Is it an address of this host? Then a socket can have it. */
static bool is_of_this_host(const uint8_t gid[16])
{
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
	struct sockaddr_in v4 = {.sin_family = AF_INET};
	const struct sockaddr *address = (struct sockaddr *)&v6;
	socklen_t length = sizeof(v6);
	bool found;
	int fd;

	memcpy(&v6.sin6_addr, gid, sizeof(v6.sin6_addr));
	if (gid_is_ipv4(gid)) {
		memcpy(&v4.sin_addr, gid + 12, sizeof(v4.sin_addr));
		address = (struct sockaddr *)&v4;
		length = sizeof(v4);
	}
	fd = socket(address->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return false;
	found = bind(fd, address, length) == 0;
	close(fd);
	return found;
}

enum rmr_status path_check_caller(struct verbs_conn *conn, int fd, const struct exchange *peer)
{
	struct verbs_device *device = conn_device(conn);
	struct sockaddr_storage address;
	socklen_t length = sizeof(address);
	char text[INET6_ADDRSTRLEN];
	union ibv_gid gid;

	/* Who chose our GID by hand has reasons to choose the others' too. */
	if (peer->link != EXCHANGE_ETHERNET || device->name.gid >= 0)
		return RMR_OK;
	if (getpeername(fd, (struct sockaddr *)&address, &length) != 0)
		return error_errno(RMR_DISCONNECTED, errno, "the caller hung up");
	memcpy(gid.raw, peer->gid, sizeof(gid.raw));
	if (gid_is_address(&gid, (struct sockaddr *)&address))
		return RMR_OK;
	if (gid_is_loopback_address((struct sockaddr *)&address) &&
	    (gid_is_own(device, &gid) || is_of_this_host(peer->gid)))
		return RMR_OK;
	(void)inet_ntop(AF_INET6, peer->gid, text, sizeof(text));
	return error_set(RMR_REFUSED,
			 "GID %s is not the caller's address; if it shall be used, the listener "
			 "needs gid=N too",
			 text);
}

static uint8_t lesser(uint8_t a, uint8_t b)
{
	return a < b ? a : b;
}

/* The peer's address, as packets carry it. */
static void fill_address(struct verbs_device *device, const struct path_end *own,
			 const struct exchange *peer, struct ibv_ah_attr *to)
{
	bool other_subnet = memcmp(own->exchange.gid, peer->gid, 8) != 0;

	to->port_num = device->port_number;
	to->dlid = peer->lid;
	if (!device->is_roce && !other_subnet && !(device->port.flags & IBV_QPF_GRH_REQUIRED))
		return;
	to->is_global = 1;
	memcpy(to->grh.dgid.raw, peer->gid, sizeof(peer->gid));
	to->grh.sgid_index = (uint8_t)own->gid_index;
	to->grh.hop_limit = HOP_LIMIT;
}

enum rmr_status path_join(struct verbs_conn *conn, const struct path_end *own,
			  const struct exchange *peer)
{
	const struct exchange *mine = &own->exchange;
	struct ibv_qp_attr receive = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = (enum ibv_mtu)lesser(mine->mtu, peer->mtu),
		.dest_qp_num = peer->qpn,
		.rq_psn = peer->psn,
		.max_dest_rd_atomic = lesser(mine->reads_in, peer->reads_out),
	};
	struct ibv_qp_attr send = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = mine->psn,
		.max_rd_atomic = lesser(mine->reads_out, peer->reads_in),
	};
	char text[INET6_ADDRSTRLEN];
	enum rmr_status status;

	fill_address(conn_device(conn), own, peer, &receive.ah_attr);
	status = verbs_conn_move(conn, &receive,
				 IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					 IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC);
	if (status == RMR_OK)
		status = verbs_conn_move(conn, &send,
					 IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
	if (status == RMR_OK)
		return RMR_OK;
	(void)inet_ntop(AF_INET6, peer->gid, text, sizeof(text));
	return error_context(status, "joining queue pair %u at GID %s, LID %u, from GID %d",
			     peer->qpn, text, peer->lid, own->gid_index);
}
