/*
 * kv-bench: how fast is a kv-server, seen from the client library?
 *
 *	kv-bench [--url URL] [OPERATION...]
 *	kv-bench [--url URL] --workload NAME
 *
 * Starts the servers that it needs, forks the clients, and has them measure by turns: every round
 * measures everything once, in the opposite order of the round before, so that whatever changes on
 * the machine meanwhile meets all of it.
 *
 * The exit code says what went wrong: see enum bench_exit.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/size.h"
#include "rows.h"

/* All other rows are of one size. */
static const char *title_of(const struct config *config, const char *name, int contestant,
			    char title[64])
{
	snprintf(title, 64, "%s%s%s", name, config->contestant_count > 1 ? ", " : "",
		 config->contestant_count > 1 ? store_names[config->contestants[contestant].kind]
					      : "");
	return title;
}

/* ------------------------------------------------------------------------------------------
 * Tight loops
 */

/* Who measures what the idle clients cost wants to know when they are all there. */
static enum rmr_status be_idle(const struct config *config, struct row *row)
{
	struct order order = {.kind = ORDER_LOOP, .loop = LOOP_IDLE};
	enum rmr_status status = crew_order(&order, config->clients, NULL);

	if (status != RMR_OK)
		return status;
	rows_take_loop(row, config, LOOP_IDLE, 0);
	report_row(config, row);
	if (config->output == OUTPUT_TABLE) {
		printf("idle: %u connected by %s\n", config_slots(config), row->transport);
		fflush(stdout);
	}
	order.duration_ns = config->duration_ns;
	return crew_order(&order, config->clients, "idle");
}

static enum rmr_status prepare_loops(const struct config *config)
{
	struct order order = {.kind = ORDER_FILL, .pass.operations = config->keys};
	enum rmr_status status = RMR_OK;

	if (config->fill)
		status = crew_order(&order, 1, "filling");
	order = (struct order){.kind = ORDER_WARM};
	if (status == RMR_OK && config->cached)
		status = crew_order(&order, config->clients, "warming up");
	return status;
}

static enum rmr_status measure_loops(const struct config *config, struct rows *rows, size_t size)
{
	enum rmr_status status = prepare_loops(config);
	struct row *of_loops[LOOP_COUNT] = {NULL};
	int first = rows->count;

	for (int loop = 0; loop < LOOP_IDLE; loop++) {
		if (!config->loops[loop])
			continue;
		of_loops[loop] = rows_add(rows, STORE_KV, loop_names[loop], "");
		of_loops[loop]->value_size = size;
	}
	for (int round = 0; status == RMR_OK && round < config->rounds; round++) {
		for (int at = 0; status == RMR_OK && at < LOOP_IDLE; at++) {
			int loop = round % 2 ? LOOP_IDLE - 1 - at : at;
			struct order order = {.kind = ORDER_LOOP,
					      .loop = (enum loop)loop,
					      .duration_ns = config->duration_ns};

			if (!config->loops[loop])
				continue;
			status = crew_order(&order, config->clients, loop_names[loop]);
			if (status == RMR_OK)
				rows_take_loop(of_loops[loop], config, (enum loop)loop, round);
		}
	}
	if (status == RMR_OK && rows->count > first) {
		report_heading(config, NULL, rows->rows[first]);
		report_rows(config, rows, first);
	}
	if (status == RMR_OK && config->loops[LOOP_IDLE]) {
		struct rows idle = {0};

		status = be_idle(config, rows_add(&idle, STORE_KV, loop_names[LOOP_IDLE], ""));
		rows_fini(&idle);
	}
	return status;
}

/* ------------------------------------------------------------------------------------------
 * Mixes
 */

static enum rmr_status fill_stores(const struct config *config)
{
	struct order order = {.kind = ORDER_PASS};
	enum rmr_status status = RMR_OK;
	char title[64];

	for (int i = 0; config->fill && status == RMR_OK && i < config->contestant_count; i++) {
		order.contestant = i;
		order.pass = plan_fill(config);
		if (config->contestants[i].kind == STORE_GRPC)
			order.pass.window = 1;
		status = crew_order(&order, config->clients, title_of(config, "filling", i, title));
	}
	order = (struct order){.kind = ORDER_WARM};
	if (status == RMR_OK && config->cached)
		status = crew_order(&order, config->clients, "warming up");
	return status;
}

