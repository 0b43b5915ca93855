/*
 * Meeting by RDMA CM, which finds the way to an IP address, and carries our greetings.
 *
 *	caller					listener
 *	resolve address, then route
 *	queue pair -> INIT
 *	rdma_connect, HELLO	------------->	CONNECT_REQUEST, checked: struct verbs_request
 *						queue pair -> INIT, RTR, RTS
 *	CONNECT_RESPONSE	<-------------	rdma_accept, ACCEPT		state MEETING
 *	queue pair -> RTR, RTS
 *	rdma_establish		------------->	ESTABLISHED			state OPEN
 *
 * The queue pair is ours, not RDMA CM's: librdmacm opens adapters for itself, with one protection
 * domain and one descriptor for events for the whole process. We only ask it how to set the queue
 * pair's attributes (rdma_init_qp_attr).
 *
 * The caller waits on an event channel of its own; once connected, the id moves to the channel of
 * its queue, whose owner hears when the peer disconnects. When a process dies its kernel does so in
 * its name.
 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "fabric/inet.h"
#include "fabric/verbs/internal.h"

#define RESOLVE_MS	2000
#define REASON_NOBODY	8  /* IB_CM_REJ_INVALID_SERVICE_ID */
#define REASON_CONSUMER 28 /* IB_CM_REJ_CONSUMER_DEFINED */

static socklen_t address_length(const struct sockaddr *address)
{
	return address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
					      : sizeof(struct sockaddr_in);
}

static void format_peer(struct rdma_cm_id *id, char *to, size_t size)
{
	struct sockaddr *peer = rdma_get_peer_addr(id);

	inet_format(peer, address_length(peer), to, size);
}

enum rmr_status cm_open_channel(const struct verbs_device *device,
				struct rdma_event_channel **channel)
{
	*channel = rdma_create_event_channel();
	if (!*channel)
		return doctor_no_cm(device->context->device, errno);
	(void)fcntl((*channel)->fd, F_SETFL, fcntl((*channel)->fd, F_GETFL) | O_NONBLOCK);
	(void)fcntl((*channel)->fd, F_SETFD, FD_CLOEXEC);
	return RMR_OK;
}

static bool is_our_device(const struct verbs_device *device, const struct rdma_cm_id *id)
{
	return id->verbs && strcmp(ibv_get_device_name(id->verbs->device),
				   ibv_get_device_name(device->context->device)) == 0;
}

/* Moves the queue pair to a state with the attributes that RDMA CM worked out. */
static enum rmr_status move(struct verbs_conn *conn, enum ibv_qp_state state,
			    const struct verbs_request *request)
{
	struct ibv_qp_attr attr = {.qp_state = state};
	int mask;

	if (rdma_init_qp_attr(conn->id, &attr, &mask) != 0)
		return error_errno(errno == EINVAL ? RMR_DISCONNECTED : RMR_SYSTEM, errno,
				   "the other end has gone");
	if (request && state == IBV_QPS_RTR && request->reads_in)
		attr.max_dest_rd_atomic = request->reads_in;
	if (request && state == IBV_QPS_RTS && request->reads_out)
		attr.max_rd_atomic = request->reads_out;
	return verbs_conn_move(conn, &attr, mask);
}

/* Either way: a READ on such a queue pair would never end. */
static bool takes_no_reads(const struct rdma_conn_param *param)
{
	return param->responder_resources == 0 || param->initiator_depth == 0;
}

static void fill_param(struct verbs_conn *conn, struct rdma_conn_param *param, const uint8_t *bytes)
{
	const struct verbs_device *device = conn_device(conn);

	*param = (struct rdma_conn_param){
		.private_data = bytes,
		.private_data_len = GREETING_SIZE,
		.responder_resources = device->reads_in,
		.initiator_depth = device->reads_out,
		.retry_count = (uint8_t)device->name.retry,
		.rnr_retry_count = 7,
		.srq = 1,
		.qp_num = conn->qpn,
	};
}

/* ------------------------------------------------------------------------------------------
 * Calling
 */

