/*
 * The mesh as <remora/mesh.h> promises it, tried on one device, always between processes.
 *
 *	mesh_conformance --provider shm|tcp|verbs|fault:shm|... [--host ADDRESS]
 *			 [--fault-plan PLAN]
 *
 * and the harness's own options (--list, --filter, --fast).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "fixture.h"

#define MAX_TESTS 128

static const struct test *const tables[] = {
	basic_tests, connect_tests, traffic_tests, memory_tests,
	death_tests, hostile_tests, many_tests,
};

static const char *fault_plan;

/* Takes our options out of argv and leaves the harness's. */
static int take_options(int argc, char **argv)
{
	int to = 1;

	for (int from = 1; from < argc; from++) {
		const char **value = strcmp(argv[from], "--provider") == 0     ? &fixture.device
				     : strcmp(argv[from], "--host") == 0       ? &fixture.host
				     : strcmp(argv[from], "--fault-plan") == 0 ? &fault_plan
									       : NULL;

		if (!value) {
			argv[to++] = argv[from];
			continue;
		}
		if (++from == argc) {
			fprintf(stderr, "%s needs a value\n", argv[from - 1]);
			exit(2);
		}
		*value = argv[from];
	}
	argv[to] = NULL;
	return to;
}

int main(int argc, char **argv)
{
	static struct test tests[MAX_TESTS];
	size_t count = 0;

	if (!getenv("REMORA_LOG"))
		log_set_level(LOG_LEVEL_ERROR); /* the warnings here are what a test is about */
	fixture.device = "shm";
	argc = take_options(argc, argv);
	if (fault_plan)
		setenv("REMORA_FAULT_PLAN", fault_plan, 1);
	for (size_t i = 0; i < TEST_COUNT(tables); i++)
		for (const struct test *test = tables[i]; test->name && count < MAX_TESTS; test++)
			tests[count++] = *test;
	return test_main(argc, argv, "mesh_conformance", tests, count);
}
