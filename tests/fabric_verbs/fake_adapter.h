/*
 * An adapter that moves nothing: the functions of libibverbs that the provider calls, in the place
 * of the real ones. It remembers how queue pairs are brought up. With it two ends of a process can
 * meet by sockets on a machine that has no adapter; what they post goes nowhere, until the queue
 * pair is stopped: then it comes back as an error.
 */
#ifndef TESTS_FABRIC_VERBS_FAKE_ADAPTER_H
#define TESTS_FABRIC_VERBS_FAKE_ADAPTER_H

#include "fabric/verbs/internal.h"

#define FAKE_GIDS_MAX  16
#define FAKE_POSTS_MAX 64 /* requests in flight of a queue pair, and completions of a queue */

struct fake_qp {
	struct ibv_qp base;
	enum ibv_qp_state state;
	struct ibv_qp_attr init, rtr, rts; /* what it was told at each step */
	uint64_t posts[FAKE_POSTS_MAX];
	int post_count;
};

struct fake_adapter {
	struct verbs_device device; /* first */
	struct ibv_device ibv;
	struct ibv_context context;
	struct ibv_pd pd;
	struct ibv_port_attr port;
	struct ibv_gid_entry gids[FAKE_GIDS_MAX];
	size_t gid_count;
	enum ibv_qp_state fail_at; /* moving a queue pair there fails; 0: none */
	bool fail_create;
	int queue_pairs; /* that exist */
	int sends;	 /* requests posted */
};

/* An adapter on Ethernet, as the provider has it after opening; no GIDs. */
void fake_adapter_init(struct fake_adapter *adapter, const char *name);
void fake_adapter_add_gid(struct fake_adapter *adapter, uint32_t index, uint32_t type,
			  const char *address);

static inline struct fake_qp *fake_qp_of(struct rmr_conn *conn)
{
	return (struct fake_qp *)((struct verbs_conn *)conn)->qp;
}

#endif
