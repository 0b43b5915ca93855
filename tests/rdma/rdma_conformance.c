/*
 * The easy library as <remora/rdma.h> promises it, tried by one device.
 *
 *	rdma_conformance --provider shm|tcp|verbs:rxe0|... [--host ADDRESS]
 *
 * and the harness's own options. Server and clients are always separate processes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "fixture.h"

#define MAX_TESTS 256

static const struct test *const tables[] = {
	connect_tests, message_tests, memory_tests, misuse_tests,  callback_tests,
	death_tests,   ends_tests,    many_tests,   hostile_tests,
};

static int take_options(int argc, char **argv)
{
	const struct {
		const char *name;
		const char **value;
	} options[] = {
		{"--provider", &setup.device},
		{"--host", &setup.host},
	};
	int from, to = 1;
	size_t i;

	for (from = 1; from < argc; from++) {
		for (i = 0; i < TEST_COUNT(options); i++)
			if (strcmp(argv[from], options[i].name) == 0)
				break;
		if (i == TEST_COUNT(options)) {
			argv[to++] = argv[from];
			continue;
		}
		if (++from == argc) {
			fprintf(stderr, "%s needs a value\n", options[i].name);
			exit(2);
		}
		*options[i].value = argv[from];
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
	argc = take_options(argc, argv);
	if (!setup.device)
		setup.device = "shm";
	for (size_t i = 0; i < TEST_COUNT(tables); i++)
		for (const struct test *test = tables[i]; test->name && count < MAX_TESTS; test++)
			tests[count++] = *test;
	return test_main(argc, argv, "rdma_conformance", tests, count);
}
