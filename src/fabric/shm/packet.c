/* See packet.h. */
#include "fabric/shm/packet.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"
#include "fabric/shm/ring.h"

unsigned packet_fds(enum packet_type type)
{
	switch (type) {
	case PACKET_HELLO:
	case PACKET_ACCEPT:
		return 2;
	case PACKET_GRANT:
		return 1;
	default:
		return 0;
	}
}

static const char *check_introduction(const struct shm_packet *packet)
{
	if (packet->ring_cells != RING_CELLS)
		return "a ring of another size";
	if (packet->recv_size == 0 || packet->max_regions == 0 ||
	    packet->max_regions > PACKET_MAX_REGIONS)
		return "limits that make no sense";
	if (packet->private_length > RMR_PRIVATE_MAX)
		return "too much private data";
	return NULL;
}

const char *packet_check(const void *bytes, size_t length, unsigned fds)
{
	struct shm_packet packet;

	if (length != sizeof(packet))
		return "a packet of the wrong length";
	memcpy(&packet, bytes, sizeof(packet));
	if (packet.magic != PACKET_MAGIC)
		return "something that is not Remora";
	if (packet.version != PACKET_VERSION)
		return "another version of Remora's protocol";
	if (packet.type < PACKET_HELLO || packet.type > PACKET_BYE)
		return "an unknown packet";
	if (fds != packet_fds(packet.type))
		return "a packet with the wrong number of descriptors";
	switch (packet.type) {
	case PACKET_HELLO:
	case PACKET_ACCEPT:
		return check_introduction(&packet);
	case PACKET_REJECT:
		return memchr(packet.reason, 0, sizeof(packet.reason)) ? NULL : "an endless reason";
	case PACKET_REVOKE:
		return packet.arena_id ? NULL : "a grant that makes no sense";
	case PACKET_GRANT:
		if (packet.arena_id == 0 || packet.arena_size == 0 || packet.arena_writable > 1)
			return "a grant that makes no sense";
		return NULL;
	default:
		return NULL;
	}
}

enum rmr_status packet_send(int socket, struct shm_packet *packet, const int *fds)
{
	unsigned count = packet_fds(packet->type);
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(PACKET_FDS * sizeof(int))];
	} control = {0};
	struct iovec vector = {.iov_base = packet, .iov_len = sizeof(*packet)};
	struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};

	packet->magic = PACKET_MAGIC;
	packet->version = PACKET_VERSION;
	if (count > 0) {
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(count * sizeof(int));
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(count * sizeof(int));
		memcpy(CMSG_DATA(&control.header), fds, count * sizeof(int));
	}
	for (;;) {
		if (sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
			return RMR_OK;
		if (errno == EINTR)
			continue;
		if (errno == EAGAIN || errno == ENOBUFS || errno == ETOOMANYREFS)
			return error_errno(RMR_AGAIN, errno, "the peer does not read its socket");
		return error_errno(RMR_DISCONNECTED, errno, "the peer is gone");
	}
}

/* Takes descriptors and credentials out of a received message. Returns how many descriptors came;
 * those beyond PACKET_FDS are closed. */
static unsigned take_control(struct msghdr *message, int fds[PACKET_FDS],
			     struct packet_sender *sender)
{
	unsigned count = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
		if (c->cmsg_level != SOL_SOCKET)
			continue;
		if (c->cmsg_type == SCM_CREDENTIALS && sender) {
			struct ucred credentials;

			memcpy(&credentials, CMSG_DATA(c), sizeof(credentials));
			sender->pid = credentials.pid;
			sender->uid = credentials.uid;
		}
		if (c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			if (count < PACKET_FDS)
				fds[count] = fd;
			else
				close(fd);
			count++;
		}
	}
	return count;
}

enum rmr_status packet_receive(int socket, struct shm_packet *packet, int fds[PACKET_FDS],
			       struct packet_sender *sender)
{
	union {
		struct cmsghdr header;
		/* One descriptor more than allowed, so that too many are seen as such. */
		char room[CMSG_SPACE((PACKET_FDS + 1) * sizeof(int)) +
			  CMSG_SPACE(sizeof(struct ucred))];
	} control;
	struct iovec vector = {.iov_base = packet, .iov_len = sizeof(*packet)};
	struct msghdr message = {.msg_iov = &vector,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control)};
	const char *wrong;
	unsigned count;
	ssize_t length;

	for (int i = 0; i < PACKET_FDS; i++)
		fds[i] = -1;
	do {
		length = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	} while (length < 0 && errno == EINTR);
	if (length < 0 && errno == EAGAIN)
		return RMR_AGAIN;
	if (length < 0)
		return error_errno(RMR_DISCONNECTED, errno, "the connection is gone");
	/* Also of an empty packet, which may bring descriptors all the same. */
	count = take_control(&message, fds, sender);
	if (length == 0) {
		packet_close_fds(fds);
		return error_set(RMR_DISCONNECTED, "the peer closed the connection");
	}
	/* The kernel drops what it finds no number for; too many of them are the peer's fault. */
	if ((message.msg_flags & MSG_CTRUNC) && count <= PACKET_FDS) {
		packet_close_fds(fds);
		return error_set(RMR_LIMIT,
				 "no file descriptor free for what the peer passed; see ulimit -n");
	}
	wrong = message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)
			? "a packet of the wrong length"
			: packet_check(packet, (size_t)length, count);
	if (wrong) {
		packet_close_fds(fds);
		return error_set(RMR_PROTOCOL, "the peer sent %s", wrong);
	}
	return RMR_OK;
}

void packet_close_fds(int fds[PACKET_FDS])
{
	for (int i = 0; i < PACKET_FDS; i++) {
		if (fds[i] >= 0)
			close(fds[i]);
		fds[i] = -1;
	}
}
