/*
 * Atomics on our own memory, done by the adapter.
 *
 * Most adapters are atomic only with themselves (IBV_ATOMIC_HCA): between their reading a word and
 * writing it back the CPU may change it, and that change is lost. So who shares words with peers
 * of such an adapter has to change them through the adapter as well. For that the device has two
 * queue pairs that are connected with each other: what one of them is asked to do with the memory
 * of the other, the adapter does as if a peer had asked.
 *
 * They are made at first use, by whichever thread needs them, and used under a lock by one thread
 * at a time, which spins until its word is done: it takes as long as a round trip that does not
 * leave the adapter. After a failure they are thrown away, and made anew by the next call.
 */
#include <errno.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/error.h"
#include "fabric/verbs/internal.h"

#define PSN_MASK       0xffffffu
#define RETRY_TIMEOUT  14 /* 67 ms a try: nothing can get lost on this way but by a busy host */
#define RETRY_COUNT    7
#define RNR_TIMER      12
#define DEADLINE_MS    5000
#define LOOKS_BY_CLOCK 1024 /* polls between two looks at the clock, with a pause for others */

struct own_word {
	struct ibv_cq *cq;
	struct ibv_qp *asks, *does; /* the one that is told, and the one whose memory it reaches */
	struct ibv_mr *mr;	    /* of found */
	uint64_t found;		    /* where the adapter puts what was there */
};

static struct ibv_qp *create_qp(struct verbs_device *device, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
	};

	return ibv_create_qp(device->pd, &init);
}

/* How the port reaches itself. */
static enum rmr_status find_way(struct verbs_device *device, struct ibv_ah_attr *way)
{
	struct sockaddr_in here = {.sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct ibv_port_attr port;
	union ibv_gid gid;
	enum rmr_status status;
	int error, index;

