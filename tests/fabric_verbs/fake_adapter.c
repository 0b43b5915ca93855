/* An adapter that moves nothing. See fake_adapter.h. */
#include "fake_adapter.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/fork.h"
#include "fabric/verbs/verbs.h"
#include "harness/test.h"

#undef ibv_query_port
#undef ibv_reg_mr

static struct fake_adapter *adapter_of(struct ibv_context *context)
{
	return (struct fake_adapter *)((char *)context - offsetof(struct fake_adapter, context));
}

struct fake_cq {
	struct ibv_cq base;
	struct ibv_wc completions[FAKE_POSTS_MAX];
	int count;
};

static int poll_flushed(struct ibv_cq *base, int max, struct ibv_wc *wc)
{
	struct fake_cq *cq = (struct fake_cq *)base;
	int count = cq->count < max ? cq->count : max;

	memcpy(wc, cq->completions, (size_t)count * sizeof(*wc));
	cq->count -= count;
	memmove(cq->completions, cq->completions + count, (size_t)cq->count * sizeof(*wc));
	return count;
}

/* All that a stopped queue pair has in flight fails. */
static void flush(struct fake_qp *qp)
{
	struct fake_cq *cq = (struct fake_cq *)qp->base.send_cq;

	for (int i = 0; i < qp->post_count; i++) {
		CHECK(cq->count < FAKE_POSTS_MAX);
		cq->completions[cq->count++] = (struct ibv_wc){.wr_id = qp->posts[i],
							       .status = IBV_WC_WR_FLUSH_ERR,
							       .qp_num = qp->base.qp_num};
	}
	qp->post_count = 0;
}

static int notify_nothing(struct ibv_cq *cq, int solicited)
{
	(void)cq;
	(void)solicited;
	return 0;
}

static int take_receive(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	(void)srq;
	(void)wr;
	(void)bad;
	return 0;
}

static int take_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct fake_qp *fake = (struct fake_qp *)qp;

	(void)bad;
	for (; wr; wr = wr->next) {
		CHECK(fake->post_count < FAKE_POSTS_MAX);
		fake->posts[fake->post_count++] = wr->wr_id;
		if (fake->state == IBV_QPS_RTS)
			adapter_of(qp->context)->sends++;
	}
	if (fake->state == IBV_QPS_ERR)
		flush(fake);
	return 0;
}

void fake_adapter_init(struct fake_adapter *adapter, const char *name)
{
	struct verbs_device *device = &adapter->device;

	memset(adapter, 0, sizeof(*adapter));
	device->base.generation = fork_generation();
	snprintf(adapter->ibv.name, sizeof(adapter->ibv.name), "%s", name);
	adapter->ibv.node_type = IBV_NODE_CA;
	adapter->ibv.transport_type = IBV_TRANSPORT_IB;
	adapter->context.device = &adapter->ibv;
	adapter->context.ops.poll_cq = poll_flushed;
	adapter->context.ops.req_notify_cq = notify_nothing;
	adapter->context.ops.post_srq_recv = take_receive;
	adapter->context.ops.post_send = take_send;
	adapter->port = (struct ibv_port_attr){.state = IBV_PORT_ACTIVE,
					       .active_mtu = IBV_MTU_1024,
					       .gid_tbl_len = FAKE_GIDS_MAX,
					       .link_layer = IBV_LINK_LAYER_ETHERNET};
	device->base.provider = &verbs_provider;
	device->base.info = (struct rmr_device_info){.max_message = 1 << 20,
						     .max_transfer = 1 << 20,
						     .max_inline = 64,
						     .max_depth = 1024,
						     .max_slots = 1024,
						     .max_regions = 16};
	snprintf(device->base.info.name, sizeof(device->base.info.name), "verbs:%s,socket", name);
	device->name = (struct verbs_name){.socket = true, .gid = -1, .timeout = -1, .retry = 7};
	device->context = &adapter->context;
	adapter->pd.context = &adapter->context;
	device->pd = &adapter->pd;
	device->attr.phys_port_cnt = 1;
	device->port = adapter->port;
	device->port_number = 1;
	device->is_roce = true;
	device->max_inline = 64;
	device->max_chunk = 1 << 20;
	device->reads_out = 16;
	device->reads_in = 32;
	pthread_mutex_init(&device->lock, NULL);
	list_init(&device->queues);
}

void fake_adapter_add_gid(struct fake_adapter *adapter, uint32_t index, uint32_t type,
			  const char *address)
{
	struct ibv_gid_entry *entry = &adapter->gids[adapter->gid_count++];

	*entry = (struct ibv_gid_entry){.gid_index = index, .port_num = 1, .gid_type = type};
	if (inet_pton(AF_INET6, address, entry->gid.raw) == 1)
		return;
	entry->gid.raw[10] = entry->gid.raw[11] = 0xff;
	CHECK_EQ(inet_pton(AF_INET, address, entry->gid.raw + 12), 1);
}