/* Waits for the next event of the channel; rdma_ack_cm_event it. */
static enum rmr_status await_event(struct rdma_event_channel *channel, uint64_t deadline_ns,
				   struct rdma_cm_event **event)
{
	struct pollfd pollfd = {.fd = channel->fd, .events = POLLIN};

	while (rdma_get_cm_event(channel, event) != 0) {
		if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
			return error_errno(RMR_SYSTEM, errno, "RDMA CM");
		if (clock_passed(deadline_ns))
			return error_set(RMR_TIMEOUT,
					 "no answer; is the host up, and is it a Remora that has "
					 "time?");
		(void)poll(&pollfd, 1, clock_remaining_ms(deadline_ns));
	}
	return RMR_OK;
}

static enum rmr_status resolve_error(int error)
{
	error = error < 0 ? -error : error;
	if (error == ENODEV || error == ENETUNREACH || error == EHOSTUNREACH ||
	    error == EADDRNOTAVAIL)
		return error_errno(error == EHOSTUNREACH ? RMR_REFUSED : RMR_BAD_ADDRESS, error,
				   "no RDMA adapter of this machine leads there; 'ip route get' "
				   "tells the network card, 'rdma link' the adapter on it");
	if (error == ETIMEDOUT)
		return error_errno(RMR_TIMEOUT, error, "the host does not answer");
	return error_errno(RMR_SYSTEM, error, "RDMA CM cannot resolve the address");
}

static enum rmr_status rejected(const struct rdma_cm_event *event)
{
	char text[GREETING_TEXT_MAX + 1];

	if (event->status == REASON_CONSUMER &&
	    refusal_decode(event->param.conn.private_data, event->param.conn.private_data_len,
			   text))
		return error_set(RMR_REFUSED, "the listener said no: %s", text);
	if (event->status == REASON_CONSUMER)
		return error_set(RMR_REFUSED, "the listener said no; its log may say why, or it is "
					      "no Remora");
	if (event->status == REASON_NOBODY)
		return error_set(RMR_REFUSED, "nobody listens there; is it running, and does it "
					      "meet by RDMA CM, not by TCP ('socket')?");
	return error_set(RMR_REFUSED, "RDMA CM turned us down, reason %d", event->status);
}

/* What an event that was not hoped for means. */
static enum rmr_status failed_event(const struct rdma_cm_event *event)
{
	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
		return resolve_error(event->status);
	case RDMA_CM_EVENT_REJECTED:
		return rejected(event);
	case RDMA_CM_EVENT_UNREACHABLE:
		return error_set(RMR_TIMEOUT, "the host does not answer to RDMA CM; is RoCE's UDP "
					      "port 4791 open?");
	case RDMA_CM_EVENT_DISCONNECTED:
		return error_set(RMR_DISCONNECTED, "the listener hung up");
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		return error_set(RMR_NO_DEVICE, "the adapter was removed");
	default:
		return error_set(RMR_PROTOCOL, "unexpected: %s, %d", rdma_event_str(event->event),
				 event->status);
	}
}

/* Waits for one event, which must be `wanted`. */
static enum rmr_status await_plain(struct rdma_event_channel *channel, uint64_t deadline_ns,
				   enum rdma_cm_event_type wanted)
{
	struct rdma_cm_event *event;
	enum rmr_status status = await_event(channel, deadline_ns, &event);

	if (status != RMR_OK)
		return status;
	if (event->event != wanted)
		status = failed_event(event);
	rdma_ack_cm_event(event);
	return status;
}

/* Waits for the listener's answer. */
static enum rmr_status await_answer(struct verbs_conn *conn, struct rdma_event_channel *channel,
				    uint64_t deadline_ns)
{
	struct rdma_cm_event *event;
	struct greeting greeting;
	enum rmr_status status = await_event(channel, deadline_ns, &event);
	bool other_version;
	const char *wrong;

	if (status != RMR_OK)
		return status;
	if (event->event != RDMA_CM_EVENT_CONNECT_RESPONSE) {
		status = failed_event(event);
	} else {
		wrong = greeting_decode(event->param.conn.private_data,
					event->param.conn.private_data_len, &greeting,
					&other_version);
		if (!wrong && greeting.kind != GREETING_ACCEPT)
			wrong = "a greeting instead of an answer";
		if (!wrong && takes_no_reads(&event->param.conn))
			wrong = "it takes no READs";
		if (wrong)
			status = error_set(RMR_PROTOCOL, "%s: something else listens there", wrong);
		else
			verbs_conn_take_greeting(conn, &greeting);
	}
	rdma_ack_cm_event(event);
	return status;
}

