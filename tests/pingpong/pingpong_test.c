/*
 * What <remora/pingpong.h> promises, tried on one device.
 *
 *	pingpong_test --provider shm|tcp|verbs|... [--host ADDRESS]
 *
 * and the harness's own options. The same tests run on every device, always between separate
 * processes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "ends.h"

#define MAX_TESTS 64

static const struct test *const tables[] = {packet_tests, memory_tests, client_tests, failure_tests,
					    hostile_tests};

/* Takes our options out of argv and leaves the harness's. */
static int take_options(int argc, char **argv)
{
	int to = 1;

	for (int from = 1; from < argc; from++) {
		const char **value = strcmp(argv[from], "--provider") == 0 ? &fixture.device
				     : strcmp(argv[from], "--host") == 0   ? &fixture.host
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
	if (!fixture.host && strcmp(fixture.device, "shm") != 0)
		fixture.host = "127.0.0.1";
	unsetenv("REMORA_RDMA_DEVICE");
	for (size_t i = 0; i < TEST_COUNT(tables); i++)
		for (const struct test *test = tables[i]; test->name && count < MAX_TESTS; test++)
			tests[count++] = *test;
	return test_main(argc, argv, "pingpong_test", tests, count);
}
