/* Helpers of tests that have several processes, and of those that watch their own process. */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "harness/internal.h"
#include "harness/test.h"

#define AWAIT_TIMEOUT_MS (10000 * TEST_TIME_FACTOR)
#define TIME_SCALE_MAX	 100

unsigned test_time_factor(void)
{
	const char *text = getenv("TEST_TIME_SCALE");
	long scale = text != NULL ? strtol(text, NULL, 10) : 1;

	if (scale < 1)
		scale = 1;
	if (scale > TIME_SCALE_MAX)
		scale = TIME_SCALE_MAX;
	return (unsigned)scale * (TEST_HAS_SANITIZER ? 5 : 1);
}

pid_t test_spawn(void (*fn)(void *), void *arg)
{
	pid_t parent = getpid();
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid < 0)
		TEST_FAIL("fork: %s", strerror(errno));
	if (pid > 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1); /* the parent died before the line above */
	fn(arg);
	exit(0);
}

/* Reaps the process when it ends in time. */
static bool reap_until(pid_t pid, uint64_t deadline_ns, int *status)
{
	unsigned pause_us = 50;

	for (;;) {
		pid_t reaped = waitpid(pid, status, WNOHANG);

		if (reaped == pid)
			return true;
		if (reaped < 0 && errno != EINTR)
			TEST_FAIL("waitpid(%d): %s", (int)pid, strerror(errno));
		if (clock_passed(deadline_ns))
			return false;
		usleep(pause_us);
		if (pause_us < 2000)
			pause_us *= 2;
	}
}

static void wait_until(pid_t pid, uint64_t deadline_ns)
{
	int status;

	if (!reap_until(pid, deadline_ns, &status))
		TEST_FAIL("process %d has not ended in time", (int)pid);
	if (WIFSIGNALED(status))
		TEST_FAIL("process %d was killed by signal %d (%s)", (int)pid, WTERMSIG(status),
			  strsignal(WTERMSIG(status)));
	if (WEXITSTATUS(status) != 0)
		TEST_FAIL("process %d exited with %d", (int)pid, WEXITSTATUS(status));
}

void test_wait(pid_t pid)
{
	/* A little before the runner's own deadline, so that the message names the process. */
	wait_until(pid, test_report->deadline_ns - 500000000u);
}

void test_wait_within(pid_t pid, int timeout_ms)
{
	wait_until(pid, clock_deadline_ns(timeout_ms * TEST_TIME_FACTOR));
}

void test_kill(pid_t pid)
{
	int status;

	kill(pid, SIGKILL);
	if (!reap_until(pid, clock_deadline_ns(AWAIT_TIMEOUT_MS), &status))
		TEST_FAIL("process %d has not ended after SIGKILL", (int)pid);
}

void test_pipe_open(struct test_pipe *pipe)
{
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pipe->fds) != 0)
		TEST_FAIL("socketpair: %s", strerror(errno));
}

void test_pipe_close(struct test_pipe *pipe)
{
	for (int i = 0; i < 2; i++) {
		if (pipe->fds[i] >= 0)
			close(pipe->fds[i]);
		pipe->fds[i] = -1;
	}
}

void test_pipe_take(struct test_pipe *pipe, enum test_side side)
{
	int other = side == TEST_PARENT ? TEST_CHILD : TEST_PARENT;

	close(pipe->fds[other]);
	pipe->fds[other] = -1;
}

/* Waits until the descriptor is ready for `events`, or fails. */
static void await_ready(int fd, short events, uint64_t deadline_ns)
{
	for (;;) {
		struct pollfd item = {.fd = fd, .events = events};
		int ready = poll(&item, 1, clock_remaining_ms(deadline_ns));

		if (ready > 0)
			return;
		if (ready < 0 && errno != EINTR)
			TEST_FAIL("poll: %s", strerror(errno));
		if (ready == 0 && clock_passed(deadline_ns))
			TEST_FAIL("the other process has not answered within %d ms",
				  AWAIT_TIMEOUT_MS);
	}
}

