/*
 * The test harness: a table of tests, each run in a process of its own.
 *
 *	static void test_push_pop(void)
 *	{
 *		CHECK(spsc_ring_push(&ring, &element));
 *		CHECK_EQ(spsc_ring_count(&ring), 1);
 *	}
 *
 *	static const struct test tests[] = {
 *		{"push_pop", test_push_pop},
 *		{"a_million_elements", test_million, TEST_SLOW, 120},
 *	};
 *
 *	int main(int argc, char **argv)
 *	{
 *		return test_main(argc, argv, "spsc_ring", tests, TEST_COUNT(tests));
 *	}
 *
 * Each test runs in a forked child that leads a process group; when the test ends or its time is
 * over the whole group is killed, so that no process outlives its test. A test passes when its
 * function returns. The program prints
 *
 *	ok push_pop (0 ms)
 *	FAIL pop_empty: ring_test.c:31: CHECK_EQ(count, 1): 0 != 1
 *	skip huge_pages: none are reserved
 *	1 passed, 1 failed, 1 skipped
 *
 * and exits 1 if something failed. Options: --list, --filter TEXT (tests whose name contains it),
 * --fast (leaves out those marked TEST_SLOW, which are then not counted).
 *
 * The checks may be used in any process and thread of the test: the one that fails ends its
 * process with exit code 1, its reason is reported, and the test has failed.
 */
#ifndef TESTS_HARNESS_TEST_H
#define TESTS_HARNESS_TEST_H

#include <remora/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Which sanitizers this is built with: gcc defines macros, clang answers __has_feature. */
#ifndef __has_feature
#define __has_feature(feature) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#define TEST_HAS_ASAN 1
#else
#define TEST_HAS_ASAN 0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
#define TEST_HAS_TSAN 1
#else
#define TEST_HAS_TSAN 0
#endif
#define TEST_HAS_SANITIZER (TEST_HAS_ASAN || TEST_HAS_TSAN)

/*
 * Time limits are multiplied by this, for sanitizers make code several times slower. So does an
 * emulated machine: the environment variable TEST_TIME_SCALE (1 to 100) is a further factor.
 */
#define TEST_TIME_FACTOR test_time_factor()
unsigned test_time_factor(void);

#define TEST_DEFAULT_TIMEOUT_S 60

/* Flags of a test. */
#define TEST_SLOW 1u /* left out with --fast */

struct test {
	const char *name;
	void (*function)(void);
	unsigned flags;
	unsigned timeout_s; /* 0: TEST_DEFAULT_TIMEOUT_S; multiplied by TEST_TIME_FACTOR */
};

#define TEST_COUNT(table) (sizeof(table) / sizeof((table)[0]))

/* Runs the tests as the command line says; returns main()'s exit code. */
int test_main(int argc, char **argv, const char *program, const struct test *tests, size_t count);

/*
 * Checks. Arguments are evaluated once.
 */
#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition))                                                                  \
			test_fail(__FILE__, __LINE__, "CHECK(%s)", #condition);                    \
	} while (0)

/* Any two integers, of whatever types; both are shown. They are compared as what they are: -1 is
 * not the largest unsigned number. */
#define CHECK_EQ(actual, expected)                                                                 \
	do {                                                                                       \
		__int128 check_actual = (actual);                                                  \
		__int128 check_expected = (expected);                                              \
		if (check_actual != check_expected)                                                \
			test_fail_eq(__FILE__, __LINE__, #actual, #expected, check_actual,         \
				     check_expected);                                              \
	} while (0)

