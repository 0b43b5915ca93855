/* See stranger.h. */
#include "stranger.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define PATIENCE_MS (8000 * (int)TEST_TIME_FACTOR)

/* The calls of librdmacm return 0, or -1 and errno. */
#define CHECK_CM(call)                                                                             \
	do {                                                                                       \
		if ((call) != 0)                                                                   \
			TEST_FAIL("%s: %s", #call, strerror(errno));                               \
	} while (0)

void stranger_open(struct stranger *stranger)
{
	memset(stranger, 0, sizeof(*stranger));
	stranger->channel = rdma_create_event_channel();
	CHECK(stranger->channel != NULL);
	CHECK_CM(rdma_create_id(stranger->channel, &stranger->id, NULL, RDMA_PS_TCP));
}

void stranger_destroy_qp(struct stranger *stranger)
{
	if (stranger->qp)
		CHECK_EQ(ibv_destroy_qp(stranger->qp), 0);
	stranger->qp = NULL;
}

void stranger_close(struct stranger *stranger)
{
	stranger_destroy_qp(stranger);
	if (stranger->cq)
		CHECK_EQ(ibv_destroy_cq(stranger->cq), 0);
	if (stranger->mr)
		CHECK_EQ(ibv_dereg_mr(stranger->mr), 0);
	if (stranger->pd)
		CHECK_EQ(ibv_dealloc_pd(stranger->pd), 0);
	if (stranger->guest)
		CHECK_CM(rdma_destroy_id(stranger->guest));
	if (stranger->id)
		CHECK_CM(rdma_destroy_id(stranger->id));
	rdma_destroy_event_channel(stranger->channel);
	free(stranger->memory);
	memset(stranger, 0, sizeof(*stranger));
}

struct stranger_event stranger_await(struct stranger *stranger)
{
	struct pollfd pollfd = {.fd = stranger->channel->fd, .events = POLLIN};
	struct stranger_event event = {0};
	struct rdma_cm_event *cm;

	if (poll(&pollfd, 1, PATIENCE_MS) != 1)
		TEST_FAIL("no event of RDMA CM came");
	CHECK_CM(rdma_get_cm_event(stranger->channel, &cm));
	event.type = cm->event;
	event.status = cm->status;
	if (cm->param.conn.private_data) {
		event.length = cm->param.conn.private_data_len;
		memcpy(event.data, cm->param.conn.private_data, event.length);
	}
	if (cm->event == RDMA_CM_EVENT_CONNECT_REQUEST)
		stranger->guest = cm->id;
	CHECK_CM(rdma_ack_cm_event(cm));
	return event;
}

struct stranger_event stranger_expect(struct stranger *stranger, enum rdma_cm_event_type type)
{
	struct stranger_event event = stranger_await(stranger);

	if (event.type != type)
		TEST_FAIL("RDMA CM says %s (%d) instead of %s", rdma_event_str(event.type),
			  event.status, rdma_event_str(type));
	return event;
}

/* A queue pair on the adapter that RDMA CM found, and memory to send from. */
static void make_qp(struct stranger *stranger, struct ibv_context *context)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = STRANGER_DEPTH,
			.max_recv_wr = 16,
			.max_send_sge = 2,
			.max_recv_sge = 1},
	};

	stranger->memory = calloc(1, STRANGER_MEMORY);
	stranger->pd = ibv_alloc_pd(context);
	CHECK(stranger->memory != NULL && stranger->pd != NULL);
	stranger->mr =
		ibv_reg_mr(stranger->pd, stranger->memory, STRANGER_MEMORY, IBV_ACCESS_LOCAL_WRITE);
	stranger->cq = ibv_create_cq(context, STRANGER_DEPTH + 16, NULL, NULL, 0);
	CHECK(stranger->mr != NULL && stranger->cq != NULL);
	attr.send_cq = attr.recv_cq = stranger->cq;
	stranger->qp = ibv_create_qp(stranger->pd, &attr);
	CHECK(stranger->qp != NULL);
}

/* As the one that shall be connected: a caller, or who calls us. */
static void move(struct stranger *stranger, struct rdma_cm_id *id, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state};
	int mask;

	CHECK_CM(rdma_init_qp_attr(id, &attr, &mask));
	if (state == IBV_QPS_INIT) /* or he could not be asked whether he lives */
		attr.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
	if (state == IBV_QPS_RTS) {
		attr.rnr_retry = 7; /* for ever */
		mask |= IBV_QP_RNR_RETRY;
	}
	CHECK_EQ(ibv_modify_qp(stranger->qp, &attr, mask), 0);
}

static struct sockaddr_in parse(const char *address)
{
	struct sockaddr_in to = {.sin_family = AF_INET};
	const char *colon = strrchr(address, ':');
	char host[64];

	CHECK(colon != NULL);
	snprintf(host, sizeof(host), "%.*s", (int)(colon - address), address);
	to.sin_port = htons((uint16_t)atoi(colon + 1));
	CHECK_EQ(inet_pton(AF_INET, host, &to.sin_addr), 1);
	return to;
}

