/*
 * Listening: the core's greeter takes the callers' greetings; here is what a good one is. Any
 * thread may call.
 */
#include <string.h>

#include "fabric/ofi/internal.h"

static enum greeter_verdict judge_hello(const uint8_t *bytes, size_t have, const char **reason)
{
	struct greeting hello;

	switch (ofi_greeting_decode(bytes, have, &hello, reason)) {
	case HANDSHAKE_MORE:
		return GREETER_MORE;
	case HANDSHAKE_VERSION_DIFFERS:
		return GREETER_OTHER_VERSION;
	case HANDSHAKE_BAD:
		return GREETER_BAD;
	case HANDSHAKE_DONE:
		break;
	}
	if (hello.handshake.kind == HANDSHAKE_HELLO)
		return GREETER_DONE;
	*reason = "an answer instead of a greeting";
	return GREETER_BAD;
}

static size_t write_refusal(uint8_t *to, const char *reason)
{
	static_assert(GREETING_SIZE <= GREETER_REFUSAL_MAX, "fits");
	ofi_greeting_encode_reject(to, reason);
	return GREETING_SIZE;
}

static const struct greeter_language language = {
	.name = "ofi",
	.hello_size = GREETING_SIZE,
	.judge = judge_hello,
	.refuse = write_refusal,
};

enum rmr_status ofi_listener_init(struct rmr_listener *base, const char *address)
{
	struct ofi_listener *listener = (struct ofi_listener *)base;

	return greeter_init(&listener->greeter, base, &language, address);
}

void ofi_listener_fini(struct rmr_listener *base)
{
	struct ofi_listener *listener = (struct ofi_listener *)base;

	greeter_fini(&listener->greeter);
}

enum rmr_status ofi_listener_next(struct rmr_listener *base, struct rmr_request *request_base,
				  int *wait_ms)
{
	struct ofi_listener *listener = (struct ofi_listener *)base;
	struct ofi_request *request = (struct ofi_request *)request_base;
	const struct handshake *shake = &request->hello.handshake;
	struct greeter_caller caller;
	enum rmr_status status = greeter_next(&listener->greeter, &caller, wait_ms);
	const char *reason;

	if (status != RMR_OK)
		return status;
	/* Judged already: it is good. */
	(void)ofi_greeting_decode(caller.hello, GREETING_SIZE, &request->hello, &reason);
	request->fd = caller.fd;
	memcpy(request->base.peer, caller.peer, sizeof(request->base.peer));
	request->base.private_length = shake->body_length;
	memcpy(request->base.private_data, shake->body, shake->body_length);
	return RMR_OK;
}

void ofi_reject(struct rmr_request *base, const char *reason)
{
	struct ofi_request *request = (struct ofi_request *)base;

	greeter_refuse(&language, request->fd, reason ? reason : "");
	request->fd = -1;
}
