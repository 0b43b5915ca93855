/*
 * The first pass: what must hold of values and versions in any order of the operations. It takes a
 * few sorts, finds most of what can be wrong, and names the operations that do not fit together.
 *
 *  - What was read was put, under the same key, before the get returned, and was not refused.
 *  - No version is told of two puts, of two keys, of two values, or of a value and a counter; no
 *    value is told with two versions. A version is replaced once, and not seen afterwards.
 *  - In real time versions of a key never go back, and each put makes a greater one. Only a delete
 *    begins anew: the store deals out versions by blocks, and looks at the one that is replaced.
 *    So only operations are compared between which no delete can have come.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "checker_internal.h"

/* A version that an operation was told, or proved by its success. */
struct sighting {
	uint64_t version;
	const struct history_op *op;
	bool is_new; /* it made that version */
	bool is_end; /* it replaced or deleted that version */
};

/* A put, by the id of its value. */
struct put {
	uint64_t id;
	uint64_t version; /* told by itself, or by those who saw its value; 0: by none */
	const struct history_op *op;
};

struct pass {
	const struct op_list *all;
	struct checker_report *report;
	struct put *puts;
	size_t put_count;
	struct sighting *sightings;
	size_t sighting_count;
};

static int compare_u64(uint64_t a, uint64_t b)
{
	return (a > b) - (a < b);
}

static enum checker_verdict complain(const struct pass *pass, const char *what,
				     const struct history_op *first,
				     const struct history_op *second)
{
	pass->report->key = second->key;
	report_add(pass->report, "%s:\n", what);
	if (first)
		report_add_op(pass->report, "    ", first, pass->all->origin_ns);
	report_add_op(pass->report, "    ", second, pass->all->origin_ns);
	return CHECKER_VIOLATION;
}

/* ------------------------------------------------------------------------------------------
 * Values
 */

static int compare_puts(const void *a, const void *b)
{
	return compare_u64(((const struct put *)a)->id, ((const struct put *)b)->id);
}

static enum checker_verdict collect_puts(struct pass *pass)
{
	for (size_t i = 0; i < pass->all->count; i++) {
		const struct history_op *op = pass->all->ops[i];

		if (op_is_put(op))
			pass->puts[pass->put_count++] = (struct put){
				op->argument, op->status == KV_OK ? op->version : 0, op};
	}
	qsort(pass->puts, pass->put_count, sizeof(*pass->puts), compare_puts);
	for (size_t i = 1; i < pass->put_count; i++) {
		if (pass->puts[i - 1].id == pass->puts[i].id) {
			complain(pass, "two puts have the same value, which cannot be checked",
				 pass->puts[i - 1].op, pass->puts[i].op);
			return CHECKER_GAVE_UP;
		}
	}
	return CHECKER_OK;
}

static enum checker_verdict check_read(struct pass *pass, const struct history_op *get)
{
	struct put key = {.id = get->found};
	struct put *put =
		bsearch(&key, pass->puts, pass->put_count, sizeof(*pass->puts), compare_puts);

	if (!put)
		return complain(pass, "a value was read that nobody put", NULL, get);
	if (put->op->key != get->key)
		return complain(pass, "a value of another key was read", put->op, get);
	if (get->return_ns < put->op->invoke_ns)
		return complain(pass, "a value was read before it was put", get, put->op);
	if (!history_is_unknown(put->op) && put->op->status != KV_OK)
		return complain(pass, "a value was read that was refused", put->op, get);
	if (put->version && get->version && put->version != get->version)
		return complain(pass, "a value has two versions", put->op, get);
	if (get->version)
		put->version = get->version;
	return CHECKER_OK;
}

static enum checker_verdict check_values(struct pass *pass)
{
	enum checker_verdict verdict = collect_puts(pass);

	for (size_t i = 0; verdict == CHECKER_OK && i < pass->all->count; i++)
		if (op_saw_value(pass->all->ops[i]))
			verdict = check_read(pass, pass->all->ops[i]);
	return verdict;
}

/* ------------------------------------------------------------------------------------------
 * Versions
 */

static void collect_sightings(struct pass *pass)
{
	for (size_t i = 0; i < pass->all->count; i++) {
		const struct history_op *op = pass->all->ops[i];
		bool is_new = op_is_put(op) && op->status == KV_OK;
		bool is_told = is_new || op->status == KV_EXISTS || op->status == KV_CAS_FAILED ||
			       (op->kind == HISTORY_GET && op->status == KV_OK);

		if (history_is_unknown(op))
			continue;
		if (op->version && is_told && op->kind != HISTORY_COUNTER_CAS)
			pass->sightings[pass->sighting_count++] =
				(struct sighting){op->version, op, .is_new = is_new};
		if (op->status == KV_OK &&
		    (op->kind == HISTORY_CAS || op->kind == HISTORY_DELETE_IF_VERSION))
			pass->sightings[pass->sighting_count++] =
				(struct sighting){op->expected, op, .is_end = true};
	}
}

