/*
 * Workloads and mixes.
 *
 * The workloads a to f are those of YCSB (Cooper et al., 2010), with its names of operations: a
 * read is a get, an update a put. An index by hash has no order of keys, so a scan goes on from
 * where the last one ended instead of from a key.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "bench.h"

#define EAGER_VALUE 4096u /* longer ones gain nothing from a window */
#define FILL_WINDOW 32
#define PREFIX	    "kv-bench:"

const char *const loop_names[] = {
	[LOOP_GET] = "get",
	[LOOP_PUT] = "put",
	[LOOP_GET_MANY] = "get-many",
	[LOOP_PUT_MANY] = "put-many",
	[LOOP_ASYNC_GET] = "async-get",
	[LOOP_ASYNC_PUT] = "async-put",
	[LOOP_VIEW] = "view",
	[LOOP_INCR] = "incr",
	[LOOP_PING] = "ping",
	[LOOP_IDLE] = "idle",
	[LOOP_COUNT] = NULL,
};

const char *const op_names[] = {
	[OP_GET] = "get", [OP_PUT] = "put",   [OP_INSERT] = "insert",
	[OP_RMW] = "rmw", [OP_SCAN] = "scan", [OP_COUNT] = NULL,
};

const char *const distribution_names[] = {
	[DIST_UNIFORM] = "uniform",
	[DIST_ZIPF] = "zipf",
	[DIST_LATEST] = "latest",
	[DIST_SEQUENTIAL] = "sequential",
	NULL,
};

static const struct {
	const char *name;
	const char *mix;
	enum distribution distribution;
} workloads[] = {
	{"a", "get:50,put:50", DIST_ZIPF},     /* a session that is kept up to date */
	{"b", "get:95,put:5", DIST_ZIPF},      /* tags on photos */
	{"c", "get:100", DIST_ZIPF},	       /* profiles, read only */
	{"d", "get:95,insert:5", DIST_LATEST}, /* status messages: the newest are read */
	{"e", "scan:95,insert:5", DIST_ZIPF},  /* conversations */
	{"f", "get:50,rmw:50", DIST_ZIPF},     /* records that users change */
};

bool plan_workload(struct pass *pass, const char *name)
{
	for (size_t i = 0; i < sizeof(workloads) / sizeof(workloads[0]); i++) {
		if (strcmp(workloads[i].name, name))
			continue;
		pass->name = workloads[i].name;
		pass->distribution = workloads[i].distribution;
		return plan_mix(pass, workloads[i].mix) == RMR_OK;
	}
	return false;
}

/* The operation of this name, which has so many letters; YCSB's names are understood, too. */
static int find_op(const char *name, size_t length)
{
	static const struct {
		const char *name;
		enum op op;
	} others[] = {{"read", OP_GET}, {"update", OP_PUT}, {"set", OP_PUT}};

	for (int op = 0; op < OP_COUNT; op++)
		if (strlen(op_names[op]) == length && !memcmp(op_names[op], name, length))
			return op;
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (strlen(others[i].name) == length && !memcmp(others[i].name, name, length))
			return (int)others[i].op;
	return -1;
}

enum rmr_status plan_mix(struct pass *pass, const char *text)
{
	double shares[OP_COUNT] = {0}, all = 0, sum = 0;
	const char *at = text;

	while (*at) {
		size_t length = strcspn(at, ":,");
		int op = find_op(at, length);
		double share = 1;

		if (op < 0)
			return error_set(RMR_INVALID,
					 "no operation '%.*s'; there are get, put, insert, rmw and "
					 "scan",
					 (int)length, at);
		at += length;
		if (*at == ':') {
			char *end;

			share = strtod(at + 1, &end);
			if (end == at + 1 || (*end && *end != ',') || !(share >= 0 && share < 1e9))
				return error_set(RMR_INVALID, "'%s': write get:95,put:5", text);
			at = end;
		}
		at += *at == ',';
		shares[op] += share;
		all += share;
	}
	if (!(all > 0))
		return error_set(RMR_INVALID, "'%s' is nothing to do; write get:95,put:5", text);
	for (int op = 0; op < OP_COUNT; op++) {
		sum += shares[op];
		pass->weights[op] = sum / all;
	}
	return RMR_OK;
}

void plan_only(struct pass *pass, enum op only)
{
	for (int op = 0; op < OP_COUNT; op++)
		pass->weights[op] = op >= (int)only ? 1 : 0;
}

double plan_share(const struct pass *pass, enum op op)
{
	return pass->weights[op] - (op ? pass->weights[op - 1] : 0);
}

enum rmr_status plan_keys(struct config *config)
{
	size_t least;

	if (!config->prefix)
		config->prefix = config->spawn ? "" : PREFIX;
	least = strlen(config->prefix) + KEY_SIZE_MIN;
	if (!config->key_size)
		config->key_size = least;
	if (config->key_size < least)
		return error_set(RMR_INVALID,
				 "--key-size %zu: a key is '%s' and %u digits, %zu bytes at least: "
				 "ask for more, or for a shorter --prefix",
				 config->key_size, config->prefix, KEY_SIZE_MIN, least);
	return RMR_OK;
}

struct pass plan_fill(const struct config *config)
{
	struct pass pass = {
		.name = "fill",
		.distribution = DIST_SEQUENTIAL,
		.window = config_largest_value(config) > EAGER_VALUE ? 1 : FILL_WINDOW,
		.operations = config->keys,
	};

	plan_only(&pass, OP_PUT);
	return pass;
}
