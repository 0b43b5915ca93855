/*
 * The runner: forks a process group for each test, watches it, and tells what became of it.
 *
 * The runner itself stays single-threaded and never runs code under test, so whatever a test does
 * (crash, hang, leak) the following ones are not touched.
 */
#include <errno.h>
#include <ftw.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "harness/internal.h"
#include "harness/test.h"

/* How long the other processes of a test may go on after one of them has failed. */
#define GRACE_NS UINT64_C(3000000000)

struct settings {
	bool list;
	bool fast;
	const char *filter;
	uint64_t seed;
};

struct totals {
	unsigned passed, failed, skipped;
};

enum ending {
	ENDED,	   /* by itself; its status says how */
	TIMED_OUT, /* killed because its time was over */
	GAVE_UP,   /* killed because a part of it had failed and the rest hung */
};

static bool parse_settings(int argc, char **argv, const char *program, struct settings *settings)
{
	const char *seed = getenv("TEST_SEED");

	*settings = (struct settings){0};
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--list") == 0) {
			settings->list = true;
		} else if (strcmp(argv[i], "--fast") == 0) {
			settings->fast = true;
		} else if (strcmp(argv[i], "--filter") == 0 && i + 1 < argc) {
			settings->filter = argv[++i];
		} else {
			fprintf(stderr, "usage: %s [--list] [--fast] [--filter TEXT]\n", program);
			return false;
		}
	}
	if (seed != NULL)
		settings->seed = strtoull(seed, NULL, 0);
	else if (getrandom(&settings->seed, sizeof(settings->seed), 0) < 0)
		settings->seed = clock_now_ns();
	return true;
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *walk)
{
	(void)info;
	(void)type;
	(void)walk;
	return remove(path);
}

static void remove_tree(const char *path)
{
	nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static void make_tmpdir(char path[TMPDIR_SIZE])
{
	const char *base = getenv("TMPDIR");

	/* Socket paths are short: a long TMPDIR is not used. */
	if (base == NULL || base[0] != '/' || strlen(base) > 50)
		base = "/tmp";
	snprintf(path, TMPDIR_SIZE, "%s/remora-test-XXXXXX", base);
	if (mkdtemp(path) == NULL) {
		fprintf(stderr, "cannot make a directory %s: %s\n", path, strerror(errno));
		exit(1);
	}
}

static struct report *make_report(const struct settings *settings, const struct test *test)
{
	unsigned timeout_s = test->timeout_s != 0 ? test->timeout_s : TEST_DEFAULT_TIMEOUT_S;
	struct report *report = mmap(NULL, sizeof(*report), PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (report == MAP_FAILED) {
		fprintf(stderr, "mmap: %s\n", strerror(errno));
		exit(1);
	}
	report->seed = settings->seed;
	report->deadline_ns = clock_now_ns() + timeout_s * (uint64_t)TEST_TIME_FACTOR * 1000000000u;
	atomic_init(&report->seed_used, false);
	atomic_init(&report->state, REPORT_RUNNING);
	make_tmpdir(report->tmpdir);
	return report;
}

static pid_t start(const struct test *test)
{
	pid_t runner = getpid();
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid < 0) {
		fprintf(stderr, "fork: %s\n", strerror(errno));
		exit(1);
	}
	if (pid == 0) {
		setpgid(0, 0);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != runner)
			_exit(1);
		test->function();
		/* Not _exit(): the leak check of the address sanitizer runs at exit. */
		exit(0);
	}
	/* In both processes: whoever comes first, the group exists when it is needed. */
	setpgid(pid, pid);
	return pid;
}

/* Waits until the test has ended, but leaves it unreaped, so that its group's number stays its. */
static enum ending watch(pid_t pid, const struct report *report)
{
	uint64_t give_up_ns = CLOCK_NEVER;
	unsigned pause_us = 50;

