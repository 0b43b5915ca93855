/*
 * The client's side of a connection to a fabric-perf server.
 *
 * The session's memory is one region:
 *
 *	+--------------------+--------------------+---------+
 *	| buffers of a test  | scratch            | control |
 *	+--------------------+--------------------+---------+
 *	0                    area                 2 * area
 *
 * A server that is stopped but not dead keeps its connection, so a silence of PERF_STALL_MS is
 * taken for its loss as well.
 */
#include "session.h"

#include <sched.h>

#include "base/clock.h"
#include "base/error.h"

#define PERF_STALL_MS  10000
#define CONTROL_SIZE   256u
#define SLOT_MEMORY    (64u << 20) /* that receive slots may take up */
#define SPINS_PER_LOOK 1024	   /* polls between two looks at the clock */
#define DEPTH_MIN      64u

enum rmr_status session_open(struct session *session, const struct perf_config *config)
{
	*session = (struct session){.config = config};
	return rmr_device_open(config->device, NULL, &session->device);
}

void session_close(struct session *session)
{
	rmr_remote_close(session->remote);
	rmr_conn_close(session->conn);
	rmr_queue_close(session->queue);
	memory_close(&session->memory);
	rmr_device_close(session->device);
	*session = (struct session){0};
}

enum rmr_status session_completion_failed(const struct rmr_completion *bad)
{
	if (bad->op == RMR_OP_DISCONNECT || bad->status == RMR_DISCONNECTED ||
	    bad->status == RMR_CANCELED)
		return error_set(RMR_DISCONNECTED,
				 "the server is gone: the connection was lost (%s)",
				 rmr_status_text(bad->status));
	return error_set(bad->status, "operation %llu failed", (unsigned long long)bad->cookie);
}

enum rmr_status session_post_failed(int result)
{
	if (result == RMR_DISCONNECTED)
		return error_set(RMR_DISCONNECTED,
				 "the server is gone: the connection was lost while posting");
	if (result < 0)
		return error_context((enum rmr_status)result, "posting an operation");
	return error_set(RMR_LIMIT, "the connection takes no operation although none is in flight");
}

/* The clock is not read before the first SPINS_PER_LOOK polls were in vain: an answer that comes in
 * time must not wait for it. After them other processes get a chance too: the peer may be one that
 * has to share our core. */
static int spin(struct session *session, struct rmr_completion *completions, int max)
{
	uint64_t deadline_ns = 0;

	for (;;) {
		for (int i = 0; i < SPINS_PER_LOOK; i++) {
			int n = rmr_poll(session->queue, completions, max);

			if (n)
				return n;
		}
		sched_yield();
		if (!deadline_ns)
			deadline_ns = clock_deadline_ns(PERF_STALL_MS);
		else if (clock_passed(deadline_ns))
			return 0;
	}
}

int session_wait(struct session *session, struct rmr_completion *completions, int max)
{
	int n;

	if (session->config->wait == PERF_WAIT_SPIN)
		n = spin(session, completions, max);
	else
		n = rmr_wait(session->queue, completions, max, PERF_STALL_MS);
	if (!n)
		error_set(RMR_TIMEOUT, "the server is gone: no answer for %d seconds",
			  PERF_STALL_MS / 1000);
	return n;
}

/* Takes the server's answer, which must be of this kind; nothing else is due. */
static enum rmr_status await_answer(struct session *session, uint32_t kind,
				    struct perf_answer *answer)
{
	struct rmr_completion completion;
	enum rmr_status status;
	bool right = false;
	int n;

	status = session_take(session, &completion, 1, &n);
	if (status != RMR_OK)
		return status;
	if (completion.op == RMR_OP_RECV) {
		right = completion.length == sizeof(*answer);
		if (right)
			memcpy(answer, completion.data, sizeof(*answer));
		rmr_recv_release(session->queue, completion.data);
	}
	if (!right || answer->magic != PERF_MAGIC || answer->kind != kind)
		return error_set(RMR_PROTOCOL, "the server is no fabric-perf of this version: its "
					       "answer makes no sense");
	return RMR_OK;
}

static enum rmr_status post_one(struct session *session, const struct rmr_work *work)
{
	int posted = rmr_post(session->conn, work, 1);

	return posted == 1 ? RMR_OK : session_post_failed(posted);
}

static enum rmr_status open_queue(struct session *session, const struct session_needs *needs,
				  struct perf_hello *hello)
{
	const struct rmr_device_info *info = rmr_device_info(session->device);
	struct rmr_queue_options options = {0};
	size_t size = needs->message;
	size_t slots = 2 * (size_t)needs->depth;