	error = ibv_query_port(device->context, device->port_number, &port);
	if (error != 0)
		return error_errno(RMR_SYSTEM, error, "cannot query port %u", device->port_number);
	status = gid_choose(device, (struct sockaddr *)&here, &index, &gid);
	if (status != RMR_OK)
		return status;
	way->port_num = device->port_number;
	way->dlid = port.lid;
	if (device->is_roce || (port.flags & IBV_QPF_GRH_REQUIRED)) {
		way->is_global = 1;
		way->grh.dgid = gid;
		way->grh.sgid_index = (uint8_t)index;
		way->grh.hop_limit = 1;
	}
	return RMR_OK;
}

static enum rmr_status move(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	int error = ibv_modify_qp(qp, attr, mask | IBV_QP_STATE);

	if (error != 0)
		return error_errno(RMR_SYSTEM, error, "a queue pair does not go to state %d",
				   (int)attr->qp_state);
	return RMR_OK;
}

static enum rmr_status join(struct verbs_device *device, struct ibv_qp *qp,
			    const struct ibv_qp *other, uint32_t psn)
{
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT,
				   .port_num = device->port_number,
				   .qp_access_flags = IBV_ACCESS_REMOTE_ATOMIC};
	struct ibv_qp_attr receive = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_256,
		.dest_qp_num = other->qp_num,
		.rq_psn = psn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = RNR_TIMER,
	};
	struct ibv_qp_attr send = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = psn,
		.timeout = RETRY_TIMEOUT,
		.retry_cnt = RETRY_COUNT,
		.rnr_retry = RETRY_COUNT,
		.max_rd_atomic = 1,
	};
	enum rmr_status status = find_way(device, &receive.ah_attr);

	if (status == RMR_OK)
		status = move(qp, &init, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	if (status == RMR_OK)
		status = move(qp, &receive,
			      IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (status == RMR_OK)
		status = move(qp, &send,
			      IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				      IBV_QP_MAX_QP_RD_ATOMIC);
	return status;
}

void own_word_close(struct own_word *own)
{
	if (!own)
		return;
	if (own->asks)
		(void)ibv_destroy_qp(own->asks);
	if (own->does)
		(void)ibv_destroy_qp(own->does);
	if (own->mr)
		(void)ibv_dereg_mr(own->mr);
	if (own->cq)
		(void)ibv_destroy_cq(own->cq);
	free(own);
}

static enum rmr_status own_word_open(struct verbs_device *device, struct own_word **result)
{
	struct own_word *own = calloc(1, sizeof(*own));
	enum rmr_status status;
	uint32_t psn;

	if (!own)
		return error_set(RMR_NO_MEMORY, "no memory for atomics on own words");
	status = error_set(RMR_SYSTEM, "the adapter has no room for atomics on own words");
	own->cq = ibv_create_cq(device->context, 4, NULL, NULL, 0);
	if (!own->cq)
		goto close_own;
	own->mr = ibv_reg_mr(device->pd, &own->found, sizeof(own->found), IBV_ACCESS_LOCAL_WRITE);
	own->asks = create_qp(device, own->cq);
	own->does = create_qp(device, own->cq);
	if (!own->mr || !own->asks || !own->does)
		goto close_own;
	/* Unguessable, as everywhere: see path.c. */
	if (getrandom(&psn, sizeof(psn), 0) != sizeof(psn))
		goto close_own;
	psn &= PSN_MASK;
	status = join(device, own->asks, own->does, psn);
	if (status == RMR_OK)
		status = join(device, own->does, own->asks, psn);
	if (status != RMR_OK)
		goto close_own;
	error_clear();
	*result = own;
	return RMR_OK;

close_own:
	own_word_close(own);
	return status;
}

/* Spins until the adapter is done. */
static enum rmr_status finish(struct own_word *own)
{
	uint64_t deadline_ns = CLOCK_NEVER;
	struct ibv_wc wc;

	for (unsigned looks = 1;; looks++) {
		int count = ibv_poll_cq(own->cq, 1, &wc);

		if (count > 0 && wc.status == IBV_WC_SUCCESS)
			return RMR_OK;
		if (count != 0)
			return error_set(RMR_SYSTEM, "an atomic on own memory failed: %s",
					 count < 0 ? "no completion"
						   : ibv_wc_status_str(wc.status));
		if (looks % LOOKS_BY_CLOCK)
			continue;
		/* A software adapter may need this core for its work. */
		(void)sched_yield();
		if (deadline_ns == CLOCK_NEVER)
			deadline_ns = clock_deadline_ns(DEADLINE_MS);
		if (clock_passed(deadline_ns))
			return error_set(RMR_TIMEOUT, "an atomic on own memory takes too long");
	}
}

static enum rmr_status ask(struct own_word *own, const struct verbs_region *region, size_t offset,
			   uint64_t compare, uint64_t operand)
{
	struct ibv_sge sge = {.addr = (uintptr_t)&own->found,
			      .length = sizeof(own->found),
			      .lkey = own->mr->lkey};
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_ATOMIC_CMP_AND_SWP,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.atomic = {.remote_addr = (uintptr_t)region->base.address + offset,
			      .rkey = region->mr->rkey,
			      .compare_add = compare,
			      .swap = operand},
	};
	struct ibv_send_wr *bad;
	int error = ibv_post_send(own->asks, &wr, &bad);

	if (error != 0)
		return error_errno(RMR_SYSTEM, error, "the adapter takes no atomic on own memory");
	return finish(own);
}

enum rmr_status verbs_region_compare_swap(struct rmr_region *base, size_t offset, uint64_t compare,
					  uint64_t operand, uint64_t *found)
{
	struct verbs_region *region = (struct verbs_region *)base;
	struct verbs_device *device = verbs_device_of(base->device);
	enum rmr_status status = RMR_OK;

	pthread_mutex_lock(&device->own_lock);
	/* Acquire: pairs with async.c, as everywhere that looks at it. */
	if (atomic_load_explicit(&device->gone, memory_order_acquire))
		status = doctor_adapter_gone(base->device);
	if (status == RMR_OK && !device->own)
		status = own_word_open(device, &device->own);
	if (status == RMR_OK) {
		status = ask(device->own, region, offset, compare, operand);
		if (status == RMR_OK) {
			*found = device->own->found;
		} else {
			own_word_close(device->own);
			device->own = NULL;
		}
	}
	pthread_mutex_unlock(&device->own_lock);
	return status;
}
