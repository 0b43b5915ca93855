/*
 * Session: the client's side of one connection to a fabric-perf server, with the memory that its
 * operations work on, and the one way in which everything here takes completions. See session.c.
 */
#ifndef FABRIC_PERF_SESSION_H
#define FABRIC_PERF_SESSION_H

#include <string.h>

#include "memory.h"
#include "perf.h"
#include "protocol.h"

struct session {
	const struct perf_config *config;
	struct rmr_device *device;
	struct rmr_queue *queue;
	struct rmr_conn *conn;
	struct rmr_remote *remote;
	struct memory memory;
	size_t area;   /* bytes for the buffers of a test, at the start of memory */
	char *scratch; /* as many again, for reading back */
	char *control; /* for commands */
};

/* What a session must have room for. */
struct session_needs {
	size_t area;
	size_t message;
	uint32_t depth;
};

/* Opens the device only, so that its limits can be looked at. */
RMR_MUST_CHECK enum rmr_status session_open(struct session *session,
					    const struct perf_config *config);
RMR_MUST_CHECK enum rmr_status session_connect(struct session *session, const char *address,
					       const struct session_needs *needs);
/* Legal on a zeroed or half-open one. */
void session_close(struct session *session);

/* Tells the server that a test begins, and waits until it is ready. */
RMR_MUST_CHECK enum rmr_status session_begin(struct session *session, const struct perf_case *test,
					     struct perf_answer *ready);
/* Tells the server that the test is over, and waits for its account of it. */
RMR_MUST_CHECK enum rmr_status session_end(struct session *session, struct perf_answer *done);

/* The part of session_take that is not inline: waits as the configuration says. Returns 0 with an
 * error set when nothing comes for PERF_STALL_MS. */
int session_wait(struct session *session, struct rmr_completion *completions, int max);

/* Turns a bad completion, or a bad result of rmr_post, into an error with a message. */
__attribute__((cold)) enum rmr_status session_completion_failed(const struct rmr_completion *bad);
__attribute__((cold)) enum rmr_status session_post_failed(int result);

/* Takes at least one completion, and checks the status of each. */
RMR_MUST_CHECK static inline enum rmr_status session_take(struct session *session,
							  struct rmr_completion *completions,
							  int max, int *count)
{
	int n = 0;

	if (session->config->wait == PERF_WAIT_SPIN)
		n = rmr_poll(session->queue, completions, max);
	if (!n) {
		n = session_wait(session, completions, max);
		if (!n)
			return RMR_TIMEOUT;
	}
	for (int i = 0; i < n; i++)
		if (completions[i].status != RMR_OK || completions[i].op == RMR_OP_DISCONNECT)
			return session_completion_failed(&completions[i]);
	*count = n;
	return RMR_OK;
}

#endif