	for (;;) {
		siginfo_t info = {0};

		if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
		    info.si_pid == pid)
			return ENDED;
		if (clock_passed(report->deadline_ns))
			return TIMED_OUT;
		if (give_up_ns == CLOCK_NEVER &&
		    atomic_load_explicit(&report->state, memory_order_acquire) == REPORT_FAILED)
			give_up_ns = clock_now_ns() + GRACE_NS;
		if (clock_passed(give_up_ns))
			return GAVE_UP;
		usleep(pause_us);
		if (pause_us < 2000)
			pause_us *= 2;
	}
}

/* Kills everything that the test has left behind and returns its wait status. */
static int finish(pid_t pid)
{
	int status = 0;

	kill(-pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return status;
}

/* Why the test failed; NULL when it did not. */
static const char *find_failure(const struct test *test, const struct report *report,
				enum ending ending, int status, char text[REASON_SIZE])
{
	int state = atomic_load_explicit(&report->state, memory_order_acquire);
	unsigned timeout_s = test->timeout_s != 0 ? test->timeout_s : TEST_DEFAULT_TIMEOUT_S;

	if (state == REPORT_FAILED)
		return report->reason;
	if (ending == TIMED_OUT) {
		snprintf(text, REASON_SIZE, "not finished after %u s",
			 timeout_s * TEST_TIME_FACTOR);
		return text;
	}
	if (WIFSIGNALED(status)) {
		snprintf(text, REASON_SIZE, "killed by signal %d (%s)", WTERMSIG(status),
			 strsignal(WTERMSIG(status)));
		return text;
	}
	if (state == REPORT_SKIPPED && WEXITSTATUS(status) == SKIPPED_EXIT)
		return NULL;
	if (WEXITSTATUS(status) != 0) {
		snprintf(text, REASON_SIZE, "exited with %d", WEXITSTATUS(status));
		return text;
	}
	return NULL;
}

static void run(const struct test *test, const struct settings *settings, struct totals *totals)
{
	uint64_t start_ns = clock_now_ns();
	char text[REASON_SIZE];
	const char *failure;
	enum ending ending;
	int status;
	pid_t pid;

	test_report = make_report(settings, test);
	pid = start(test);
	ending = watch(pid, test_report);
	status = finish(pid);
	failure = find_failure(test, test_report, ending, status, text);
	if (failure != NULL) {
		totals->failed++;
		printf("FAIL %s: %s", test->name, failure);
		if (atomic_load_explicit(&test_report->seed_used, memory_order_relaxed))
			printf(" [TEST_SEED=%" PRIu64 "]", settings->seed);
		printf("\n");
	} else if (atomic_load_explicit(&test_report->state, memory_order_relaxed) ==
		   REPORT_SKIPPED) {
		totals->skipped++;
		printf("skip %s: %s\n", test->name, test_report->reason);
	} else {
		totals->passed++;
		printf("ok %s (%" PRIu64 " ms)\n", test->name,
		       (clock_now_ns() - start_ns) / 1000000);
	}
	fflush(stdout);
	remove_tree(test_report->tmpdir);
	munmap(test_report, sizeof(*test_report));
	test_report = NULL;
}

int test_main(int argc, char **argv, const char *program, const struct test *tests, size_t count)
{
	struct totals totals = {0};
	struct settings settings;

	if (!parse_settings(argc, argv, program, &settings))
		return 2;
	for (size_t i = 0; i < count; i++) {
		const struct test *test = &tests[i];

		if (settings.filter != NULL && strstr(test->name, settings.filter) == NULL)
			continue;
		if (settings.fast && (test->flags & TEST_SLOW) != 0)
			continue;
		if (settings.list)
			printf("%s%s\n", test->name,
			       (test->flags & TEST_SLOW) != 0 ? " (slow)" : "");
		else
			run(test, &settings, &totals);
	}
	if (settings.list)
		return 0;
	printf("%u passed, %u failed, %u skipped\n", totals.passed, totals.failed, totals.skipped);
	return totals.failed != 0;
}