static enum rmr_status resolve(struct verbs_conn *conn, struct rdma_event_channel *channel,
			       struct sockaddr *address, uint64_t deadline_ns)
{
	enum rmr_status status;

	if (rdma_resolve_addr(conn->id, NULL, address, RESOLVE_MS) != 0)
		return resolve_error(errno);
	status = await_plain(channel, deadline_ns, RDMA_CM_EVENT_ADDR_RESOLVED);
	if (status != RMR_OK)
		return status;
	if (!is_our_device(conn_device(conn), conn->id))
		return error_set(RMR_BAD_ADDRESS,
				 "the way there is through adapter %s, and this device is %s: open "
				 "'verbs:%s'",
				 ibv_get_device_name(conn->id->verbs->device),
				 ibv_get_device_name(conn_device(conn)->context->device),
				 ibv_get_device_name(conn->id->verbs->device));
	if (rdma_resolve_route(conn->id, RESOLVE_MS) != 0)
		return resolve_error(errno);
	return await_plain(channel, deadline_ns, RDMA_CM_EVENT_ROUTE_RESOLVED);
}

static enum rmr_status shake_hands(struct verbs_conn *conn, struct rdma_event_channel *channel,
				   uint64_t deadline_ns)
{
	struct greeting greeting = {.kind = GREETING_HELLO};
	uint8_t bytes[GREETING_SIZE];
	struct rdma_conn_param param;
	enum rmr_status status = move(conn, IBV_QPS_INIT, NULL);

	if (status != RMR_OK)
		return status;
	verbs_conn_greeting(conn, &greeting);
	greeting_encode(bytes, &greeting);
	fill_param(conn, &param, bytes);
	if (rdma_connect(conn->id, &param) != 0)
		return error_errno(RMR_SYSTEM, errno, "RDMA CM cannot connect");
	status = await_answer(conn, channel, deadline_ns);
	if (status != RMR_OK)
		return status;
	status = move(conn, IBV_QPS_RTR, NULL);
	if (status == RMR_OK)
		status = move(conn, IBV_QPS_RTS, NULL);
	if (status == RMR_OK && rdma_establish(conn->id) != 0)
		status = error_errno(errno == EINVAL ? RMR_DISCONNECTED : RMR_SYSTEM, errno,
				     "the listener has gone");
	if (status == RMR_DISCONNECTED) {
		/* It accepted us, and has hung up since: so we were connected, and are not now. */
		verbs_conn_fail(conn, RMR_DISCONNECTED);
		return RMR_OK;
	}
	return status;
}

/* Events that the id had on its old channel have moved along, but the kernel wakes nobody for them:
 * epoll would not tell until the next one comes. */
static void take_moved_events(struct verbs_conn *conn)
{
	cm_ready(&conn_queue(conn)->cm_source, 0);
}

/* Calls one address. On failure nothing is left but an unused conn. */
static enum rmr_status call(void *context, const struct addrinfo *at, uint64_t deadline_ns)
{
	struct verbs_conn *conn = context;
	struct rdma_event_channel *channel;
	enum rmr_status status = cm_open_channel(conn_device(conn), &channel);

	if (status != RMR_OK)
		return status;
	if (rdma_create_id(channel, &conn->id, conn, RDMA_PS_TCP) != 0) {
		status = error_errno(RMR_SYSTEM, errno, "no RDMA CM id");
		goto destroy_channel;
	}
	status = resolve(conn, channel, at->ai_addr, deadline_ns);
	if (status == RMR_OK)
		status = verbs_conn_prepare(conn);
	if (status != RMR_OK)
		goto destroy_id;
	status = shake_hands(conn, channel, deadline_ns);
	if (status == RMR_OK && rdma_migrate_id(conn->id, conn_queue(conn)->cm) != 0)
		status = error_errno(RMR_SYSTEM, errno, "RDMA CM");
	if (status != RMR_OK)
		goto unprepare;
	format_peer(conn->id, conn->base.peer, sizeof(conn->base.peer));
	rdma_destroy_event_channel(channel);
	verbs_conn_open(conn, true);
	take_moved_events(conn);
	return RMR_OK;

unprepare:
	verbs_conn_unprepare(conn);
destroy_id:
	rdma_destroy_id(conn->id);
	conn->id = NULL;
destroy_channel:
	rdma_destroy_event_channel(channel);
	return status;
}

