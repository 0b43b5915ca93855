/*
 * Memory that the peer may use.
 *
 * Each registered piece is an arena of its own, for on shm an arena is the unit of trust. It is
 * exported when it is made; the notice of it goes out before the next packet or FIN, under a key
 * that is as good as random: a program that mixes up two keys, or uses one of yesterday, is told so
 * on its own side and does not write into strange memory. (What keeps strangers out is the
 * fabric's own key, in the notice.)
 */
#include <stdlib.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/error.h"
#include "rdma/pingpong/internal.h"

static void own_free(struct own_memory *own)
{
	rmr_region_close(own->region);
	rmr_arena_close(own->arena);
	free(own);
}

static bool key_is_taken(const struct PingpongState *state, uint32_t key)
{
	for (const struct own_memory *own = state->own; own; own = own->next)
		if (own->notice.key == key)
			return true;
	return false;
}

static enum rmr_status choose_key(const struct PingpongState *state, uint32_t *key)
{
	do {
		if (getrandom(key, sizeof(*key), 0) != sizeof(*key))
			return error_set(RMR_SYSTEM, "getrandom gives no key");
	} while (!*key || key_is_taken(state, *key));
	return RMR_OK;
}

/* A peer that has not polled for long takes no more: it is given until the deadline. */
static enum rmr_status announce(struct PingpongState *state, struct own_memory *own, uint32_t key,
				size_t size)
{
	uint64_t deadline_ns = clock_deadline_ns(state->context.timeout_ms);
	enum rmr_status status;

	while ((status = memory_announce(own->region, state->conn, key, rmr_arena_base(own->arena),
					 size, &own->notice)) == RMR_AGAIN) {
		if (!pingpong_poll(state, clock_remaining_ms(deadline_ns)) &&
		    clock_passed(deadline_ns))
			return error_set(RMR_TIMEOUT, "the peer takes no more memory");
		if (state->lost != RMR_OK)
			return pingpong_check_alive(&state->context);
	}
	return status;
}

static enum rmr_status own_open(struct PingpongState *state, struct own_memory *own, size_t size)
{
	enum rmr_status status;
	uint32_t key;

	status = rmr_arena_open(size, RMR_ARENA_PEERS_WRITE, &own->arena);
	if (status == RMR_OK)
		status = rmr_region_open(state->device, rmr_arena_base(own->arena), size,
					 RMR_READ | RMR_WRITE, &own->region);
	if (status == RMR_OK)
		status = choose_key(state, &key);
	if (status == RMR_OK)
		status = announce(state, own, key, size);
	return status;
}

void *RDMA_register(PingpongContext *ctx, size_t size, uint32_t *key)
{
	enum rmr_status status = pingpong_check_alive(ctx);
	struct PingpongState *state;
	struct own_memory *own;

	if (status == RMR_OK && (!size || !key))
		status = error_set(RMR_INVALID, "memory of %zu bytes with its key in %p", size,
				   (void *)key);
	if (status == RMR_OK && ctx->state->own_count == PINGPONG_MEMORY_MAX)
		status = error_set(RMR_LIMIT, "%d pieces are registered, which is the most",
				   PINGPONG_MEMORY_MAX);
	if (status != RMR_OK)
		goto fail;
	state = ctx->state;
	own = calloc(1, sizeof(*own));
	if (!own) {
		status = error_set(RMR_NO_MEMORY, "a piece of memory");
		goto fail;
	}
	status = own_open(state, own, size);
	if (status != RMR_OK) {
		own_free(own);
		goto fail;
	}
	own->next = state->own;
	state->own = own;
	state->own_count++;
	*key = own->notice.key;
	return rmr_arena_base(own->arena);
fail:
	error_context(status, "RDMA_register");
	return NULL;
}

static enum rmr_status send_notice(struct PingpongState *state, const struct own_memory *own,
				   uint64_t deadline_ns)
{
	struct message head = {.kind = MESSAGE_MEMORY, .length = sizeof(own->notice)};

	return pingpong_send(state, &head, &own->notice, deadline_ns);
}

int RDMA_deregister(PingpongContext *ctx, void *memory)
{
	enum rmr_status status = pingpong_check(ctx);
	struct own_memory **at, *own;

	if (status != RMR_OK)
		return pingpong_result(status);
	at = &ctx->state->own;
	while (*at && rmr_arena_base((*at)->arena) != memory)
		at = &(*at)->next;
	own = *at;
	if (!own)
		return pingpong_result(
			error_set(RMR_INVALID,
				  "RDMA_deregister: no memory at %p is registered with this "
				  "context",
				  memory));
	*at = own->next;
	ctx->state->own_count--;
	if (own->is_told && ctx->state->lost == RMR_OK) {
		memory_withdraw(own->notice.key, &own->notice);
		status = send_notice(ctx->state, own, clock_deadline_ns(ctx->timeout_ms));
	}
	own_free(own);
	return pingpong_result(error_context(status, "RDMA_deregister"));
}

enum rmr_status pingpong_tell_memory(struct PingpongState *state, uint64_t deadline_ns)
{
	enum rmr_status status = RMR_OK;

	for (struct own_memory *own = state->own; own && status == RMR_OK; own = own->next) {
		if (own->is_told)
			continue;
		status = send_notice(state, own, deadline_ns);
		own->is_told = status == RMR_OK;
	}
	return status;
}

void pingpong_free_memory(struct PingpongState *state)
{
	while (state->own) {
		struct own_memory *own = state->own;

		state->own = own->next;
		own_free(own);
	}
}
