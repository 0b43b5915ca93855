/*
 * What travels by SEND, and waiting.
 *
 * There is one place where completions are taken, pingpong_poll(), and every call that waits goes
 * through it: so whatever it waits for, packets that arrive are kept, FINs are counted and news of
 * memory are noted. What the peer sends is checked here; nonsense costs it the connection.
 *
 * The end comes in two steps. `lost`: something of ours has failed; nothing more is posted, but
 * what the peer sent before is still taken. `is_over`: nothing more can come in. Packets and FINs
 * that are here by then can still be received.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "rdma/pingpong/internal.h"

#define PEER_GONE "the peer has disconnected, or is gone"

/* ------------------------------------------------------------------------------------------
 * The end
 */

enum rmr_status pingpong_check(const PingpongContext *ctx)
{
	if (!ctx || !ctx->state)
		return error_set(RMR_INVALID, "the context is NULL");
	return RMR_OK;
}

static enum rmr_status say_lost(const struct PingpongState *state)
{
	return error_set(state->lost, "%s", state->reason);
}

enum rmr_status pingpong_check_alive(const PingpongContext *ctx)
{
	enum rmr_status status = pingpong_check(ctx);

	if (status == RMR_OK && ctx->state->lost != RMR_OK)
		status = say_lost(ctx->state);
	return status;
}

enum rmr_status pingpong_lose(struct PingpongState *state, enum rmr_status status)
{
	if (state->lost != RMR_OK)
		return say_lost(state);
	state->lost = status;
	snprintf(state->reason, sizeof(state->reason), "%s", error_chain());
	return status;
}

enum rmr_status pingpong_break_off(struct PingpongState *state, enum rmr_status status)
{
	status = pingpong_lose(state, status);
	state->is_over = true;
	rmr_conn_close(state->conn);
	state->conn = NULL;
	peer_memory_forget(&state->theirs);
	return status;
}

/* ------------------------------------------------------------------------------------------
 * Waiting
 */

static bool is_well_formed(const struct message *message, size_t length)
{
	if (length < sizeof(*message) || length - sizeof(*message) != message->length)
		return false;
	switch (message->kind) {
	case MESSAGE_PACKET:
		return message->length <= PINGPONG_DATA_MAX;
	case MESSAGE_MEMORY:
		return message->length == sizeof(struct memory_notice);
	case MESSAGE_FIN:
		return message->length == 0;
	default:
		return false;
	}
}

static void take_message(struct PingpongState *state, const struct rmr_completion *completion)
{
	const struct message *message = completion->data;
	enum rmr_status status = RMR_OK;

	if (!is_well_formed(message, completion->length)) {
		status = error_set(RMR_PROTOCOL, "the peer sent what is no message of ping-pong");
	} else if (message->kind == MESSAGE_PACKET) {
		unsigned last = state->first_kept + state->kept_count++;

		state->kept[last % PINGPONG_KEPT_MAX] = completion->data;
		return; /* the slot is held */
	} else if (message->kind == MESSAGE_FIN) {
		state->fins++;
	} else {
		status = peer_memory_take(&state->theirs, state->conn, message->data,
					  message->length);
	}
	rmr_recv_release(state->queue, completion->data);
	if (status != RMR_OK)
		pingpong_break_off(state, status);
}

static void take_end(struct PingpongState *state, enum rmr_status status)
{
	state->is_over = true;
	if (status == RMR_DISCONNECTED)
		error_set(status, PEER_GONE);
	else
		error_set(status, "the connection is lost");
	pingpong_lose(state, status);
}

bool pingpong_poll(struct PingpongState *state, int timeout_ms)
{
	struct rmr_completion completion;

	if (state->is_over || rmr_wait(state->queue, &completion, 1, timeout_ms) != 1)
		return false;
	if (completion.op == RMR_OP_DISCONNECT) {
		take_end(state, completion.status);
	} else if (completion.op == RMR_OP_RECV_IMM) {
		error_set(RMR_PROTOCOL, "the peer sent an immediate, which ping-pong has not");
		pingpong_break_off(state, RMR_PROTOCOL);
	} else if (completion.status != RMR_OK) {
		error_set(completion.status, "%s",
			  completion.status == RMR_ACCESS ? "the peer does not let us use the "
							    "memory: was it deregistered?"
							  : PEER_GONE);
		pingpong_lose(state, completion.status);
	} else if (completion.op == RMR_OP_RECV) {
		take_message(state, &completion);
	} else {
		state->done++;
	}
	return true;
}

void pingpong_poll_all(struct PingpongState *state)
{
	/* A peer that never stops sending FINs does not keep us here. */
	for (int i = 0; i < 2 * PINGPONG_KEPT_MAX && pingpong_poll(state, 0); i++)
		;
}

static enum rmr_status time_is_over(struct PingpongState *state)
{
	return pingpong_break_off(state, error_set(RMR_TIMEOUT,
						   "the peer did not take it within %d ms, and "
						   "nobody knows how much of it arrived",
						   state->context.timeout_ms));
}

enum rmr_status pingpong_post(struct PingpongState *state, const struct rmr_work *work,
			      uint64_t deadline_ns)
{
	while (state->lost == RMR_OK) {
		int posted = rmr_post(state->conn, work, 1);

		if (posted == 1) {
			state->posted++;
			return RMR_OK;
		}
		if (posted == RMR_DISCONNECTED)
			error_set(RMR_DISCONNECTED, PEER_GONE);
		if (posted < 0)
			return pingpong_lose(state, (enum rmr_status)posted);
		if (!pingpong_poll(state, clock_remaining_ms(deadline_ns)) &&
		    clock_passed(deadline_ns))
			return time_is_over(state);
	}
	return say_lost(state);
}