enum rmr_status cm_connect(struct verbs_conn *conn, const char *address, uint64_t deadline_ns)
{
	return inet_try_each(address, deadline_ns, call, conn);
}

/* ------------------------------------------------------------------------------------------
 * Listening
 */

/* The channel that a listener's callers come in by. A request that was not answered yet needs it,
 * also when the listener is closed already. */
struct cm_channel {
	struct rdma_event_channel *channel;
	atomic_int users; /* the listener, and each of its requests */
};

static enum rmr_status cm_channel_open(struct verbs_device *device, struct cm_channel **out)
{
	struct cm_channel *cm = calloc(1, sizeof(*cm));
	enum rmr_status status;

	if (!cm)
		return error_set(RMR_NO_MEMORY, "no memory for a listener");
	status = cm_open_channel(device, &cm->channel);
	if (status != RMR_OK) {
		free(cm);
		return status;
	}
	atomic_init(&cm->users, 1);
	*out = cm;
	return RMR_OK;
}

static void cm_channel_drop(struct cm_channel *cm)
{
	if (atomic_fetch_sub(&cm->users, 1) != 1)
		return;
	rdma_destroy_event_channel(cm->channel);
	free(cm);
}

static enum rmr_status bind_error(struct verbs_device *device, int error)
{
	char own[64] = "none";

	(void)gid_address(device, own, sizeof(own));
	if (error == EADDRINUSE)
		return error_errno(RMR_ADDRESS_IN_USE, error, "another program listens there");
	if (error == EADDRNOTAVAIL || error == ENODEV)
		return error_errno(RMR_BAD_ADDRESS, error,
				   "%s does not have this address (it has: %s); '*:port' takes "
				   "all",
				   ibv_get_device_name(device->context->device), own);
	if (error == EACCES || error == EPERM)
		return error_errno(RMR_DENIED, error, "ports below 1024 need privileges");
	return error_errno(RMR_SYSTEM, error, "cannot listen by RDMA CM");
}

/* Binds to one address and listens. */
static int listen_at(struct verbs_listener *listener, struct sockaddr *address)
{
	const struct verbs_device *device = verbs_device_of(listener->base.device);
	int error;

	if (rdma_create_id(listener->cm->channel, &listener->id, NULL, RDMA_PS_TCP) != 0)
		return errno;
	error = rdma_bind_addr(listener->id, address) != 0 ? errno : 0;
	/* Bound to another adapter's address, all callers would be turned away. */
	if (error == 0 && listener->id->verbs && !is_our_device(device, listener->id))
		error = EADDRNOTAVAIL;
	if (error == 0 && rdma_listen(listener->id, listener->base.options.backlog) == 0)
		return 0;
	error = error != 0 ? error : errno;
	rdma_destroy_id(listener->id);
	listener->id = NULL;
	return error;
}

/* The address that callers can use: what we are bound to, or for "*" one of the adapter's. */
static void tell_address(struct verbs_listener *listener)
{
	struct sockaddr *bound = rdma_get_local_addr(listener->id);
	int port = ntohs(rdma_get_src_port(listener->id));
	struct sockaddr_storage any = {.ss_family = bound->sa_family};
	size_t skip = bound->sa_family == AF_INET6 ? offsetof(struct sockaddr_in6, sin6_addr)
						   : offsetof(struct sockaddr_in, sin_addr);
	size_t length = bound->sa_family == AF_INET6 ? 16 : 4;
	char own[64];

	if (memcmp((char *)bound + skip, (char *)&any + skip, length) == 0 &&
	    gid_address(verbs_device_of(listener->base.device), own, sizeof(own)))
		snprintf(listener->base.address, sizeof(listener->base.address),
			 strchr(own, ':') ? "[%s]:%d" : "%s:%d", own, port);
	else
		inet_format(bound, address_length(bound), listener->base.address,
			    sizeof(listener->base.address));
}