	if (size < CONTROL_SIZE)
		size = CONTROL_SIZE;
	if (slots < DEPTH_MIN)
		slots = DEPTH_MIN;
	if (slots > SLOT_MEMORY / size)
		slots = SLOT_MEMORY / size;
	if (slots < 4)
		slots = 4;
	if (slots > info->max_slots)
		slots = info->max_slots;
	hello->recv_size = options.recv_size = (uint32_t)size;
	hello->recv_slots = options.recv_slots = (uint32_t)slots;
	if (session->config->wait == PERF_WAIT_SLEEP)
		options.spin_us = -1;
	return rmr_queue_open(session->device, &options, &session->queue);
}

static enum rmr_status open_memory(struct session *session, size_t area)
{
	const struct perf_config *config = session->config;
	unsigned flags = (config->plain ? MEMORY_PLAIN : 0) | (config->huge ? MEMORY_HUGE : 0);
	enum rmr_status status;

	status = memory_open(&session->memory, session->device, 2 * area + CONTROL_SIZE, 0, flags);
	if (status != RMR_OK)
		return status;
	session->area = area;
	session->scratch = session->memory.base + area;
	session->control = session->memory.base + 2 * area;
	return RMR_OK;
}

enum rmr_status session_connect(struct session *session, const char *address,
				const struct session_needs *needs)
{
	const struct perf_config *config = session->config;
	struct perf_hello hello = {
		.magic = PERF_MAGIC,
		.flags = (uint16_t)((config->plain ? PERF_HELLO_PLAIN : 0) |
				    (config->huge ? PERF_HELLO_HUGE : 0)),
		.wait = (uint16_t)config->wait,
		.memory_size = needs->area,
		.depth = needs->depth < DEPTH_MIN ? DEPTH_MIN : needs->depth,
	};
	struct rmr_conn_options options = {
		.depth = hello.depth, .private_data = &hello, .private_length = sizeof(hello)};
	struct perf_answer answer;
	enum rmr_status status;

	status = open_memory(session, needs->area);
	if (status == RMR_OK)
		status = open_queue(session, needs, &hello);
	if (status == RMR_OK)
		status = rmr_connect(session->queue, address, config->timeout_ms, &options,
				     &session->conn);
	if (status == RMR_OK)
		status = await_answer(session, PERF_MEMORY, &answer);
	if (status == RMR_OK)
		status = rmr_remote_open(session->conn, &answer.memory, &session->remote);
	/* Whatever listens there, it is not the server: for the exit code that is the same. */
	if (status == RMR_PROTOCOL)
		status = RMR_REFUSED;
	return error_context(status, "server at %s", address);
}

static unsigned begin_flags(const struct perf_config *config, const struct perf_case *test)
{
	unsigned flags = config->use_inline ? PERF_BEGIN_INLINE : 0;

	if (test->op == PERF_SEND && test->depth == 1)
		flags |= PERF_BEGIN_ECHO;
	if (perf_op_is_atomic(test->op))
		flags |= PERF_BEGIN_COUNTER;
	if (config->check)
		flags |= PERF_BEGIN_CHECK;
	if (test->op != PERF_IDLE && config->wait == PERF_WAIT_SPIN &&
	    (perf_op_is_two_sided(test->op) || config->target_polls))
		flags |= PERF_BEGIN_POLL;
	return flags;
}

enum rmr_status session_begin(struct session *session, const struct perf_case *test,
			      struct perf_answer *ready)
{
	struct perf_begin begin = {
		.magic = PERF_MAGIC,
		.flags = begin_flags(session->config, test),
		.size = test->size,
		.depth = test->depth,
	};
	struct rmr_work work = {
		.op = RMR_OP_SEND,
		.flags = RMR_UNSIGNALED, /* the answer says it all */
		.local = session->control,
		.length = sizeof(begin),
		.region = session->memory.region,
	};
	enum rmr_status status;

	memcpy(session->control, &begin, sizeof(begin));
	status = post_one(session, &work);
	if (status != RMR_OK)
		return status;
	return await_answer(session, PERF_READY, ready);
}

enum rmr_status session_end(struct session *session, struct perf_answer *done)
{
	struct rmr_work work = {
		.op = RMR_OP_WRITE_IMM,
		.flags = RMR_UNSIGNALED,
		.local = session->control,
		.region = session->memory.region,
		.remote = session->remote,
		.immediate = PERF_END,
	};
	enum rmr_status status = post_one(session, &work);

	if (status != RMR_OK)
		return status;
	return await_answer(session, PERF_DONE, done);
}
