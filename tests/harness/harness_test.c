/* The harness: that failures are noticed, told, and cleaned up after; and that its helpers help. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "harness/test.h"

#define OUTPUT_SIZE 8192

/* Runs the subject with these options; returns its exit code and what it wrote to stdout. */
static int run_subject(const char *options, char output[OUTPUT_SIZE])
{
	char path[256], command[1024], *slash;
	ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
	size_t used;
	FILE *pipe;

	CHECK(length > 0);
	path[length] = '\0';
	slash = strrchr(path, '/');
	*slash = '\0';
	snprintf(command, sizeof(command),
		 "SUBJECT_PID_FILE=%s/pid %s/harness_subject %s 2>/dev/null", test_tmpdir(), path,
		 options);
	pipe = popen(command, "r");
	CHECK(pipe != NULL);
	used = fread(output, 1, OUTPUT_SIZE - 1, pipe);
	output[used] = '\0';
	return WEXITSTATUS(pclose(pipe));
}

static void check_fails(const char *filter, const char *expected)
{
	char options[128], output[OUTPUT_SIZE];

	snprintf(options, sizeof(options), "--filter %s", filter);
	CHECK_EQ(run_subject(options, output), 1);
	CHECK_CONTAINS(output, expected);
	CHECK_CONTAINS(output, "\n0 passed, 1 failed, 0 skipped\n");
}

static void test_reasons(void)
{
	check_fails("fails_check", "FAIL fails_check: harness_subject.c:");
	check_fails("fails_check", ": CHECK(1 > 2)\n");
	check_fails("plain_fails_eq", ": CHECK_EQ(2 + 2, -5): 4 != -5\n");
	check_fails("sign_fails_eq", "18446744073709551615 != -1\n");
	check_fails("fails_str", "\"cat fish\" is not \"dog\"\n");
	check_fails("fails_contains", "\"haystack\" does not contain \"needle\"\n");
	check_fails("fails_mem", "2 of 4 bytes differ, the first at 2: 0x63, expected 0x78\n");
	check_fails("fails_ok", ": refused: nobody listens there, or the listener turned us down "
				"[message: refused: nobody is here]\n");
	check_fails("fails_status", "expected timeout: the deadline passed first "
				    "[message: refused: nobody is here]\n");
	check_fails("crashes", "FAIL crashes: killed by signal 9 (Killed)\n");
	check_fails("exits", "FAIL exits: exited with 3\n");
	check_fails("hangs_alone", "FAIL hangs_alone: not finished after ");
}

static void test_outcomes(void)
{
	char output[OUTPUT_SIZE];

	CHECK_EQ(run_subject("--filter passes", output), 0);
	CHECK_EQ(strncmp(output, "ok passes (", 11), 0);
	CHECK_CONTAINS(output, "\n2 passed, 0 failed, 0 skipped\n");
	CHECK_EQ(run_subject("--filter passes --fast", output), 0);
	CHECK_CONTAINS(output, "\n1 passed, 0 failed, 0 skipped\n");
	CHECK_EQ(run_subject("--filter skips", output), 0);
	CHECK_STR(output, "skip skips: no hardware here\n0 passed, 0 failed, 1 skipped\n");
	CHECK_EQ(run_subject("--filter nothing_has_this_name", output), 0);
	CHECK_STR(output, "0 passed, 0 failed, 0 skipped\n");
	CHECK_EQ(run_subject("--list --filter passes", output), 0);
	CHECK_STR(output, "passes\npasses_slowly (slow)\n");
	CHECK_EQ(run_subject("--wrong", output), 2);
}

static void test_seed(void)
{
	char first[OUTPUT_SIZE], second[OUTPUT_SIZE];

	setenv("TEST_SEED", "77", 1);
	check_fails("seed", " [TEST_SEED=77]\n");
	run_subject("--filter seed", first);
	run_subject("--filter seed", second);
	CHECK_STR(first, second);
	setenv("TEST_SEED", "78", 1);
	run_subject("--filter seed", second);
	CHECK(strcmp(first, second) != 0);
}

/* That a build with a sanitizer really has one, and that what it finds fails the test. */
static void test_sanitizers(void)
{
	if (TEST_HAS_ASAN) {
		check_fails("leaks", "FAIL leaks: exited with ");
		check_fails("overflows", "FAIL overflows: exited with ");
	}
	if (TEST_HAS_TSAN)
		check_fails("races", "FAIL races: exited with ");
}

static pid_t read_pid(void)
{
	char path[256];
	int pid = 0;
	FILE *file;

	snprintf(path, sizeof(path), "%s/pid", test_tmpdir());
	file = fopen(path, "r");
	CHECK(file != NULL);
	CHECK_EQ(fscanf(file, "%d", &pid), 1);
	fclose(file);
	return pid;
}

/* True when the process has ended: it is gone, or somebody has yet to reap it. */
static bool is_dead(pid_t pid)
{
	char path[64], state = 'X';
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	file = fopen(path, "r");
	if (file == NULL)
		return true;
	if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
		state = 'X';
	fclose(file);
	return state == 'Z' || state == 'X';
}

static void check_dies(pid_t pid)
{
	CHECK(pid > 1);
	for (int i = 0; i < 2000 && !is_dead(pid); i++)
		test_sleep_ms(1);
	CHECK(is_dead(pid));
}

