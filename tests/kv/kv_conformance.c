/*
 * The key-value service as kv.h promises it, tried by one device.
 *
 *	kv_conformance --provider shm|tcp|fault:tcp|... [--host ADDRESS] [--fault-plan PLAN]
 *
 * and the harness's own options. Server and clients are always separate processes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <remora/fabric.h>

#include "base/log.h"
#include "fixture.h"

#define MAX_TESTS 256

static const struct test *const tables[] = {
	basic_tests, counter_tests, size_tests,	    many_tests,	  failure_tests,
	life_tests,  trust_tests,   progress_tests, handle_tests,
};

static int take_options(int argc, char **argv)
{
	const struct {
		const char *name;
		const char **value;
	} options[] = {
		{"--provider", &setup.device},
		{"--host", &setup.host},
		{"--fault-plan", &setup.fault_plan},
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

/* Opens the device once before the tests, which run in copies of this process: some load libraries
 * that take their time. */
static void warm_up(void)
{
	struct rmr_device_options options = {.fault_plan = setup.fault_plan};
	struct rmr_device *device;

	/* By verbs libfabric keeps files open that the kernel does not let a copy use. */
	if (strncmp(setup.device, "ofi", 3) != 0 || strstr(setup.device, "verbs"))
		return;
	if (rmr_device_open(setup.device, &options, &device) == RMR_OK)
		rmr_device_close(device);
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
	if (!setup.host && !setup_is_shm())
		setup.host = "127.0.0.1";
	warm_up();
	for (size_t i = 0; i < TEST_COUNT(tables); i++)
		for (const struct test *test = tables[i]; test->name && count < MAX_TESTS; test++)
			tests[count++] = *test;
	return test_main(argc, argv, "kv_conformance", tests, count);
}