#define CHECK_STR(actual, expected)                                                                \
	test_check_str(__FILE__, __LINE__, #actual, (actual), (expected))

/* That `part` occurs in the string `whole`. */
#define CHECK_CONTAINS(whole, part) test_check_contains(__FILE__, __LINE__, #whole, (whole), (part))

/* That two memory areas hold the same bytes; tells the first difference. */
#define CHECK_MEM(actual, expected, length)                                                        \
	test_check_mem(__FILE__, __LINE__, #actual, (actual), (expected), (length))

/* That a call returns RMR_OK; tells the status and rmr_error_message(). */
#define CHECK_OK(call) test_check_status(__FILE__, __LINE__, #call, (call), RMR_OK)

/* That a call returns this very status. */
#define CHECK_STATUS(call, expected)                                                               \
	test_check_status(__FILE__, __LINE__, #call, (call), (expected))

/* Fails in any case, with a message of its own. */
#define TEST_FAIL(...) test_fail(__FILE__, __LINE__, __VA_ARGS__)

/* Ends the test as skipped, with a reason. Only in the test's own process, not in a spawned one. */
#define TEST_SKIP(...) test_skip(__VA_ARGS__)

__attribute__((noreturn, cold, format(printf, 3, 4))) void test_fail(const char *file, int line,
								     const char *format, ...);
__attribute__((noreturn, cold, format(printf, 1, 2))) void test_skip(const char *format, ...);
__attribute__((noreturn, cold)) void test_fail_eq(const char *file, int line, const char *actual,
						  const char *expected, __int128 a, __int128 b);
void test_check_str(const char *file, int line, const char *what, const char *actual,
		    const char *expected);
void test_check_contains(const char *file, int line, const char *what, const char *whole,
			 const char *part);
void test_check_mem(const char *file, int line, const char *what, const void *actual,
		    const void *expected, size_t length);
void test_check_status(const char *file, int line, const char *what, enum rmr_status actual,
		       enum rmr_status expected);

/*
 * Processes.
 */

/* Runs fn(arg) in a forked process, which exits 0 after it and dies when this process dies. */
pid_t test_spawn(void (*fn)(void *), void *arg);

/* Waits until the process has ended, and checks that it exited with 0, before the test's time is
 * over. */
void test_wait(pid_t pid);

/* The same, within `timeout_ms` (multiplied by TEST_TIME_FACTOR). */
void test_wait_within(pid_t pid, int timeout_ms);

/* Kills the process with SIGKILL and reaps it. It may have ended by itself already. */
void test_kill(pid_t pid);

/*
 * A channel between two processes of a test. Open it before test_spawn(); both processes use both
 * ends' functions with the end that is theirs: TEST_PARENT or TEST_CHILD. Waiting has a deadline
 * (10 s, times TEST_TIME_FACTOR) and fails the test when it passes or the other side is gone.
 *
 *	test_pipe_open(&pipe);
 *	pid = test_spawn(child, &pipe);		child: test_signal(pipe, TEST_CHILD);
 *	test_await(&pipe, TEST_PARENT);
 */
enum test_side {
	TEST_PARENT,
	TEST_CHILD,
};

struct test_pipe {
	int fds[2];
};

void test_pipe_open(struct test_pipe *pipe);
void test_pipe_close(struct test_pipe *pipe);

/* Closes the other side's end in this process, so that the other's death shows as an end of file.
 * Optional. */
void test_pipe_take(struct test_pipe *pipe, enum test_side side);

void test_signal(struct test_pipe *pipe, enum test_side side);
void test_await(struct test_pipe *pipe, enum test_side side);
void test_send(struct test_pipe *pipe, enum test_side side, const void *data, size_t length);
void test_recv(struct test_pipe *pipe, enum test_side side, void *data, size_t length);

/*
 * Random numbers (splitmix64). The seed of a run is random, shown when a test that used it fails,
 * and set by the environment variable TEST_SEED. `stream` tells apart several generators.
 */
struct test_rng {
	uint64_t state;
};

void test_rng_init(struct test_rng *rng, uint64_t stream);
uint64_t test_rng_next(struct test_rng *rng);
/* A number from 0 to limit - 1; limit must not be 0. */
uint64_t test_rng_below(struct test_rng *rng, uint64_t limit);
void test_rng_fill(struct test_rng *rng, void *data, size_t length);

/*
 * This process and its surroundings.
 */

/* How many file descriptors are open, how many mappings there are. For leak tests. */
int test_open_fds(void);
int test_mapping_count(void);

/* A directory of this test alone, for all its processes, removed with its contents afterwards. */
const char *test_tmpdir(void);

void test_sleep_ms(unsigned milliseconds);

/* Milliseconds until the test's time is over. */
int test_remaining_ms(void);

#endif