/* Moves all rows of one to the end of the other. */
static void append(struct rows *rows, struct rows *more)
{
	for (int i = 0; i < more->count; i++) {
		struct row *row = rows_add(rows, STORE_KV, "", "");

		*row = *more->rows[i];
	}
	rows_fini(more);
}

static enum rmr_status measure_pass(const struct config *config, const struct pass *pass,
				    struct rows *rows, size_t size)
{
	enum rmr_status status = RMR_OK;
	struct rows of_stores[STORE_COUNT] = {0};
	int first = rows->count, count = config->contestant_count;

	for (int round = 0; status == RMR_OK && round < config->rounds; round++) {
		for (int at = 0; status == RMR_OK && at < count; at++) {
			int i = round % 2 ? count - 1 - at : at;
			struct order order = {.kind = ORDER_PASS, .pass = *pass, .contestant = i};
			char title[64];

			status = crew_order(&order, pass->alone ? 1 : config->clients,
					    title_of(config, pass->name, i, title));
			if (status == RMR_OK)
				rows_take_pass(&of_stores[i], 0, config, pass, i, size, round);
		}
	}
	for (int i = 0; i < count; i++) {
		if (status == RMR_OK)
			rows_sum(&of_stores[i], 0);
		append(rows, &of_stores[i]);
	}
	if (status == RMR_OK && rows->count > first) {
		report_heading(config, pass, rows->rows[first]);
		report_rows(config, rows, first);
	}
	return status;
}

static enum rmr_status measure_size(const struct config *config, struct rows *rows, size_t size)
{
	struct order order = {.kind = ORDER_SIZE, .value_size = size};
	enum rmr_status status = crew_order(&order, config->clients, NULL);

	if (status != RMR_OK)
		return status;
	if (config->has_loops)
		return measure_loops(config, rows, size);
	status = fill_stores(config);
	for (int i = 0; status == RMR_OK && i < config->pass_count; i++)
		status = measure_pass(config, &config->passes[i], rows, size);
	return status;
}

/* Errors were counted, and the run went on; now they are told. */
static enum rmr_status tell_errors(const struct rows *rows)
{
	uint64_t errors = 0;
	const char *first = "";

	for (int i = 0; i < rows->count; i++) {
		errors += rows->rows[i]->is_sum ? 0 : row_errors(rows->rows[i]);
		if (!*first)
			first = rows->rows[i]->first_error;
	}
	if (!errors)
		return RMR_OK;
	return error_set(RMR_SYSTEM, "%llu operations failed; one of them: %s",
			 (unsigned long long)errors, first);
}

static enum rmr_status run(struct config *config, struct rows *rows)
{
	enum rmr_status status = config->plot ? plot_check(config->plot) : RMR_OK;

	if (status == RMR_OK)
		status = spawn_servers(config);
	if (status == RMR_OK)
		status = crew_start(config);
	config->is_connected = status == RMR_OK;
	if (status == RMR_OK)
		report_begin(config);
	for (int i = 0; status == RMR_OK && i < config->size_count; i++)
		status = measure_size(config, rows, config->value_sizes[i]);
	if (status != RMR_OK)
		return status;
	report_ratios(config, rows);
	if (config->plot)
		status = plot_write(config, rows);
	return status == RMR_OK ? tell_errors(rows) : status;
}

int main(int argc, char **argv)
{
	static struct config config;
	struct rows rows = {0};
	enum rmr_status status;

	bench_parse(argc, argv, &config);
	crew_take_signals();
	clock_ticks_per_us(); /* once, for all clients */
	status = run(&config, &rows);
	if (status != RMR_OK)
		fprintf(stderr, "kv-bench: %s\n",
			crew_is_interrupted() ? "interrupted" : rmr_error_message());
	crew_end(status != RMR_OK);
	if (!clean_up(&config) && status == RMR_OK)
		status = RMR_SYSTEM;
	spawn_end();
	rows_fini(&rows);
	if (status == RMR_OK)
		return BENCH_EXIT_OK;
	return status == RMR_INVALID ? BENCH_EXIT_USAGE : BENCH_EXIT_FAILED;
}