static int compare_versions(const void *a, const void *b)
{
	return compare_u64(((const struct sighting *)a)->version,
			   ((const struct sighting *)b)->version);
}

/* What the sighting says that the version is of. False: it does not. */
static bool tells_content(const struct sighting *sighting, unsigned *kind, uint64_t *content)
{
	const struct history_op *op = sighting->op;

	*kind = HISTORY_FOUND_VALUE;
	*content = op->argument;
	if (sighting->is_new)
		return true;
	if (op->kind != HISTORY_GET || op->found_kind == HISTORY_FOUND_SOMETHING)
		return false;
	*kind = op->found_kind;
	*content = *kind == HISTORY_FOUND_VALUE ? op->found : 0;
	return true;
}

/* Whether two sightings of one version fit together. */
static enum checker_verdict check_pair(const struct pass *pass, const struct sighting *a,
				       const struct sighting *b)
{
	unsigned kind_a, kind_b;
	uint64_t content_a, content_b;

	if (a->is_new && b->is_new)
		return complain(pass, "two puts made the same version", a->op, b->op);
	if (a->is_end && b->is_end)
		return complain(pass, "two operations replaced the same version", a->op, b->op);
	if (a->op->key != b->op->key)
		return complain(pass, "two keys have the same version", a->op, b->op);
	if (tells_content(a, &kind_a, &content_a) && tells_content(b, &kind_b, &content_b) &&
	    (kind_a != kind_b || content_a != content_b))
		return complain(pass, "two things have the same version", a->op, b->op);
	if (a->is_new && b->op->return_ns < a->op->invoke_ns)
		return complain(pass, "a version was seen before it was made", b->op, a->op);
	if (a->is_end && a->op->return_ns < b->op->invoke_ns)
		return complain(pass, "a version was seen after it was replaced", a->op, b->op);
	return CHECKER_OK;
}

/* All sightings of a version, from begin to end: against the put that made it, the operation that
 * replaced it, and one that tells what it is. */
static enum checker_verdict check_version(const struct pass *pass, size_t begin, size_t end)
{
	const struct sighting *witnesses[3] = {NULL};
	enum checker_verdict verdict = CHECKER_OK;

	for (size_t i = begin; i < end; i++) {
		const struct sighting *at = &pass->sightings[i];
		uint64_t content;
		unsigned kind;

		if (at->is_new && witnesses[0])
			return check_pair(pass, witnesses[0], at);
		if (at->is_end && witnesses[1])
			return check_pair(pass, witnesses[1], at);
		if (at->is_new)
			witnesses[0] = at;
		if (at->is_end)
			witnesses[1] = at;
		if (tells_content(at, &kind, &content) || i == begin)
			witnesses[2] = at;
	}
	for (size_t i = begin; i < end && verdict == CHECKER_OK; i++)
		for (int j = 0; j < 3 && verdict == CHECKER_OK; j++)
			if (witnesses[j] && witnesses[j] != &pass->sightings[i])
				verdict = check_pair(pass, witnesses[j], &pass->sightings[i]);
	return verdict;
}

static enum checker_verdict check_identity(struct pass *pass)
{
	enum checker_verdict verdict = CHECKER_OK;

	qsort(pass->sightings, pass->sighting_count, sizeof(*pass->sightings), compare_versions);
	for (size_t begin = 0, end; verdict == CHECKER_OK && begin < pass->sighting_count;
	     begin = end) {
		for (end = begin; end < pass->sighting_count &&
				  pass->sightings[end].version == pass->sightings[begin].version;)
			end++;
		verdict = check_version(pass, begin, end);
	}
	return verdict;
}

/* ------------------------------------------------------------------------------------------
 * Versions of a key in real time
 */

/* The sightings of a key, and its deletes. */
struct timeline {
	const struct sighting **by_invoke, **by_return;
	size_t count;
	uint64_t *delete_invokes, *delete_returns; /* sorted */
	size_t delete_count;
	const struct sighting **highest; /* by deletes that had returned */
};

static int compare_times(const void *a, const void *b)
{
	return compare_u64(*(const uint64_t *)a, *(const uint64_t *)b);
}

static int compare_invokes(const void *a, const void *b)
{
	return compare_u64((*(const struct sighting *const *)a)->op->invoke_ns,
			   (*(const struct sighting *const *)b)->op->invoke_ns);
}

static int compare_returns(const void *a, const void *b)
{
	return compare_u64((*(const struct sighting *const *)a)->op->return_ns,
			   (*(const struct sighting *const *)b)->op->return_ns);
}