static void test_groups_die(void)
{
	char output[OUTPUT_SIZE];

	check_fails("group_hangs", "FAIL group_hangs: not finished after ");
	check_dies(read_pid());
	CHECK_EQ(run_subject("--filter leaves_orphan", output), 0);
	check_dies(read_pid());
}

static void test_children_report(void)
{
	uint64_t start_ns = clock_now_ns();

	check_fails("child_fails", ": CHECK_EQ(1, 2): 1 != 2\n");
	check_fails("unseen_child", ": CHECK_EQ(1, 2): 1 != 2\n");
	CHECK(clock_now_ns() - start_ns < UINT64_C(20000000000));
}

static void test_tmpdir_is_removed(void)
{
	char output[OUTPUT_SIZE], path[256] = "";
	const char *at;
	struct stat info;

	CHECK_EQ(stat(test_tmpdir(), &info), 0);
	CHECK(S_ISDIR(info.st_mode));
	CHECK_EQ(run_subject("--filter leaves_files", output), 1);
	at = strstr(output, ": in ");
	CHECK(at != NULL);
	CHECK_EQ(sscanf(at, ": in %255s", path), 1);
	CHECK(strcmp(path, test_tmpdir()) != 0);
	CHECK_EQ(stat(path, &info), -1);
	CHECK_EQ(errno, ENOENT);
}

static void echo_child(void *arg)
{
	struct test_pipe *pipe = arg;
	char data[1000];

	test_pipe_take(pipe, TEST_CHILD);
	test_await(pipe, TEST_CHILD);
	test_recv(pipe, TEST_CHILD, data, sizeof(data));
	test_send(pipe, TEST_CHILD, data, sizeof(data));
	test_signal(pipe, TEST_CHILD);
}

static void test_pipe_echo(void)
{
	char data[1000], back[1000];
	struct test_pipe pipe;
	struct test_rng rng;
	pid_t pid;

	test_rng_init(&rng, 1);
	test_rng_fill(&rng, data, sizeof(data));
	test_pipe_open(&pipe);
	pid = test_spawn(echo_child, &pipe);
	test_pipe_take(&pipe, TEST_PARENT);
	test_signal(&pipe, TEST_PARENT);
	test_send(&pipe, TEST_PARENT, data, sizeof(data));
	test_recv(&pipe, TEST_PARENT, back, sizeof(back));
	CHECK_MEM(back, data, sizeof(data));
	test_await(&pipe, TEST_PARENT);
	test_wait(pid);
	test_pipe_close(&pipe);
}

static void sleep_child(void *arg)
{
	(void)arg;
	test_sleep_ms(60000);
}

static void test_kill_and_wait(void)
{
	pid_t pid = test_spawn(sleep_child, NULL);

	CHECK(!is_dead(pid));
	test_kill(pid);
	CHECK(is_dead(pid));
	CHECK(test_remaining_ms() > 0);
}

static void test_counting(void)
{
	int fds = test_open_fds(), maps = test_mapping_count();
	int fd = open("/dev/null", O_RDONLY);
	void *page = mmap(NULL, 4096, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	CHECK(fd >= 0 && page != MAP_FAILED);
	CHECK_EQ(test_open_fds(), fds + 1);
	CHECK(test_mapping_count() > maps);
	close(fd);
	munmap(page, 4096);
	CHECK_EQ(test_open_fds(), fds);
}

static void test_random(void)
{
	struct test_rng a, b, c;
	bool seen[10] = {false};

	test_rng_init(&a, 1);
	test_rng_init(&b, 1);
	test_rng_init(&c, 2);
	CHECK(test_rng_next(&a) == test_rng_next(&b));
	CHECK(test_rng_next(&a) != test_rng_next(&c));
	for (int i = 0; i < 1000; i++) {
		uint64_t number = test_rng_below(&a, 10);

		CHECK(number < 10);
		seen[number] = true;
	}
	for (int i = 0; i < 10; i++)
		CHECK(seen[i]);
}

static void test_time_scale(void)
{
	unsigned plain;

	CHECK_EQ(unsetenv("TEST_TIME_SCALE"), 0);
	plain = test_time_factor();
	CHECK_EQ(plain, TEST_HAS_SANITIZER ? 5 : 1);
	CHECK_EQ(setenv("TEST_TIME_SCALE", "3", 1), 0);
	CHECK_EQ(test_time_factor(), 3 * plain);
	CHECK_EQ(setenv("TEST_TIME_SCALE", "nonsense", 1), 0);
	CHECK_EQ(test_time_factor(), plain);
	CHECK_EQ(setenv("TEST_TIME_SCALE", "100000000000", 1), 0);
	CHECK_EQ(test_time_factor(), 100 * plain);
}

static const struct test tests[] = {
	{"reasons", test_reasons},
	{"outcomes", test_outcomes},
	{"seed", test_seed},
	{"sanitizers", test_sanitizers},
	{"groups_die", test_groups_die},
	{"children_report", test_children_report},
	{"tmpdir_is_removed", test_tmpdir_is_removed},
	{"pipe_echo", test_pipe_echo},
	{"kill_and_wait", test_kill_and_wait},
	{"counting", test_counting},
	{"random", test_random},
	{"time_scale", test_time_scale},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "harness_test", tests, TEST_COUNT(tests));
}
