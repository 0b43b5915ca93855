/*
 * One client of the server, from accept until it leaves.
 *
 * Outside of a test, and while its memory is only read and written from outside, the guest's host
 * sleeps in rmr_wait: one-sided operations are no business of this program, and that they go on
 * nevertheless is what such a test measures. When messages or immediates are measured by a
 * spinning client, the host spins as well; should the client fall silent for long, it goes back
 * to rmr_wait, so a client that was stopped does not cost a core.
 *
 * Everything that a client asks for is checked against what was agreed at connect.
 */
#include "guest.h"

#include <sched.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "perf.h"

#define TAKE_MAX	64
#define ANSWER_ROOM	128u
#define SPINS_IN_VAIN	(1u << 20)
#define SPINS_PER_YIELD 1024
#define SIGNAL_EVERY	32
#define MEMORY_MAX	(UINT64_C(16) << 30)

static_assert(sizeof(struct perf_answer) <= ANSWER_ROOM, "the outbox begins with the answer");

static const char *find_fault(const struct perf_hello *hello, size_t length,
			      const struct rmr_device_info *info)
{
	if (length != sizeof(*hello) || hello->magic != PERF_MAGIC)
		return "this is a fabric-perf server, of another version than the caller";
	if (!hello->memory_size || hello->memory_size > MEMORY_MAX)
		return "no memory of that size here";
	if (hello->recv_size < ANSWER_ROOM || hello->recv_size > info->max_message)
		return "no messages of that size here";
	if (!hello->recv_slots || hello->recv_slots > info->max_slots)
		return "not so many receive slots here";
	if (!hello->depth || hello->depth > info->max_depth)
		return "no connection of that depth here";
	return NULL;
}

static enum rmr_status send_answer(struct guest *guest, uint32_t kind)
{
	struct perf_answer answer = {.magic = PERF_MAGIC,
				     .kind = kind,
				     .received = guest->received,
				     .wrong = guest->wrong};
	struct rmr_work work = {.op = RMR_OP_SEND,
				.local = guest->outbox.base,
				.length = sizeof(answer),
				.region = guest->outbox.region};
	enum rmr_status status;
	struct timespec used;
	int posted;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	answer.cpu_ns = (uint64_t)used.tv_sec * 1000000000 + (uint64_t)used.tv_nsec;
	if (kind == PERF_MEMORY) {
		status = rmr_region_export(guest->memory.region, guest->conn, &answer.memory);
		if (status != RMR_OK)
			return status;
	}
	memcpy(guest->outbox.base, &answer, sizeof(answer));
	posted = rmr_post(guest->conn, &work, 1);
	if (posted == 1)
		return RMR_OK;
	return posted < 0 ? (enum rmr_status)posted : error_set(RMR_LIMIT, "no room for an answer");
}

static enum rmr_status open_parts(struct guest *guest, struct rmr_device *device)
{
	const struct perf_hello *hello = &guest->hello;
	unsigned flags = (hello->flags & PERF_HELLO_PLAIN ? MEMORY_PLAIN : 0) |
			 (hello->flags & PERF_HELLO_HUGE ? MEMORY_HUGE : 0);
	struct rmr_queue_options options = {
		.recv_slots = hello->recv_slots,
		.recv_size = hello->recv_size,
		.spin_us = hello->wait == PERF_WAIT_SLEEP ? -1 : 0,
	};
	enum rmr_status status;

	status = memory_open(&guest->memory, device, hello->memory_size,
			     RMR_READ | RMR_WRITE | RMR_ATOMIC, flags);
	if (status == RMR_OK)
		status = memory_open(&guest->outbox, device, ANSWER_ROOM + hello->recv_size, 0,
				     flags);
	if (status == RMR_OK)
		status = rmr_queue_open(device, &options, &guest->queue);
	return status;
}

enum rmr_status guest_open(struct guest *guest, struct rmr_device *device,
			   struct rmr_request *request)
{
	struct rmr_conn_options options = {0};
	const char *fault;
	const void *hello;
	enum rmr_status status;
	size_t length;

	*guest = (struct guest){0};
	hello = rmr_request_private(request, &length);
	if (length == sizeof(guest->hello))
		memcpy(&guest->hello, hello, length);
	fault = find_fault(&guest->hello, length, rmr_device_info(device));
	if (fault) {
		rmr_reject(request, fault);
		return error_set(RMR_PROTOCOL, "turned a caller down: %s", fault);
	}
	status = open_parts(guest, device);
	if (status != RMR_OK) {
		rmr_reject(request, rmr_error_message());
		goto close_guest;
	}
	options.depth = guest->hello.depth;
	status = rmr_accept(request, guest->queue, &options, &guest->conn);
	if (status == RMR_OK)
		status = send_answer(guest, PERF_MEMORY);
	if (status == RMR_OK)
		return RMR_OK;
close_guest:
	guest_close(guest);
	return status;
}

void guest_close(struct guest *guest)
{
	rmr_conn_close(guest->conn);
	rmr_queue_close(guest->queue);
	memory_close(&guest->outbox);
	memory_close(&guest->memory);
	*guest = (struct guest){0};
}

static enum rmr_status begin_test(struct guest *guest, const struct rmr_completion *message)
{
	struct perf_begin test;