enum rmr_status pingpong_finish(struct PingpongState *state, unsigned in_flight,
				uint64_t deadline_ns)
{
	while (state->lost == RMR_OK && state->posted - state->done > in_flight) {
		if (!pingpong_poll(state, clock_remaining_ms(deadline_ns)) &&
		    clock_passed(deadline_ns))
			return time_is_over(state);
	}
	return state->lost == RMR_OK ? RMR_OK : say_lost(state);
}

/* ------------------------------------------------------------------------------------------
 * Sending
 */

enum rmr_status pingpong_send(struct PingpongState *state, const struct message *head,
			      const void *data, uint64_t deadline_ns)
{
	struct rmr_work work = {
		.op = RMR_OP_SEND,
		.source = state->send_buffer,
		.length = sizeof(*head) + head->length,
		.region = state->buffers_region,
	};
	enum rmr_status status;

	memcpy(state->send_buffer, head, sizeof(*head));
	if (head->length)
		memcpy(state->send_buffer + sizeof(*head), data, head->length);
	status = pingpong_post(state, &work, deadline_ns);
	return status == RMR_OK ? pingpong_finish(state, 0, deadline_ns) : status;
}

/* News of memory go first, so that the peer can use what the message tells of. */
static enum rmr_status send_after_news(PingpongContext *ctx, const struct message *head)
{
	uint64_t deadline_ns = clock_deadline_ns(ctx->timeout_ms);
	enum rmr_status status;

	pingpong_poll_all(ctx->state);
	status = pingpong_check_alive(ctx);
	if (status == RMR_OK)
		status = pingpong_tell_memory(ctx->state, deadline_ns);
	if (status == RMR_OK)
		status = pingpong_send(ctx->state, head, ctx->packet.data, deadline_ns);
	return status;
}

int send_packet(PingpongContext *ctx)
{
	enum rmr_status status = pingpong_check_alive(ctx);
	struct message head = {.kind = MESSAGE_PACKET};

	if (status != RMR_OK)
		return pingpong_result(status);
	if (ctx->packet.length > PINGPONG_DATA_MAX)
		return pingpong_result(error_set(
			RMR_TOO_LONG,
			"a packet with %u bytes of data; at most %d, longer ones go by write or "
			"read",
			ctx->packet.length, PINGPONG_DATA_MAX));
	head.type = ctx->packet.type;
	head.key = ctx->packet.key;
	head.addr = ctx->packet.addr;
	head.size = ctx->packet.size;
	head.length = ctx->packet.length;
	status = send_after_news(ctx, &head);
	return pingpong_result(error_context(status, "send_packet"));
}

int send_fin(PingpongContext *ctx)
{
	enum rmr_status status = pingpong_check_alive(ctx);
	struct message head = {.kind = MESSAGE_FIN};

	if (status == RMR_OK)
		status = send_after_news(ctx, &head);
	return pingpong_result(error_context(status, "send_fin"));
}

/* ------------------------------------------------------------------------------------------
 * Receiving
 */

int receive_packet(PingpongContext *ctx)
{
	enum rmr_status status = pingpong_check(ctx);
	const struct message *message;
	struct PingpongState *state;
	uint64_t deadline_ns;

	if (status != RMR_OK)
		return pingpong_result(status);
	state = ctx->state;
	deadline_ns = clock_deadline_ns(ctx->timeout_ms);
	while (!state->kept_count) {
		if (state->is_over)
			return pingpong_result(error_context(say_lost(state), "receive_packet"));
		if (!pingpong_poll(state, clock_remaining_ms(deadline_ns)) &&
		    clock_passed(deadline_ns))
			return pingpong_result(error_set(RMR_TIMEOUT,
							 "receive_packet: none came within %d ms",
							 ctx->timeout_ms));
	}
	message = state->kept[state->first_kept];
	state->first_kept = (state->first_kept + 1) % PINGPONG_KEPT_MAX;
	state->kept_count--;
	ctx->packet.type = message->type;
	ctx->packet.key = message->key;
	ctx->packet.addr = message->addr;
	ctx->packet.size = message->size;
	ctx->packet.length = message->length;
	memcpy(ctx->packet.data, message->data, message->length);
	ctx->packet.data[message->length] = 0;
	rmr_recv_release(state->queue, (void *)message);
	return 0;
}

int receive_packet_async(PingpongContext *ctx)
{
	enum rmr_status status = pingpong_check(ctx);

	if (status != RMR_OK)
		return pingpong_result(status);
	pingpong_poll_all(ctx->state);
	if (ctx->state->is_over && !ctx->state->kept_count)
		status = say_lost(ctx->state);
	return pingpong_result(error_context(status, "receive_packet_async"));
}

int receive_fin(PingpongContext *ctx)
{
	enum rmr_status status = pingpong_check(ctx);
	struct PingpongState *state;
	uint64_t deadline_ns;

	if (status != RMR_OK)
		return pingpong_result(status);
	state = ctx->state;
	deadline_ns = clock_deadline_ns(ctx->timeout_ms);
	while (!state->fins) {
		if (state->is_over)
			return pingpong_result(error_context(say_lost(state), "receive_fin"));
		if (state->kept_count == PINGPONG_KEPT_MAX)
			return pingpong_result(error_set(
				RMR_LIMIT,
				"receive_fin: %d packets wait, and no FIN can come past them; "
				"receive packets first",
				PINGPONG_KEPT_MAX));
		if (!pingpong_poll(state, clock_remaining_ms(deadline_ns)) &&
		    clock_passed(deadline_ns))
			return pingpong_result(error_set(RMR_TIMEOUT,
							 "receive_fin: none came within %d ms",
							 ctx->timeout_ms));
	}
	state->fins--;
	return 0;
}