/* ------------------------------------------------------------------------------------------
 * Ports and GIDs
 */

int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *to)
{
	(void)port;
	memcpy(to, &adapter_of(context)->port, sizeof(struct ibv_port_attr));
	return 0;
}

ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max,
			     uint32_t flags, size_t entry_size)
{
	const struct fake_adapter *adapter = adapter_of(context);

	(void)flags;
	CHECK_EQ(entry_size, sizeof(*entries));
	if (adapter->gid_count > max)
		return -EINVAL;
	memcpy(entries, adapter->gids, adapter->gid_count * sizeof(*entries));
	return (ssize_t)adapter->gid_count;
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index,
		      struct ibv_gid_entry *entry, uint32_t flags, size_t entry_size)
{
	const struct fake_adapter *adapter = adapter_of(context);

	(void)flags;
	CHECK_EQ(entry_size, sizeof(*entry));
	for (size_t i = 0; i < adapter->gid_count; i++) {
		if (adapter->gids[i].gid_index == index && adapter->gids[i].port_num == port) {
			*entry = adapter->gids[i];
			return 0;
		}
	}
	return ENODATA;
}

/* ------------------------------------------------------------------------------------------
 * Queues
 */

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct ibv_comp_channel *channel = calloc(1, sizeof(*channel));

	channel->context = context;
	channel->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	close(channel->fd);
	free(channel);
	return 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int entries, void *cq_context,
			     struct ibv_comp_channel *channel, int vector)
{
	struct fake_cq *cq = calloc(1, sizeof(*cq));

	(void)entries;
	(void)vector;
	cq->base.context = context;
	cq->base.channel = channel;
	cq->base.cq_context = cq_context;
	return &cq->base;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	free(cq);
	return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **context)
{
	(void)channel;
	(void)cq;
	(void)context;
	errno = EAGAIN;
	return -1;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned count)
{
	(void)cq;
	(void)count;
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct ibv_srq *srq = calloc(1, sizeof(*srq));

	(void)attr;
	srq->context = pd->context;
	return srq;
}

int ibv_destroy_srq(struct ibv_srq *srq)
{
	free(srq);
	return 0;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *address, size_t length, int access)
{
	struct ibv_mr *mr = calloc(1, sizeof(*mr));

	(void)access;
	mr->context = pd->context;
	mr->addr = address;
	mr->length = length;
	return mr;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *address, size_t length, uint64_t iova,
				unsigned access)
{
	(void)iova;
	return ibv_reg_mr(pd, address, length, (int)access);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	free(mr);
	return 0;
}

/* ------------------------------------------------------------------------------------------
 * Queue pairs
 */

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	static atomic_uint next_number = 0x11;
	struct fake_adapter *adapter = adapter_of(pd->context);
	struct fake_qp *qp = adapter->fail_create ? NULL : calloc(1, sizeof(*qp));

	if (!qp) {
		errno = ENOMEM;
		return NULL;
	}
	adapter->queue_pairs++;
	qp->base.context = pd->context;
	qp->base.qp_context = attr->qp_context;
	qp->base.send_cq = attr->send_cq;
	qp->base.qp_num = atomic_fetch_add(&next_number, 1);
	qp->state = IBV_QPS_RESET;
	return &qp->base;
}

/* What the step needs is there; see ibv_modify_qp(3). */
static bool is_complete(enum ibv_qp_state state, int mask)
{
	int needed = 0;

	if (state == IBV_QPS_INIT)
		needed = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	else if (state == IBV_QPS_RTR)
		needed = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	else if (state == IBV_QPS_RTS)
		needed = IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			 IBV_QP_MAX_QP_RD_ATOMIC;
	return (mask & ~IBV_QP_STATE) == needed && (mask & IBV_QP_STATE);
}

int ibv_modify_qp(struct ibv_qp *base, struct ibv_qp_attr *attr, int mask)
{
	struct fake_adapter *adapter = adapter_of(base->context);
	struct fake_qp *qp = (struct fake_qp *)base;

	if (attr->qp_state == IBV_QPS_ERR) {
		qp->state = IBV_QPS_ERR;
		flush(qp);
		return 0;
	}
	CHECK_EQ(attr->qp_state, qp->state + 1); /* RESET, INIT, RTR, RTS */
	CHECK(is_complete(attr->qp_state, mask));
	if (attr->qp_state == adapter->fail_at)
		return EINVAL;
	if (attr->qp_state == IBV_QPS_INIT)
		qp->init = *attr;
	else if (attr->qp_state == IBV_QPS_RTR)
		qp->rtr = *attr;
	else
		qp->rts = *attr;
	qp->state = attr->qp_state;
	return 0;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	adapter_of(qp->context)->queue_pairs--;
	free(qp);
	return 0;
}