void test_send(struct test_pipe *pipe, enum test_side side, const void *data, size_t length)
{
	uint64_t deadline_ns = clock_deadline_ns(AWAIT_TIMEOUT_MS);
	const char *at = data;

	while (length > 0) {
		ssize_t sent;

		await_ready(pipe->fds[side], POLLOUT, deadline_ns);
		sent = send(pipe->fds[side], at, length, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (sent < 0 && errno != EINTR && errno != EAGAIN)
			TEST_FAIL("send to the other process: %s", strerror(errno));
		if (sent > 0) {
			at += sent;
			length -= (size_t)sent;
		}
	}
}

void test_recv(struct test_pipe *pipe, enum test_side side, void *data, size_t length)
{
	uint64_t deadline_ns = clock_deadline_ns(AWAIT_TIMEOUT_MS);
	char *at = data;

	while (length > 0) {
		ssize_t received;

		await_ready(pipe->fds[side], POLLIN, deadline_ns);
		received = recv(pipe->fds[side], at, length, MSG_DONTWAIT);
		if (received == 0)
			TEST_FAIL("the other process closed the channel");
		if (received < 0 && errno != EINTR && errno != EAGAIN)
			TEST_FAIL("receive from the other process: %s", strerror(errno));
		if (received > 0) {
			at += received;
			length -= (size_t)received;
		}
	}
}

void test_signal(struct test_pipe *pipe, enum test_side side)
{
	test_send(pipe, side, "!", 1);
}

void test_await(struct test_pipe *pipe, enum test_side side)
{
	char byte;

	test_recv(pipe, side, &byte, 1);
}

void test_rng_init(struct test_rng *rng, uint64_t stream)
{
	rng->state = test_report->seed + stream * UINT64_C(0xd1342543de82ef95);
	atomic_store_explicit(&test_report->seed_used, true, memory_order_relaxed);
}

uint64_t test_rng_next(struct test_rng *rng)
{
	uint64_t mixed = rng->state += UINT64_C(0x9e3779b97f4a7c15);

	mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94d049bb133111eb);
	return mixed ^ (mixed >> 31);
}

uint64_t test_rng_below(struct test_rng *rng, uint64_t limit)
{
	/* The high half of the product is nearly uniform, and needs no division. */
	return (uint64_t)(((unsigned __int128)test_rng_next(rng) * limit) >> 64);
}

void test_rng_fill(struct test_rng *rng, void *data, size_t length)
{
	char *at = data;

	while (length > 0) {
		uint64_t word = test_rng_next(rng);
		size_t part = length < sizeof(word) ? length : sizeof(word);

		memcpy(at, &word, part);
		at += part;
		length -= part;
	}
}

int test_open_fds(void)
{
	DIR *directory = opendir("/proc/self/fd");
	const struct dirent *entry;
	int count = 0;

	if (directory == NULL)
		TEST_FAIL("/proc/self/fd: %s", strerror(errno));
	while ((entry = readdir(directory)) != NULL)
		count += entry->d_name[0] != '.';
	closedir(directory);
	return count - 1; /* without the directory's own */
}

int test_mapping_count(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	int count = 0, byte;

	if (maps == NULL)
		TEST_FAIL("/proc/self/maps: %s", strerror(errno));
	while ((byte = fgetc(maps)) != EOF)
		count += byte == '\n';
	fclose(maps);
	return count;
}

const char *test_tmpdir(void)
{
	return test_report->tmpdir;
}

void test_sleep_ms(unsigned milliseconds)
{
	struct timespec rest = {milliseconds / 1000, (long)(milliseconds % 1000) * 1000000};

	while (nanosleep(&rest, &rest) != 0 && errno == EINTR)
		;
}

int test_remaining_ms(void)
{
	return clock_remaining_ms(test_report->deadline_ns);
}