enum rmr_status cm_listener_init(struct verbs_listener *listener, const char *address)
{
	struct verbs_device *device = verbs_device_of(listener->base.device);
	struct addrinfo *list;
	enum rmr_status status = inet_resolve(address, true, &list);
	int error = EADDRNOTAVAIL;

	if (status != RMR_OK)
		return status;
	status = cm_channel_open(device, &listener->cm);
	if (status != RMR_OK) {
		freeaddrinfo(list);
		return status;
	}
	/* Those of IPv6 first: its wildcard serves both. */
	for (int round = 0; round < 2 && !listener->id && error != EADDRINUSE; round++) {
		for (struct addrinfo *at = list; at && !listener->id; at = at->ai_next) {
			if ((at->ai_family == AF_INET6) == (round == 0))
				error = listen_at(listener, at->ai_addr);
		}
	}
	freeaddrinfo(list);
	if (!listener->id) {
		cm_channel_drop(listener->cm);
		return bind_error(device, error);
	}
	listener->base.fd = listener->cm->channel->fd;
	tell_address(listener);
	return RMR_OK;
}

void cm_listener_fini(struct verbs_listener *listener)
{
	rdma_destroy_id(listener->id);
	cm_channel_drop(listener->cm);
}

static void refuse(struct rdma_cm_id *id, const char *reason)
{
	uint8_t bytes[REFUSAL_SIZE];
	size_t length = refusal_encode(bytes, reason);

	(void)rdma_reject(id, bytes, (uint8_t)length);
}

/* Looks at a caller. False when it was turned away. */
static bool take_caller(struct verbs_listener *listener, const struct rdma_cm_event *event,
			struct verbs_request *request)
{
	const struct rdma_conn_param *param = &event->param.conn;
	char peer[64], text[GREETING_TEXT_MAX];
	bool other_version = false;
	const char *wrong = greeting_decode(param->private_data, param->private_data_len,
					    &request->greeting, &other_version);

	format_peer(event->id, peer, sizeof(peer));
	if (!wrong && request->greeting.kind != GREETING_HELLO)
		wrong = "an answer instead of a greeting";
	if (!wrong && takes_no_reads(param))
		wrong = "it takes no READs";
	if (!wrong && !is_our_device(verbs_device_of(listener->base.device), event->id)) {
		snprintf(text, sizeof(text), "it came in through adapter %s",
			 ibv_get_device_name(event->id->verbs->device));
		wrong = text;
	}
	if (wrong) {
		log_warn_limited("%s: caller %s at %s dropped: %s",
				 listener->base.device->info.name, peer, listener->base.address,
				 wrong);
		refuse(event->id, other_version ? "the listener speaks another version of the "
						  "protocol; use the same release on both sides"
						: wrong);
		return false;
	}
	memcpy(request->base.peer, peer, sizeof(peer));
	request->id = event->id;
	request->cm = listener->cm;
	atomic_fetch_add(&listener->cm->users, 1);
	request->base.private_length = request->greeting.private_length;
	memcpy(request->base.private_data, request->greeting.private_data, RMR_PRIVATE_MAX);
	request->reads_in = param->responder_resources;
	request->reads_out = param->initiator_depth;
	return true;
}

enum rmr_status cm_listener_next(struct verbs_listener *listener, struct verbs_request *request,
				 int *wait_ms)
{
	struct verbs_device *device = verbs_device_of(listener->base.device);
	struct rdma_cm_event *event;

	*wait_ms = -1;
	while (rdma_get_cm_event(listener->cm->channel, &event) == 0) {
		/* Events of callers that wait to be accepted are of no interest: who hung up
		 * meanwhile fails when it is accepted, or soon after. */
		bool calls = event->event == RDMA_CM_EVENT_CONNECT_REQUEST, taken = false;
		struct rdma_cm_id *id = event->id;

		if (calls)
			taken = take_caller(listener, event, request);
		if (event->event == RDMA_CM_EVENT_DEVICE_REMOVAL && is_our_device(device, id))
			async_adapter_gone(device, rdma_event_str(event->event));
		rdma_ack_cm_event(event);
		if (calls && !taken)
			rdma_destroy_id(id);
		if (taken)
			return RMR_OK;
	}
	if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)
		return RMR_AGAIN;
	return error_errno(RMR_SYSTEM, errno, "RDMA CM");
}

