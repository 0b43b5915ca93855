/*
 * One who speaks RDMA CM and verbs, but does not use our library: he calls, listens, and posts what
 * he likes to a queue pair of his own. RDMA CM does not know this queue pair, so no step of meeting
 * happens unless it is asked for.
 *
 *	stranger_open(&stranger);
 *	stranger_meet(&stranger, address);		as one of us would
 *	stranger_post(&stranger, &(struct stranger_work){IBV_WR_SEND, .length = 8});
 *	CHECK_EQ(stranger_poll(&stranger), IBV_WC_SUCCESS);
 *	stranger_close(&stranger);
 */
#ifndef TESTS_FABRIC_VERBS_STRANGER_H
#define TESTS_FABRIC_VERBS_STRANGER_H

#include <rdma/rdma_cma.h>

#include "fabric/verbs/greeting.h"
#include "harness/test.h"

#define STRANGER_HOST	"10.77.0.1" /* of rxe0 in the lab's guest (scripts/lab) */
#define STRANGER_MEMORY (1u << 20)
#define STRANGER_DEPTH	256

struct stranger {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;	  /* the call, or the listener */
	struct rdma_cm_id *guest; /* of a listener: who calls */
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *memory;
};

/* An event of RDMA CM, with the bytes that came along. */
struct stranger_event {
	enum rdma_cm_event_type type;
	int status;
	uint8_t data[256];
	size_t length;
};

void stranger_open(struct stranger *stranger);
/* Closes all that is open. What RDMA CM tells the peer, it tells it for itself. */
void stranger_close(struct stranger *stranger);
void stranger_destroy_qp(struct stranger *stranger);

/* The next event, within the usual patience. */
struct stranger_event stranger_await(struct stranger *stranger);
/* ... which must be this one. */
struct stranger_event stranger_expect(struct stranger *stranger, enum rdma_cm_event_type type);

/* Calling: finds the way to "host:port" and makes a queue pair; sends a request with bytes. */
void stranger_resolve(struct stranger *stranger, const char *address);
void stranger_call(struct stranger *stranger, const void *data, size_t length);
/* All of it as one of us would: a HELLO, and an ACCEPT that must come; then the queue pair sends
 * and receives. stranger_meet_halfway leaves out the last message, by which the listener learns
 * that we are ready. */
void stranger_meet(struct stranger *stranger, const char *address);
void stranger_meet_halfway(struct stranger *stranger, const char *address);

/* Listening: at a port of STRANGER_HOST; the address is written down. */
void stranger_listen(struct stranger *stranger, char address[64]);
/* Waits for a caller; stranger->guest is he. */
void stranger_take(struct stranger *stranger);
/* Accepts him with these bytes. */
void stranger_answer(struct stranger *stranger, const void *data, size_t length);

struct greeting stranger_greeting(enum greeting_kind kind);

/* What is posted to the queue pair: always signaled, from or to the start of ->memory. */
struct stranger_work {
	enum ibv_wr_opcode opcode;
	uint32_t length;
	uint64_t address; /* remote */
	uint32_t rkey;
	uint32_t immediate;
	/* So many bytes are good, and behind them comes memory that is none: the adapter sends the
	 * packets before, and breaks off. 0: all are good. */
	uint32_t torn_after;
};
/* Returns what ibv_post_send does. */
int stranger_post(struct stranger *stranger, const struct stranger_work *work);
/* How the next work ended. */
enum ibv_wc_status stranger_poll(struct stranger *stranger);
/* How many have ended, well or not; does not wait. */
int stranger_poll_all(struct stranger *stranger);

#endif
