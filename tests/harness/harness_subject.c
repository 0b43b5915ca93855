/* Tests that go wrong on purpose. harness_test.c runs them one by one and looks at the report. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "harness/test.h"

static void passes(void)
{
	CHECK(true);
}

static void fails_check(void)
{
	CHECK(1 > 2);
}

static void fails_eq(void)
{
	CHECK_EQ(2 + 2, -5);
}

static void fails_eq_sign(void)
{
	CHECK_EQ(UINT64_MAX, -1);
}

static void fails_str(void)
{
	CHECK_STR("cat\nfish", "dog");
}

static void fails_contains(void)
{
	CHECK_CONTAINS("haystack", "needle");
}

static void fails_mem(void)
{
	CHECK_MEM("abcd", "abxx", 4);
}

static void fails_ok(void)
{
	CHECK_OK(error_set(RMR_REFUSED, "nobody is here"));
}

static void fails_status(void)
{
	CHECK_STATUS(error_set(RMR_REFUSED, "nobody is here"), RMR_TIMEOUT);
}

static void crashes(void)
{
	raise(SIGKILL);
}

static void exits(void)
{
	_exit(3);
}

static void hangs(void)
{
	for (;;)
		pause();
}

static void hang_child(void *arg)
{
	(void)arg;
	hangs();
}

/* Leaves its process number for the test that checks that it is gone. */
static void leave_pid(pid_t pid)
{
	const char *path = getenv("SUBJECT_PID_FILE");
	FILE *file = path != NULL ? fopen(path, "w") : NULL;

	if (file != NULL) {
		fprintf(file, "%d", (int)pid);
		fclose(file);
	}
}

static void hangs_as_group(void)
{
	leave_pid(test_spawn(hang_child, NULL));
	hangs();
}

static void leaves_orphan(void)
{
	leave_pid(test_spawn(hang_child, NULL));
}

static void failing_child(void *arg)
{
	(void)arg;
	CHECK_EQ(1, 2);
}

static void child_fails(void)
{
	test_wait(test_spawn(failing_child, NULL));
}

/* The parent does not look: the failure counts all the same, and long before the time is over. */
static void child_fails_unseen(void)
{
	test_spawn(failing_child, NULL);
	hangs();
}

static void skips(void)
{
	TEST_SKIP("no %s here", "hardware");
}

static void fails_with_seed(void)
{
	struct test_rng rng;

	test_rng_init(&rng, 0);
	TEST_FAIL("number %llu", (unsigned long long)test_rng_next(&rng));
}

static void leaves_files(void)
{
	char path[256];
	FILE *file;

	leave_pid(0);
	snprintf(path, sizeof(path), "%s/deep", test_tmpdir());
	if (mkdtemp(strcat(path, "-XXXXXX")) == NULL)
		TEST_FAIL("mkdtemp: %s", strerror(errno));
	strcat(path, "/file");
	file = fopen(path, "w");
	CHECK(file != NULL);
	fclose(file);
	TEST_FAIL("in %s", test_tmpdir());
}

/* The following three are caught by the sanitizers, if they are there. */
static void *volatile leaked;

static void leaks(void)
{
	leaked = malloc(100);
	leaked = NULL;
}

static void overflows(void)
{
	volatile char *data = malloc(10);
	volatile int index = 10;

	data[index] = 1;
	free((void *)data);
}

static int raced;
static bool raced_once;

static void *race(void *arg)
{
	raced++;
	__atomic_store_n(&raced_once, true, __ATOMIC_RELAXED);
	return arg;
}

/*
 * The accesses come one after the other, with nothing that orders them: the relaxed flag does not.
 * Were they to come at the same instant, ThreadSanitizer could miss them: each thread would look
 * for the other's mark before either has left one.
 */
static void races(void)
{
	pthread_t thread;

	CHECK_EQ(pthread_create(&thread, NULL, race, NULL), 0);
	while (!__atomic_load_n(&raced_once, __ATOMIC_RELAXED))
		usleep(100);
	raced++;
	pthread_join(thread, NULL);
}

static const struct test tests[] = {
	{"passes", passes},
	{"passes_slowly", passes, TEST_SLOW},
	{"fails_check", fails_check},
	{"plain_fails_eq", fails_eq},
	{"sign_fails_eq", fails_eq_sign},
	{"fails_str", fails_str},
	{"fails_contains", fails_contains},
	{"fails_mem", fails_mem},
	{"fails_ok", fails_ok},
	{"fails_status", fails_status},
	{"crashes", crashes},
	{"exits", exits},
	{"hangs_alone", hangs, 0, 1},
	{"group_hangs", hangs_as_group, 0, 1},
	{"leaves_orphan", leaves_orphan},
	{"child_fails", child_fails},
	{"unseen_child", child_fails_unseen},
	{"skips", skips},
	{"seed", fails_with_seed},
	{"leaves_files", leaves_files},
	{"leaks", leaks},
	{"overflows", overflows},
	{"races", races},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "harness_subject", tests, TEST_COUNT(tests));
}