void cm_reject(struct verbs_request *request, const char *reason)
{
	refuse(request->id, reason);
	rdma_destroy_id(request->id);
	cm_channel_drop(request->cm);
	request->id = NULL;
}

static enum rmr_status answer(struct verbs_conn *conn, const struct verbs_request *request)
{
	struct greeting greeting = {.kind = GREETING_ACCEPT};
	uint8_t bytes[GREETING_SIZE];
	struct rdma_conn_param param;
	enum rmr_status status = move(conn, IBV_QPS_INIT, request);

	if (status == RMR_OK)
		status = move(conn, IBV_QPS_RTR, request);
	if (status == RMR_OK)
		status = move(conn, IBV_QPS_RTS, request);
	if (status != RMR_OK)
		return status;
	verbs_conn_greeting(conn, &greeting);
	greeting_encode(bytes, &greeting);
	fill_param(conn, &param, bytes);
	if (param.responder_resources > request->reads_in)
		param.responder_resources = request->reads_in;
	if (param.initiator_depth > request->reads_out)
		param.initiator_depth = request->reads_out;
	if (rdma_migrate_id(conn->id, conn_queue(conn)->cm) != 0 ||
	    rdma_accept(conn->id, &param) != 0)
		return error_errno(RMR_DISCONNECTED, errno, "the caller has gone");
	return RMR_OK;
}

enum rmr_status cm_accept(struct verbs_request *request, struct verbs_conn *conn)
{
	enum rmr_status status = verbs_conn_prepare(conn);

	if (status != RMR_OK) {
		cm_reject(request, error_chain());
		return status;
	}
	conn->id = request->id;
	conn->id->context = conn;
	verbs_conn_take_greeting(conn, &request->greeting);
	status = answer(conn, request);
	if (status != RMR_OK) {
		verbs_conn_unprepare(conn);
		conn->id = NULL;
		cm_reject(request, error_chain());
		return status;
	}
	cm_channel_drop(request->cm);
	verbs_conn_open(conn, false);
	take_moved_events(conn);
	return RMR_OK;
}

/* ------------------------------------------------------------------------------------------
 * Connections of a queue
 */

static void take_event(const struct rdma_cm_event *event)
{
	struct verbs_conn *conn = event->id->context;

	switch (event->event) {
	case RDMA_CM_EVENT_ESTABLISHED:
		verbs_conn_peer_ready(conn);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		verbs_conn_fail(conn, RMR_DISCONNECTED);
		break;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		verbs_conn_fail(conn, RMR_NO_DEVICE);
		async_adapter_gone(conn_device(conn), rdma_event_str(event->event));
		break;
	case RDMA_CM_EVENT_REJECTED:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_CONNECT_ERROR:
		log_info("%s: caller %s did not come to meet us: %s",
			 conn->base.queue->device->info.name, conn->base.peer,
			 rdma_event_str(event->event));
		verbs_conn_fail(conn, RMR_DISCONNECTED);
		break;
	default:
		log_debug("%s: %s", conn->base.peer, rdma_event_str(event->event));
	}
}

void cm_ready(struct queue_source *source, uint32_t events)
{
	struct verbs_queue *queue =
		(struct verbs_queue *)((char *)source - offsetof(struct verbs_queue, cm_source));
	struct rdma_cm_event *event;

	(void)events;
	while (rdma_get_cm_event(queue->cm, &event) == 0) {
		take_event(event);
		rdma_ack_cm_event(event);
	}
}

void cm_close(struct verbs_conn *conn)
{
	(void)rdma_disconnect(conn->id);
	rdma_destroy_id(conn->id);
	conn->id = NULL;
}
