/*
 * Two processes for one measurement: a server and a client, both children, so that the one that
 * counts the rounds never opens anything. Figures come through a pipe.
 */
#include <err.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "perf.h"

static void bind_to(int cpu)
{
	cpu_set_t set;

	if (cpu < 0)
		return;
	CPU_ZERO(&set);
	CPU_SET((unsigned)cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		err(2, "core %d", cpu);
}

static pid_t spawn(void)
{
	pid_t parent = getpid(), child = fork();

	if (child < 0)
		err(1, "fork");
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
	}
	return child;
}

void pair_ready(struct perf_side *side, const char *address)
{
	char text[sizeof(side->address)] = "";

	strncpy(text, address, sizeof(text) - 1);
	if (write(side->ready_fd, text, sizeof(text)) != sizeof(text))
		err(1, "pipe");
}

static void wait_for(pid_t pid, const char *who)
{
	int status;

	if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
		errx(1, "the %s failed", who);
}

double pair_measure(const struct perf_config *config, const struct perf_way *way, size_t size)
{
	struct perf_side side = {.config = config, .size = size};
	int ready[2], figures[2];
	pid_t server, client;
	double figure;

	if (pipe(ready) || pipe(figures))
		err(1, "pipe");
	server = spawn();
	if (server == 0) {
		side.ready_fd = ready[1];
		bind_to(config->cpus[1]);
		way->serve(&side);
		_exit(0);
	}
	close(ready[1]);
	if (read(ready[0], side.address, sizeof(side.address)) != sizeof(side.address))
		errx(1, "the server failed");
	client = spawn();
	if (client == 0) {
		bind_to(config->cpus[0]);
		figure = way->run(&side);
		_exit(write(figures[1], &figure, sizeof(figure)) != sizeof(figure));
	}
	wait_for(client, "client");
	kill(server, SIGKILL);
	waitpid(server, NULL, 0);
	if (read(figures[0], &figure, sizeof(figure)) != sizeof(figure))
		errx(1, "the client failed");
	close(ready[0]);
	close(figures[0]);
	close(figures[1]);
	return figure;
}
