/*
 * Figures, as lines "name value". They come in parts, each short enough for a reply: part 0 is of
 * the whole, part n + 1 of the size classes from class n on. Any thread; the figures of workers are
 * read while these go on, so that they need not fit together exactly.
 */
#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/version.h"
#include "server/internal.h"

#define PART_SIZE 8192u
/* What the longest class may need: six lines. */
#define CLASS_TEXT 512u

struct text {
	char *to;
	size_t room, used;
};

/* Adds "name value\n" if all of it fits. */
__attribute__((format(printf, 3, 4))) static void add_line(struct text *text, uint64_t value,
							   const char *name, ...)
{
	size_t left = text->room - text->used;
	char line[128];
	int length, more;
	va_list arguments;

	va_start(arguments, name);
	length = vsnprintf(line, sizeof(line), name, arguments);
	va_end(arguments);
	more = snprintf(line + length, sizeof(line) - (size_t)length, " %" PRIu64 "\n", value);
	if ((size_t)(length + more) > left)
		return;
	memcpy(text->to + text->used, line, (size_t)(length + more));
	text->used += (size_t)(length + more);
}

static void add_word(struct text *text, const char *name, const char *word)
{
	int length =
		snprintf(text->to + text->used, text->room - text->used, "%s %s\n", name, word);

	if ((size_t)length < text->room - text->used)
		text->used += (size_t)length;
}

static int64_t look(const _Atomic uint64_t *counter)
{
	return (int64_t)atomic_load_explicit(counter, memory_order_relaxed);
}

void stats_add(struct counters *into, const struct counters *from)
{
	for (unsigned kind = 0; kind < PATH_KINDS; kind++) {
		for (unsigned i = 0; i < KV_OP_END_OF_REQUESTS; i++)
			counter_add(&into->requests[kind][i], look(&from->requests[kind][i]));
		counter_add(&into->present[kind], look(&from->present[kind]));
	}
	counter_add(&into->bytes_in, look(&from->bytes_in));
	counter_add(&into->bytes_out, look(&from->bytes_out));
	counter_add(&into->pushes, look(&from->pushes));
	counter_add(&into->pushed_bytes, look(&from->pushed_bytes));
	counter_add(&into->landed, look(&from->landed));
	counter_add(&into->client_hits, look(&from->client_hits));
	counter_add(&into->client_misses, look(&from->client_misses));
	counter_add(&into->again, look(&from->again));
	counter_add(&into->touches, look(&from->touches));
	counter_add(&into->sessions, look(&from->sessions));
	counter_add(&into->refused, look(&from->refused));
	counter_add(&into->violations, look(&from->violations));
	counter_add(&into->timeouts, look(&from->timeouts));
	counter_add(&into->no_buffer, look(&from->no_buffer));
	counter_add(&into->pins, look(&from->pins));
	counter_add(&into->drafts, look(&from->drafts));
}

static const char *const kind_names[PATH_KINDS] = {
	[PATH_SHM] = "shm", [PATH_TCP] = "tcp",	  [PATH_VERBS] = "verbs",
	[PATH_OFI] = "ofi", [PATH_GRPC] = "grpc",
};

/* All of it; by path, if there were any; and how long they took lately, if some were timed. */
static void write_operation(struct kv_server *server, const struct counters *all, unsigned op,
			    struct text *text)
{
	const char *upper = kv_op_name(op);
	struct times_summary times;
	uint64_t sum = 0;
	char name[32] = "";

	for (size_t i = 0; upper[i] && i + 1 < sizeof(name); i++)
		name[i] = (char)tolower((unsigned char)upper[i]);
	for (unsigned kind = 0; kind < PATH_KINDS; kind++)
		sum += (uint64_t)look(&all->requests[kind][op]);
	add_line(text, sum, "requests.%s", name);
	for (unsigned kind = 0; kind < PATH_KINDS; kind++) {
		uint64_t count = (uint64_t)look(&all->requests[kind][op]);

		if (count)
			add_line(text, count, "requests.%s.%s", name, kind_names[kind]);
	}
	times_summarize(server, op, &times);
	if (!times.samples)
		return;
	add_line(text, times.samples, "times.%s.samples", name);
	add_line(text, times.p50_ns, "times.%s.p50_ns", name);
	add_line(text, times.p99_ns, "times.%s.p99_ns", name);
	add_line(text, times.p999_ns, "times.%s.p999_ns", name);
}

static void add_all(struct kv_server *server, struct counters *all)
{
	stats_add(all, &server->past);
	stats_add(all, &server->above);
	for (unsigned i = 0; i < server->worker_count; i++)
		stats_add(all, &server->workers[i].counters);
}

static void write_requests(struct kv_server *server, struct text *text)
{
	struct counters all = {0};

	add_all(server, &all);
	for (unsigned op = KV_OP_GET; op < KV_OP_END_OF_REQUESTS; op++)
		write_operation(server, &all, op, text);
	for (unsigned kind = 0; kind < PATH_KINDS; kind++)
		add_line(text, (uint64_t)look(&all.present[kind]), "clients.%s", kind_names[kind]);
	add_line(text, (uint64_t)look(&all.bytes_in), "bytes_in");
	add_line(text, (uint64_t)look(&all.bytes_out), "bytes_out");
	add_line(text, (uint64_t)look(&all.pushes), "pushes");
	add_line(text, (uint64_t)look(&all.pushed_bytes), "pushed_bytes");
	add_line(text, (uint64_t)look(&all.landed), "landed");
	add_line(text, (uint64_t)look(&all.client_hits), "hits_by_clients");
	add_line(text, (uint64_t)look(&all.client_misses), "misses_by_clients");
	add_line(text, (uint64_t)look(&all.touches), "touches");
	add_line(text, (uint64_t)look(&all.pins), "pins");
	add_line(text, (uint64_t)look(&all.drafts), "drafts");
	add_line(text, (uint64_t)look(&all.sessions), "clients_total");
	add_line(text, (uint64_t)look(&server->clients_refused), "clients_turned_down");
	add_line(text, (uint64_t)look(&all.refused), "clients_denied");
	add_line(text, (uint64_t)look(&all.violations), "violations");
	add_line(text, (uint64_t)look(&all.timeouts), "timeouts");
	add_line(text, (uint64_t)look(&all.no_buffer), "replies_without_buffer");
}

