/*
 * Mesh: four processes tell each other a number, and each sums up what it hears.
 *	10_mesh_sum [device]	device: shm (the default) or tcp
 * Each also writes its number into a table in the others' memory.
 */
#include <err.h>
#include <remora/mesh.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROCESSES 4

struct tally {
	long sum;
	int heard, written;
};

/* Called inside rmr_mesh_wait. */
static void take(struct rmr_mesh *mesh, const struct rmr_mesh_event *event)
{
	struct tally *tally = rmr_mesh_user(mesh);

	if (event->opcode == RMR_MESH_RECV) { /* a message */
		tally->sum += *(long *)event->data;
		tally->heard++;
	} else if (event->opcode == RMR_MESH_WRITE_IMM) { /* somebody wrote into our memory */
		tally->written++;
	}
}

static int be(int id, const char *hosts, const char *device)
{
	struct tally tally = {.sum = (id + 1) * 100};
	struct rmr_mesh_options options = {.hosts = hosts, .id = id, .device = device};
	struct rmr_mesh *mesh;
	long *table, sum = 0;

	options.memory_size = PROCESSES * sizeof(long);
	options.callback = take;
	options.user = &tally;
	if (rmr_mesh_open(&options, &mesh) || rmr_mesh_connect(mesh, 10000))
		errx(1, "%s", rmr_error_message());
	table = rmr_mesh_memory(mesh); /* ours; peers write and read it */
	table[id] = tally.sum;
	for (int peer = 0; peer < PROCESSES; peer++) {
		char *ours = (char *)&table[id];
		uint64_t there = (uint64_t)id * sizeof(long);
		/* Both leave with the doorbell, which rmr_mesh_wait rings. 1: tell the peer. */
		if (peer != id && (rmr_mesh_post_send(mesh, ours, sizeof(long), peer, 0) < 0 ||
				   rmr_mesh_post_write(mesh, ours, sizeof(long), peer, there,
						       RMR_MESH_OFFSET, 1) < 0))
			errx(1, "%s", rmr_error_message());
	}
	while (tally.heard + tally.written < 2 * (PROCESSES - 1))
		rmr_mesh_wait(mesh, 1000);
	for (int i = 0; i < PROCESSES; i++)
		sum += table[i];
	printf("process %d: %ld by messages, %ld by memory\n", id, tally.sum, sum);
	rmr_mesh_close(mesh); /* what is under way still arrives */
	return 0;
}

int main(int argc, char **argv)
{
	const char *device = argc > 1 ? argv[1] : "shm";
	int status, failed = 0, run = 1 + getpid() % 250;
	char hosts[256] = "", colon = strstr(device, "shm") ? '-' : ':'; /* shm: just a name */

	for (int i = 0; i < PROCESSES; i++) /* 127.x.y.z is all this host */
		sprintf(hosts + strlen(hosts), "%s127.88.0.%d%c750%d", i ? "," : "", run, colon, i);
	for (int i = 0; i < PROCESSES; i++)
		if (fork() == 0)
			return be(i, hosts, device);
	while (wait(&status) > 0)
		failed |= status;
	return failed != 0;
}
