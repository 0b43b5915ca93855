/*
 * Domains: what <remora/domains.h> promises, on the devices that are given.
 *
 *	domains_test [--device NAME [--address ADDRESS]]... [--large-kib N]
 *
 * and the harness's own options (--list, --filter, --fast). Always between separate processes.
 * --address is where the device before it listens: "10.0.0.1:0"; it need not be given for shm and
 * tcp. --large-kib is for slow machines. In a guest with two adapters:
 *
 *	domains_test --device verbs:rxe0 --address 10.0.0.1:0 \
 *		--device verbs:rxe1 --address 10.1.0.1:0 --large-kib 1024
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "side.h"

#define MAX_TESTS 64

static const struct test *const tables[] = {
	shape_tests, work_tests, caller_tests, raw_tests, end_tests, wait_tests,
};

static void misused(const char *option)
{
	fprintf(stderr, "%s cannot be used like this; see the head of domains_test.c\n", option);
	exit(2);
}

static void take_option(const char *option, const char *value)
{
	if (!value)
		misused(option);
	if (strcmp(option, "--device") == 0 && setup.count < RMR_DOMAINS_MAX)
		setup.devices[setup.count++] = value;
	else if (strcmp(option, "--address") == 0 && setup.count > 0)
		setup.addresses[setup.count - 1] = value;
	else if (strcmp(option, "--large-kib") == 0 && atoi(value) >= 1024)
		setup.large = (size_t)atoi(value) * KIB;
	else
		misused(option);
}

/* Takes our options out of argv and leaves the harness's. */
static int take_options(int argc, char **argv)
{
	int to = 1;

	for (int from = 1; from < argc; from++) {
		if (strcmp(argv[from], "--device") == 0 || strcmp(argv[from], "--address") == 0 ||
		    strcmp(argv[from], "--large-kib") == 0) {
			take_option(argv[from], argv[from + 1]);
			from++;
		} else {
			argv[to++] = argv[from];
		}
	}
	argv[to] = NULL;
	return to;
}

int main(int argc, char **argv)
{
	static struct test tests[MAX_TESTS];
	size_t count = 0;

	if (getenv("REMORA_LOG") == NULL)
		log_set_level(LOG_LEVEL_ERROR); /* the warnings here are what a test is about */
	setup.large = 10 * MIB;
	argc = take_options(argc, argv);
	if (setup.count == 0)
		setup.devices[setup.count++] = "shm";
	for (size_t i = 0; i < TEST_COUNT(tables); i++)
		for (const struct test *test = tables[i]; test->name && count < MAX_TESTS; test++)
			tests[count++] = *test;
	return test_main(argc, argv, "domains", tests, count);
}
