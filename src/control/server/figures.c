/*
 * Figures: what the control server counts, as lines "name value", and Stats, which tells them
 * together with the server's own. The lines are made by any thread; Stats runs in the loop.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/server/internal.h"

#define TEXT_FIRST 4096u

static uint64_t look(const _Atomic uint64_t *figure)
{
	return atomic_load_explicit(figure, memory_order_relaxed);
}

struct text {
	char *to;
	size_t room, used;
};

/* Adds "control.name value\n"; what does not fit is only counted. */
static void add_line(struct text *text, const char *group, const char *name, uint64_t value)
{
	size_t left = text->used < text->room ? text->room - text->used : 0;
	int length = snprintf(left ? text->to + text->used : NULL, left,
			      "control.%s%s %" PRIu64 "\n", group, name, value);

	text->used += (size_t)length;
}

size_t figures_write(const struct kv_control_server *control, char *to, size_t room)
{
	const struct figures *figures = &control->figures;
	struct text text = {.to = to, .room = room};

	add_line(&text, "", "connections", look(&figures->connections));
	add_line(&text, "", "connections_total", look(&figures->connections_total));
	add_line(&text, "", "connections_refused", look(&figures->connections_refused));
	add_line(&text, "", "bytes_in", look(&figures->bytes_in));
	add_line(&text, "", "bytes_out", look(&figures->bytes_out));
	add_line(&text, "", "floods", look(&figures->floods));
	add_line(&text, "", "stalls", look(&figures->stalls));
	for (unsigned i = 0; i < rpc_method_count; i++) {
		/* Of those that share a name the service tells which. */
		const char *name = rpc_methods[i].path + 1;

		if (strncmp(name, "kv_cache.KvCacheService/", 24) == 0)
			name += 24;
		add_line(&text, "calls.", name, look(&figures->calls[i]));
	}
	for (unsigned i = 0; i < GRPC_STATUS_COUNT; i++) {
		if (look(&figures->statuses[i]))
			add_line(&text, "status.", grpc_status_name(i),
				 look(&figures->statuses[i]));
	}
	if (control->plane)
		text.used +=
			data_plane_figures(control->plane, text.used < room ? to + text.used : NULL,
					   text.used < room ? room - text.used : 0);
	return text.used;
}

int kv_control_server_stats(kv_control_server_t *control, char **text)
{
	size_t room = TEXT_FIRST, length;
	char *all = NULL;

	do {
		char *grown = realloc(all, room);

		if (!grown) {
			free(all);
			return control_fail(KV_NO_MEMORY, "no memory for figures");
		}
		all = grown;
		length = figures_write(control, all, room);
		if (length < room)
			break;
		room = 2 * length;
	} while (true);
	all[length] = '\0';
	*text = all;
	return KV_OK;
}

/* ------------------------------------------------------------------------------------------
 * Stats
 */

struct stats {
	KvCache__Figure *figures;
	KvCache__Figure **pointers;
	size_t count, room;
};

/* One "name value" line, which is cut in two. */
static void add_figure(struct stats *stats, char *line, const char *prefix)
{
	KvCache__Figure *figure = &stats->figures[stats->count];
	char *value = strchr(line, ' '), *end;

	if (!value || stats->count == stats->room || strncmp(line, prefix, strlen(prefix)) != 0)
		return;
	*value++ = '\0';
	kv_cache__figure__init(figure);
	figure->name = line;
	figure->number = strtoull(value, &end, 10);
	figure->value_case = KV_CACHE__FIGURE__VALUE_NUMBER;
	if (*end || end == value) {
		figure->text = value;
		figure->value_case = KV_CACHE__FIGURE__VALUE_TEXT;
	}
	stats->pointers[stats->count++] = figure;
}

static void add_lines(struct stats *stats, char *text, const char *prefix)
{
	char *rest = NULL;

	for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
		add_figure(stats, line, prefix);
}

static size_t count_lines(const char *text)
{
	size_t lines = 0;

	for (; *text; text++)
		lines += *text == '\n';
	return lines;
}

void method_stats(struct rpc *rpc, const ProtobufCMessage *message)
{
	const KvCache__StatsRequest *request = (const KvCache__StatsRequest *)message;
	KvCache__StatsResponse response = KV_CACHE__STATS_RESPONSE__INIT;
	struct stats stats = {0};
	char *own = NULL, *of_server = NULL;

	if (kv_server_stats(rpc->control->server, &of_server) == KV_OK &&
	    kv_control_server_stats(rpc->control, &own) == KV_OK) {
		stats.room = count_lines(of_server) + count_lines(own);
		stats.figures = calloc(stats.room + 1, sizeof(*stats.figures));
		stats.pointers = calloc(stats.room + 1, sizeof(KvCache__Figure *));
	}
	if (stats.figures && stats.pointers) {
		add_lines(&stats, of_server, request->prefix);
		add_lines(&stats, own, request->prefix);
		response.figures = stats.pointers;
		response.n_figures = stats.count;
		rpc_reply(rpc, &response.base, GRPC_OK, "%s", "");
	} else {
		rpc_finish(rpc, GRPC_RESOURCE_EXHAUSTED, "no memory for figures");
	}
	free(stats.figures);
	free(stats.pointers);
	free(own);
	free(of_server);
}
