/*
 * What the three files of the harness share: the report, in memory that all processes of a test
 * see. The runner fills the upper part before it forks; whichever process of the test fails first
 * writes the reason.
 */
#ifndef TESTS_HARNESS_INTERNAL_H
#define TESTS_HARNESS_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define REASON_SIZE  1024
#define TMPDIR_SIZE  96
#define SKIPPED_EXIT 77

enum report_state {
	REPORT_RUNNING,
	REPORT_CLAIMED, /* a reason is being written */
	REPORT_FAILED,
	REPORT_SKIPPED,
};

struct report {
	uint64_t seed;
	uint64_t deadline_ns;
	char tmpdir[TMPDIR_SIZE];
	atomic_bool seed_used;
	atomic_int state;
	char reason[REASON_SIZE];
};

/* Set while a test runs. */
extern struct report *test_report;

#endif