static void write_store(const struct store_stats *stats, struct text *text)
{
	add_line(text, stats->keys, "keys");
	add_line(text, stats->size, "memory");
	add_line(text, stats->fixed, "memory_fixed");
	add_line(text, stats->index, "memory_index");
	add_line(text, stats->free, "memory_free");
	add_line(text, stats->buckets, "buckets");
	add_line(text, stats->overflow_buckets, "buckets_overflow");
	add_line(text, stats->cells, "cells");
	add_line(text, stats->cells_used, "cells_used");
	add_line(text, stats->cells_retired, "cells_retired");
	add_line(text, stats->cells_lost, "cells_lost");
	add_line(text, stats->next_version, "next_version");
	add_line(text, stats->gets, "gets");
	add_line(text, stats->hits, "hits");
	add_line(text, stats->puts, "puts");
	add_line(text, stats->deletes, "deletes");
	add_line(text, stats->expired, "expired");
	add_line(text, stats->evicted, "evicted");
	add_line(text, stats->moved, "moved");
	add_line(text, stats->pages_moved, "pages_moved");
	add_line(text, stats->no_memory, "no_memory");
}

static void write_general(struct kv_server *server, const struct store_stats *stats,
			  struct text *text)
{
	uint64_t up_ns = server->workers ? clock_now_ns() - server->started_ns : 0;
	struct store_class_stats sum = {0};

	for (unsigned i = 0; i < STORE_CLASS_STATS; i++) {
		sum.items += stats->classes[i].items;
		sum.used += stats->classes[i].used;
		sum.wasted += stats->classes[i].wasted;
	}
	add_word(text, "version", REMORA_VERSION);
	if (server->node_id[0])
		add_word(text, "node_id", server->node_id);
	add_line(text, up_ns / 1000000, "uptime_ms");
	add_line(text, store_clock_ms(server->store), "time_ms");
	add_line(text, atomic_load_explicit(&server->clients, memory_order_relaxed), "clients");
	add_line(text, server->options.max_clients, "clients_max");
	add_line(text, server->options.workers, "workers");
	add_line(text, atomic_load_explicit(&server->landing_used, memory_order_relaxed),
		 "landing_bytes");
	add_line(text, atomic_load_explicit(&server->cells_epoch, memory_order_relaxed),
		 "cells_epoch");
	write_store(stats, text);
	/* With drafts, and what is dead but pinned. */
	add_line(text, sum.items, "items");
	add_line(text, sum.used, "items_bytes");
	add_line(text, sum.wasted, "items_wasted");
	write_requests(server, text);
}

/* With the gets that clients made by themselves, and each get counted once. */
static void add_client_gets(struct kv_server *server, struct store_stats *stats)
{
	struct counters all = {0};

	add_all(server, &all);
	stats->hits += (uint64_t)(look(&all.client_hits) - look(&all.again));
	stats->gets += (uint64_t)(look(&all.client_hits) - look(&all.again));
	stats->gets += (uint64_t)look(&all.client_misses);
}

static void write_class(const struct store_class_stats *class, struct text *text)
{
	char name[32];

	if (class->item_size)
		snprintf(name, sizeof(name), "class.%" PRIu64, class->item_size);
	else
		snprintf(name, sizeof(name), "class.long");
	add_line(text, class->items, "%s.items", name);
	add_line(text, class->pages, "%s.pages", name);
	add_line(text, class->used, "%s.used", name);
	add_line(text, class->wasted, "%s.wasted", name);
	add_line(text, class->free, "%s.free", name);
	add_line(text, class->evictions, "%s.evictions", name);
}

size_t stats_write(struct kv_server *server, uint64_t part, char *to, size_t room, uint64_t *next)
{
	struct text text = {.to = to, .room = room};
	struct store_stats stats;
	uint64_t class;

	store_stats(server->store, &stats);
	add_client_gets(server, &stats);
	if (part == 0)
		write_general(server, &stats, &text);
	for (class = part ? part - 1 : 0; part && class < STORE_CLASS_STATS; class ++) {
		if (text.room - text.used < CLASS_TEXT)
			break;
		if (stats.classes[class].pages)
			write_class(&stats.classes[class], &text);
	}
	*next = class < STORE_CLASS_STATS ? class + 1 : 0;
	return text.used;
}

void operation_stats(struct exchange *exchange)
{
	if (!exchange_has_room(exchange, KV_MIN_REPLY - sizeof(struct kv_reply)))
		return;
	exchange->reply->flags = KV_HAS_VALUE;
	exchange->length =
		stats_write(exchange->worker->server, exchange->view.header.argument,
			    (char *)exchange->value, exchange->room, &exchange->reply->number);
}

int kv_server_stats(kv_server_t *server, char **text)
{
	uint64_t part = 0;
	size_t used = 0;
	char *all = NULL;

	do {
		char *grown = realloc(all, used + PART_SIZE + 1);

		if (!grown) {
			free(all);
			return server_fail(KV_NO_MEMORY, "no memory for figures");
		}
		all = grown;
		used += stats_write(server, part, all + used, PART_SIZE, &part);
	} while (part);
	all[used] = '\0';
	*text = all;
	return KV_OK;
}
