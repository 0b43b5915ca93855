/*
 * A server of one's own: `fabric-perf run` without an address forks it, so that one command on one
 * host measures two processes. The child ends when its client disconnects, and when the parent
 * dies (PR_SET_PDEATHSIG), so none is left behind.
 */
#include "spawn.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"

#define REAP_MS	     3000
#define REAP_STEP_MS 5

__attribute__((noreturn)) static void be_server(const struct perf_config *config, int fd,
						pid_t parent)
{
	struct perf_config own = *config;
	enum rmr_status status;
	char address[64];

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent) /* died before the line above */
		_exit(PERF_EXIT_FAILED);
	own.cpu = config->server_cpu;
	own.once = true;
	own.address = "127.0.0.1:0";
	if (strstr(own.device, "verbs"))
		own.address = "*:0"; /* an adapter has no address of the loopback device */
	if (strstr(config->device, "shm")) {
		snprintf(address, sizeof(address), "fabric-perf-%d", (int)getpid());
		own.address = address;
	}
	status = perf_serve(&own, fd);
	if (status != RMR_OK)
		fprintf(stderr, "fabric-perf: forked server: %s\n", rmr_error_message());
	_exit(perf_exit_of(status));
}

/* The address ends with a zero byte; a pipe that ends before it tells of a dead server. */
static enum rmr_status read_address(int fd, char *address, size_t room)
{
	size_t have = 0;

	while (have < room) {
		ssize_t n = read(fd, address + have, room - have);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return error_set(RMR_REFUSED, "the forked server ended before it listened");
		have += (size_t)n;
		if (!address[have - 1])
			return RMR_OK;
	}
	return error_set(RMR_TOO_LONG, "the forked server's address");
}

enum rmr_status spawn_server(const struct perf_config *config, struct spawned *spawned)
{
	pid_t parent = getpid();
	enum rmr_status status;
	int fds[2];

	*spawned = (struct spawned){0};
	if (pipe(fds))
		return error_errno(RMR_SYSTEM, errno, "pipe");
	fflush(NULL);
	spawned->pid = fork();
	if (spawned->pid < 0) {
		spawned->pid = 0;
		close(fds[0]);
		close(fds[1]);
		return error_errno(RMR_SYSTEM, errno, "fork");
	}
	if (!spawned->pid) {
		close(fds[0]);
		be_server(config, fds[1], parent);
	}
	close(fds[1]);
	status = read_address(fds[0], spawned->address, sizeof(spawned->address));
	close(fds[0]);
	if (status != RMR_OK && spawn_reap(spawned, true) == PERF_EXIT_USAGE)
		status = error_set(RMR_INVALID, "the forked server could not do what was asked");
	return status;
}

int spawn_reap(struct spawned *spawned, bool had_client)
{
	const struct timespec step = {0, REAP_STEP_MS * 1000000};
	pid_t pid = spawned->pid;
	int result;

	if (!pid)
		return -1;
	spawned->pid = 0;
	if (!had_client)
		kill(pid, SIGTERM);
	for (int waited_ms = 0; waited_ms < REAP_MS; waited_ms += REAP_STEP_MS) {
		if (waitpid(pid, &result, WNOHANG) != 0)
			return WIFEXITED(result) ? WEXITSTATUS(result) : -1;
		nanosleep(&step, NULL);
	}
	fprintf(stderr, "fabric-perf: the forked server %d does not end; killing it\n", (int)pid);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return -1;
}
