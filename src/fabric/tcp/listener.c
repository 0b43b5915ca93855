/*
 * Listening: the core's greeter takes the callers' HELLOs; here is what a good one is. Any thread
 * may call.
 */
#include <string.h>

#include "fabric/tcp/internal.h"

static enum greeter_verdict judge_hello(const uint8_t *bytes, size_t have, const char **reason)
{
	struct handshake hello;

	switch (handshake_decode(bytes, have, &hello, reason)) {
	case HANDSHAKE_MORE:
		return GREETER_MORE;
	case HANDSHAKE_VERSION_DIFFERS:
		return GREETER_OTHER_VERSION;
	case HANDSHAKE_BAD:
		return GREETER_BAD;
	case HANDSHAKE_DONE:
		break;
	}
	if (hello.kind == HANDSHAKE_HELLO)
		return GREETER_DONE;
	*reason = "an answer instead of a greeting";
	return GREETER_BAD;
}

static size_t write_refusal(uint8_t *to, const char *reason)
{
	static_assert(HANDSHAKE_SIZE <= GREETER_REFUSAL_MAX, "fits");
	handshake_encode_reject(to, reason);
	return HANDSHAKE_SIZE;
}

static const struct greeter_language language = {
	.name = "tcp",
	.hello_size = HANDSHAKE_SIZE,
	.judge = judge_hello,
	.refuse = write_refusal,
};

enum rmr_status tcp_listener_init(struct rmr_listener *base, const char *address)
{
	struct tcp_listener *listener = (struct tcp_listener *)base;

	return greeter_init(&listener->greeter, base, &language, address);
}

void tcp_listener_fini(struct rmr_listener *base)
{
	struct tcp_listener *listener = (struct tcp_listener *)base;

	greeter_fini(&listener->greeter);
}

enum rmr_status tcp_listener_next(struct rmr_listener *base, struct rmr_request *request_base,
				  int *wait_ms)
{
	struct tcp_listener *listener = (struct tcp_listener *)base;
	struct tcp_request *request = (struct tcp_request *)request_base;
	struct greeter_caller caller;
	enum rmr_status status = greeter_next(&listener->greeter, &caller, wait_ms);
	const char *reason;

	if (status != RMR_OK)
		return status;
	/* Judged already: it is good. */
	(void)handshake_decode(caller.hello, HANDSHAKE_SIZE, &request->hello, &reason);
	request->fd = caller.fd;
	memcpy(request->base.peer, caller.peer, sizeof(request->base.peer));
	request->base.private_length = request->hello.body_length;
	memcpy(request->base.private_data, request->hello.body, request->hello.body_length);
	return RMR_OK;
}

void tcp_reject(struct rmr_request *base, const char *reason)
{
	struct tcp_request *request = (struct tcp_request *)base;

	greeter_refuse(&language, request->fd, reason ? reason : "");
	request->fd = -1;
}
