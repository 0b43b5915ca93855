/*
 * The checker's frame: operations sorted by key, one key after the other, and the report.
 */
#include "checker.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "checker_internal.h"

void report_add(struct checker_report *report, const char *format, ...)
{
	size_t used = strlen(report->text);
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(report->text + used, sizeof(report->text) - used, format, arguments);
	va_end(arguments);
}

void report_add_op(struct checker_report *report, const char *before, const struct history_op *op,
		   uint64_t origin_ns)
{
	char text[400];

	history_describe(op, origin_ns, text, sizeof(text));
	report_add(report, "%s%s\n", before, text);
}

static int compare_ops(const void *a, const void *b)
{
	const struct history_op *x = *(const struct history_op *const *)a;
	const struct history_op *y = *(const struct history_op *const *)b;

	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	return (x->invoke_ns > y->invoke_ns) - (x->invoke_ns < y->invoke_ns);
}

static bool collect(const struct history *history, struct op_list *list,
		    struct checker_report *report)
{
	*list = (struct op_list){.origin_ns = HISTORY_NEVER};
	list->ops = calloc(history_count(history) + 1, sizeof(*list->ops));
	if (!list->ops)
		return false;
	for (uint32_t i = 0; i < history->processes; i++) {
		const struct history_segment *segment = &history->segments[i];
		uint32_t count = atomic_load(&segment->count);

		for (uint32_t j = 0; j < count; j++) {
			list->ops[list->count++] = &segment->ops[j];
			report->unknown += history_is_unknown(&segment->ops[j]);
			if (segment->ops[j].invoke_ns < list->origin_ns)
				list->origin_ns = segment->ops[j].invoke_ns;
		}
	}
	report->operations = list->count;
	qsort(list->ops, list->count, sizeof(*list->ops), compare_ops);
	return true;
}

static enum checker_verdict search_key(const struct op_list *key_ops, uint64_t max_states,
				       struct checker_report *report)
{
	struct plan plan;
	enum checker_verdict verdict;

	report->key = key_ops->ops[0]->key;
	if (!plan_init(&plan, key_ops)) {
		report_add(report, "no memory\n");
		return CHECKER_GAVE_UP;
	}
	verdict = search_run(&plan, max_states, report);
	plan_fini(&plan);
	return verdict;
}

/* A violation counts for more than a key with which it gave up. */
static enum checker_verdict search_all(const struct op_list *all, uint64_t max_states,
				       struct checker_report *report)
{
	enum checker_verdict verdict = CHECKER_OK;
	uint32_t key = 0;

	for (size_t begin = 0, end; begin < all->count; begin = end) {
		struct op_list part = {.ops = &all->ops[begin], .origin_ns = all->origin_ns};
		enum checker_verdict here;

		for (end = begin; end < all->count && all->ops[end]->key == part.ops[0]->key;)
			end++;
		part.count = end - begin;
		here = search_key(&part, max_states, report);
		if (here == CHECKER_VIOLATION)
			return here;
		if (here == CHECKER_GAVE_UP) {
			verdict = here;
			key = part.ops[0]->key;
		}
	}
	report->key = key;
	return verdict;
}

enum checker_verdict checker_run(const struct history *history,
				 const struct checker_options *options,
				 struct checker_report *report)
{
	static const struct checker_options defaults;
	struct op_list all;

	if (!options)
		options = &defaults;
	*report = (struct checker_report){.verdict = CHECKER_GAVE_UP};
	if (!collect(history, &all, report)) {
		report_add(report, "no memory\n");
		return CHECKER_GAVE_UP;
	}
	report->verdict = CHECKER_OK;
	if (!options->search_only)
		report->verdict = versions_check(&all, report);
	if (report->verdict == CHECKER_OK)
		report->verdict = search_all(
			&all, options->max_states ? options->max_states : CHECKER_MAX_STATES,
			report);
	free(all.ops);
	return report->verdict;
}
