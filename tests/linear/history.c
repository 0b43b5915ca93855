/*
 * History: recording, and words for it. One mapping holds the header, the segments and all
 * operations; pages that are never written take no memory.
 */
#include "history.h"

#include <inttypes.h>
#include <stdarg.h>
#include <sys/mman.h>

#include "base/clock.h"

static const char *const kind_names[HISTORY_KINDS] = {
	[HISTORY_GET] = "get",
	[HISTORY_PUT] = "put",
	[HISTORY_PUT_IF_ABSENT] = "put-if-absent",
	[HISTORY_CAS] = "cas",
	[HISTORY_DELETE] = "delete",
	[HISTORY_DELETE_IF_VERSION] = "delete-if-version",
	[HISTORY_INCR] = "incr",
	[HISTORY_COUNTER_CAS] = "counter-cas",
};

struct history *history_create(uint32_t processes, uint32_t capacity)
{
	size_t header = sizeof(struct history) + processes * sizeof(struct history_segment);
	size_t start = (header + 63) & ~(size_t)63;
	size_t size = start + (size_t)processes * capacity * sizeof(struct history_op);
	struct history *history = mmap(NULL, size, PROT_READ | PROT_WRITE,
				       MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (history == MAP_FAILED)
		return NULL;
	history->processes = processes;
	history->capacity = capacity;
	history->size = size;
	for (uint32_t i = 0; i < processes; i++)
		history->segments[i].ops =
			(struct history_op *)((char *)history + start) + (size_t)i * capacity;
	return history;
}

void history_destroy(struct history *history)
{
	if (history)
		munmap(history, history->size);
}

void history_clear(struct history *history)
{
	for (uint32_t i = 0; i < history->processes; i++)
		atomic_store(&history->segments[i].count, 0);
}

struct history_op *history_begin(struct history *history, uint32_t process,
				 const struct history_op *asked)
{
	struct history_segment *segment = &history->segments[process];
	uint32_t count = atomic_load_explicit(&segment->count, memory_order_relaxed);
	struct history_op *op = &segment->ops[count];

	if (count == history->capacity)
		return NULL;
	*op = (struct history_op){.process = process,
				  .key = asked->key,
				  .kind = asked->kind,
				  .status = KV_UNKNOWN,
				  .argument = asked->argument,
				  .expected = asked->expected,
				  .invoke_ns = clock_now_ns(),
				  .return_ns = HISTORY_NEVER};
	atomic_store_explicit(&segment->count, count + 1, memory_order_release);
	/* The operation must not read anything before the clock was. */
	atomic_thread_fence(memory_order_seq_cst);
	return op;
}

void history_end_at(struct history_op *op, int status, uint64_t return_ns)
{
	op->status = (int16_t)status;
	atomic_store_explicit(&op->return_ns, return_ns, memory_order_release);
}

void history_end(struct history_op *op, int status)
{
	history_end_at(op, status, clock_now_ns());
}

bool history_add(struct history *history, const struct history_op *op)
{
	struct history_segment *segment = &history->segments[op->process];

	if (segment->count == history->capacity)
		return false;
	segment->ops[segment->count++] = *op;
	return true;
}

size_t history_count(const struct history *history)
{
	size_t count = 0;

	for (uint32_t i = 0; i < history->processes; i++)
		count += atomic_load(&history->segments[i].count);
	return count;
}

/* ------------------------------------------------------------------------------------------
 * Words
 */

struct words {
	char *text;
	size_t size;
	int length;
};

__attribute__((format(printf, 2, 3))) static void say(struct words *words, const char *format, ...)
{
	size_t used = (size_t)words->length < words->size ? (size_t)words->length : words->size;
	va_list arguments;

	va_start(arguments, format);
	words->length += vsnprintf(words->text + used, words->size - used, format, arguments);
	va_end(arguments);
}

static void say_question(struct words *words, const struct history_op *op)
{
	say(words, "p%" PRIu32 " %s", op->process, kind_names[op->kind]);
	switch (op->kind) {
	case HISTORY_CAS:
		say(words, " version %" PRIu64, op->expected);
		/* fallthrough */
	case HISTORY_PUT:
	case HISTORY_PUT_IF_ABSENT:
		say(words, " value %#" PRIx64, op->argument);
		break;
	case HISTORY_DELETE_IF_VERSION:
		say(words, " version %" PRIu64, op->expected);
		break;
	case HISTORY_INCR:
		say(words, " by %" PRId64, (int64_t)op->argument);
		break;
	case HISTORY_COUNTER_CAS:
		say(words, " %" PRId64 " to %" PRId64, (int64_t)op->expected,
		    (int64_t)op->argument);
		break;
	default:
		break;
	}
}

static void say_answer(struct words *words, const struct history_op *op)
{
	if (op->return_ns == HISTORY_NEVER) {
		say(words, " -> never returned");
		return;
	}
	say(words, " -> %s", op->status == KV_OK ? "ok" : kv_strerror(op->status));
	if (op->kind == HISTORY_GET && op->status == KV_OK) {
		if (op->found_kind == HISTORY_FOUND_VALUE)
			say(words, ", value %#" PRIx64, op->found);
		else if (op->found_kind == HISTORY_FOUND_NUMBER)
			say(words, ", number %" PRId64, (int64_t)op->found);
	}
	if ((op->kind == HISTORY_INCR && op->status == KV_OK) ||
	    (op->kind == HISTORY_COUNTER_CAS &&
	     (op->status == KV_OK || op->status == KV_CAS_FAILED)))
		say(words, ", number %" PRId64, (int64_t)op->found);
	if (op->version)
		say(words, ", version %" PRIu64, op->version);
}

int history_describe(const struct history_op *op, uint64_t origin_ns, char *text, size_t size)
{
	struct words words = {.text = text, .size = size};

	say_question(&words, op);
	say_answer(&words, op);
	say(&words, "  [%.3f us", (double)(op->invoke_ns - origin_ns) / 1e3);
	if (op->return_ns != HISTORY_NEVER)
		say(&words, " .. %.3f us", (double)(op->return_ns - origin_ns) / 1e3);
	say(&words, "]");
	return words.length;
}
