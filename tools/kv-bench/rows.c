/* Adding up: see rows.h. */
#include "rows.h"

#include <err.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

struct row *rows_add(struct rows *rows, enum store_kind store, const char *op, const char *path)
{
	struct row **grown = realloc(rows->rows, ((size_t)rows->count + 1) * sizeof(rows->rows[0]));
	struct row *row = calloc(1, sizeof(*row));

	if (!grown || !row)
		errx(BENCH_EXIT_FAILED, "no memory for the figures");
	rows->rows = grown;
	rows->rows[rows->count++] = row;
	row->store = store;
	row->op = op;
	row->path = path;
	row->window = 1;
	histogram_init(&row->latency);
	return row;
}

void rows_fini(struct rows *rows)
{
	for (int i = 0; i < rows->count; i++)
		free(rows->rows[i]);
	free(rows->rows);
}

static int compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double row_rate(const struct row *row)
{
	double sorted[BENCH_ROUNDS_MAX];
	int count = row->sample_count;

	if (!count)
		return 0;
	memcpy(sorted, row->samples, (size_t)count * sizeof(sorted[0]));
	qsort(sorted, (size_t)count, sizeof(sorted[0]), compare_doubles);
	return (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
}

double row_bytes_rate(const struct row *row)
{
	return row->operations ? row_rate(row) * (double)row->bytes / (double)row->operations : 0;
}

uint64_t row_errors(const struct row *row)
{
	uint64_t errors = 0;

	for (int kind = 0; kind < KIND_COUNT; kind++)
		errors += row->errors[kind];
	return errors;
}

const char *row_kind_name(int kind)
{
	return kind == KIND_WRONG_VALUE ? "wrong value" : kv_strerror(-kind);
}

void row_provider(const struct row *row, char provider[16])
{
	size_t length = strcspn(row->transport, " ");

	snprintf(provider, 16, "%.*s", length < 15 ? (int)length : 15, row->transport);
}

static bool carries_value(enum loop loop)
{
	return loop != LOOP_INCR && loop != LOOP_PING && loop != LOOP_IDLE;
}

/* The path that most operations took. */
static const char *main_path(const kv_client_totals_t *totals)
{
	int most = KV_PATH_NONE;

	for (int path = 0; path < KV_PATH_COUNT; path++)
		if (totals->operations[path] > totals->operations[most])
			most = path;
	return totals->operations[most] ? kv_path_name((kv_path_t)most) : "";
}

void rows_take_loop(struct row *row, const struct config *config, enum loop loop, int round)
{
	const struct shared *shared = crew_shared();

	row->is_loop = true;
	row->sample_count = round + 1;
	for (unsigned i = 0; i < shared->slot_count; i++) {
		const struct slot *slot = &shared->slots[i];

		snprintf(row->transport, sizeof(row->transport), "%s", slot->transport[0]);
		row->operations += slot->operations;
		if (carries_value(loop))
			row->bytes += slot->operations * row->value_size;
		if (slot->time_ns)
			row->samples[round] +=
				(double)slot->operations * 1e9 / (double)slot->time_ns;
		if (loop == LOOP_IDLE)
			continue;
		if (slot->latency.count)
			histogram_merge(&row->latency, &slot->latency);
		for (int path = 0; path < KV_PATH_COUNT; path++)
			row->totals.operations[path] += slot->totals.operations[path];
		row->totals.round_trips += slot->totals.round_trips;
		row->totals.stale_locations += slot->totals.stale_locations;
		row->totals.torn_reads += slot->totals.torn_reads;
		row->totals.reconnects += slot->totals.reconnects;
	}
	row->path = main_path(&row->totals);
	if (loop == LOOP_ASYNC_GET || loop == LOOP_ASYNC_PUT)
		row->window = config->window;
	else if (loop == LOOP_GET_MANY || loop == LOOP_PUT_MANY)
		row->window = config->batch;
}

/* The row of this operation and path; new ones go where they belong, by operation. */
static struct row *row_of(struct rows *rows, int first, enum store_kind store, const char *op,
			  const char *path)
{
	for (int i = first; i < rows->count; i++)
		if (rows->rows[i]->store == store && !strcmp(rows->rows[i]->op, op) &&
		    !strcmp(rows->rows[i]->path, path))
			return rows->rows[i];
	return rows_add(rows, store, op, path);
}

static void take_cell(struct row *row, const struct cell *cell, uint64_t time_ns, int round)
{
	row->operations += cell->latency.count;
	row->bytes += cell->bytes;
	if (time_ns)
		row->samples[round] += (double)cell->latency.count * 1e9 / (double)time_ns;
	histogram_merge(&row->latency, &cell->latency);
}

/* Errors have no path. They are told with the operation's first row. */
static void take_errors(struct row *row, const struct slot *slot, enum op op)
{
	row->misses += slot->misses[op];
	for (int kind = 0; kind < KIND_COUNT; kind++)
		row->errors[kind] += slot->errors[op][kind];
	if (*slot->first_error && !*row->first_error)
		memcpy(row->first_error, slot->first_error, sizeof(row->first_error));
}

static bool has_failed(const struct slot *slot, enum op op)
{
	for (int kind = 0; kind < KIND_COUNT; kind++)
		if (slot->errors[op][kind])
			return true;
	return false;
}

static struct row *first_row(struct rows *rows, int first, enum store_kind store, const char *op)
{
	for (int i = first; i < rows->count; i++)
		if (rows->rows[i]->store == store && !strcmp(rows->rows[i]->op, op))
			return rows->rows[i];
	return rows_add(rows, store, op, "");
}

/* The time that all threads together were at work. Threads that have a number of operations to do
 * do not end together, and with few cores not even work at the same time: their own rates must not
 * be added up. 0: they worked for the same time, and may. */
static uint64_t common_time_ns(const struct pass *pass)
{
	const struct shared *shared = crew_shared();
	uint64_t first = UINT64_MAX, last = 0;

	if (!pass->operations || pass->alone || shared->slot_count == 1)
		return 0;
	for (unsigned i = 0; i < shared->slot_count; i++) {
		const struct slot *slot = &shared->slots[i];

		if (!slot->last_ticks)
			continue;
		first = slot->first_ticks < first ? slot->first_ticks : first;
		last = slot->last_ticks > last ? slot->last_ticks : last;
	}
	return last > first ? clock_ticks_to_ns(last - first) : 0;
}

/* An operation, of all threads. A pass of one operation has its own name, such as async-get. */
static void take_op(struct rows *rows, int first, enum store_kind store, const char *name,
		    enum op op, uint64_t common_ns, int round)
{
	const struct shared *shared = crew_shared();

	for (int path = 0; path < KV_PATH_COUNT; path++)
		for (unsigned i = 0; i < shared->slot_count; i++) {
			const struct slot *slot = &shared->slots[i];

			if (slot->cells[op][path].latency.count)
				take_cell(row_of(rows, first, store, name,
						 path ? kv_path_name((kv_path_t)path) : ""),
					  &slot->cells[op][path],
					  common_ns ? common_ns : slot->time_ns, round);
		}
	for (unsigned i = 0; i < shared->slot_count; i++)
		if (shared->slots[i].misses[op] || has_failed(&shared->slots[i], op))
			take_errors(first_row(rows, first, store, name), &shared->slots[i], op);
}

void rows_take_pass(struct rows *rows, int first, const struct config *config,
		    const struct pass *pass, int contestant, size_t value_size, int round)
{
	const struct shared *shared = crew_shared();
	enum store_kind store = config->contestants[contestant].kind;
	uint64_t unbegun = 0, common_ns = common_time_ns(pass);

	for (int op = 0; op < OP_COUNT; op++) {
		bool is_named = plan_share(pass, (enum op)op) == 1 && !*config->workload;

		take_op(rows, first, store, is_named ? pass->name : op_names[op], (enum op)op,
			common_ns, round);
	}
	/* Nothing was answered in time: that is a row, too. */
	if (rows->count == first)
		rows_add(rows, store, pass->name, "");
	for (unsigned i = 0; i < shared->slot_count; i++)
		unbegun += shared->slots[i].unbegun;
	for (int i = first; i < rows->count; i++) {
		struct row *row = rows->rows[i];

		if (row->store != store)
			continue;
		row->value_size = value_size;
		row->window = pass->window;
		row->sample_count = round + 1;
		memcpy(row->transport, shared->slots[0].transport[contestant],
		       sizeof(row->transport));
	}
	rows->rows[first]->unbegun += unbegun;
}

void rows_sum(struct rows *rows, int first)
{
	const char *op;
	struct row *sum;
	int last = rows->count;

	if (last - first < 2)
		return;
	op = rows->rows[first]->op;
	for (int i = first; i < last; i++)
		if (strcmp(rows->rows[i]->op, op))
			op = "all";
	sum = rows_add(rows, rows->rows[first]->store, op, "all");
	sum->is_sum = true;
	sum->value_size = rows->rows[first]->value_size;
	sum->window = rows->rows[first]->window;
	sum->sample_count = rows->rows[first]->sample_count;
	memcpy(sum->transport, rows->rows[first]->transport, sizeof(sum->transport));
	for (int i = first; i < last; i++) {
		const struct row *row = rows->rows[i];

		sum->operations += row->operations;
		sum->bytes += row->bytes;
		sum->misses += row->misses;
		sum->unbegun += row->unbegun;
		for (int kind = 0; kind < KIND_COUNT; kind++)
			sum->errors[kind] += row->errors[kind];
		for (int round = 0; round < sum->sample_count; round++)
			sum->samples[round] += row->samples[round];
		if (*row->first_error && !*sum->first_error)
			memcpy(sum->first_error, row->first_error, sizeof(sum->first_error));
		histogram_merge(&sum->latency, &row->latency);
	}
}
