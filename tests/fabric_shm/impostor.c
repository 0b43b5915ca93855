/* See impostor.h. */
#include "fabric_shm/impostor.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "fabric/shm/internal.h"

int impostor_memory(size_t size, bool sealed)
{
	int fd = memfd_create("impostor", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd >= 0 &&
	    (ftruncate(fd, (off_t)size) != 0 ||
	     (sealed &&
	      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE) != 0))) {
		close(fd);
		return -1;
	}
	return fd;
}

bool impostor_open(struct impostor *impostor, const char *path)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	void *memory = NULL;

	*impostor = (struct impostor){.socket = -1, .segment_fd = -1, .table_fd = -1};
	strncpy(name.sun_path, path, sizeof(name.sun_path) - 1);
	impostor->socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (connect(impostor->socket, (struct sockaddr *)&name, sizeof(name)) != 0 ||
	    segment_create(sizeof(struct shm_segment), &memory, &impostor->segment_fd) != RMR_OK)
		return false;
	impostor->segment = memory;
	return segment_create(IMPOSTOR_REGIONS * sizeof(struct shm_table_entry), &impostor->table,
			      &impostor->table_fd) == RMR_OK;
}

void impostor_close(struct impostor *impostor)
{
	segment_unmap(impostor->segment, sizeof(*impostor->segment));
	segment_unmap(impostor->table, IMPOSTOR_REGIONS * sizeof(struct shm_table_entry));
	if (impostor->segment_fd >= 0)
		close(impostor->segment_fd);
	if (impostor->table_fd >= 0)
		close(impostor->table_fd);
	if (impostor->socket >= 0)
		close(impostor->socket);
}

struct shm_packet impostor_hello(void)
{
	return (struct shm_packet){.magic = PACKET_MAGIC,
				   .version = PACKET_VERSION,
				   .type = PACKET_HELLO,
				   .ring_cells = RING_CELLS,
				   .recv_size = 8192,
				   .max_regions = IMPOSTOR_REGIONS};
}

bool impostor_send(struct impostor *impostor, const void *bytes, size_t length, const int *fds,
		   unsigned count)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(8 * sizeof(int))];
	} control = {0};
	struct iovec vector = {.iov_base = (void *)bytes, .iov_len = length};
	struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};

	if (count > 0) {
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(count * sizeof(int));
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(count * sizeof(int));
		memcpy(CMSG_DATA(&control.header), fds, count * sizeof(int));
	}
	return sendmsg(impostor->socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0;
}

bool impostor_introduce(struct impostor *impostor)
{
	struct shm_packet hello = impostor_hello();

	return impostor_send(impostor, &hello, sizeof(hello),
			     (int[]){impostor->segment_fd, impostor->table_fd}, 2);
}

bool impostor_grant(struct impostor *impostor, uint64_t id)
{
	struct shm_packet packet = {.magic = PACKET_MAGIC,
				    .version = PACKET_VERSION,
				    .type = PACKET_GRANT,
				    .arena_id = id,
				    .arena_size = 4096};
	int fd = impostor_memory(4096, true);
	bool sent = impostor_send(impostor, &packet, sizeof(packet), &fd, 1);

	close(fd);
	return sent;
}