void stranger_resolve(struct stranger *stranger, const char *address)
{
	struct sockaddr_in to = parse(address);

	CHECK_CM(rdma_resolve_addr(stranger->id, NULL, (struct sockaddr *)&to, 2000));
	stranger_expect(stranger, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK_CM(rdma_resolve_route(stranger->id, 2000));
	stranger_expect(stranger, RDMA_CM_EVENT_ROUTE_RESOLVED);
	make_qp(stranger, stranger->id->verbs);
	move(stranger, stranger->id, IBV_QPS_INIT);
}

static struct rdma_conn_param param_of(struct stranger *stranger, const void *data, size_t length)
{
	return (struct rdma_conn_param){
		.private_data = data,
		.private_data_len = (uint8_t)length,
		.responder_resources = 16,
		.initiator_depth = 16,
		.retry_count = 7,
		.rnr_retry_count = 7,
		.qp_num = stranger->qp->qp_num,
	};
}

void stranger_call(struct stranger *stranger, const void *data, size_t length)
{
	struct rdma_conn_param param = param_of(stranger, data, length);

	CHECK_CM(rdma_connect(stranger->id, &param));
}

struct greeting stranger_greeting(enum greeting_kind kind)
{
	return (struct greeting){
		.magic = GREETING_MAGIC,
		.version = GREETING_VERSION,
		.kind = (uint8_t)kind,
		.recv_size = 8192,
		.secret = 0x1122334455667788,
	};
}

void stranger_meet_halfway(struct stranger *stranger, const char *address)
{
	struct greeting hello = stranger_greeting(GREETING_HELLO), answer;
	struct stranger_event event;
	uint8_t bytes[GREETING_SIZE];
	bool other_version;

	stranger_resolve(stranger, address);
	greeting_encode(bytes, &hello);
	stranger_call(stranger, bytes, sizeof(bytes));
	event = stranger_expect(stranger, RDMA_CM_EVENT_CONNECT_RESPONSE);
	CHECK(greeting_decode(event.data, event.length, &answer, &other_version) == NULL);
	CHECK_EQ(answer.kind, GREETING_ACCEPT);
	move(stranger, stranger->id, IBV_QPS_RTR);
	move(stranger, stranger->id, IBV_QPS_RTS);
}

void stranger_meet(struct stranger *stranger, const char *address)
{
	stranger_meet_halfway(stranger, address);
	CHECK_CM(rdma_establish(stranger->id));
}

void stranger_listen(struct stranger *stranger, char address[64])
{
	struct sockaddr_in any = parse(STRANGER_HOST ":0");

	CHECK_CM(rdma_bind_addr(stranger->id, (struct sockaddr *)&any));
	CHECK_CM(rdma_listen(stranger->id, 16));
	snprintf(address, 64, "%s:%d", STRANGER_HOST, ntohs(rdma_get_src_port(stranger->id)));
}

void stranger_take(struct stranger *stranger)
{
	stranger_expect(stranger, RDMA_CM_EVENT_CONNECT_REQUEST);
}

void stranger_answer(struct stranger *stranger, const void *data, size_t length)
{
	struct rdma_conn_param param;

	make_qp(stranger, stranger->guest->verbs);
	for (enum ibv_qp_state state = IBV_QPS_INIT; state <= IBV_QPS_RTS; state++)
		move(stranger, stranger->guest, state);
	param = param_of(stranger, data, length);
	CHECK_CM(rdma_accept(stranger->guest, &param));
}

int stranger_post(struct stranger *stranger, const struct stranger_work *work)
{
	struct ibv_sge sges[2] = {
		{(uintptr_t)stranger->memory, work->length, stranger->mr->lkey},
	};
	struct ibv_send_wr wr = {
		.opcode = work->opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.sg_list = sges,
		.num_sge = work->length != 0,
		.imm_data = htobe32(work->immediate),
	};
	struct ibv_send_wr *bad;

	if (work->torn_after) {
		sges[0].length = work->torn_after;
		sges[1] = sges[0];
		sges[1].length = work->length - work->torn_after;
		sges[1].lkey ^= 0x5500; /* no such key */
		wr.num_sge = 2;
	}
	if (work->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	    work->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = work->address;
		wr.wr.atomic.rkey = work->rkey;
		wr.wr.atomic.compare_add = 0x5a5a5a5a5a5a5a5a; /* what the victim has there */
	} else {
		wr.wr.rdma.remote_addr = work->address;
		wr.wr.rdma.rkey = work->rkey;
	}
	return ibv_post_send(stranger->qp, &wr, &bad);
}

enum ibv_wc_status stranger_poll(struct stranger *stranger)
{
	uint64_t deadline_ns = clock_deadline_ns(PATIENCE_MS);
	struct ibv_wc wc;

	while (ibv_poll_cq(stranger->cq, 1, &wc) == 0) {
		if (clock_passed(deadline_ns))
			TEST_FAIL("a work of the stranger does not end");
		test_sleep_ms(1);
	}
	return wc.status;
}

int stranger_poll_all(struct stranger *stranger)
{
	struct ibv_wc wc;
	int count = 0;

	while (ibv_poll_cq(stranger->cq, 1, &wc) == 1)
		count++;
	return count;
}
