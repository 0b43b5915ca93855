/* A client for tests: calls of gRPC over a plain socket, by nghttp2, one thread, blocking. */
#ifndef TESTS_CONTROL_CALLER_H
#define TESTS_CONTROL_CALLER_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "control/grpc.h"

struct nghttp2_session;

struct caller {
	int fd;
	struct nghttp2_session *session;
	bool is_over;	/* the server has closed it */
	bool sees_away; /* GOAWAY came */
};

#define CALL_BYTES (8u << 20)

/* One call, from its start to its end. */
struct call {
	int32_t stream;
	bool is_done;
	uint32_t reset; /* the stream's error code */
	int status;	/* of gRPC; -1: none came */
	char text[256];
	uint64_t value_length; /* of the trailer; UINT64_MAX: none came */
	/* The request, as it is sent. */
	uint8_t *request;
	size_t request_length, request_sent;
	/* All of the response's messages, with their prefixes. */
	uint8_t *response;
	size_t response_length, response_used;
};

struct call_options {
	const char *token;    /* "Bearer ..." */
	const char *timeout;  /* grpc-timeout */
	const char *encoding; /* grpc-encoding */
};

void caller_open(struct caller *caller, const char *address);
void caller_close(struct caller *caller);

/* Begins a call; options may be NULL. */
void call_start(struct caller *caller, struct call *call, const char *path,
		const ProtobufCMessage *request, const struct call_options *options);
/* Ends it from our side. */
void call_cancel(struct caller *caller, struct call *call);
/* Until it is done, or the connection is over. */
void call_wait(struct caller *caller, struct call *call);
/* Sends and receives what there is, for at most so long. */
void caller_turn(struct caller *caller, int timeout_ms);
void call_free(struct call *call);

/* The next message of the response, unpacked; NULL: there is none. */
ProtobufCMessage *call_message(struct call *call, const ProtobufCMessageDescriptor *descriptor);

/* All at once: the status, and the first message in *response (if that is not NULL), which is freed
 * with protobuf_c_message_free_unpacked. */
int caller_ask(struct caller *caller, const char *method, const ProtobufCMessage *request,
	       const ProtobufCMessageDescriptor *descriptor, ProtobufCMessage **response);

#endif