	if (message->length != sizeof(test))
		return error_set(RMR_PROTOCOL, "a command of %zu bytes", message->length);
	memcpy(&test, message->data, sizeof(test));
	if (test.magic != PERF_MAGIC || !test.depth || test.depth > guest->hello.depth ||
	    test.size > PERF_SIZE_MAX ||
	    layout_of(test.size, test.depth).total > guest->hello.memory_size)
		return error_set(RMR_PROTOCOL, "a test that does not fit what was agreed");
	guest->test = test;
	guest->layout = layout_of(test.size, test.depth);
	guest->received = 0;
	guest->wrong = 0;
	for (uint32_t i = 0; i < guest->layout.slots; i++)
		pattern_fill(guest->memory.base + layout_offset(&guest->layout, i), test.size,
			     PATTERN_SERVER);
	/* Atomics count from 0, in the first cell; a READ test has no use for that. */
	if (test.flags & PERF_BEGIN_COUNTER)
		memset(guest->memory.base, 0, sizeof(uint64_t));
	if (test.flags & PERF_BEGIN_ECHO)
		pattern_fill(guest->outbox.base + ANSWER_ROOM, test.size, PATTERN_CLIENT);
	guest->in_test = true;
	return send_answer(guest, PERF_READY);
}

/* The echo has the same length. Its bytes are the message's only with --check: without, the copy
 * would be a cost that no other ping-pong program has. */
static enum rmr_status echo(struct guest *guest, const struct rmr_completion *message)
{
	unsigned flags = guest->test.flags & PERF_BEGIN_INLINE ? RMR_INLINE : 0;
	struct rmr_work work = {.op = RMR_OP_SEND,
				.local = guest->outbox.base + ANSWER_ROOM,
				.length = message->length,
				.region = guest->outbox.region};
	int posted;

	if (guest->test.flags & PERF_BEGIN_CHECK)
		memcpy(work.local, message->data, message->length);
	if (guest->received % SIGNAL_EVERY)
		flags |= RMR_UNSIGNALED;
	work.flags = flags;
	posted = rmr_post(guest->conn, &work, 1);
	if (posted == 1)
		return RMR_OK;
	return posted < 0 ? (enum rmr_status)posted : error_set(RMR_LIMIT, "no room for an echo");
}

static enum rmr_status take_message(struct guest *guest, const struct rmr_completion *message)
{
	enum rmr_status status = RMR_OK;

	if (!guest->in_test)
		return begin_test(guest, message);
	if (guest->test.flags & PERF_BEGIN_ECHO)
		status = echo(guest, message);
	else if (guest->test.flags & PERF_BEGIN_CHECK &&
		 (message->length != guest->test.size ||
		  !pattern_matches(message->data, message->length, PATTERN_CLIENT)))
		guest->wrong++;
	guest->received++;
	return status;
}

static enum rmr_status take_immediate(struct guest *guest, uint32_t immediate)
{
	const char *bytes;

	if (!guest->in_test)
		return error_set(RMR_PROTOCOL, "an immediate outside of any test");
	if (immediate == PERF_END) {
		guest->in_test = false;
		return send_answer(guest, PERF_DONE);
	}
	bytes = guest->memory.base +
		layout_offset(&guest->layout, guest->received % guest->test.depth);
	if (immediate != (guest->received & PERF_IMMEDIATE_MASK) ||
	    (guest->test.flags & PERF_BEGIN_CHECK &&
	     !pattern_matches(bytes, guest->test.size, PATTERN_CLIENT)))
		guest->wrong++;
	guest->received++;
	return RMR_OK;
}

static enum rmr_status take(struct guest *guest, const struct rmr_completion *completion)
{
	enum rmr_status status;

	if (completion->op == RMR_OP_DISCONNECT) {
		guest->gone = true;
		return RMR_OK;
	}
	if (completion->status != RMR_OK) /* of an own operation; the disconnect follows */
		return RMR_OK;
	switch (completion->op) {
	case RMR_OP_RECV:
		status = take_message(guest, completion);
		rmr_recv_release(guest->queue, completion->data);
		break;
	case RMR_OP_RECV_IMM:
		status = take_immediate(guest, completion->immediate);
		break;
	default: /* an answer or an echo has left */
		return RMR_OK;
	}
	if (status == RMR_DISCONNECTED) /* known from posting already */
		status = RMR_OK;
	return status;
}

enum rmr_status guest_serve(struct guest *guest, const volatile sig_atomic_t *stop)
{
	struct rmr_completion completions[TAKE_MAX];
	unsigned in_vain = 0;

	while (!guest->gone && !*stop) {
		bool spin = guest->in_test && guest->test.flags & PERF_BEGIN_POLL;
		int n;

		if (spin && in_vain < SPINS_IN_VAIN)
			n = rmr_poll(guest->queue, completions, TAKE_MAX);
		else
			n = rmr_wait(guest->queue, completions, TAKE_MAX, -1);
		in_vain = n ? 0 : in_vain + 1;
		if (in_vain % SPINS_PER_YIELD == SPINS_PER_YIELD - 1)
			sched_yield(); /* the client may have to share our core */
		for (int i = 0; i < n; i++) {
			enum rmr_status status = take(guest, &completions[i]);

			if (status != RMR_OK)
				return status;
		}
	}
	return RMR_OK;
}