/* How many of the sorted times are before this one. */
static size_t count_before(const uint64_t *times, size_t count, uint64_t time)
{
	size_t low = 0;

	while (low < count) {
		size_t middle = (low + count) / 2;

		if (times[middle] < time)
			low = middle + 1;
		else
			count = middle;
	}
	return low;
}

/*
 * No delete can have come between a and b if all that were invoked before b returned had returned
 * before a was invoked. So the highest version that was seen is kept apart for each number of
 * deletes that had returned before its operation was invoked.
 */
static enum checker_verdict sweep(const struct pass *pass, struct timeline *line)
{
	size_t returned = 0;

	for (size_t i = 0; i < line->count; i++) {
		const struct sighting *at = line->by_invoke[i], *before;

		for (; returned < line->count &&
		       line->by_return[returned]->op->return_ns < at->op->invoke_ns;
		     returned++) {
			const struct sighting *old = line->by_return[returned];
			size_t deletes = count_before(line->delete_returns, line->delete_count,
						      old->op->invoke_ns);

			if (!line->highest[deletes] ||
			    line->highest[deletes]->version < old->version)
				line->highest[deletes] = old;
		}
		before = line->highest[count_before(line->delete_invokes, line->delete_count,
						    at->op->return_ns + 1)];
		if (before && (before->version > at->version ||
			       (before->version == at->version && at->is_new)))
			return complain(pass, "a version went back", before->op, at->op);
	}
	return CHECKER_OK;
}

static void fill_deletes(const struct pass *pass, size_t begin, size_t end, struct timeline *line)
{
	for (size_t i = begin; i < end; i++) {
		const struct history_op *op = pass->all->ops[i];
		bool is_unknown = history_is_unknown(op);

		if (!op_is_delete(op) || (!is_unknown && op->status != KV_OK))
			continue;
		line->delete_invokes[line->delete_count] = op->invoke_ns;
		line->delete_returns[line->delete_count++] =
			is_unknown ? HISTORY_NEVER : op->return_ns;
	}
	qsort(line->delete_invokes, line->delete_count, sizeof(uint64_t), compare_times);
	qsort(line->delete_returns, line->delete_count, sizeof(uint64_t), compare_times);
}

/* The operations from begin to end are those of a key. */
static enum checker_verdict check_key(const struct pass *pass, size_t begin, size_t end)
{
	uint32_t key = pass->all->ops[begin]->key;
	size_t room = 2 * (end - begin) + 1;
	struct timeline line = {
		.by_invoke = calloc(room, sizeof(*line.by_invoke)),
		.by_return = calloc(room, sizeof(*line.by_return)),
		.delete_invokes = calloc(room, sizeof(uint64_t)),
		.delete_returns = calloc(room, sizeof(uint64_t)),
		.highest = calloc(room, sizeof(*line.highest)),
	};
	enum checker_verdict verdict = CHECKER_GAVE_UP;

	if (line.by_invoke && line.by_return && line.delete_invokes && line.delete_returns &&
	    line.highest) {
		for (size_t i = 0; i < pass->sighting_count; i++)
			if (pass->sightings[i].op->key == key)
				line.by_invoke[line.count++] = &pass->sightings[i];
		memcpy(line.by_return, line.by_invoke, line.count * sizeof(*line.by_return));
		qsort(line.by_invoke, line.count, sizeof(*line.by_invoke), compare_invokes);
		qsort(line.by_return, line.count, sizeof(*line.by_return), compare_returns);
		fill_deletes(pass, begin, end, &line);
		verdict = sweep(pass, &line);
	}
	free(line.by_invoke);
	free(line.by_return);
	free(line.delete_invokes);
	free(line.delete_returns);
	free(line.highest);
	return verdict;
}

enum checker_verdict versions_check(const struct op_list *all, struct checker_report *report)
{
	struct pass pass = {
		.all = all,
		.report = report,
		.puts = calloc(all->count + 1, sizeof(*pass.puts)),
		.sightings = calloc(2 * all->count + 1, sizeof(*pass.sightings)),
	};
	enum checker_verdict verdict = CHECKER_GAVE_UP;

	if (pass.puts && pass.sightings) {
		verdict = check_values(&pass);
		collect_sightings(&pass);
	}
	if (verdict == CHECKER_OK)
		verdict = check_identity(&pass);
	for (size_t begin = 0, end; verdict == CHECKER_OK && begin < all->count; begin = end) {
		for (end = begin; end < all->count && all->ops[end]->key == all->ops[begin]->key;)
			end++;
		verdict = check_key(&pass, begin, end);
	}
	free(pass.puts);
	free(pass.sightings);
	return verdict;
}
