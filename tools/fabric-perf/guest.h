/*
 * Guest: one client of the server, from accept until it leaves. See guest.c.
 */
#ifndef FABRIC_PERF_GUEST_H
#define FABRIC_PERF_GUEST_H

#include <signal.h>

#include "memory.h"
#include "protocol.h"

struct guest {
	struct perf_hello hello;
	struct rmr_queue *queue;
	struct rmr_conn *conn;
	struct memory memory; /* lent to the client */
	struct memory outbox; /* answers and echoes leave from here */
	struct perf_begin test;
	struct layout layout;
	bool in_test;
	bool gone;
	uint64_t received;
	uint64_t wrong;
};

/* Takes the request, which is used up whatever the outcome, and sends the answer MEMORY. */
RMR_MUST_CHECK enum rmr_status guest_open(struct guest *guest, struct rmr_device *device,
					  struct rmr_request *request);
/* Legal on a zeroed or half-open one. */
void guest_close(struct guest *guest);

/* Serves the client until it leaves, or until *stop is set and rmr_queue_wake was called. */
RMR_MUST_CHECK enum rmr_status guest_serve(struct guest *guest, const volatile sig_atomic_t *stop);

#endif
